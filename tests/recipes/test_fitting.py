"""Projections fitted before the first step: the ridge regression of numpy, over joined tokens alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.recipes.test_joined import (
    encodings_of,
    joined_guide,
    joined_targets,
    models,
    program_of,
    run_alone,
    terms_of,
)

from potstill.data.alignment import Alignment
from potstill.recipes.distilling import projections_for
from potstill.recipes.fitting import fit_projections
from potstill.recipes.terms import HARD, HIDDEN, LOGITS
from potstill.training import Ramp


@pytest.mark.parametrize("shared", [False, True])
def test_as_numpys_ridge_regression(shared):
    own, other = encodings_of("wordpiece", 50), encodings_of("bpe", 20)
    student, teacher = models("bert")
    alignment, terms = Alignment(own, other), terms_of((HIDDEN, LOGITS, HARD))
    program = program_of(own, joined_guide(teacher, terms, alignment), student, terms)
    program.projections = projections_for(terms, 16, 24, shared=shared)
    program.modules["projections"] = program.projections
    rows = np.arange(len(own))
    before = float(program.step(rows)["hidden"].sum.detach())
    fit_projections(program)
    ours, theirs = [], []
    joined, width = alignment.of(rows), int(other.lengths.max())
    with torch.no_grad():
        for row in rows:
            mine, said = run_alone(student, own, row).hidden_states, run_alone(teacher, other, row).hidden_states
            for own_layer, layer in ((1, 1), (2, 3)):
                for token, target in joined_targets(joined, row, said[layer][0], width):
                    ours.append(mine[own_layer][0][token].double().numpy())
                    theirs.append(target.double().numpy())
    x, y = np.array(ours), np.array(theirs)
    if shared:
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    square = x.T @ x
    wanted = np.linalg.solve(square + 1e-3 * np.diag(square).mean() * np.eye(len(square)), x.T @ y)
    linear = program.projections["all" if shared else "hidden"]
    assert linear.weight.detach().numpy() == pytest.approx(wanted[:16].T, abs=2e-4)
    if shared:
        assert linear.bias.detach().numpy() == pytest.approx(wanted[16], abs=2e-4)
    after = program.step(rows)["hidden"]
    assert float(after.sum.detach()) < 0.8 * before
    assert after.count == program.counts(rows)["hidden"]
    assert not student.training


def test_a_loss_that_begins_at_0_is_fitted_all_the_same():
    own, other = encodings_of("wordpiece", 50), encodings_of("bpe", 20)
    fitted = []
    for weight in (1.0, Ramp(0.0, 1.0)):
        student, teacher = models("bert")
        terms = tuple(replace(term, weight=weight) for term in terms_of((HIDDEN, LOGITS, HARD)))
        program = program_of(own, joined_guide(teacher, terms, Alignment(own, other)), student, terms)
        drawn = program.projections["hidden"].weight.detach().clone()
        fit_projections(program)
        fitted.append(program.projections["hidden"].weight.detach())
        assert not torch.equal(fitted[-1], drawn)
    assert torch.equal(*fitted)


def test_a_method_without_projections_is_left_alone():
    own = encodings_of("wordpiece")
    student, teacher = models("bert")
    terms = terms_of((LOGITS, HARD))
    program = program_of(own, joined_guide(teacher, terms, Alignment(own, own)), student, terms)
    fit_projections(program)
    assert not len(program.projections)
