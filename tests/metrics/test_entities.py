"""Scores of entities against a count one by one and scikit-learn; resamples against the texts written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from potstill.errors import DataError
from potstill.metrics import Entity, entities_by_type, entity_metrics, resampled_entities
from potstill.metrics.bootstrap import draw_cells

LABELS = ("LOC", "ORG", "PER")
entity = st.builds(
    lambda start, length, label: Entity(start, start + length, label),
    st.integers(0, 4),
    st.integers(1, 2),
    st.sampled_from(LABELS),
)
answers = st.lists(st.tuples(*[st.lists(entity, max_size=4, unique=True)] * 3), min_size=1, max_size=12)


def counted(gold, predicted, label=None):
    """Right, gold and predicted, entity by entity."""
    right = known = found = 0
    for ours, theirs in zip(gold, predicted, strict=True):
        known += sum(label in (None, one[2]) for one in ours)
        for one in theirs:
            found += label in (None, one[2])
            right += label in (None, one[2]) and any(tuple(one) == tuple(other) for other in ours)
    return right, known, found


def scores_of(right, known, found):
    precision = right / found if found else 0.0
    recall = right / known if known else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"f1": f1, "precision": precision, "recall": recall}


@given(answers)
def test_micro_scores_equal_a_count_one_by_one(texts):
    gold, predicted, _ = zip(*texts, strict=True)
    assert entity_metrics(gold, predicted) == pytest.approx(scores_of(*counted(gold, predicted)))


@given(answers)
def test_each_type_equals_scikit_learn_on_every_place_that_an_answer_could_stand_at(texts):
    gold, predicted, _ = zip(*texts, strict=True)
    places = sorted({(n, *one) for side in (gold, predicted) for n, found in enumerate(side) for one in found})
    found = entities_by_type(gold, predicted, resamples=3)
    assert set(found) == {place[3] for place in places}
    for label, metrics in found.items():
        of_type = [place for place in places if place[3] == label]
        sides = [
            [tuple(place[1:]) in set(map(tuple, side[place[0]])) for place in of_type] for side in (gold, predicted)
        ]
        precision, recall, f1, _ = precision_recall_fscore_support(*sides, average="binary", zero_division=0)
        wanted = {"f1": f1, "precision": precision, "recall": recall}
        assert {name: metric.value for name, metric in metrics.items()} == pytest.approx(wanted)


@given(texts=answers, seed=st.integers(0, 99))
def test_a_resample_scores_as_its_texts_written_out(texts, seed):
    gold, *models = (list(side) for side in zip(*texts, strict=True))
    found = resampled_entities(gold, models, resamples=5, seed=seed)
    # The same draws, texts that count alike taken together as they are there.
    features = [[counted([own], [side[n]]) for side in models] for n, own in enumerate(gold)]
    cells, first, sizes = np.unique(
        np.array(features).reshape(len(gold), -1), axis=0, return_index=True, return_counts=True
    )
    assert len(cells) == len(first)
    for row, drawn in enumerate(np.concatenate([*draw_cells(sizes, 5, seed)])):
        texts_drawn = np.repeat(first, drawn)
        for model, side in enumerate(models):
            wanted = entity_metrics([gold[n] for n in texts_drawn], [side[n] for n in texts_drawn])
            assert {name: values[row, model] for name, values in found.samples.items()} == pytest.approx(wanted)


def test_intervals_hold_what_drawing_texts_gives():
    generator = np.random.default_rng(3)
    gold = [[Entity(0, 1, "PER")] * int(generator.integers(0, 2)) for _ in range(300)]
    predicted = [found if generator.random() < 0.8 else [Entity(1, 2, "PER")] for found in gold]
    metric = resampled_entities(gold, [predicted], resamples=4000).metrics()["f1"]
    chosen = generator.integers(0, 300, (4000, 300))
    drawn = [scores_of(*counted([gold[n] for n in row], [predicted[n] for n in row]))["f1"] for row in chosen[:1000]]
    assert metric.n == 300
    assert (metric.low, metric.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.012)


def test_a_part_of_an_entity_another_label_and_one_too_long_are_wrong():
    gold = [[Entity(4, 6, "PER")]]
    for wrong in (Entity(4, 5, "PER"), Entity(4, 6, "ORG"), Entity(4, 7, "PER"), Entity(3, 6, "PER")):
        assert entity_metrics(gold, [[wrong]]) == {"f1": 0, "precision": 0, "recall": 0}
    assert entity_metrics(gold, [[Entity(4, 6, "PER"), Entity(4, 5, "PER")]])["precision"] == 0.5


def test_an_entity_in_another_text_is_wrong_and_one_given_twice_counts_once():
    one = Entity(0, 1, "PER")
    assert entity_metrics([[one], []], [[], [one]])["f1"] == 0
    assert entity_metrics([[one]], [[one, one]]) == {"f1": 1, "precision": 1, "recall": 1}


def test_texts_without_entities_count_and_nothing_at_all_scores_0():
    assert entity_metrics([[], []], [[], []]) == {"f1": 0, "precision": 0, "recall": 0}
    assert resampled_entities([[], [Entity(0, 1, "A")]], [[[], []]], resamples=10).n == 2


def test_models_share_their_resamples():
    gold = [[Entity(n % 3, 4, "A")] for n in range(40)]
    half = [found if n % 2 else [] for n, found in enumerate(gold)]
    found = resampled_entities(gold, [half, half], resamples=50)
    assert found.retention("f1").low == found.retention("f1").high == 1


@pytest.mark.parametrize(("gold", "predicted"), [([], []), ([[]], [[], []])])
def test_other_numbers_of_texts_are_refused(gold, predicted):
    with pytest.raises(DataError, match="one of each per text"):
        entity_metrics(gold, predicted)


def test_no_resamples_are_refused():
    for judge in (
        lambda: resampled_entities([[]], [[[]]], resamples=0),
        lambda: entities_by_type([[]], [[]], resamples=0),
    ):
        with pytest.raises(DataError, match="1 or more"):
            judge()
