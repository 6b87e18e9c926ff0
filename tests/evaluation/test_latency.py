"""What is run, in which order, and what is computed from it, with engines that move a clock of their own."""

import gc

import numpy as np
import pytest

from potstill.data.encoding import Encodings
from potstill.errors import DataError
from potstill.evaluation import (
    latency_inputs,
    length_facts,
    measure_latency,
    measure_tokenisation,
    speedup_shares,
    speedups,
)

CLS, SEP = 101, 102


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class FakeEngine:
    """Takes `cost(inputs)` seconds on the clock and writes down what it was given."""

    precision = "float32"

    def __init__(self, name, clock, log, cost):
        self.name, self.clock, self.log, self.cost = name, clock, log, cost

    def run(self, inputs):
        assert not gc.isenabled()
        self.clock.now += self.cost(inputs)
        self.log.append((self.name, inputs))
        return {"logits": np.zeros((len(inputs["input_ids"]), 2), np.float32)}


def encodings(lengths, example=None, offset=0):
    """Windows of [CLS] … [SEP] whose content tokens all differ."""
    windows, token = [], 1000 + offset
    for length in lengths:
        windows.append([CLS, *range(token, token + length - 2), SEP])
        token += length - 2
    ids = np.array([token for window in windows for token in window], np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    example = np.arange(len(lengths)) if example is None else np.array(example)
    return Encodings(ids, np.zeros(len(ids), np.int8), starts, example.astype(np.int64), 0, 0, 0)


def content(batch):
    ids = batch["input_ids"]
    return ids[(batch["attention_mask"] == 1) & (ids != CLS) & (ids != SEP)].tolist()


@pytest.fixture
def dev():
    return encodings(np.random.default_rng(0).integers(4, 12, 40).tolist())


def test_made_inputs_are_real_tokens_of_exactly_the_length(dev):
    inputs = latency_inputs(dev, lengths=(5, 16, 300), batch_sizes=(1, 3))
    stream = [token for token in dev.input_ids.tolist() if token not in (CLS, SEP)]
    assert list(inputs) == ["5", "16", "300", "dev"]
    for length in (5, 16, 300):
        for size in (1, 3):
            batches = inputs[str(length)][str(size)]
            for batch in batches:
                assert {array.shape for array in batch.values()} == {(size, length)}
                assert batch["attention_mask"].all()
                assert (batch["input_ids"][:, 0] == CLS).all()
                assert (batch["input_ids"][:, -1] == SEP).all()
                assert not batch["token_type_ids"].any()
            made = [token for batch in batches for token in content(batch)]
            assert made == np.resize(stream, len(made)).tolist()


def test_dev_batches_are_whole_texts_drawn_alike_for_every_tokenizer(dev):
    long = encodings([9] * 60, np.repeat(np.arange(40), [1, 2] * 20))  # every second text has two windows
    inputs, others = (latency_inputs(e, batch_sizes=(1, 8), batches={1: 40, 8: 3}, seed=5)["dev"] for e in (dev, long))
    assert [len(inputs[size]) for size in ("1", "8")] == [40, 3]
    text_of = {token: w for w in range(40) for token in dev.input_ids[dev.starts[w] : dev.starts[w + 1]].tolist()}
    text_of_long = {
        token: int(long.example[w]) for w in range(60) for token in long.input_ids[9 * w : 9 * w + 9].tolist()
    }
    for size in ("1", "8"):
        for batch, other in zip(inputs[size], others[size], strict=True):
            drawn = [text_of[row[1]] for row in batch["input_ids"].tolist()]
            drawn_long = [text_of_long[row[1]] for row in other["input_ids"].tolist()]
            assert len(drawn) == int(size)
            assert drawn_long == [text for text in drawn for _ in range(1 + text % 2)]
    assert sorted(text_of[batch["input_ids"][0, 1]] for batch in inputs["1"]) == list(range(40))


def test_few_texts_are_repeated_and_the_seed_draws(dev):
    one = latency_inputs(encodings([6]), batch_sizes=(4,))["dev"]["4"]
    assert {batch["input_ids"].shape for batch in one} == {(4, 6)}
    first, again, other = (latency_inputs(dev, seed=seed)["dev"]["1"][0]["input_ids"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert first.shape != other.shape or (first != other).any()


def test_length_facts(dev):
    facts = length_facts(dev)
    assert facts == pytest.approx(
        {"mean": dev.lengths.mean(), "p50": np.percentile(dev.lengths, 50), "p95": np.percentile(dev.lengths, 95)}
    )


def three(costs, dev, **settings):
    clock, log = Clock(), []
    engines = {
        name: FakeEngine(name, clock, log, cost if callable(cost) else lambda inputs, cost=cost: cost)
        for name, cost in costs.items()
    }
    inputs = latency_inputs(dev, lengths=(16,), batch_sizes=(1, 4))
    result = measure_latency(engines, dict.fromkeys(engines, inputs), clock=clock, **settings)
    return result, log, clock, inputs


def turns(log):
    """The log as (engine, how many runs in a row)."""
    result = []
    for name, _ in log:
        if result and result[-1][0] == name:
            result[-1][1] += 1
        else:
            result.append([name, 1])
    return result


def test_engines_run_by_turns_on_the_same_texts(dev):
    result, log, _, inputs = three({"a": 0.9, "b": 0.1, "c": 0.3}, dev, seconds=80.0)
    batches = inputs["dev"]["4"]
    cell = [(name, given) for name, given in log if any(given is batch for batch in batches)]
    repeats = result.repeats["dev"]["4"]
    assert repeats >= 3
    warm, counted = cell[: -3 * repeats], cell[-3 * repeats :]
    assert [name for name, _ in sorted(warm, key=lambda entry: entry[0])] == [name for name, _ in warm]
    assert {name for name, _ in warm} == {"a", "b", "c"}
    # At 0.9 s a run there is one run a turn, and none of it to wake up: a b c a b c …
    assert [name for name, _ in counted] == ["a", "b", "c"] * repeats
    assert all(given is batches[(i // 3) % len(batches)] for i, (_, given) in enumerate(counted))


def test_quick_engines_take_short_bursts_that_begin_with_a_run_that_does_not_count(dev):
    result, log, clock, _ = three({"a": 0.03, "b": 0.001, "c": 0.01}, dev, seconds=30.0, most=18)
    assert clock.now < 30.0
    assert {count for sizes in result.repeats.values() for count in sizes.values()} == {18}
    # 0.2 s / 0.03 s: six counted runs a turn, and one before them; three such rounds in each of the four cells.
    assert [turn for turn in turns(log) if turn[1] == 7] == [[name, 7] for _ in range(12) for name in ("a", "b", "c")]


def test_slow_and_first_runs_do_not_show(dev):
    class Cold:
        runs = 0

        def __call__(self, inputs):
            self.runs += 1
            return 5.0 if self.runs == 1 else 0.002

    result, *_ = three({"a": 0.02, "cold": Cold()}, dev, seconds=200.0)
    for sizes in result.ms["cold"].values():
        for times in sizes.values():
            assert times == pytest.approx({"p50": 2.0, "p95": 2.0})


def test_quantiles_are_those_of_the_runs_in_milliseconds(dev):
    def by_length(inputs):
        return inputs["input_ids"].size / 1000

    result, _, _, inputs = three({"a": by_length}, dev, seconds=1e6, most=48)
    assert result.repeats["dev"]["1"] == 48
    sizes = [batch["input_ids"].size for batch in inputs["dev"]["1"]]
    p50, p95 = np.percentile(sizes, [50, 95])
    assert result.ms["a"]["dev"]["1"] == pytest.approx({"p50": p50, "p95": p95})
    assert result.ms["a"]["16"]["4"] == pytest.approx({"p50": 64, "p95": 64})
    assert result.on("16") == {"a": result.ms["a"]["16"]}
    assert result.on() == {"a": result.ms["a"]["dev"]}
    assert result.fewest_repeats == 48


def test_time_is_kept_where_the_fewest_runs_fit_and_spent_on_the_costly(dev):
    def by_size(inputs):
        return len(inputs["input_ids"]) ** 2 / 100

    result, _, clock, _ = three({"a": by_size, "b": by_size}, dev, seconds=60.0, most=100)
    assert 50.0 < clock.now <= 60.0
    assert result.repeats["16"]["1"] == 100
    # The quick cells need 2 s each; what they leave is shared by the two costly ones.
    assert result.repeats["16"]["4"] > 60 / 4 / 0.32 > 3


def test_without_time_the_fewest_runs_are_made(dev):
    result, *_ = three({"a": 1.0, "b": 2.0}, dev, seconds=0.0)
    assert {count for sizes in result.repeats.values() for count in sizes.values()} == {3}


def test_garbage_collection_comes_back(dev):
    assert gc.isenabled()
    three({"a": 1.0}, dev, seconds=0.0)
    assert gc.isenabled()


def test_inputs_that_do_not_fit_are_refused(dev):
    engine = FakeEngine("a", Clock(), [], lambda inputs: 1.0)
    whole, part = latency_inputs(dev), latency_inputs(dev, lengths=(16,))
    with pytest.raises(DataError, match=r"no inputs for \['b'\]"):
        measure_latency({"a": engine, "b": engine}, {"a": whole})
    with pytest.raises(DataError, match="for b; expected"):
        measure_latency({"a": engine, "b": engine}, {"a": whole, "b": part})
    with pytest.raises(DataError, match="0 engines"):
        measure_latency({}, {})
    with pytest.raises(DataError, match=r"lengths \(2,\)"):
        latency_inputs(dev, lengths=(2,))


def test_tokenisation_is_measured_on_the_texts_that_engines_get():
    clock, calls = Clock(), []

    def encode(texts, pairs):
        clock.now += 0.5 if not calls else 0.001 * len(texts)
        calls.append((texts, pairs))

    texts, pairs = [f"t{i}" for i in range(10)], [f"p{i}" for i in range(10)]
    result = measure_tokenisation(encode, texts, pairs, batch_sizes=(1, 4), repeats=10, clock=clock)
    assert result["1"] == pytest.approx({"p50": 1.0, "p95": 1.0})
    assert result["4"] == pytest.approx({"p50": 4.0, "p95": 4.0})
    assert [len(first) for first, _ in calls] == [1] * 11 + [4] * 11
    assert all(second == [f"p{text[1:]}" for text in first] for first, second in calls)
    order = np.random.default_rng(0).permutation(10)
    assert [first[0] for first, _ in calls[:10]] == [f"t{i}" for i in order]
    with pytest.raises(DataError, match="no texts"):
        measure_tokenisation(encode, [])


LATENCY = {
    "torch": {"1": {"p50": 10.0, "p95": 12.0}, "32": {"p50": 120.0, "p95": 130.0}},
    "teacher": {"1": {"p50": 4.0, "p95": 5.0}, "32": {"p50": 30.0, "p95": 31.0}},
    "student": {"1": {"p50": 1.0, "p95": 9.0}, "32": {"p50": 12.0, "p95": 13.0}},
}


def test_speedups_and_their_two_shares():
    assert speedups(LATENCY, "torch") == {
        "torch": {"1": 1.0, "32": 1.0},
        "teacher": {"1": 2.5, "32": 4.0},
        "student": {"1": 10.0, "32": 10.0},
    }
    shares = speedup_shares(LATENCY, reference="torch", teacher="teacher", student="student")
    assert shares == {
        "speedup": {"1": 10.0, "32": 10.0},
        "engine_share": {"1": 2.5, "32": 4.0},
        "student_share": {"1": 4.0, "32": 2.5},
    }
    with pytest.raises(DataError, match="no engine 'onnx'"):
        speedups(LATENCY, "onnx")
    with pytest.raises(DataError, match=r"torch \| teacher \| student"):
        speedup_shares(LATENCY, reference="torch", teacher="teacher", student="onnx")
