"""A teacher with its own tokenizer: hidden losses on joined tokens, value and gradient, against plain sums."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.small_models import small_model
from tests.tokenizers_of import CORPUS, small_tokenizer
from torch.nn import functional

from potstill.data.alignment import Alignment
from potstill.data.batching import Batches
from potstill.data.encoding import TextEncoder
from potstill.errors import ModelError
from potstill.losses import logits_mse
from potstill.models.forward import run_logits
from potstill.models.teacher_cache import TeacherCache
from potstill.recipes import RECIPES, build_terms, of_several_teachers
from potstill.recipes.cached import CachedGuide, fields_of
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.fitting import fit_projections
from potstill.recipes.guidance import LiveGuide, LogitsGuide
from potstill.recipes.joined import EnsembleGuide, JoinedGuide, average_answers
from potstill.recipes.terms import CLS, COSINE, DIRECTION, EMBEDDING, HARD, HIDDEN, HINT, LOGITS, SIMILARITY, VECTOR
from potstill.training import LossTerm, Ramp

TEXTS = [*CORPUS, "a", "naïve 😀 café", " ".join(CORPUS)]
LABELS = np.array([0, 1, 2, -1, 0, 1, 2])
ALL = (EMBEDDING, HIDDEN, HINT, CLS, COSINE, VECTOR, DIRECTION, SIMILARITY, LOGITS, HARD)
PLACES = {"embedding": ((0, 0),), "mapped": ((1, 1), (2, 3)), "middle": ((1, 1),), "inner": ((1, 1),), "none": ()}


def terms_of(chosen=ALL):
    places = {**PLACES, "last": ((2, 3),)}
    return tuple(
        LossTerm(t.name, t.fn, places[t.places], 0.5 + n, t.temperature, t.reads) for n, t in enumerate(chosen)
    )


def encodings_of(kind, length=50, **more):
    encoder = TextEncoder(small_tokenizer(kind), max_length=length, **more)
    return encoder.encode(TEXTS, with_spans=True)


def models(kind, student_vocabulary=400):
    student = small_model(kind, layers=2, hidden=16, ffn=24, seed=1, vocab_size=student_vocabulary)
    teacher = small_model("mpnet", layers=3, hidden=24, seed=2, vocab_size=400)
    return student, teacher


def joined_guide(teacher, terms, alignment, **more):
    return JoinedGuide(LiveGuide(teacher, terms, alignment.teacher, **more), terms, alignment)


def program_of(own, guide, student, terms):
    torch.manual_seed(3)
    projections = projections_for(terms, 16, 24, shared=False)
    labels = LABELS[own.example]
    return Distilling(student, guide, terms, projections, Batches(own, labels, np.arange(len(own)), 99, seed=0))


def values_and_gradient(program, rows):
    values = program.step(rows)
    loss = sum(program.weights[name] * value.sum / value.count for name, value in values.items())
    leaves = [p for part in program.modules.values() for p in part.parameters()]
    return values, [slope for slope in torch.autograd.grad(loss, leaves, allow_unused=True) if slope is not None]


def run_alone(model, encodings, row):
    """One window through a model, nothing beside it."""
    inside = slice(encodings.starts[row], encodings.starts[row + 1])
    given = {"input_ids": torch.tensor(encodings.input_ids[inside].astype(np.int64))[None]}
    if model.config.model_type == "bert":
        given["token_type_ids"] = torch.tensor(encodings.token_type_ids[inside].astype(np.int64))[None]
    return model(**given, output_hidden_states=True)


def token_loss(name, mine, target):
    if name == "cls":
        return (mine / mine.norm() - target / target.norm()).square().sum(), 1
    if name == "cosine":
        return 1 - mine @ target / mine.norm() / target.norm(), 1
    return (mine - target).square().sum(), len(mine)


def vector_loss(name, sides):
    def near(one, other):
        return functional.cosine_similarity(one, other, dim=0)

    if name == "vector":
        return sum((mine - theirs).square().sum() for mine, theirs in sides), len(sides) * len(sides[0][1])
    if name == "direction":
        return sum(1 - near(mine, theirs) for mine, theirs in sides), len(sides)
    pairs = [(i, j) for i in range(len(sides)) for j in range(len(sides)) if i != j]
    return sum((near(sides[i][0], sides[j][0]) - near(sides[i][1], sides[j][1])).square() for i, j in pairs), len(pairs)


def answer_loss(name, outputs, labels):
    if name == "hard":
        kept = [(mine.logits[0], label) for (mine, _), label in zip(outputs, labels, strict=True) if label >= 0]
        return -sum(logits.log_softmax(0)[label] for logits, label in kept), len(kept)
    soft = [(mine.logits[0], theirs.logits[0].softmax(0)) for mine, theirs in outputs]
    return sum((p * (p.log() - logits.log_softmax(0))).sum() for logits, p in soft), len(soft)


def joined_targets(joined, number, theirs, width):
    """(place of the student's token, the teacher's weighted mean) of the tokens of a row that are joined to any."""
    longest = joined.joined.shape[1]
    for token in range(longest):
        inside = slice(*joined.starts[number * longest + token : number * longest + token + 2])
        if inside.start < inside.stop:
            pairs = zip(joined.tokens[inside], joined.weights[inside], strict=True)
            yield token, sum(float(weight) * theirs[at - number * width] for at, weight in pairs)


def plain_loss(program, own, other, teacher, rows):
    """The loss written out token by token: the teacher's weighted mean, the tokens that it reads, its own vectors."""
    joined, width = Alignment(own, other).of(rows), int(other.lengths[rows].max())
    with torch.no_grad():
        theirs = [run_alone(teacher, other, row) for row in rows]
    outputs = [(run_alone(program.student, own, row), said) for row, said in zip(rows, theirs, strict=True)]
    found = {}
    for term in program.terms:
        if not term.layers:
            found[term.name] = answer_loss(term.name, outputs, program.data.labels[rows])
            continue
        sides = []
        for ours, layer in term.layers:
            for mine, said in outputs:
                hidden = mine.hidden_states[ours][0]
                hidden = program.projections[term.name](hidden) if term.name in program.projections else hidden
                sides.append((hidden, said.hidden_states[layer][0]))
        if term.name in ("vector", "direction", "similarity"):
            found[term.name] = vector_loss(term.name, [(mine.mean(0), said.mean(0)) for mine, said in sides])
            continue
        parts = [
            token_loss(term.name, mine[token], target)
            for number, (mine, said) in enumerate(sides)
            for token, target in joined_targets(joined, number % len(rows), said, width)
            if term.name != "cls" or token == 0
        ]
        found[term.name] = sum(value for value, _ in parts), sum(count for _, count in parts) / len(term.layers)
    total = sum(term.weight * found[term.name][0] / found[term.name][1] for term in program.terms)
    leaves = [p for part in program.modules.values() for p in part.parameters()]
    slopes = torch.autograd.grad(total, leaves, allow_unused=True)
    sums = {name: (float(value.detach()), count) for name, (value, count) in found.items()}
    return sums, [slope for slope in slopes if slope is not None]


