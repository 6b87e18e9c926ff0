"""The training loop: rates, updates, averages, errors, curves."""

import hashlib
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.toys import Lines, distilling, weights_of

from potstill.errors import DataError, NonFiniteError
from potstill.training import AdamW, Schedule, train
from potstill.training.loop import counter_seed


@given(
    steps=st.integers(1, 400),
    warmup=st.sampled_from([0.0, 0.1, 0.06, 0.5]),
    decay=st.sampled_from(["linear", "constant"]),
)
def test_rates_rise_in_a_line_then_fall_in_a_line_or_stay(steps, warmup, decay):
    schedule = Schedule(steps, 3e-4, warmup=warmup, decay=decay)
    rising = warmup * steps
    for step in range(steps):
        if step < rising:  # from one part in (rising + 1) towards the peak, never 0: no step is lost
            wanted = 3e-4 * (step + 1) / (rising + 1)
        elif decay == "constant":
            wanted = 3e-4
        else:
            wanted = 3e-4 * (steps - step) / (steps - rising)
        assert math.isclose(schedule.rate(step), wanted, rel_tol=1e-12)
        assert 0 < schedule.rate(step) <= 3e-4 * (1 + 1e-12)
    assert decay == "constant" or schedule.rate(steps) == 0


def test_a_few_rates_by_hand():
    schedule = Schedule(100, 1.0, warmup=0.1)
    assert [schedule.rate(step) for step in (0, 9, 10, 55, 99)] == pytest.approx([1 / 11, 10 / 11, 1.0, 0.5, 1 / 90])
    assert Schedule(20, 1.0, warmup=0.0, decay="constant").rate(19) == 1.0


