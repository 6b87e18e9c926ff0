"""Weights and temperatures that move over a training: what the loop tells a program, and what it makes of it."""

import numpy as np
import pytest
import torch
from tests.recipes.test_programs import LABELS, LENGTHS
from tests.small_models import random_encodings, small_model
from tests.training.toys import Lines
from torch import nn

from potstill.data.batching import Batches
from potstill.losses import hard_cross_entropy, logits_kl
from potstill.models.forward import forward_inputs
from potstill.recipes.distilling import Distilling
from potstill.recipes.guidance import LogitsGuide
from potstill.training import AdamW, LossTerm, Ramp, Schedule, train
from potstill.training.program import value_at


def test_a_ramp_is_a_line_from_its_start_to_its_end():
    assert [value_at(Ramp(4.0, 1.0), part) for part in (0.0, 0.5, 1.0)] == [4.0, 2.5, 1.0]
    assert value_at(0.3, 0.7) == 0.3


def test_the_loop_tells_the_share_of_updates_that_are_made():
    program = Lines()
    train(program, AdamW(program.modules), Schedule(5, 0.01), seed=(0,))
    assert program.told == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_a_change_of_plan_goes_on_from_where_it_stood():
    longer = Schedule(5, 0.01).changed(2, 9)
    assert [longer.progress(step) for step in range(9)] == pytest.approx([0, 0.25, *np.linspace(0.5, 1, 7)])
    shorter = Schedule(9, 0.01).changed(4, 6)
    assert [shorter.progress(step) for step in range(6)] == pytest.approx([0, 0.125, 0.25, 0.375, 0.5, 1.0])
    twice = longer.changed(4, 5)
    assert twice.progress(3) == pytest.approx(longer.progress(3))
    assert twice.progress(4) == pytest.approx(longer.progress(4))


def test_one_update_is_the_first():
    program = Lines()
    train(program, AdamW(program.modules), Schedule(1, 0.01), seed=(0,))
    assert program.told == [0.0]


def distilling(weight, temperature):
    logits = np.random.default_rng(0).normal(size=(len(LENGTHS), 3)).astype(np.float32)
    terms = (
        LossTerm("logits", logits_kl, weight=weight, temperature=temperature, reads="logits"),
        LossTerm("hard", hard_cross_entropy, weight=0.5, reads="labels"),
    )
    student = small_model("bert", layers=2, hidden=16, ffn=24, seed=1)
    batches = Batches(random_encodings(LENGTHS), LABELS, np.arange(len(LENGTHS)), 99, seed=0)
    return Distilling(student, LogitsGuide(logits), terms, nn.ModuleDict(), batches), logits


@pytest.mark.parametrize("progress", [0.0, 0.25, 1.0])
def test_terms_use_the_value_of_the_moment(progress):
    program, logits = distilling(Ramp(2.0, 0.0), Ramp(4.0, 1.0))
    program.advance(progress)
    assert program.weights == {"logits": 2.0 - 2.0 * progress, "hard": 0.5}
    rows = np.arange(len(LENGTHS))
    inputs = program.data.encodings.batch(rows)
    with torch.no_grad():
        got = program.step(rows)["logits"].sum
        own = program.student(**forward_inputs(program.student, inputs)).logits.double()
    t = 4.0 - 3.0 * progress
    target, student = (torch.softmax(z / t, dim=1) for z in (torch.from_numpy(logits).double(), own))
    wanted = t**2 * (target * (target / student).log()).sum()
    assert float(got) == pytest.approx(float(wanted), rel=1e-5)


def test_a_training_under_a_ramp_is_the_sum_of_its_moments():
    """Three updates with a weight that falls = three updates, each with its own constant weight."""
    ramped, _ = distilling(Ramp(2.0, 0.0), 1.0)
    train(ramped, AdamW(ramped.modules), Schedule(3, 0.01), seed=(0,))
    stepped, _ = distilling(1.0, 1.0)
    stepped.advance = lambda progress: stepped.weights.update(logits=2.0 - 2.0 * progress)
    train(stepped, AdamW(stepped.modules), Schedule(3, 0.01), seed=(0,))
    for own, other in zip(ramped.student.parameters(), stepped.student.parameters(), strict=True):
        assert torch.equal(own, other)


def test_another_ramp_is_another_training():
    states = [
        distilling(*given)[0].state()["terms"] for given in ((1.0, 1.0), (Ramp(1.0, 0.0), 1.0), (1.0, Ramp(2, 1)))
    ]
    assert len(set(states)) == 3
