"""Programs on real little models: what padding, order and company must not change, and what a copy must lose."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.small_models import CONFIGS, VOCABULARY, pad_id, random_encodings, small_model
from torch import nn

from potstill.compression import prune_vocabulary
from potstill.data.batching import Batches
from potstill.data.encoding import Encodings
from potstill.errors import ModelError
from potstill.losses import hidden_mse, logits_kl
from potstill.losses.attention import GRAM_FROM
from potstill.models.forward import forward_inputs, run_logits
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.fine_tuning import FineTuning
from potstill.recipes.guidance import LiveGuide, LogitsGuide
from potstill.training import LossTerm

LENGTHS = (3, 9, 5, 9, 2, 7, 4)
LABELS = np.array([0, 2, -1, 1, 0, -1, 2])
ALL_TERMS = ("embedding", "hidden", "attention", "logits", "hard")


class MorePadding(Encodings):
    """Pads every batch by three more places than it needs."""

    def batch(self, windows):
        batch = super().batch(windows)
        fill = {"input_ids": self.pad_token_id}
        return {
            name: np.pad(array, ((0, 0), (0, 3)), constant_values=fill.get(name, 0)) for name, array in batch.items()
        }


def terms_of(mode="potstill", *, student=2, teacher=3, names=ALL_TERMS):
    """Every term of a mode, whatever its phase, each weighted differently."""
    phases = RECIPES[mode].phases
    built = [
        term
        for phase in phases
        for term in build_terms(phase, student=student, teacher=teacher, mapping="uniform", temperature=2.0)
    ]
    if mode == "potstill":
        built.insert(0, LossTerm("embedding", hidden_mse, ((0, 0),), reads="hidden"))
    return [dataclasses.replace(term, weight=0.5 + n) for n, term in enumerate(built) if term.name in names]


def program_of(kind="bert", *, mode="potstill", encodings=None, batch_size=99, logits=None, **more):
    student = small_model(kind, layers=2, hidden=16, ffn=24, seed=1)
    teacher = small_model(kind, layers=3, hidden=24, seed=2)
    encodings = encodings or random_encodings(LENGTHS, kind=kind)
    batches = Batches(encodings, LABELS, np.arange(len(LENGTHS)), batch_size, seed=0)
    terms = terms_of(mode, **more)
    torch.manual_seed(3)
    projections = projections_for(terms, 16, 24, shared=RECIPES[mode].projection == "shared")
    return Distilling(student, LiveGuide(teacher, terms, encodings, logits=logits), terms, projections, batches)


def total_and_gradient(program, groups):
    """Σ weight · Σ sum / Σ count over groups of rows, and its gradient."""
    sums, counts = {}, {}
    for rows in groups:
        for name, term in program.step(np.asarray(rows)).items():
            sums[name] = sums.get(name, 0.0) + term.sum
            counts[name] = counts.get(name, 0.0) + term.count
    loss = sum(program.weights[name] * sums[name] / counts[name] for name in sums)
    parameters = {
        f"{module}.{name}": parameter
        for module, part in program.modules.items()
        for name, parameter in part.named_parameters()
    }
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    values = {name: float(sums[name].detach()) / counts[name] for name in sums}
    return values, {name: slope for name, slope in zip(parameters, found, strict=True) if slope is not None}


def check_same(got, wanted):
    assert got[0].keys() == wanted[0].keys()
    for name, value in wanted[0].items():
        assert got[0][name] == pytest.approx(value, rel=1e-5), name
    assert got[1].keys() == wanted[1].keys()
    scale = max(float(slope.abs().max()) for slope in wanted[1].values())
    for name, slope in wanted[1].items():
        assert float((got[1][name] - slope).abs().max()) <= 1e-5 * scale, name


def has_types(model):
    """Whether the model has two types of token or more, so that it is told which is which."""
    return getattr(model.config, "type_vocab_size", 0) > 1


@pytest.mark.parametrize("kind", CONFIGS)
def test_company_order_and_padding_change_nothing(kind):
    everything = list(range(len(LENGTHS)))
    wanted = total_and_gradient(program_of(kind), [everything])
    assert set(wanted[0]) == set(ALL_TERMS)
    least = 1e-4 if kind == "mobilebert" else 1e-3  # whose bottleneck makes small scores
    assert all(value > least for value in wanted[0].values())
    for groups in ([everything[::-1]], [[3, 0, 6], [5, 1], [2, 4]], [[row] for row in everything]):
        check_same(total_and_gradient(program_of(kind), groups), wanted)
    own = random_encodings(LENGTHS, kind=kind)
    padded = MorePadding(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})
    check_same(total_and_gradient(program_of(kind, encodings=padded), [everything]), wanted)


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_what_stands_in_padding_does_not_matter(kind):
    own = random_encodings(LENGTHS, kind=kind)

    class OtherPadding(Encodings):
        def batch(self, windows):
            batch = super().batch(windows)
            gone = batch["attention_mask"] == 0
            # Position ids of these architectures are counted from the padding id: it must stay for MPNet.
            if kind == "bert":
                batch["input_ids"][gone] = 17
            batch["token_type_ids"][gone] = 1
            return batch

    other = OtherPadding(**{field.name: getattr(own, field.name) for field in dataclasses.fields(own)})
    everything = [list(range(len(LENGTHS)))]
    check_same(
        total_and_gradient(program_of(kind, encodings=other), everything),
        total_and_gradient(program_of(kind), everything),
    )


@pytest.mark.parametrize("rows", [[1, 3], [0], [2, 5], [0, 1, 2, 3, 4, 5, 6]], ids=str)
@pytest.mark.parametrize("mode", ["potstill", "paper", "reference"])
def test_counts_are_told_beforehand(mode, rows):
    program = program_of(mode=mode)
    rows = np.array(rows)
    told = program.counts(rows)
    given = {name: term.count for name, term in program.step(rows).items()}
    assert told == given
    lengths = np.array(LENGTHS)[rows]
    real = {"embedding": lengths.sum() * 24, "attention": (lengths**2).sum() * 4, "logits": len(rows)}
    if mode == "reference":
        longest = int(lengths.max())
        real = {
            "embedding": longest * len(rows) * 24,
            "attention": longest**2 * len(rows) * 4,
            "logits": len(rows) * 3,
        }
    for name, count in real.items():
        assert told[name] == count, name
    if mode == "potstill":
        assert told["hard"] == sum(LABELS[rows] >= 0)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_copied_student_has_nothing_to_learn(kind):
    """Zero hidden and attention loss under an identity projection, and the teacher's entropy as soft loss, to 1e-6."""
    teacher = small_model(kind, layers=3, seed=2)
    student = small_model(kind, layers=3, seed=2)
    chosen = [*terms_of("paper", student=3, teacher=3)]
    assert [term.name for term in chosen] == ["embedding", "hidden", "attention", "logits"]
    projections = projections_for(chosen, 24, 24, shared=False)
    for linear in projections.values():
        nn.init.eye_(linear.weight)
    encodings = random_encodings((*LENGTHS, 70), kind=kind)
    count = len(LENGTHS) + 1
    batches = Batches(encodings, np.full(count, -1), np.arange(count), count, 0)
    program = Distilling(student, LiveGuide(teacher, chosen, encodings), chosen, projections, batches)
    terms = program.step(np.arange(count))
    for name in ("embedding", "hidden", "attention"):
        assert 0 <= float(terms[name].sum.detach()) / terms[name].count < 1e-6, name
    with torch.no_grad():
        logits = teacher(**forward_inputs(teacher, encodings.batch(np.arange(count)))).logits.double() / 2.0
    entropy = -(torch.softmax(logits, dim=1) * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()
    assert float(terms["logits"].sum.detach()) / terms["logits"].count == pytest.approx(float(entropy), abs=1e-6)
    assert float(entropy) > 0.05
    kl, texts = logits_kl(logits.float(), logits.float(), temperature=2.0)
    assert float(kl) / texts == pytest.approx(0.0, abs=1e-6)


def test_long_inputs_take_the_gram_form_and_a_copy_still_has_no_loss():
    longest = GRAM_FROM + 20
    teacher, student = (small_model(layers=2, seed=2, max_position_embeddings=longest) for _ in range(2))
    chosen = terms_of("paper", student=2, teacher=2, names=("attention",))
    encodings = random_encodings((longest, 97, longest - 9))
    batches = Batches(encodings, np.full(3, -1), np.arange(3), 3, 0)
    program = Distilling(student, LiveGuide(teacher, chosen, encodings), chosen, nn.ModuleDict(), batches)
    (term,) = program.step(np.arange(3)).values()
    assert 0 <= float(term.sum.detach()) / term.count < 1e-6


def test_cached_logits_stand_for_the_teachers_and_it_is_then_not_run():
    own = program_of(names=("logits", "hard"))
    rows = np.arange(len(LENGTHS))
    cached = run_logits(own.guide.teacher, own.data.encodings)
    other = program_of(names=("logits", "hard"), logits=cached)
    other.guide.teacher.forward = None
    alone = Distilling(own.student, LogitsGuide(cached), own.terms, own.projections, own.data)
    for name, term in own.step(rows).items():
        for program in (other, alone):
            assert float(program.step(rows)[name].sum.detach()) == pytest.approx(float(term.sum.detach()), rel=1e-5)
    assert alone.counts(rows) == own.counts(rows)
    # With inner states the teacher is run, and the logits given are still those learnt from.
    far = program_of(logits=cached + np.array([5.0, 0.0, -5.0], dtype=np.float32))
    assert far.step(rows)["logits"].sum.item() > 2 * program_of().step(rows)["logits"].sum.item()


def test_the_teacher_gets_no_gradient_and_its_hooks_come_off():
    program = program_of()
    loss = sum(term.sum for term in program.step(np.arange(len(LENGTHS))).values())
    loss.backward()
    assert all(parameter.grad is None for parameter in program.guide.teacher.parameters())
    assert any(parameter.grad is not None for parameter in program.student.parameters())
    hooked = [module for model in (program.student, program.guide.teacher) for module in model.modules()]
    assert sum(len(module._forward_hooks) for module in hooked) > 0
    program.close()
    assert sum(len(module._forward_hooks) for module in hooked) == 0
    assert not any(states.hidden or states.q or states.k for states in (program.states, program.guide.states))


def test_nothing_is_kept_between_steps():
    program = program_of()
    program.step(np.arange(3))
    assert not any(states.hidden or states.q or states.k for states in (program.states, program.guide.states))


def guided(teacher, student, terms, projections, data):
    return Distilling(student, LiveGuide(teacher, terms, data.encodings), terms, projections, data)


def test_what_a_guide_cannot_give_is_refused():
    data = program_of().data
    terms = terms_of(student=2, teacher=2)
    for reading in (terms, terms[:1]):
        with pytest.raises(ModelError, match=f"{reading[0].name} loss under a teacher that gives logits alone"):
            Distilling(small_model(), LogitsGuide(np.zeros((7, 3), np.float32)), reading, nn.ModuleDict(), data)
    few = np.zeros((6, 3), np.float32)
    with pytest.raises(ModelError, match="6 windows for 7"):
        Distilling(small_model(), LogitsGuide(few), terms_of(names=("logits",)), nn.ModuleDict(), data)
    with pytest.raises(ModelError, match="6 rows of the teacher's logits for 7 windows"):
        program_of(logits=few)


def test_heads_that_do_not_match_are_refused():
    student = small_model(heads=2)
    teacher = small_model(heads=4)
    data = Batches(random_encodings(LENGTHS), LABELS, np.arange(len(LENGTHS)), 3, 0)
    with pytest.raises(ModelError, match="2 attention heads under a teacher with 4"):
        guided(teacher, student, terms_of(student=2, teacher=2), nn.ModuleDict(), data)
    names = ("hidden", "logits")
    chosen = terms_of(student=2, teacher=2, names=names)
    program = guided(teacher, student, chosen, projections_for(chosen, 24, 24, shared=False), data)
    assert set(program.step(np.arange(3))) == set(names)


def test_projections():
    terms = terms_of("paper")
    apart = projections_for(terms, 16, 24, shared=False)
    assert sorted(apart) == ["embedding", "hidden"]
    assert all(linear.weight.shape == (24, 16) and linear.bias is None for linear in apart.values())
    (name, linear), *_ = projections_for(terms, 16, 24, shared=True).items()
    assert (name, linear.bias.shape) == ("all", (24,))
    assert len(projections_for(terms_of("paper", names=("logits",)), 16, 24, shared=False)) == 0


def test_a_fine_tuning_step_is_cross_entropy_on_the_labelled():
    model = small_model()
    data = Batches(random_encodings(LENGTHS), LABELS, np.arange(len(LENGTHS)) + 40, 4, seed=1)
    program = FineTuning(model, data)
    rows = np.array([0, 1, 2, 3])
    (term,) = program.step(rows).values()
    with torch.no_grad():
        logits = model(**forward_inputs(model, data.encodings.batch(rows))).logits.double().numpy()
    wanted = 0.0
    for row, label in zip(logits, LABELS[rows], strict=True):
        if label >= 0:
            wanted -= row[label] - np.log(np.exp(row).sum())
    assert float(term.sum.detach()) == pytest.approx(wanted, rel=1e-5)
    assert term.count == 3 == program.counts(rows)["hard"]
    assert program.describe(rows) == "examples 40, 41, 42, 43"
    assert program.describe(np.arange(7)).startswith("examples 40, 41")


def test_states_tell_data_and_terms_apart():
    base = program_of()
    others = [
        program_of(mode="paper"),
        program_of(names=("logits",)),
        program_of(logits=np.zeros((7, 3), dtype=np.float32)),
        program_of(batch_size=3),
        program_of(encodings=random_encodings(LENGTHS, seed=9)),
        program_of(encodings=dataclasses.replace(random_encodings(LENGTHS), pad_token_id=3)),
    ]
    states = [str(program.state()) for program in (base, *others)]
    assert len(set(states)) == len(states)
    assert program_of().state() == base.state()
    own = base.data
    kinds = 1 - own.encodings.token_type_ids
    for change in (
        {"labels": LABELS[::-1].copy()},
        {"ids": own.ids + 1},
        {"seed": 1},
        {"max_tokens": 50},
        {"encodings": dataclasses.replace(own.encodings, token_type_ids=kinds)},
    ):
        assert dataclasses.replace(own, **change).digest() != own.digest(), change


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_of_all_windows_in_their_own_order(kind):
    model = small_model(kind)
    encodings = random_encodings(LENGTHS, kind=kind)
    wanted = np.zeros((len(LENGTHS), 3), dtype=np.float32)
    for row in range(len(LENGTHS)):
        start, end = encodings.starts[row : row + 2]
        ids = torch.tensor(encodings.input_ids[None, start:end].astype(np.int64))
        types = torch.tensor(encodings.token_type_ids[None, start:end].astype(np.int64))
        extra = {"token_type_ids": types} if has_types(model) else {}
        with torch.no_grad():
            wanted[row] = model(ids, **extra).logits.numpy()
    model.train()
    shown = []

    class Report:
        def progress(self, done, total, **_):
            shown.append((done, total))

    for tokens in (5, 20, 8192):
        got = run_logits(model, encodings, batch_tokens=tokens, report=Report())
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert model.training
    assert shown[-1] == (7, 7)
    assert got.dtype == np.float32


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_models_arguments(kind):
    model, encodings = small_model(kind), random_encodings((4, 4, 2), kind=kind)
    even, uneven = (forward_inputs(model, encodings.batch(np.array(rows))) for rows in ([0, 1], [0, 2]))
    types = {"token_type_ids"} if has_types(model) else set()
    assert set(even) == {"input_ids"} | types  # no mask where nothing is padded: kernels without one are faster
    assert set(uneven) == {"input_ids", "attention_mask"} | types
    assert uneven["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert uneven["input_ids"][1, 2:].tolist() == [pad_id(kind)] * 2


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_student_of_fewer_words_reads_as_its_teacher_does(kind):
    """The teacher over some of its pieces, as a student: every loss but the labels' is nothing."""
    teacher = small_model(kind, layers=3, hidden=24, seed=2)
    kept = np.array([0, 1, 2, 3, 4, *range(40, VOCABULARY)])
    student = prune_vocabulary(teacher, kept)
    encodings = random_encodings(LENGTHS, kind=kind)
    few = dataclasses.replace(encodings, input_ids=(encodings.input_ids % (len(kept) - 5) + 5).astype(np.int32))
    terms = [dataclasses.replace(term, weight=1.0) for term in terms_of(student=3, teacher=3)]
    projections = projections_for(terms, 24, 24, shared=False)
    for linear in projections.values():
        linear.weight.data.copy_(torch.eye(24))
    batches = Batches(few, LABELS, np.arange(len(LENGTHS)), 99, seed=0)
    guide = LiveGuide(teacher, terms, few, teacher_ids=kept)
    program = Distilling(student, guide, terms, projections, batches)
    values, _ = total_and_gradient(program, [range(len(LENGTHS))])
    assert all(value < 1e-9 for name, value in values.items() if name != "hard"), values
    wrong = LiveGuide(teacher, terms, few, teacher_ids=np.roll(kept, 1))
    other = Distilling(student, wrong, terms, projections, batches)
    assert total_and_gradient(other, [range(len(LENGTHS))])[0]["hidden"] > 1e-3
    assert program.state() != other.state()