def plain_run(program, schedule, *, updates):
    """Σ weight · Σ sum / Σ count over all micro-batches of an update, and a hand on torch's own AdamW."""
    model = program.modules["model"]
    groups = [{"params": [p], "weight_decay": 0.01 if p.ndim > 1 else 0.0} for p in model.parameters()]
    plain = torch.optim.AdamW(groups, lr=0.0, fused=False, foreach=False)
    history = []
    for step, rows in enumerate(updates):
        plain.zero_grad()
        given = model(program.inputs[rows])
        loss = 2.0 * (given - program.targets[rows]).square().mean()
        loss = loss + 0.5 * given.square().sum(dim=1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in plain.param_groups:
            group["lr"] = schedule.rate(step)
        plain.step()
        history.append(weights_of(program))
    return history


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_a_whole_training_against_plain_torch(accumulate):
    schedule = Schedule(9, 0.03, accumulate=accumulate)
    ours, theirs = Lines(rows=14), Lines(rows=14)
    updates = []
    for epoch in range(9):
        batches = ours.batches(epoch)
        updates += [np.concatenate(batches[at : at + accumulate]) for at in range(0, len(batches), accumulate)]
    result = train(ours, AdamW(ours.modules), schedule, seed=(0,))
    plain_run(theirs, schedule, updates=updates[:9])
    for name, weight in weights_of(ours).items():
        torch.testing.assert_close(weight, weights_of(theirs)[name], rtol=1e-5, atol=1e-6)
    assert result.examples == sum(map(len, updates[:9]))


@pytest.mark.parametrize(("average", "last"), [(0.0, 1), (0.1, 1), (0.3, 3), (0.9, 9), (1.0, 10)])
def test_the_result_is_the_plain_mean_of_the_last_weights(average, last):
    schedule = Schedule(10, 0.03, average=average)
    ours, theirs = Lines(), Lines()
    updates = [rows for epoch in range(3) for rows in ours.batches(epoch)][:10]
    train(ours, AdamW(ours.modules), schedule, seed=(0,))
    history = plain_run(theirs, schedule, updates=updates)[-last:]
    for name, weight in weights_of(ours).items():
        wanted = torch.stack([weights[name].double() for weights in history]).mean(dim=0)
        torch.testing.assert_close(weight.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_averages_are_of_the_float32_masters(dtype, monkeypatch):
    seen = []
    step = AdamW.step

    def watch(self, *args, **kwargs):
        norm = step(self, *args, **kwargs)
        seen.append({name: master.detach().clone() for name, master in self.masters.items()})
        return norm

    monkeypatch.setattr(AdamW, "step", watch)
    program = Lines()
    train(program, AdamW(program.modules, dtype=dtype), Schedule(10, 0.03, average=0.4), seed=(0,))
    for name, weight in weights_of(program).items():
        assert weight.dtype == torch.float32
        wanted = torch.stack([masters[name].double() for masters in seen[-4:]]).mean(dim=0)
        torch.testing.assert_close(weight.double(), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("mode", ["paper", "potstill"])
def test_two_micro_batches_are_one_batch_of_both(mode):
    """Exactly the same update, to 1e-6, on a real student: sums and counts, not means of means."""
    phase = "intermediate" if mode == "paper" else "distil"
    ends = []
    for batch_size, accumulate in ((14, 1), (3, 5), (7, 2)):
        program = distilling(dropout=0.0, mode=mode, phase=phase, batch_size=batch_size)
        schedule = Schedule(1, 1e-2, accumulate=accumulate, warmup=0.0, decay="constant")
        train(program, AdamW(program.modules, eps=1e-4), schedule, seed=(0,))
        program.close()
        ends.append(weights_of(program))
    start = weights_of(distilling(dropout=0.0, mode=mode, phase=phase))
    for other in ends[1:]:
        for name, weight in ends[0].items():
            scale = 1e-6 * max(1.0, float(weight.abs().max()))
            assert float((weight - other[name]).abs().max()) <= scale, name
    assert sum(float((weight - start[name]).abs().sum()) for name, weight in ends[0].items()) > 1.0


def spoiled(value, at):
    """Multiplies the loss of one row's batch so that it is `value`, or so that only its gradient is NaN."""

    def spoil(rows, total):
        if at not in rows.tolist():
            return total
        if value == "gradient":
            return total + torch.sqrt((total - total) * 0.0)  # 0, whose slope is 0 · ∞
        return total * value

    return spoil


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "gradient"])
def test_nan_or_infinity_stops_before_the_update_and_names_the_batch(value, accumulate, dtype):
    program = Lines(spoil=spoiled(value, at=5))
    batches = program.batches(0) + program.batches(1)
    bad = next(index for index, rows in enumerate(batches) if 5 in rows)
    optimiser = AdamW(program.modules, dtype=dtype)
    weights, steps = [], []
    step = optimiser.step

    def watch(*args):
        weights.append({name: tensor.clone() for name, tensor in optimiser.state_tensors().items()})
        norm = step(*args)
        weights.append({name: tensor.clone() for name, tensor in optimiser.state_tensors().items()})
        steps.append(norm)
        return norm

    optimiser.step = watch
    started = {name: tensor.clone() for name, tensor in optimiser.state_tensors().items()}
    with pytest.raises(NonFiniteError) as caught:
        train(program, optimiser, Schedule(8, 0.01, accumulate=accumulate), seed=(0,))
    assert len(steps) == bad // accumulate
    kept = weights[-1] if weights else started
    assert optimiser.state_tensors().keys() == kept.keys()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in optimiser.state_tensors().items())
    first = bad - bad % accumulate
    micro = np.concatenate(batches[first : first + accumulate]) if value == "gradient" else batches[bad]
    assert f"on the batch of {program.describe(micro)};" in str(caught.value)
    assert ("the gradient's norm" if value == "gradient" else "the error loss") in str(caught.value)
    assert caught.value.exit_code == 1


def test_a_real_programs_batch_is_named_by_example_ids():
    program = distilling()
    with torch.no_grad():
        program.student.classifier.weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"the logits loss is nan on the batch of examples 1\d\d, 1\d\d, 1"):
        train(program, AdamW(program.modules), Schedule(4, 1e-3), seed=(0,))