@pytest.mark.parametrize(("student_kind", "teacher_kind", "lengths"), [
    ("wordpiece", "bpe", (50, 50)), ("bpe", "characters", (50, 30)), ("characters", "unigram", (30, 50)),
])  # fmt: skip
def test_every_term_is_the_sum_written_out_value_and_gradient(student_kind, teacher_kind, lengths):
    own, other = encodings_of(student_kind, lengths[0]), encodings_of(teacher_kind, lengths[1])
    student, teacher = models("bert")
    terms = terms_of()
    rows = np.array([4, 0, 6, 2, 5])
    program = program_of(own, joined_guide(teacher, terms, Alignment(own, other)), student, terms)
    told = program.counts(rows)
    values, slopes = values_and_gradient(program, rows)
    wanted, plain = plain_loss(program, own, other, teacher, rows)
    for name, (value, count) in wanted.items():
        assert values[name].count == told[name] == count, name
        assert float(values[name].sum.detach()) == pytest.approx(value, rel=2e-4), name
        assert abs(value) > 1e-3
    assert len(slopes) == len(plain)
    scale = max(float(slope.abs().max()) for slope in plain)
    for mine, theirs in zip(slopes, plain, strict=True):
        assert float((mine - theirs).abs().max()) <= 2e-5 * scale
    program.close()


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_the_same_tokenizer_through_the_alignment_is_the_direct_way_windows_too(kind):
    own = encodings_of("wordpiece", 20, long_text="window")
    assert len(own) > len(TEXTS)
    terms = terms_of()
    rows = np.random.default_rng(0).permutation(len(own))
    found = []
    for joined in (False, True):
        student, teacher = models(kind)
        guide = joined_guide(teacher, terms, Alignment(own, own)) if joined else LiveGuide(teacher, terms, own)
        program = program_of(own, guide, student, terms)
        found.append((program.counts(rows), *values_and_gradient(program, rows)))
        program.close()
    assert found[0][0] == found[1][0]
    for name, value in found[0][1].items():
        assert float(found[1][1][name].sum.detach()) == pytest.approx(float(value.sum.detach()), rel=1e-5), name
    for mine, theirs in zip(found[0][2], found[1][2], strict=True):
        assert float((mine - theirs).abs().max()) <= 1e-5 * (1 + float(theirs.abs().max()))


