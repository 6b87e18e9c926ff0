"""A guide that reads a cache, under every method, against the live one; and the model is not run."""

import numpy as np
import pytest
import torch
from tests.models.test_teacher_cache import Counted
from tests.recipes.test_programs import program_of, total_and_gradient
from tests.recipes.test_suite import CELLS, LENGTHS, cell

from potstill.errors import ModelError
from potstill.losses import attention_kl
from potstill.models import teacher_cache
from potstill.models.teacher_cache import LOGITS, TeacherCache
from potstill.recipes.cached import CachedGuide, fields_of, padding_read
from potstill.recipes.distilling import Distilling

ROWS = (range(len(LENGTHS)), [3, 1], [2, 6, 0])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(teacher_cache, "BLOCK_TOKENS", 18)


def cached(program, folder, kind="bert", logits=None):
    """The same program over a cache of what its terms read."""
    teacher = program.guide.teacher
    fields = fields_of(program.terms, biased=kind == "mpnet", logits=logits is None)
    cache = TeacherCache(folder, program.data.encodings, fields)
    cache.fill(teacher)
    guide = CachedGuide(teacher, cache, logits)
    return Distilling(program.student, guide, program.terms, program.projections, program.data)


@pytest.mark.parametrize(("phase", "kind"), CELLS)
def test_every_method_learns_the_same_from_a_cache(phase, kind, tmp_path):
    live = cell(phase, kind)
    if padding_read(live.terms):
        assert phase.startswith("reference")
        return
    if kind == "deberta-v2" and any(term.fn is attention_kl for term in live.terms):
        biased = fields_of(live.terms, biased=True)
        with pytest.raises(ModelError, match="a bias of their own for each text, which is not kept"):
            TeacherCache(tmp_path, live.data.encodings, biased).fill(live.guide.teacher)
        return
    other = cached(live, tmp_path, kind)
    for rows in ROWS:
        with Counted(live.guide.teacher) as counted:
            found = total_and_gradient(other, [rows])
            assert other.counts(np.array(rows)) == live.counts(np.array(rows))
        assert counted.passes == 0
        wanted = total_and_gradient(live, [rows])
        assert found[0] == pytest.approx(wanted[0], rel=1e-5, abs=1e-7)
        scale = max(float(slope.abs().max()) for slope in wanted[1].values())
        assert all(float((found[1][n] - slope).abs().max()) <= 1e-5 * scale for n, slope in wanted[1].items())


def test_mpnets_bias_under_minilm(tmp_path):
    live = cell("minilm general", "mpnet")
    assert fields_of(live.terms, biased=True) == ["q-4", "k-4", "bias-4", "v-4"]
    assert fields_of(live.terms, biased=False) == ["q-4", "k-4", "v-4"]
    other = cached(live, tmp_path, "mpnet")
    for rows in ROWS:
        with torch.no_grad():
            ours, theirs = other.step(np.array(rows)), live.step(np.array(rows))
        assert float(ours["attention"].sum) == pytest.approx(float(theirs["attention"].sum), rel=1e-5)
    other.guide.cache.bias.clear()
    with torch.no_grad():
        without = other.step(np.arange(len(LENGTHS)))
        assert float(without["attention"].sum) != pytest.approx(
            float(live.step(np.arange(len(LENGTHS)))["attention"].sum), rel=1e-3
        )


def test_what_terms_read():
    program = program_of()
    assert fields_of(program.terms, biased=True) == [
        LOGITS,
        *("hidden-0", "hidden-1", "hidden-3", "q-1", "q-3", "k-1", "k-3"),
    ]
    assert LOGITS not in fields_of(program.terms, biased=False, logits=False)
    assert fields_of(program_of(names=("hard",)).terms, biased=True) == []
    assert padding_read(program.terms) is None
    assert padding_read(program_of(mode="reference").terms) == "embedding"


def test_other_logits_stand_for_the_teachers(tmp_path):
    given = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    live, plain = program_of(logits=given), program_of()
    other = cached(live, tmp_path / "a", logits=given)
    assert LOGITS not in other.guide.cache.fields
    rows = np.arange(7)
    with torch.no_grad():
        assert float(other.step(rows)["logits"].sum) == pytest.approx(float(live.step(rows)["logits"].sum), rel=1e-5)
    own = cached(plain, tmp_path / "b")
    states = [str(program.state()) for program in (other, own, live, plain)]
    assert len(set(states)) == 4
    with pytest.raises(ModelError, match="6 rows"):
        CachedGuide(plain.guide.teacher, own.guide.cache, given[:6])


def test_logits_of_some_rows_stand_for_the_teachers_there_alone(tmp_path):
    live = program_of()
    rows = np.arange(len(LENGTHS))
    own = live.guide.guidance(rows).logits.clone()
    live.guide.states.clear()
    given = np.random.default_rng(0).normal(size=own.shape).astype(np.float32)
    given[::2] = np.nan
    partly = program_of(logits=given)
    with Counted(partly.guide.teacher) as counted:
        found = partly.guide.guidance(rows).logits
        partly.guide.states.clear()
    assert counted.passes == 1
    np.testing.assert_array_equal(found[1::2], given[1::2])
    np.testing.assert_array_equal(found[::2], own[::2])
    alone = program_of(names=("logits",), logits=given)
    with Counted(alone.guide.teacher) as counted:
        alone.guide.guidance(np.array([1, 3]))
        assert counted.passes == 0, "nothing is asked of the model where all is given"
        alone.guide.guidance(np.array([1, 2]))
        assert counted.passes == 1
    whole = cached(program_of(), tmp_path)
    guide = CachedGuide(partly.guide.teacher, whole.guide.cache, given)
    np.testing.assert_allclose(guide.guidance(rows).logits, found, atol=1e-6)
