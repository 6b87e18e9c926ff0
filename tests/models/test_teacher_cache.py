"""What is kept of a teacher against the model's own outputs; files that were damaged, cut off or shared."""

import itertools
import json

import numpy as np
import pytest
import torch
from tests.small_models import CONFIGS, VOCABULARY, random_encodings, small_model

from potstill.errors import StorageError
from potstill.models import teacher_cache
from potstill.models.anatomy import encoder_parts
from potstill.models.cache_files import find_shards, write_shard
from potstill.models.forward import forward_inputs
from potstill.models.teacher_cache import LOGITS, TeacherCache, block_bounds, cache_key, state_bytes

LENGTHS = (3, 9, 5, 9, 2, 7, 4, 12, 3, 3)
PLAIN = ("bert", "roberta", "xlm-roberta", "camembert", "albert", "electra", "mpnet", "distilbert", "deberta-v2")
"""Queries, keys and values are projections of the hidden states before: no bottleneck, no rotation."""
FIELDS = (LOGITS, "hidden-0", "hidden-2", "q-1", "k-1", "v-2")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(teacher_cache, "BLOCK_TOKENS", 18)


class Counted:
    """Counts a model's forward passes while the block lasts."""

    def __init__(self, model):
        self.model, self.passes = model, 0

    def __enter__(self):
        self.handle = self.model.base_model.register_forward_pre_hook(self._count)
        return self

    def _count(self, *_):
        self.passes += 1

    def __exit__(self, *_):
        self.handle.remove()


class Warned:
    def __init__(self):
        self.warnings, self.shown = [], []

    def warn(self, message):
        self.warnings.append(message)

    def progress(self, done, total, **_):
        self.shown.append((done, total))


def filled(folder, model, encodings=None, fields=FIELDS, report=None, **more):
    cache = TeacherCache(folder, encodings or random_encodings(LENGTHS), fields, **more)
    cache.fill(model, **({} if report is None else {"report": report}))
    return cache


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_blocks_hold_whole_windows_and_their_beginning_does_not_depend_on_the_end():
    bounds = block_bounds(np.concatenate([[0], np.cumsum(LENGTHS)]))
    sums = [sum(LENGTHS[a:b]) for a, b in itertools.pairwise(bounds)]
    assert bounds.tolist() == [0, 3, 6, 8, 10]
    assert sums == [17, 18, 16, 6]
    assert block_bounds(np.array([0, 40, 41, 90])).tolist() == [0, 1, 2, 3]  # a longer window stands alone
    longer = block_bounds(np.concatenate([[0], np.cumsum([*LENGTHS, 6, 6, 6, 6])]))
    assert longer[:4].tolist() == bounds[:4].tolist()


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_field_against_the_model_one_text_at_a_time(kind, tmp_path):
    model, encodings = small_model(kind, layers=2, seed=2), random_encodings(LENGTHS, kind=kind)
    cache = filled(tmp_path / "t", model, encodings)
    rows = np.array([8, 0, 7, 3, 4])
    found = cache.read(rows)
    assert set(found) == set(FIELDS) - {LOGITS}
    layers = [part for part in encoder_parts(model).layers]
    for place, row in enumerate(rows):
        length = LENGTHS[row]
        with torch.no_grad():
            own = model(**forward_inputs(model, encodings.batch(np.array([row]))), output_hidden_states=True)
            hidden = own.hidden_states
            wanted = {"hidden-0": hidden[0], "hidden-2": hidden[2]}
            if kind in PLAIN:
                wanted["q-1"], wanted["k-1"] = layers[0].query(hidden[0]), layers[0].key(hidden[0])
                wanted["v-2"] = layers[1].value(hidden[1])
        for field, tensor in wanted.items():
            assert found[field].shape == (5, 12, 24)
            torch.testing.assert_close(found[field][place, :length], tensor[0], rtol=1e-4, atol=1e-5)
            assert not found[field][place, length:].any()
        np.testing.assert_allclose(cache.logits[row], own.logits[0].numpy(), rtol=1e-4, atol=1e-5)