def test_answers_known_before_are_those_of_a_run():
    own, other = encodings_of("bpe", 24, long_text="window"), encodings_of("wordpiece", 40, long_text="window")
    alignment, (_, teacher) = Alignment(own, other), models("bert")
    terms = terms_of((LOGITS, HARD))
    rows = np.arange(len(own))
    live = joined_guide(teacher, terms, alignment).guidance(rows).logits.numpy()
    theirs = run_logits(teacher, other)
    known = joined_guide(teacher, terms, alignment, logits=theirs).guidance(rows).logits.numpy()
    assert known == pytest.approx(live, abs=1e-5)
    assert alignment.answers(theirs) == pytest.approx(live, abs=1e-5)
    with pytest.raises(ModelError, match="a teacher's side of"):
        JoinedGuide(LogitsGuide(theirs[:-1]), terms, alignment)


def test_what_is_kept_on_disk_is_joined_as_what_is_run(tmp_path):
    own, other = encodings_of("bpe", 24, long_text="window"), encodings_of("wordpiece", 40, long_text="window")
    alignment, (student, teacher) = Alignment(own, other), models("bert")
    terms, rows = terms_of(), np.array([5, 0, 3])
    cache = TeacherCache(tmp_path / "cache", other, fields_of(terms, biased=True))
    cache.fill(teacher)
    found = []
    for inner in (LiveGuide(teacher, terms, other), CachedGuide(teacher, cache)):
        program = program_of(own, JoinedGuide(inner, terms, alignment), student, terms)
        found.append({name: float(value.sum.detach()) for name, value in program.step(rows).items()})
        program.close()
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize("mode", ["potstill", "paper", "minilm", "minilm2", "reference"])
def test_pairs_of_tokens_and_padding_are_refused(mode):
    own, other = encodings_of("bpe"), encodings_of("wordpiece")
    recipe = RECIPES[mode]
    phase = recipe.general if mode.startswith("minilm") else recipe.phases[0]
    terms = build_terms(phase, student=2, teacher=3, mapping="uniform")
    with pytest.raises(ModelError, match="between models that read different tokens"):
        joined_guide(models("bert")[1], terms, Alignment(own, other))


@pytest.mark.parametrize("temperature", [None, 1.0, 4.0])
def test_several_teachers_are_the_mean_of_their_answers(temperature):
    draw = np.random.default_rng(1)
    logits = [draw.normal(size=(5, 3)) * 4 for _ in range(3)]
    weights = (2.0, 1.0, 0.5)
    made = average_answers([torch.tensor(part) for part in logits], weights, temperature).numpy()
    share = np.array(weights) / sum(weights)
    if temperature is None:
        assert made == pytest.approx(sum(w * part for w, part in zip(share, logits, strict=True)))
        return

    def softmax(scores):
        raised = np.exp(scores / temperature)
        return raised / raised.sum(axis=1, keepdims=True)

    wanted = sum(w * softmax(part) for w, part in zip(share, logits, strict=True))
    assert softmax(made) == pytest.approx(wanted)


def test_an_ensemble_teaches_its_mean_answer_and_the_first_teachers_states():
    own = encodings_of("wordpiece")
    student, teacher = models("bert")
    draw = np.random.default_rng(0)
    others = [draw.normal(size=(len(own), 3)).astype(np.float32) for _ in range(2)]
    terms = terms_of((HIDDEN, LOGITS))
    first = LiveGuide(teacher, terms, own)
    guide = EnsembleGuide(first, others, (1.0, 2.0, 1.0), terms)
    rows = np.array([3, 0, 5])
    said = guide.guidance(rows)
    assert said.states is first.states
    assert guide.heard(rows) is None
    assert (guide.windows, guide.width, guide.heads) == (len(own), 24, 4)
    alone = first.guidance(rows).logits
    mean = (
        alone.softmax(1) + 2 * torch.tensor(others[0][rows]).softmax(1) + torch.tensor(others[1][rows]).softmax(1)
    ) / 4
    assert said.logits.softmax(1).numpy() == pytest.approx(mean.numpy(), abs=1e-6)
    assert EnsembleGuide(first, others[:1], (1.0, 2.0), terms).state() != guide.state()
    program = program_of(own, guide, student, terms)
    assert program.step(rows)["logits"].count == 3
    with pytest.raises(ModelError, match="rows of a teacher's logits"):
        EnsembleGuide(first, [others[0][:2]], (1.0, 1.0), terms)
    twice = (*terms, LossTerm("also", logits_mse, (), 1.0, 1.0, "logits"))
    with pytest.raises(ModelError, match="temperatures"):
        EnsembleGuide(first, others, (1.0, 1.0, 1.0), twice)