def test_every_row_once_an_epoch_and_leftover_micro_batches_make_an_update():
    program = Lines(rows=14, batch_size=3)  # 5 micro-batches: updates of 2, 2 and 1
    train(program, AdamW(program.modules), Schedule(6, 0.01, accumulate=2), seed=(0,))
    for epoch in (program.seen[:5], program.seen[5:]):
        assert sorted(row for rows in epoch for row in rows) == list(range(14))
    assert len(program.seen) == 10


def test_dropout_is_drawn_by_counter():
    def run(*seed, disturb=False):
        program = Lines(dropout=0.5)
        torch.manual_seed(17 if disturb else 1)
        evaluate = (lambda: float(torch.rand(()))) if disturb else None
        train(program, AdamW(program.modules), Schedule(6, 0.01), seed=seed, evaluate=evaluate)
        return torch.cat([weight.ravel() for weight in weights_of(program).values()])

    program, drawn = Lines(), []
    step = program.step

    def watch(rows):
        drawn.append(float(torch.rand(())))
        return step(rows)

    program.step = watch
    train(program, AdamW(program.modules), Schedule(6, 0.01, accumulate=2), seed=(0,))
    assert len(set(drawn)) == len(drawn) == 12  # each micro-batch of each update has its own
    assert torch.equal(run(0, "student"), run(0, "student", disturb=True))
    assert not torch.equal(run(0, "student"), run(1, "student"))
    assert not torch.equal(run(0, "student"), run(0, "teacher"))
    seeds = {counter_seed(0, "a", step, micro) for step in range(50) for micro in range(4)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
    text = b"(1, 'student', 2, 3)"  # the same on every machine
    assert counter_seed(1, "student", 2, 3) == int(hashlib.sha256(text).hexdigest()[:16], 16) // 2


class Watch:
    def __init__(self):
        self.progressed, self.notes = [], []

    def stage(self, name, detail=""): ...

    def progress(self, done, total, **values):
        self.progressed.append((done, total, values))

    def note(self, message):
        self.notes.append(message)

    def warn(self, message): ...


def test_the_curve_and_what_is_shown_on_the_way():
    program, watch = Lines(), Watch()
    scores = iter(range(100))
    schedule = Schedule(40, 0.01)
    options = {"evaluate": lambda: next(scores) / 100, "points": 10, "report": watch}
    result = train(program, AdamW(program.modules), schedule, seed=(0,), **options)
    assert [point["step"] for point in result.curve] == [4 * (k + 1) for k in range(10)]
    assert [point["dev"] for point in result.curve] == [None, 0.0, None, 0.01, None, 0.02, None, 0.03, None, 0.04]
    assert [point["examples"] for point in result.curve] == [12 * (k + 1) for k in range(10)]
    assert [point["learning_rate"] for point in result.curve] == [
        schedule.rate(point["step"] - 1) for point in result.curve
    ]
    assert all(set(point["terms"]) == {"error", "size"} for point in result.curve)
    assert result.curve[-1]["terms"]["error"] < result.curve[0]["terms"]["error"]
    assert [done for done, _, _ in watch.progressed] == list(range(1, 41))
    assert "examples_per_s" in watch.progressed[-1][2]
    assert json.loads(json.dumps(result.curve, allow_nan=False)) == result.curve


def test_terms_in_the_curve_are_sums_over_counts_since_the_last_point():
    program = Lines()
    values = []
    step = program.step

    def watch(rows):
        terms = step(rows)
        values.append((float(terms["error"].sum.detach()), terms["error"].count))
        return terms

    program.step = watch
    result = train(program, AdamW(program.modules), Schedule(6, 0.01, accumulate=2), seed=(0,), points=2)
    for at, point in zip((0, 6), result.curve, strict=True):
        some = values[at : at + 6]
        assert point["terms"]["error"] == pytest.approx(sum(s for s, _ in some) / sum(c for _, c in some))


def test_fewer_steps_than_points():
    program = Lines()
    result = train(program, AdamW(program.modules), Schedule(3, 0.01), seed=(0,), evaluate=lambda: 0.5)
    assert [point["step"] for point in result.curve] == [1, 2, 3]
    assert result.curve[-1]["dev"] == 0.5


def test_modules_train_while_training_and_end_in_eval_mode():
    program = Lines(dropout=0.5)
    modes = []
    step = program.step

    def watch(rows):
        modes.append(program.modules["model"].training)
        return step(rows)

    def evaluate():
        program.modules["model"].eval()
        return 0.0

    program.step = watch
    train(program, AdamW(program.modules), Schedule(10, 0.01), seed=(0,), evaluate=evaluate)
    assert modes == [True] * 10
    assert not program.modules["model"].training


def test_nothing_to_train_on_is_refused_and_does_not_hang():
    program = Lines(rows=0)
    with pytest.raises(DataError, match="without a single batch"):
        train(program, AdamW(program.modules), Schedule(1, 0.1), seed=(0,))


def test_a_batch_without_a_label_moves_nothing_but_decay():
    program = distilling(dropout=0.0)
    program.data.labels[:] = -1
    program.declared = tuple(term for term in program.declared if term.name == "hard")
    before = weights_of(program)
    train(program, AdamW(program.modules, weight_decay=0.0), Schedule(2, 0.1), seed=(0,))
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(program).items())


