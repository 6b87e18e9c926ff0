"""The gate: losses and the weights after one optimiser step equal an independent computation, to 1e-5.

`plain_bert` is the other side: from the papers' equations, float64, every attention matrix formed.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.recipes import plain_bert as plain
from tests.small_models import random_encodings, small_model

from potstill.data.batching import Batches
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.guidance import LiveGuide
from potstill.training import AdamW, Schedule, train

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # each example trains; the first that fails will do

LAYERS = {  # mapping → student layer (1-based) → teacher layer, as in the paper's section 3.1 and table 4
    "uniform": lambda m, ours, theirs: math.floor(m * theirs / ours),
    "top": lambda m, ours, theirs: m + theirs - ours,
    "bottom": lambda m, ours, theirs: m,
}


@st.composite
def problems(draw, *, phases):
    ours = draw(st.integers(1, 4))
    heads = draw(st.integers(1, 4))
    mode, phase = draw(st.sampled_from(phases))
    return {
        "mode": mode,
        "phase": phase,
        "mapping": draw(st.sampled_from(sorted(LAYERS))),
        "ours": ours,
        "theirs": draw(st.integers(ours, 6)),
        "heads": heads,
        "widths": (heads * draw(st.integers(3, 6)), heads * draw(st.integers(3, 9))),
        "lengths": draw(st.lists(st.integers(2, 9), min_size=1, max_size=5)),
        "temperature": draw(st.sampled_from([1.0, 3.0])),
        "seed": draw(st.integers(0, 2**31)),
    }


def phase_of(problem):
    return next(phase for phase in RECIPES[problem["mode"]].phases if phase.name == problem["phase"])


def set_up(problem):
    """Our program over one batch of all windows."""
    shape = {"heads": problem["heads"], "labels": 3}
    student = small_model(layers=problem["ours"], hidden=problem["widths"][0], seed=problem["seed"], **shape)
    teacher = small_model(layers=problem["theirs"], hidden=problem["widths"][1], seed=problem["seed"] + 1, **shape)
    count = len(problem["lengths"])
    labels = np.random.default_rng(problem["seed"]).integers(-1, 3, count)
    encodings = random_encodings(problem["lengths"], seed=problem["seed"] % 2**31)
    batches = Batches(encodings, labels, np.arange(count), count, seed=0)
    terms = build_terms(
        phase_of(problem),
        student=problem["ours"],
        teacher=problem["theirs"],
        mapping=problem["mapping"],
        temperature=problem["temperature"],
    )
    torch.manual_seed(problem["seed"] % 2**31)
    shared = RECIPES[problem["mode"]].projection == "shared"
    projections = projections_for(terms, *problem["widths"], shared=shared)
    return Distilling(student, LiveGuide(teacher, terms, encodings), terms, projections, batches)


def written_out(problem, program):
    """The named losses on the only batch, and the float64 leaves under them."""
    (rows,) = program.batches(0)
    batch = {name: torch.tensor(array) for name, array in program.data.encodings.batch(rows).items()}
    mask = batch["attention_mask"]
    sides = []
    for model, layers in ((program.student, problem["ours"]), (program.guide.teacher, problem["theirs"])):
        side = plain.PlainBert(dict(model.named_parameters()), problem["heads"], layers)
        sides.append((side, side.run(batch["input_ids"], batch["token_type_ids"], mask)))
    leaves = {f"student.{name}": leaf for name, leaf in sides[0][0].weights.items()}
    ours, theirs = sides[0][1], tuple([t.detach() for t in part] for part in sides[1][1][:2])
    their_logits = sides[1][1][2].detach()
    for name, weight in program.projections.named_parameters():
        leaves[f"projections.{name}"] = weight.detach().double().clone().requires_grad_()

    def projected(state, term):
        name = f"projections.{'all' if problem['mode'] == 'reference' else term}"
        bias = leaves.get(f"{name}.bias", torch.zeros((), dtype=torch.float64))
        return state @ leaves[f"{name}.weight"].T + bias

    is_code = problem["mode"] == "reference"
    hidden = plain.code_hidden if is_code else plain.paper_hidden
    attention = plain.code_attention if is_code else plain.paper_attention
    place = LAYERS[problem["mapping"]]
    pairs = [(m, place(m, problem["ours"], problem["theirs"])) for m in range(1, problem["ours"] + 1)]
    soft = plain.soft_cross_entropy(ours[2], their_logits, problem["temperature"])
    entropy = plain.soft_cross_entropy(their_logits, their_logits, problem["temperature"])
    divergence = problem["temperature"] ** 2 * (soft - entropy)
    labels = torch.tensor(program.data.labels[rows])
    probabilities = torch.exp(ours[2]) / torch.exp(ours[2]).sum(dim=1, keepdim=True)
    known = [-torch.log(probabilities[row, label]) for row, label in enumerate(labels.tolist()) if label >= 0]
    losses = {
        "embedding": lambda: hidden(projected(ours[0][0], "embedding"), theirs[0][0], mask),
        "hidden": lambda: sum(hidden(projected(ours[0][m], "hidden"), theirs[0][n], mask) for m, n in pairs),
        "attention": lambda: sum(attention(ours[1][m - 1], theirs[1][n - 1], mask) for m, n in pairs),
        "logits": lambda: soft / 3 if is_code else soft if problem["mode"] == "paper" else divergence,
        "hard": lambda: sum(known) / len(known) if known else torch.zeros((), dtype=torch.float64),
    }
    return {term.name: losses[term.name]() for term in program.terms}, leaves


def check(problem, *, rate=5e-3, eps=1e-4):
    """ε is larger than Adam's usual 1e-8: its first step is g/(|g| + ε), which blows rounding up to a full step where
    the true gradient is 0 or nearly so (a key's bias under a loss on logits: softmax does not see it).
    """
    program = set_up(problem)
    wanted, leaves = written_out(problem, program)
    (rows,) = program.batches(0)
    for name, term in program.step(rows).items():
        value = term.sum.item() / max(term.count, 1.0)
        np.testing.assert_allclose(value, wanted[name].item(), rtol=1e-5, atol=1e-6, err_msg=name)
    before = {name: leaf.detach().clone() for name, leaf in leaves.items()}
    recipe = RECIPES[problem["mode"]]
    weights = {term.name: term.weight for term in phase_of(problem).terms}
    sum(weights[name] * loss for name, loss in wanted.items()).backward()
    plain.adamw_step(leaves, rate, decay=recipe.weight_decay, clip=recipe.clip, eps=eps)
    optimiser = AdamW(program.modules, weight_decay=recipe.weight_decay, clip=recipe.clip, eps=eps)
    # As trained: through the loop, a constant rate, the whole batch in one update.
    train(program, optimiser, Schedule(1, rate, warmup=0.0, decay="constant"), seed=(0,))
    program.close()
    moved = 0.0
    for module, parameters in program.modules.items():
        for name, weight in parameters.named_parameters():
            full = f"{module}.{name}"
            gap = torch.linalg.norm(weight.detach().double() - leaves[full].detach())
            assert gap <= 1e-5 * torch.linalg.norm(leaves[full].detach()), f"{full}: {gap:.2e}"
            moved += float(torch.linalg.norm(before[full] - leaves[full].detach()))
    assert moved > rate


@settings(max_examples=12, phases=NO_SHRINKING)
@given(problems(phases=[("paper", "intermediate"), ("reference", "intermediate"), ("potstill", "distil")]))
def test_inner_states(problem):
    check(problem)


@settings(max_examples=8, phases=NO_SHRINKING)
@given(problems(phases=[("paper", "prediction"), ("reference", "prediction")]))
def test_logits(problem):
    check(problem)


@pytest.mark.parametrize("mode", ["paper", "reference"])
def test_six_to_four_layers(mode):
    """TinyBERT's 6 → 4, ⌊m·N/M⌋: 1, 3, 4, 6."""
    problem = {
        "mode": mode,
        "phase": "intermediate",
        "mapping": "uniform",
        "ours": 4,
        "theirs": 6,
        "heads": 3,
        "widths": (12, 18),
        "lengths": [4, 7, 2],
        "temperature": 1.0,
        "seed": 1,
    }
    assert [pair[1] for pair in set_up(problem).terms[-1].layers] == [1, 3, 4, 6]
    check(problem)
