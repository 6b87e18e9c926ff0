"""What a teacher says of texts, kept on disk: logits, and inner states where they are asked for. Knows no loss.

Windows are cut into blocks of some 16,000 tokens, in their order; each block is run by itself, in batches that its
lengths alone decide. So the numbers kept depend on the teacher and the block and on nothing of a run: not on its
batches, nor on whether the cache was full or empty before it. A block's files are written one by one, each with its
SHA-256 beside it: an interrupted filling goes on at the block, and a damaged file costs one block.

    <root>/<model, number format, versions>/<tokens of a block>/<fields>.safetensors and .json
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from potstill.data.batching import length_batches
from potstill.data.encoding import Encodings
from potstill.errors import ModelError
from potstill.models.cache_files import Shard, ShardReader, find_shards, write_shard
from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.models.tap import LayerStates, Want, tap
from potstill.progress import SILENT, Reporter
from potstill.storage import digest

__all__ = ["LOGITS", "TeacherCache", "cache_key", "is_bias", "state_bytes", "state_field"]

BLOCK_TOKENS = 16_384
"""Tokens in a block: what one damaged file costs, and what is held in memory while it is made."""

BATCH_TOKENS = 4_096
"""Tokens in a forward pass, padding included."""

LOGITS = "logits"


def state_field(want: Want, layer: int) -> str:
    """The name of a state: its kind and its layer, as in hidden-3."""
    return f"{want}-{layer}"


def is_bias(field: str) -> bool:
    """Whether a field is what the architecture adds to the scores of a layer: kept once, not for each text."""
    return field.startswith("bias-")


def _state(field: str) -> tuple[Want, int]:
    want, _, layer = field.partition("-")
    return want, int(layer)  # type: ignore[return-value]


def cache_key(model_digest: str, dtype: torch.dtype) -> str:
    """What, beside a block's tokens, its numbers depend on: 32 hex digits.

    The tokens stand for tokenizer, text and window: the model sees nothing else. Threads, processor and versions count,
    since with others a product may round otherwise, and a run's bytes may not depend on who filled the cache.
    """
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    machine = {"threads": torch.get_num_threads(), "cpu": torch.backends.cpu.get_cpu_capability()}
    return digest([1, model_digest, str(dtype), versions, machine, BLOCK_TOKENS, BATCH_TOKENS])[:32]


def state_bytes(tokens: int, windows: int, width: int, fields: Sequence[str], labels: int, dtype: torch.dtype) -> int:
    """Bytes of the fields: tokens × width × states in the model's number format, and float32 logits."""
    states = sum(field != LOGITS and not is_bias(field) for field in fields)
    return tokens * width * states * dtype.itemsize + windows * labels * 4 * (LOGITS in fields)


def block_bounds(starts: np.ndarray) -> np.ndarray:
    """Window numbers at which blocks begin, and their end: int64 (blocks + 1,).

    A block holds as many windows as fit `BLOCK_TOKENS`, at least one; those of a text's first windows do not depend on
    what follows them.
    """
    bounds = [0]
    while bounds[-1] < len(starts) - 1:
        first = bounds[-1]
        end = int(np.searchsorted(starts, starts[first] + BLOCK_TOKENS, side="right")) - 1
        bounds.append(max(first + 1, end))
    return np.array(bounds, dtype=np.int64)