def two_teachers(shares=(3.0, 1.0)):
    """A student of word pieces; teachers of byte pairs (3×24) and characters (2×20), both of whose states are read."""
    own, encodings = encodings_of("wordpiece"), (encodings_of("bpe", 30), encodings_of("characters", 40))
    student, first = models("bert")
    second = small_model("mpnet", layers=2, hidden=20, seed=4, vocab_size=400)
    phase = RECIPES["potstill"].phases[0]
    chosen = replace(phase, terms=(replace(EMBEDDING, weight=0.5), HIDDEN))
    built = [build_terms(chosen, student=2, teacher=layers, mapping="uniform") for layers in (3, 2)]
    terms = of_several_teachers(built, shares)
    guides = [
        joined_guide(teacher, [term for term in terms if term.teacher == number], Alignment(own, other))
        for number, (teacher, other) in enumerate(zip((first, second), encodings, strict=True), 1)
    ]
    guide = EnsembleGuide(guides[0], [], shares, terms, guides[1:])
    torch.manual_seed(3)
    projections = projections_for(terms, 16, 24, 20, shared=False)
    program = Distilling(student, guide, terms, projections, Batches(own, LABELS, np.arange(len(own)), 99, seed=0))
    return program, own, tuple(zip(encodings, (first, second), strict=True))


def test_the_states_of_two_teachers_against_plain_sums():
    program, own, sides = two_teachers()
    rows = np.array([5, 0, 2, 6])
    unused = ("classifier", "pooler")
    leaves = [leaf for name, leaf in program.student.named_parameters() if not any(part in name for part in unused)]
    values = program.step(rows)
    assert set(values) == {"embedding", "hidden", "embedding-2", "hidden-2"}
    assert program.weights == {"embedding": 0.375, "hidden": 0.75, "embedding-2": 0.125, "hidden-2": 0.25}
    assert {name: value.count for name, value in values.items()} == program.counts(rows)
    loss = sum(program.weights[name] * value.sum / value.count for name, value in values.items())
    slopes = torch.autograd.grad(loss, leaves)
    plain = []
    for number, (other, teacher) in enumerate(sides, 1):
        alone = SimpleNamespace(
            student=program.student,
            terms=[term for term in program.terms if term.teacher == number],
            projections=program.projections,
            data=program.data,
            modules={"student": torch.nn.ParameterList(leaves)},
        )
        sums, gradient = plain_loss(alone, own, other, teacher, rows)
        plain.append(gradient)
        for name, (value, count) in sums.items():
            assert float(values[name].sum.detach()) == pytest.approx(value, rel=1e-4)
            assert values[name].count == pytest.approx(count)
    for slope, *parts in zip(slopes, *plain, strict=True):
        assert slope.numpy() == pytest.approx(sum(parts).numpy(), rel=1e-3, abs=1e-5)


def test_of_several_teachers_the_first_alone_keeps_its_terms():
    phase = RECIPES["potstill"].phases[0]
    built = [build_terms(phase, student=2, teacher=layers, mapping="uniform") for layers in (3, 4)]
    assert of_several_teachers(built[:1]) == built[0]
    terms = {term.name: term for term in of_several_teachers(built)}
    assert set(terms) == {"hidden", "attention", "logits", "hard", "hidden-2"}
    assert (terms["hidden"].weight, terms["hidden-2"].weight) == (50.0, 50.0)
    assert terms["hidden-2"].layers == ((1, 2), (2, 4))
    assert terms["attention"].weight == built[0][1].weight
    ramped = [[replace(term, weight=Ramp(4.0, 0.0)) for term in terms] for terms in built]
    assert {term.name: term.weight for term in of_several_teachers(ramped, (1.0, 3.0))}["hidden-2"] == Ramp(3.0, 0.0)


def test_projections_to_further_teachers_are_fitted_apart():
    program, *_ = two_teachers()
    before = {name: linear.weight.detach().clone() for name, linear in program.projections.items()}
    fit_projections(program, first=False)
    changed = {name for name, linear in program.projections.items() if not torch.equal(linear.weight, before[name])}
    assert changed == {"embedding-2", "hidden-2"}
    second = {name: linear.weight.detach().clone() for name, linear in program.projections.items()}
    fit_projections(program)
    assert not torch.equal(program.projections["hidden"].weight, second["hidden"])
    assert torch.equal(program.projections["hidden-2"].weight, second["hidden-2"])