def test_a_bias_of_the_scores_is_kept_once_for_the_longest_window(tmp_path):
    model, encodings = small_model("mpnet", seed=2), random_encodings(LENGTHS, kind="mpnet")
    cache = filled(tmp_path / "t", model, encodings, ("q-1", "k-1", "bias-1", "bias-2"))
    encoder = model.base_model.encoder
    for length in (12, 5):
        wanted = encoder.compute_position_bias(torch.zeros(1, length, 24))
        for layer in (1, 2):
            torch.testing.assert_close(cache.bias[layer][..., :length, :length], wanted)
    with Counted(model) as counted:
        again = filled(tmp_path / "t", model, encodings, ("q-1", "k-1", "bias-1", "bias-2"))
    assert counted.passes == 0
    assert all(torch.equal(again.bias[layer], cache.bias[layer]) for layer in (1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_do_not_depend_on_how_the_cache_was_filled(dtype, tmp_path):
    """In one go, field by field, by a run of fewer texts, or after a stop: the same numbers, bit for bit."""
    model, encodings = small_model(seed=2).to(dtype), random_encodings(LENGTHS)
    rows = np.arange(len(LENGTHS))
    whole = filled(tmp_path / "whole" / "teacher", model, encodings)
    wanted = whole.read(rows)
    assert {tensor.dtype for tensor in wanted.values()} == {dtype}
    assert whole.logits.dtype == np.float32
    filled(tmp_path / "parts" / "teacher", model, encodings.select(np.arange(7)), FIELDS[:3])
    filled(tmp_path / "parts" / "teacher", model, encodings.select(np.arange(7)), FIELDS[3:])
    parts = filled(tmp_path / "parts" / "teacher", model, encodings)
    assert 0 < parts.made < whole.made
    stopped = TeacherCache(tmp_path / "stopped" / "teacher", encodings, FIELDS)

    class Stop(Warned):
        def progress(self, done, total, **_):
            if done > 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.fill(model, report=Stop())
    after = filled(tmp_path / "stopped" / "teacher", model, encodings)
    assert (stopped.made, after.made) == (2, 2)
    for other in (parts, after):
        for field, tensor in other.read(rows).items():
            assert torch.equal(tensor, wanted[field]), field
        assert np.array_equal(other.logits, whole.logits)
        assert other.facts() == whole.facts()
    for batch in ([3, 1], [9], [5, 5, 0]):  # any order, and twice
        for field, tensor in whole.read(np.array(batch)).items():
            for place, row in enumerate(batch):
                part = slice(LENGTHS[row])
                assert torch.equal(tensor[place, part], wanted[field][row, part]), field


def test_what_is_there_is_never_run_again(tmp_path):
    model = small_model(seed=2)
    report = Warned()
    with Counted(model) as counted:
        first = filled(tmp_path, model, report=report)
    assert counted.passes > 0
    assert first.lacking() == (0, 0)
    assert report.shown[-1] == (10, 10)
    with Counted(model) as counted:
        for fields in (FIELDS, [LOGITS], ["q-1"], ["v-2", "hidden-0"]):
            second = filled(tmp_path, model, fields=fields)
            assert second.made == 0
            second.read(np.arange(10))
    assert counted.passes == 0
    with Counted(model) as counted:
        filled(tmp_path, model, fields=["hidden-1", "q-1"])
    assert counted.passes > 0
    assert sum(len(shard.fields) for shard in find_shards(first.blocks[0])) == len(FIELDS) + 1  # the new field alone


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "facts", "no facts"])
def test_a_damaged_file_costs_its_block_and_no_other(damage, tmp_path):
    model = small_model(seed=2)
    first = filled(tmp_path, model)
    before, wanted = contents(tmp_path), first.read(np.arange(10))
    shard = next(shard for shard in find_shards(first.blocks[1]) if "q-1" in shard.fields)
    content, facts = bytearray(shard.path.read_bytes()), shard.path.with_suffix(".json")
    if damage == "flip":
        content[-5] ^= 1
        shard.path.write_bytes(content)
    elif damage == "cut":
        shard.path.write_bytes(content[:-4])
    elif damage == "gone":
        shard.path.unlink()
    elif damage == "facts":
        facts.write_text('{"fields": 3')
    else:
        facts.unlink()
    report = Warned()
    again = filled(tmp_path, model, report=report)
    assert again.made == 1
    assert len(report.warnings) == (damage in ("flip", "cut", "gone"))
    assert contents(tmp_path) == before
    for field, tensor in again.read(np.arange(10)).items():
        assert torch.equal(tensor, wanted[field])