class TeacherCache:
    """A teacher's logits and states for windows of text, on disk.

    Args:
        folder: Of this teacher: <root>/<cache_key>.
        encodings: m windows.
        fields: `LOGITS`, and states and biases by `state_field`.
        teacher_ids: int64 (V,), the teacher's id of each piece that the windows are made of; None where they are its.

    Attributes:
        logits: float32 (m, C) once filled; None where they are no field.
        bias: Layer → (1, heads, L, L) once filled, L the longest window; empty where none is a field.
        made: Blocks that the teacher was run on.
    """

    def __init__(
        self, folder: Path, encodings: Encodings, fields: Sequence[str], teacher_ids: np.ndarray | None = None
    ) -> None:
        self.folder, self.encodings, self.teacher_ids = folder, encodings, teacher_ids
        self.fields = tuple(dict.fromkeys(fields))
        self.states = tuple(field for field in self.fields if field != LOGITS and not is_bias(field))
        self.bounds = block_bounds(encodings.starts)
        self.blocks = [folder / self._name(number) for number in range(len(self.bounds) - 1)]
        self.logits: np.ndarray | None = None
        self.bias: dict[int, Tensor] = {}
        self.made = 0
        self._cover: list[list[tuple[Shard, tuple[str, ...]]]] = []
        self._reader = ShardReader()

    def _windows(self, number: int) -> np.ndarray:
        return np.arange(self.bounds[number], self.bounds[number + 1])

    def _name(self, number: int) -> str:
        """SHA-256 of the tokens that the teacher sees in a block, and of where its windows end."""
        own, (first, end) = self.encodings, self.bounds[number : number + 2]
        part = slice(own.starts[first], own.starts[end])
        ids = own.input_ids[part] if self.teacher_ids is None else self.teacher_ids[own.input_ids[part]]
        found = hashlib.sha256(np.ascontiguousarray(ids, dtype=np.int32).data)
        found.update(np.ascontiguousarray(own.token_type_ids[part], dtype=np.int8).data)
        found.update(np.ascontiguousarray(own.starts[first : end + 1] - own.starts[first]).data)
        return found.hexdigest()[:40]

    def lacking(self) -> tuple[int, int]:
        """Tokens and windows of the blocks that are not all there, by their facts alone: nothing is read or hashed."""
        blocks = [n for n, folder in enumerate(self.blocks) if _missing(self._wanted, _cover(folder, self._wanted))]
        windows = sum(int(self.bounds[n + 1] - self.bounds[n]) for n in blocks)
        starts = self.encodings.starts
        return sum(int(starts[self.bounds[n + 1]] - starts[self.bounds[n]]) for n in blocks), windows

    def seconds_lacking(self, teacher: PreTrainedModel) -> float:
        """About how long the teacher takes for what is lacking: by one batch, run twice, and the second time counts."""
        number = len(self.blocks) // 2
        windows = self._windows(number)
        batch = windows[self._batches(windows)[0]]
        for _ in range(2):
            started = time.perf_counter()
            self._forward(teacher, batch)
            taken = time.perf_counter() - started
        return taken * self.lacking()[0] / float(self.encodings.lengths[batch].sum())

    def _batches(self, windows: np.ndarray) -> list[np.ndarray]:
        """Of a block, as positions in it; by the lengths alone."""
        lengths, ids = self.encodings.lengths[windows], np.arange(len(windows))
        return length_batches(lengths, ids, batch_size=256, seed=0, epoch=0, max_tokens=BATCH_TOKENS)

    @property
    def _wanted(self) -> tuple[str, ...]:
        return tuple(field for field in self.fields if not is_bias(field))

    def fill(self, teacher: PreTrainedModel, *, report: Reporter = SILENT) -> None:
        """Verify what is there by its SHA-256, and run the teacher on the blocks that lack something.

        Args:
            teacher: Eval mode, held in the number format that is kept.
            report: Receives progress in windows.

        Raises:
            ModelError: A layer that the teacher does not have; a bias of the scores that differs from text to text.
            StorageError: A file cannot be written.
        """
        if biases := [field for field in self.fields if is_bias(field)]:
            self.bias = self._biases(teacher, biases, report)
        logits = []
        for number, folder in enumerate(self.blocks):
            found = _cover(folder, self._wanted)
            for shard, _ in found:
                if not shard.is_whole():
                    report.warn(f"{shard.path} is damaged: the teacher reads its texts again")
                    shard.remove()
            found = _cover(folder, self._wanted)
            if lacking := _missing(self._wanted, found):
                self._make(teacher, number, lacking)
                found = _cover(folder, self._wanted)
            self._cover.append([(shard, fields) for shard, fields in found if fields != (LOGITS,)])
            logits += [self._reader.all_rows(shard) for shard, fields in found if LOGITS in fields]
            report.progress(int(self.bounds[number + 1]), len(self.encodings))
        self.logits = torch.cat(logits).numpy() if logits else None

    def _biases(self, teacher: PreTrainedModel, fields: Sequence[str], report: Reporter) -> dict[int, Tensor]:
        """The biases for the longest window, from the file or from one forward pass; for shorter ones, the corner."""
        longest = int(self.encodings.lengths.argmax())
        length = int(self.encodings.lengths[longest])
        folder = self.folder / f"bias-{length}"
        for shard, _ in _cover(folder, fields):
            if not shard.is_whole():
                report.warn(f"{shard.path} is damaged: it is made again")
                shard.remove()
        if lacking := _missing(fields, _cover(folder, fields)):
            tapped = tap(teacher, [], [])
            try:
                for field in lacking:
                    tapped.extend(teacher, [_state(field)[1]], ["bias"])
                self._forward(teacher, np.array([longest]))
                rows = [tapped.bias[_state(field)[1]][0].reshape(-1, length).cpu() for field in lacking]
            finally:
                tapped.close()
            write_shard(folder, lacking, [length] * len(lacking), torch.cat(rows, dim=1).contiguous())
        found = {}
        for shard, own in _cover(folder, fields):
            rows_of = self._reader.all_rows(shard)
            for field in own:
                found[_state(field)[1]] = rows_of[:, shard.columns(field)].reshape(1, -1, length, length)
        return found

    @torch.no_grad()
    def _forward(self, teacher: PreTrainedModel, windows: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Logits, and which places are real (B, L)."""
        arrays = self.encodings.batch(windows)
        if self.teacher_ids is not None:
            arrays["input_ids"] = self.teacher_ids[arrays["input_ids"]]
        choose_attention(teacher, arrays["input_ids"].shape[1], backward=False)
        logits: Tensor = teacher(**forward_inputs(teacher, arrays)).logits
        return logits, arrays["attention_mask"] > 0

    def _make(self, teacher: PreTrainedModel, number: int, lacking: Sequence[str]) -> None:
        """Run the teacher on a block and write what it lacks: logits in one file, states in another."""
        windows = self._windows(number)
        lengths, starts = self.encodings.lengths[windows], self.encodings.starts[windows]
        states = [field for field in lacking if field != LOGITS]
        logits = torch.zeros((len(windows), int(teacher.config.num_labels or 0)))
        rows = torch.zeros(0)
        widths: list[int] = []
        tapped = tap(teacher, [], [])
        try:
            for field in states:
                want, layer = _state(field)
                tapped.extend(teacher, [layer], [want])
            for layer in self.bias:
                tapped.extend(teacher, [layer], ["bias"])
            for batch in self._batches(windows):
                own, real = self._forward(teacher, windows[batch])
                logits[batch] = own.float().cpu()
                if not states:
                    continue
                self._check_bias(tapped)
                found = [_flat(tapped, field).cpu()[torch.from_numpy(real)] for field in states]
                if not widths:
                    widths = [part.shape[1] for part in found]
                    rows = torch.zeros((int(lengths.sum()), sum(widths)), dtype=found[0].dtype)
                places = [
                    np.arange(length) + first for first, length in zip(starts[batch], lengths[batch], strict=True)
                ]
                rows[torch.from_numpy(np.concatenate(places) - starts[0])] = torch.cat(found, dim=1)
                tapped.clear()
        finally:
            tapped.close()
        if LOGITS in lacking:
            write_shard(self.blocks[number], [LOGITS], [logits.shape[1]], logits)
        if states:
            write_shard(self.blocks[number], states, widths, rows)
        self.made += 1

    def _check_bias(self, tapped: LayerStates) -> None:
        """The scores' biases of this batch must be the corner of those that are kept."""
        for layer, bias in self.bias.items():
            length = tapped.bias[layer].shape[-1]
            if not bool((tapped.bias[layer].cpu() == bias[..., :length, :length]).all()):
                raise ModelError(
                    "a teacher whose attention scores have a bias of their own for each text, which is not kept",
                    fix="set teacher.cache to none",
                )

    def read(self, rows: np.ndarray) -> dict[str, Tensor]:
        """States of a batch, field → (B, L, D), L the longest window; zeros in padding.

        Args:
            rows: int64 (B,), window numbers.
        """
        lengths = self.encodings.lengths[rows]
        blocks = np.searchsorted(self.bounds, rows, side="right") - 1
        first = self.encodings.starts[rows] - self.encodings.starts[self.bounds[blocks]]
        shape = (len(rows), int(lengths.max(initial=0)))
        buffers: dict[tuple[str, ...], Tensor] = {}
        pieces: dict[str, list[tuple[Shard, list[int]]]] = {}
        for place, block in enumerate(blocks):
            for shard, fields in self._cover[block]:
                if shard.fields not in buffers:
                    buffers[shard.fields] = torch.zeros((*shape, sum(shard.widths)), dtype=shard.dtype)
                into = buffers[shard.fields][place, : lengths[place]]
                self._reader.read(shard, int(first[place]), into.view(torch.uint8).numpy())
                for field in fields:
                    parts = pieces.setdefault(field, [])
                    if not parts or parts[-1][0].fields != shard.fields:
                        parts.append((shard, []))
                    parts[-1][1].append(place)
        return {field: _joined(field, parts, buffers) for field, parts in pieces.items()}

    def facts(self) -> str:
        """SHA-256 of whose answers to what these are."""
        return digest([self.folder.name, [folder.name for folder in self.blocks], sorted(self.fields)])

    def close(self) -> None:
        """Close all files."""
        self._reader.close()


def _flat(states: LayerStates, field: str) -> Tensor:
    """A state as (B, L, D)."""
    want, layer = _state(field)
    found: Tensor = getattr(states, want)[layer]
    return found if want == "hidden" else found.transpose(1, 2).flatten(2)


def _cover(folder: Path, wanted: Sequence[str]) -> list[tuple[Shard, tuple[str, ...]]]:
    """Files of a block, and which of the wanted fields to read from each: a field from the first file that has it."""
    found: list[tuple[Shard, tuple[str, ...]]] = []
    open_: set[str] = set(wanted)
    for shard in find_shards(folder):
        if own := tuple(field for field in shard.fields if field in open_):
            found.append((shard, own))
            open_ -= set(own)
    return found


def _missing(wanted: Sequence[str], cover: Sequence[tuple[Shard, tuple[str, ...]]]) -> list[str]:
    held = {field for _, fields in cover for field in fields}
    return [field for field in wanted if field not in held]


def _joined(field: str, parts: Sequence[tuple[Shard, list[int]]], buffers: Mapping[tuple[str, ...], Tensor]) -> Tensor:
    """One field of all windows: a view where all their files are laid out alike."""
    views = [(buffers[shard.fields][..., shard.columns(field)], places) for shard, places in parts]
    if len(views) == 1:
        return views[0][0]
    joined = torch.zeros_like(views[0][0])
    for view, places in views:
        joined[places] = view[places]
    return joined