@given(
    at=st.integers(20, 90),
    total=st.integers(10, 300),
    again=st.integers(1, 50),
    decay=st.sampled_from(["linear", "constant"]),
)
def test_a_changed_schedule_goes_on_from_where_it_stands_to_its_new_end(at, total, again, decay):
    before = Schedule(100, 1.0, warmup=0.1, decay=decay, average=0.2)
    total = max(total, at + 1)
    changed = before.changed(at, total)
    assert changed.total == total
    assert changed.averaged == round(0.2 * total)
    assert [changed.rate(step) for step in range(at + 1)] == [before.rate(step) for step in range(at + 1)]
    for step in range(at, total):
        wanted = before.rate(at) * (total - step) / (total - at) if decay == "linear" else 1.0
        assert changed.rate(step) == pytest.approx(wanted)
    assert decay == "constant" or changed.rate(total) == 0
    twice = changed.changed(min(at + again, total - 1), total + 40)
    assert twice.rate(min(at + again, total - 1)) == pytest.approx(changed.rate(min(at + again, total - 1)))


def replanned(folder, *, decide, stop=None, steps=40):
    program, asked = Lines(batch_size=4), []

    def replan(step, seconds, total):
        assert seconds > 0
        asked.append((step, total))
        return decide(step, total)

    class Stops:
        def progress(self, done, *_args, **_values):
            if done == stop:
                raise KeyboardInterrupt

        stage = note = warn = lambda *_: None

    schedule = Schedule(steps, 0.01, average=0.2)
    options = {"checkpoints": folder, "save_every": 0.0, "replan": replan, "report": Stops()}
    result = train(program, AdamW(program.modules), schedule, seed=(0,), **options)
    return program, result, asked


def test_a_training_may_be_made_shorter_or_longer_on_the_way(tmp_path):
    _, result, asked = replanned(tmp_path / "a", decide=lambda step, total: 20)
    assert (result.steps, result.curve[-1]["step"]) == (20, 20)
    assert asked[0] == (6, 40)  # a seventh of the steps, once the rate has risen
    assert all(total == 20 for _, total in asked[1:])
    _, result, _ = replanned(tmp_path / "b", decide=lambda step, total: 60)
    assert result.steps == 60
    _, result, _ = replanned(tmp_path / "c", decide=lambda step, total: step + 1)
    assert result.steps == 7


def test_a_resumed_training_keeps_what_was_decided(tmp_path):
    def decide(step, total):
        return 30 if step == 6 else total

    whole, result, _ = replanned(tmp_path / "whole", decide=decide)
    assert result.steps == 30
    with pytest.raises(KeyboardInterrupt):
        replanned(tmp_path / "cut", decide=decide, stop=11)
    again, result, asked = replanned(tmp_path / "cut", decide=decide)
    assert result.steps == 30
    assert all(step > 9 for step, _ in asked)
    for name, tensor in weights_of(whole).items():
        assert torch.equal(tensor, weights_of(again)[name]), name
