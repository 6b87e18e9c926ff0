"""Layer mappings, and recipes: as published, and as changed by settings."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potstill import losses
from potstill.errors import ModelError, SettingsError
from potstill.recipes import RECIPES, build_terms, by_heads, chosen_layers, layer_pairs, with_loss, with_overrides
from potstill.tasks import Classification

UNSET = {"weights": {}, "epochs": None, "batch_size": None, "learning_rate": None}


@given(layers=st.integers(1, 24).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))))
def test_mappings(layers):
    ours, theirs = layers
    uniform, top, bottom = (layer_pairs(ours, theirs, name) for name in ("uniform", "top", "bottom"))
    assert [m for m, _ in uniform] == [m for m, _ in top] == [m for m, _ in bottom] == list(range(1, ours + 1))
    assert [n for _, n in bottom] == list(range(1, ours + 1))
    assert [n for _, n in top] == list(range(theirs - ours + 1, theirs + 1))
    assert [n for _, n in uniform] == [int(m * theirs / ours + 1e-9) for m in range(1, ours + 1)]
    assert uniform[-1] == (ours, theirs)
    assert all(later > former for (_, former), (_, later) in itertools.pairwise(uniform))
    if theirs % ours == 0:  # the released code: student block i (0-based) and teacher block i·r + r − 1
        ratio = theirs // ours
        assert [n - 1 for _, n in uniform] == [block * ratio + ratio - 1 for block in range(ours)]


def test_mappings_by_hand():
    assert [n for _, n in layer_pairs(4, 12, "uniform")] == [3, 6, 9, 12]
    assert [n for _, n in layer_pairs(4, 6, "uniform")] == [1, 3, 4, 6]
    assert [n for _, n in layer_pairs(4, 12, "top")] == [9, 10, 11, 12]
    assert [n for _, n in layer_pairs(4, 12, "bottom")] == [1, 2, 3, 4]


@pytest.mark.parametrize("mapping", ["uniform", "top", "bottom"])
def test_a_student_deeper_than_its_teacher_is_refused(mapping):
    with pytest.raises(ModelError, match="a student of 7 layers under a teacher of 6"):
        layer_pairs(7, 6, mapping)


PUBLISHED = {
    # name: epochs, batch, rate, warm-up, decay, terms; all weights 1.
    "general": (3, 256, 5e-5, 0.1, "linear", ["embedding", "hidden", "attention"]),
    "intermediate": (20, 32, 5e-5, 0.0, "constant", ["embedding", "hidden", "attention"]),
    "prediction": (3, 32, 3e-5, 0.1, "linear", ["logits"]),
}
FUNCTIONS = {
    "paper": {
        "embedding": losses.hidden_mse,
        "hidden": losses.hidden_mse,
        "attention": losses.attention_mse,
        "logits": losses.soft_cross_entropy,
    },
    "reference": {
        "embedding": losses.hidden_mse_reference,
        "hidden": losses.hidden_mse_reference,
        "attention": losses.attention_mse_reference,
        "logits": losses.soft_cross_entropy_reference,
    },
}


@pytest.mark.parametrize("mode", FUNCTIONS)
def test_tinybert_as_published(mode):
    recipe = RECIPES[mode]
    assert [phase.name for phase in recipe.phases] == ["intermediate", "prediction"]
    for phase in (recipe.general, *recipe.phases):
        epochs, batch, rate, warmup, decay, terms = PUBLISHED[phase.name]
        assert (phase.epochs, phase.batch_size, phase.learning_rate) == (epochs, batch, rate)
        assert (phase.warmup, phase.decay, phase.average, phase.dropout) == (warmup, decay, 0.0, True)
        used = [term for term in phase.terms if term.weight]
        assert [(term.name, term.weight) for term in used] == [(name, 1.0) for name in terms]
        assert all(term.fn is FUNCTIONS[mode][term.name] for term in used)
    assert (recipe.weight_decay, recipe.clip, recipe.copies, recipe.start) == (0.01, 1.0, 20, "random")
    assert recipe.projection == ("shared" if mode == "reference" else "each")


def test_names_are_their_keys_and_every_recipe_ends_with_the_task():
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert {"logits", "hard"} & {term.name for term in recipe.phases[-1].terms if term.weight}
        for phase in (*([recipe.general] if recipe.general else []), *recipe.phases):
            assert (phase.epochs is None) == bool(phase.examples)


def test_terms_know_their_layers():
    built = build_terms(RECIPES["paper"].phases[0], student=4, teacher=12, mapping="uniform", temperature=2.0)
    by_name = {term.name: term for term in built}
    assert by_name["embedding"].layers == ((0, 0),)
    assert by_name["hidden"].layers == by_name["attention"].layers == ((1, 3), (2, 6), (3, 9), (4, 12))
    (logits,) = build_terms(RECIPES["paper"].phases[1], student=4, teacher=12, mapping="top", temperature=2.0)
    assert (logits.layers, logits.temperature, logits.fn) == ((), 2.0, losses.soft_cross_entropy)


def test_terms_of_weight_zero_are_left_out():
    changed = with_overrides(RECIPES["paper"], **{**UNSET, "weights": {"attention": 0.0, "hidden": 3.0}})
    built = build_terms(changed.phases[0], student=2, teacher=2, mapping="uniform", temperature=1.0)
    assert {term.name: term.weight for term in built} == {"embedding": 1.0, "hidden": 3.0}


@pytest.mark.parametrize("mode", RECIPES)
def test_without_overrides_nothing_changes(mode):
    assert with_overrides(RECIPES[mode], **UNSET) == RECIPES[mode]
    assert with_overrides(RECIPES[mode], **{**UNSET, "weights": {"hidden": None}}) == RECIPES[mode]


def test_overrides_hold_for_every_phase_of_the_task():
    changed = with_overrides(RECIPES["paper"], weights={}, epochs=1, batch_size=8, learning_rate=1e-4)
    assert [(p.epochs, p.batch_size, p.learning_rate) for p in changed.phases] == [(1, 8, 1e-4)] * 2
    assert changed.general == RECIPES["paper"].general


def test_a_phase_without_a_weight_is_left_out():
    changed = with_overrides(RECIPES["paper"], **{**UNSET, "weights": {"logits": 0.0}})
    assert [phase.name for phase in changed.phases] == ["intermediate"]
    only = {"embedding": 0.0, "hidden": 0.0, "attention": 0.0}
    assert [p.name for p in with_overrides(RECIPES["paper"], **{**UNSET, "weights": only}).phases] == ["prediction"]
    with pytest.raises(SettingsError, match="all 0"):
        with_overrides(RECIPES["paper"], **{**UNSET, "weights": {**only, "logits": 0.0}})


def test_a_weight_for_a_term_that_there_is_not_is_never_swallowed():
    with pytest.raises(SettingsError, match=r"distill\.weights\.cls in the recipe 'paper'"):
        with_overrides(RECIPES["paper"], **{**UNSET, "weights": {"cls": 0.5}})
    assert with_overrides(RECIPES["paper"], **{**UNSET, "weights": {"cls": 0.0}}) == RECIPES["paper"]
    ours = with_overrides(RECIPES["potstill"], **{**UNSET, "weights": {"embedding": 0.5}})
    assert {term.name: term.weight for term in ours.phases[0].terms}["embedding"] == 0.5


@pytest.mark.parametrize(
    ("student", "teacher", "choice", "wanted"),
    [
        (6, 12, "every-other", (1, 3, 5, 8, 10, 12)),  # as DistilBERT's authors took them: 0, 2, 4, 7, 9, 11
        (3, 12, "every-other", (1, 7, 12)),
        (1, 12, "every-other", (1,)),
        (4, 4, "every-other", (1, 2, 3, 4)),
        (4, 12, "top", (9, 10, 11, 12)),
        (4, 12, "bottom", (1, 2, 3, 4)),
        (4, 12, "ends", (1, 2, 11, 12)),
        (5, 12, "ends", (1, 2, 3, 11, 12)),
        (1, 12, "ends", (1,)),
        (3, 12, (0, 5, 11), (1, 6, 12)),
    ],
)
def test_layers_to_start_from(student, teacher, choice, wanted):
    assert chosen_layers(student, teacher, choice) == wanted


@pytest.mark.parametrize("choice", ["every-other", "top", "bottom", "ends"])
def test_layers_that_are_not_there(choice):
    for student in range(1, 13):
        layers = chosen_layers(student, 12, choice)
        assert len(set(layers)) == student
        assert sorted(layers) == list(layers)
        assert set(layers) <= set(range(1, 13))
    with pytest.raises(ModelError):
        chosen_layers(13, 12, choice)


def test_relations_take_the_place_of_scores_where_heads_differ():
    phase = RECIPES["potstill"].phases[0]
    equal = build_terms(phase, student=2, teacher=4, mapping="uniform")
    other = build_terms(phase, student=2, teacher=4, mapping="uniform", equal_heads=False)
    assert [term.name for term in equal] == ["hidden", "attention", "logits", "hard"]
    assert [term.name for term in other] == ["hidden", "queries", "keys", "values", "logits", "hard"]
    assert {term.weight for term in other if term.reads in ("queries", "keys", "values")} == {10.0}
    assert {term.layers for term in other if term.reads == "queries"} == {((2, 4),)}
    # A weight that the user sets holds for what takes the term's place; 0 leaves both out.
    for weight, names in ((0.5, {"queries", "keys", "values"}), (0.0, set())):
        weights = {"attention": weight}
        chosen = with_overrides(
            RECIPES["potstill"], weights=weights, epochs=None, batch_size=None, learning_rate=None
        ).phases[0]
        found = build_terms(chosen, student=2, teacher=4, mapping="uniform", equal_heads=False)
        assert {term.name for term in found if term.weight == weight and term.name != "hidden"} == names
    assert by_heads(RECIPES["paper"].phases[0].terms, equal=False) == RECIPES["paper"].phases[0].terms


def test_class_weights_reach_the_gold_answers_alone():
    task = Classification(("no", "yes"), weights=(0.5, 2.0))
    terms = build_terms(RECIPES["potstill"].phases[0], student=2, teacher=4, mapping="uniform")
    weighted = with_loss(terms, task)
    assert {term.name for term, before in zip(weighted, terms, strict=True) if term != before} == {"hard"}
    hard = next(term for term in weighted if term.name == "hard")
    logits, labels = torch.tensor([[1.0, -1.0], [0.5, 0.0]]), torch.tensor([0, 1])
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    total, count = hard.fn(logits, labels)
    assert total.item() == pytest.approx(0.5 * each[0].item() + 2.0 * each[1].item(), rel=1e-6)
    assert count == 2