def test_a_file_that_goes_while_it_is_read_is_told(tmp_path):
    cache = filled(tmp_path, small_model(seed=2))
    for shard in find_shards(cache.blocks[0]):
        shard.path.unlink()
    with pytest.raises(StorageError):
        cache.read(np.array([0]))
    for shard in find_shards(cache.blocks[1]):
        shard.path.write_bytes(shard.path.read_bytes()[:200])
    with pytest.raises(StorageError, match="cut short"):
        cache.read(np.array([3]))


def test_more_files_than_may_be_open(tmp_path, monkeypatch):
    cache = filled(tmp_path, small_model(seed=2))
    wanted = cache.read(np.arange(10))
    cache.close()
    cache._reader._most = 2
    for field, tensor in cache.read(np.arange(10)).items():
        assert torch.equal(tensor, wanted[field])
    assert len(cache._reader._open) == 2


def test_the_teachers_ids_are_what_counts(tmp_path):
    """Texts read with fewer pieces of words are the teacher's texts: the same blocks."""
    model, encodings = small_model(seed=2), random_encodings(LENGTHS)
    order = np.random.default_rng(0).permutation(VOCABULARY)
    mapped = random_encodings(LENGTHS)
    mapped.input_ids[:] = np.argsort(order)[encodings.input_ids]
    first = filled(tmp_path, model, encodings)
    second = filled(tmp_path, model, mapped, teacher_ids=order)
    assert second.made == 0
    other = filled(tmp_path, model, mapped)
    assert other.made == len(other.blocks)
    assert np.array_equal(first.logits, second.logits)
    assert not np.allclose(first.logits, other.logits)
    assert len({first.facts(), other.facts()}) == 2


def test_keys_and_sizes():
    keys = {cache_key(model, dtype) for model in "ab" for dtype in (torch.float32, torch.bfloat16)}
    assert len(keys) == 4
    assert cache_key("a", torch.float32) in keys
    # 12 states of a 768-wide model in bfloat16: 18,432 bytes a token.
    fields = [LOGITS, "bias-3", *(f"{kind}-{layer}" for kind in ("hidden", "q", "k") for layer in (3, 6, 9, 12))]
    assert state_bytes(1000, 10, 768, fields, 3, torch.bfloat16) == 18_432_000 + 120
    assert state_bytes(1000, 10, 768, [LOGITS], 3, torch.bfloat16) == 120


def test_the_size_told_is_the_size_taken(tmp_path):
    model = small_model(seed=2)
    cache = TeacherCache(tmp_path, random_encodings(LENGTHS), FIELDS)
    tokens, windows = cache.lacking()
    assert (tokens, windows) == (sum(LENGTHS), len(LENGTHS))
    told = state_bytes(tokens, windows, 24, FIELDS, 3, torch.float32)
    cache.fill(model)
    assert sum(shard.size for folder in cache.blocks for shard in find_shards(folder)) == told
    assert cache.seconds_lacking(model) == 0.0


def test_a_half_written_file_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("potstill.models.cache_files.os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(StorageError, match=r"full; .*free space"):
        write_shard(tmp_path / "b", ["x"], [2], torch.zeros(3, 2))
    assert list((tmp_path / "b").iterdir()) == []
    monkeypatch.undo()
    shard = write_shard(tmp_path / "b", ["x"], [2], torch.zeros(3, 2))
    assert list(find_shards(tmp_path / "b")) == [shard]
    assert json.loads(shard.path.with_suffix(".json").read_text())["schema_version"] == 1
