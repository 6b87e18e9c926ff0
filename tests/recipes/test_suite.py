"""What every method must do, phase by phase, on every architecture: a new one is a row in RECIPES and nothing here."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.recipes.test_programs import MorePadding, check_same, total_and_gradient
from tests.small_models import CONFIGS, random_encodings, small_model
from torch import nn

from potstill import losses
from potstill.data.batching import Batches
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.guidance import LiveGuide
from potstill.training import AdamW, Schedule, train

LENGTHS = (3, 9, 5, 9, 2, 7, 4)
LABELS = np.array([0, 2, -1, 1, 0, -1, 2])
PHASES = {
    f"{name} {phase.name}": (recipe, phase)
    for name, recipe in RECIPES.items()
    for phase in (*([recipe.general] if recipe.general else []), *recipe.phases)
    if phase.objective == "states"  # on words: test_masked_distilling
}
CELLS = [  # every phase and every architecture once; all pairs by `scripts/test --all`
    pytest.param(phase, kind, marks=[] if (row + column) % len(CONFIGS) == 0 else pytest.mark.slow)
    for row, phase in enumerate(PHASES)
    for column, kind in enumerate(CONFIGS)
    if not (kind == "modernbert" and phase.startswith("reference"))  # refused: tests/pipeline/test_architectures.py
]


def cell(phase, kind, *, copied=False, encodings=None, batch_size=99):
    """A student of 2 layers under a teacher of 4; of the teacher's width where the method has no projection."""
    recipe, chosen = PHASES[phase]
    teacher = small_model(kind, layers=4, hidden=24, seed=2)
    width = 24 if recipe.projection == "none" and recipe.name == "pkd" else 16
    if copied:
        student = small_model(kind, layers=4, hidden=24, seed=2)
    else:
        student = small_model(kind, layers=2, hidden=width, ffn=24, seed=1)
    layers = 4 if copied else 2
    terms = build_terms(chosen, student=layers, teacher=4, mapping="uniform")
    made = nn.ModuleDict()
    if recipe.projection != "none":
        torch.manual_seed(3)
        made = projections_for(terms, student.config.hidden_size, 24, shared=recipe.projection == "shared")
    encodings = encodings or random_encodings(LENGTHS, kind=kind)
    batches = Batches(encodings, LABELS, np.arange(len(LENGTHS)), batch_size, seed=0)
    return Distilling(student, LiveGuide(teacher, terms, encodings), terms, made, batches)


def depends_on_company(program):
    return any(term.fn is losses.pairwise_similarity_mse for term in program.terms)


@pytest.mark.parametrize(("phase", "kind"), CELLS)
def test_company_order_and_padding_change_nothing(phase, kind):
    everything = list(range(len(LENGTHS)))
    wanted = total_and_gradient(cell(phase, kind), [everything])
    assert all(value > 1e-5 for value in wanted[0].values()), wanted[0]  # there is something to learn
    check_same(total_and_gradient(cell(phase, kind), [everything[::-1]]), wanted)
    if not phase.startswith("reference"):  # the released code's averages run over padding too
        own = random_encodings(LENGTHS, kind=kind)
        padded = MorePadding(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})
        check_same(total_and_gradient(cell(phase, kind, encodings=padded), [everything]), wanted)
    program = cell(phase, kind)
    if not depends_on_company(program) and not phase.startswith("reference"):
        check_same(total_and_gradient(program, [[3, 0, 6], [5, 1], [2, 4]]), wanted)


@pytest.mark.parametrize(("phase", "kind"), CELLS)
def test_a_copied_student_has_nothing_to_learn(phase, kind):
    program = cell(phase, kind, copied=True)
    for linear in program.projections.values():
        nn.init.eye_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
    rows = np.arange(len(LENGTHS))
    with torch.no_grad():
        terms = program.step(rows)
    for term in program.terms:
        value = float(terms[term.name].sum) / terms[term.name].count
        if term.fn in (losses.soft_cross_entropy, losses.soft_cross_entropy_reference):
            assert value > 0.05  # the teacher's entropy: test_programs compares it
        elif term.fn is not losses.hard_cross_entropy:
            assert value == pytest.approx(0.0, abs=1e-6), term.name


