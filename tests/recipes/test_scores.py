"""Every method on scores: which losses its terms become, that it learns, and what its counts are."""

import numpy as np
import pytest
import torch
from tests.recipes.test_programs import check_same, total_and_gradient
from tests.small_models import random_encodings, small_model

from potstill import losses
from potstill.data.batching import Batches
from potstill.recipes import RECIPES, build_terms, for_task, in_units
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.fine_tuning import FineTuning
from potstill.recipes.guidance import LiveGuide
from potstill.tasks import Classification, Regression
from potstill.training import AdamW, LossTerm, Ramp, Schedule, train

LENGTHS = (3, 9, 5, 9, 2, 7, 4)
SCORES = np.array([0.0, 2.5, np.nan, 5.0, 1.0, np.nan, 4.2])
TASK = Regression()


@pytest.mark.parametrize("name", RECIPES)
def test_terms_on_answers_are_squared_errors(name):
    published, made = RECIPES[name], for_task(RECIPES[name], TASK)
    assert for_task(published, Classification(("a", "b"))) == published
    assert [phase.name for phase in made.phases] == [phase.name for phase in published.phases]
    for before, after in zip(published.phases, made.phases, strict=True):
        gold = name == "reference" and any(term.reads == "logits" for term in before.terms)
        kept = [term for term in before.terms if not (gold and term.reads == "labels")]
        for old, new in zip(kept, after.terms, strict=True):
            assert new.weight == old.weight
            if old.reads == "labels" or (name == "reference" and old.reads == "logits"):
                assert (new.name, new.reads, new.fn) == ("hard", "labels", losses.score_mse)
            elif old.reads == "logits":
                assert (new.name, new.reads, new.fn) == ("logits", "logits", losses.logits_mse)
            else:
                assert new == old
    assert made.copies == 0
    assert made.teaches_the_task == published.teaches_the_task


def cell(name, batch_size=99, *, unit=1.0):
    """All terms of a method's last phase on a student of 2 layers under a teacher of 4; scores in other units."""
    recipe = for_task(RECIPES[name], TASK)
    bare = recipe.projection == "none"
    student = small_model("bert", layers=2, hidden=24 if bare else 16, ffn=24, labels=1, seed=1)
    teacher = small_model("bert", layers=4, hidden=24, labels=1, seed=2)
    with torch.no_grad():
        for model in (student, teacher):
            model.classifier.weight.mul_(unit)
            model.classifier.bias.mul_(unit)
    terms = in_units(build_terms(recipe.phases[-1], student=2, teacher=4, mapping="uniform"), 1.7 * unit)
    torch.manual_seed(3)
    made = torch.nn.ModuleDict() if bare else projections_for(terms, 16, 24, shared=recipe.projection == "shared")
    encodings = random_encodings(LENGTHS)
    batches = Batches(encodings, SCORES * unit, np.arange(len(LENGTHS)), batch_size, seed=0)
    return Distilling(student, LiveGuide(teacher, terms, encodings), terms, made, batches)


@pytest.mark.parametrize("name", RECIPES)
def test_it_learns_scores_and_its_counts_are_told_beforehand(name):
    program = cell(name, batch_size=len(LENGTHS))
    for rows in ([1, 3], [2, 5], range(len(LENGTHS))):
        rows = np.array(rows)
        assert program.counts(rows) == {term: value.count for term, value in program.step(rows).items()}
    everything = [range(len(LENGTHS))]
    before, _ = total_and_gradient(program, everything)
    train(program, AdamW(program.modules, weight_decay=0.0), Schedule(40, 3e-3), seed=(0,))
    after, _ = total_and_gradient(program, everything)
    total = [sum(program.weights[term] * value for term, value in found.items()) for found in (before, after)]
    assert total[1] < 0.9 * total[0]


def test_company_changes_nothing_and_batches_without_scores_are_fine():
    wanted = total_and_gradient(cell("potstill"), [range(len(LENGTHS))])
    check_same(total_and_gradient(cell("potstill"), [[3, 0, 6], [2, 5], [1, 4]]), wanted)


def test_fine_tuning_is_mean_squared_error():
    model = small_model("bert", labels=1)
    batches = Batches(random_encodings(LENGTHS), SCORES, np.arange(len(LENGTHS)), 99, seed=0)
    program = FineTuning(model, batches, TASK.loss)
    rows = np.arange(len(LENGTHS))
    found = program.step(rows)["hard"]
    batch = batches.encodings.batch(rows)
    with torch.no_grad():
        logits = model(**{name: torch.from_numpy(array) for name, array in batch.items()}).logits[:, 0].numpy()
    known = ~np.isnan(SCORES)
    assert found.count == program.counts(rows)["hard"] == known.sum()
    assert found.sum.item() / found.count == pytest.approx(np.mean((logits[known] - SCORES[known]) ** 2), rel=1e-5)


def test_what_is_learned_does_not_depend_on_the_unit_of_the_scores():
    """Scores, teacher and student a hundred times as large: the same loss, term by term, and the same slope inside."""

    def total(unit):
        program = cell("potstill", unit=unit)
        values, slopes = total_and_gradient(program, [range(len(LENGTHS))])
        weighted = {name: program.weights[name] * value for name, value in values.items()}
        return weighted, {name: slope for name, slope in slopes.items() if "classifier" not in name}

    check_same(total(100.0), total(1.0))


def test_a_weight_that_moves_is_weighed_too():
    term = LossTerm("logits", losses.logits_mse, weight=Ramp(4.0, 8.0), reads="logits")
    other = LossTerm("hidden", losses.hidden_mse, weight=3.0, reads="hidden")
    assert [one.weight for one in in_units((term, other), 2.0)] == [Ramp(1.0, 2.0), 3.0]