@pytest.mark.parametrize(("phase", "kind"), CELLS)
def test_counts_are_told_beforehand(phase, kind):
    program = cell(phase, kind)
    for rows in ([1, 3], [0], [2, 5], range(len(LENGTHS))):
        rows = np.array(rows)
        told = program.counts(rows)
        assert told == {name: term.count for name, term in program.step(rows).items()}


@pytest.mark.parametrize("phase", PHASES)
def test_it_learns(phase):
    program = cell(phase, "bert", batch_size=len(LENGTHS))
    before, _ = total_and_gradient(program, [range(len(LENGTHS))])
    train(program, AdamW(program.modules, weight_decay=0.0), Schedule(40, 3e-3), seed=(0,))
    after, _ = total_and_gradient(program, [range(len(LENGTHS))])
    total = [sum(program.weights[name] * value for name, value in found.items()) for found in (before, after)]
    assert total[1] < 0.9 * total[0]


def shown(model, program):
    """transformers' own hidden states and attention probabilities, and queries, keys, values, for each text."""
    found = []
    for row in range(len(LENGTHS)):
        batch = program.data.encodings.batch(np.array([row]))
        given = {"input_ids": torch.from_numpy(batch["input_ids"])}
        if getattr(model.config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = torch.from_numpy(batch["token_type_ids"])
        with torch.no_grad():
            found.append(model(**given, output_hidden_states=True, output_attentions=True))
    return found


def kl(theirs, own):
    """Over the tokens that both models look at: in a ModernBERT, one of the two may look no further than its window."""
    kept = (theirs > 0) & (own > 0)
    first, second = (part.masked_fill(~kept, 0.0) for part in (theirs, own))
    first, second = (part / part.sum(dim=-1, keepdim=True) for part in (first, second))
    return float((first * (first / second).log())[kept].sum())


@pytest.mark.parametrize("kind", CONFIGS)
def test_minilm_compares_the_attention_that_transformers_shows(kind):
    """The relative bias of MPNet included: it is part of what attention does."""
    program = cell("minilm general", kind)
    own, theirs = (shown(model, program) for model in (program.student, program.guide.teacher))
    wanted = sum(kl(b.attentions[-1].double(), a.attentions[-1].double()) for a, b in zip(own, theirs, strict=True))
    with torch.no_grad():
        term = program.step(np.arange(len(LENGTHS)))["attention"]
    assert float(term.sum) == pytest.approx(wanted, rel=1e-4)
    assert term.count == 4 * sum(LENGTHS)


@pytest.mark.parametrize("kind", CONFIGS)
def test_hidden_states_are_those_that_transformers_shows(kind):
    """PKD takes [CLS] of inner layers, vectors the mean of the last, hints the middle."""
    program = cell("pkd distil", kind)
    own, theirs = (shown(model, program) for model in (program.student, program.guide.teacher))
    unit = torch.nn.functional.normalize
    wanted = sum(
        float((unit(a.hidden_states[1][0, 0], dim=0) - unit(b.hidden_states[2][0, 0], dim=0)).square().sum())
        for a, b in zip(own, theirs, strict=True)
    )
    with torch.no_grad():
        term = program.step(np.arange(len(LENGTHS)))["cls"]
    assert float(term.sum) == pytest.approx(wanted, rel=1e-4)
    program = cell("vectors distil", kind)
    own, theirs = (shown(model, program) for model in (program.student, program.guide.teacher))
    linear = program.projections["vector"]
    with torch.no_grad():
        wanted = sum(
            float((linear(a.hidden_states[-1][0].mean(0)) - b.hidden_states[-1][0].mean(0)).square().sum())
            for a, b in zip(own, theirs, strict=True)
        )
        assert float(program.step(np.arange(len(LENGTHS)))["vector"].sum) == pytest.approx(wanted, rel=1e-4)
    program = cell("fitnets intermediate", kind)
    own, theirs = (shown(model, program) for model in (program.student, program.guide.teacher))
    with torch.no_grad():
        wanted = sum(
            float((program.projections["hint"](a.hidden_states[1]) - b.hidden_states[2]).square().sum())
            for a, b in zip(own, theirs, strict=True)
        )
        assert float(program.step(np.arange(len(LENGTHS)))["hint"].sum) == pytest.approx(wanted, rel=1e-4)


def test_the_teacher_is_not_run_where_nothing_of_it_is_read():
    program = cell("poor-mans prediction", "bert")
    program.guide.teacher.forward = None
    program.step(np.arange(3))
