"""Several processes that train one model: what they must tell one another so that each does what one alone would.

Each works on its share of an update's micro-batches. Gradients are sums, so their sum over processes is the gradient of
the whole update: nothing is averaged and nothing depends on how many there are.
"""

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from potstill.errors import SettingsError

__all__ = ["ALONE", "Processes"]


class Processes:
    """The processes of one training, as `torch.distributed` knows them.

    Attributes:
        rank: This one's number, from 0.
        count: How many there are.
    """

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    @classmethod
    def joined(cls) -> "Processes":
        """Join the processes that `torchrun` started; alone where it started none.

        Raises:
            SettingsError: torchrun's variables are there in part.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            return ALONE
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise SettingsError(
                f"WORLD_SIZE = {os.environ['WORLD_SIZE']} without {', '.join(missing)}",
                expected="torchrun's variables, or none",
                fix="start with torchrun --nproc-per-node N, or unset WORLD_SIZE",
            )
        if not distributed.is_initialized():
            distributed.init_process_group("gloo")
        return cls(distributed.get_rank(), distributed.get_world_size())

    def share(self, micro_batches: Sequence[Any]) -> range:
        """Positions of this process's micro-batches: every `count`-th from `rank` on."""
        return range(self.rank, len(micro_batches), self.count)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over processes, in one message for each dtype."""
        if self.count == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            chosen = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in chosen]).cpu()
            distributed.all_reduce(flat)
            for tensor, part in zip(chosen, flat.split([tensor.numel() for tensor in chosen]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def rows(self, rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (n,) and their values (n, H) of all processes, in the order of their ranks."""
        if self.count == 1:
            return rows, values
        counts = torch.zeros(self.count, dtype=torch.int64)
        counts[self.rank] = len(rows)
        distributed.all_reduce(counts)
        longest = int(counts.max())
        padded = [torch.zeros(longest, *part.shape[1:], dtype=part.dtype) for part in (rows, values)]
        found = []
        for part, room in zip((rows, values), padded, strict=True):
            room[: len(part)] = part.cpu()
            every = [torch.empty_like(room) for _ in range(self.count)]
            distributed.all_gather(every, room)
            kept = [one[:count] for one, count in zip(every, counts.tolist(), strict=True)]
            found.append(torch.cat(kept).to(part.device))
        return found[0], found[1]

    def first(self, value: float) -> float:
        """What process 0 says."""
        if self.count == 1:
            return value
        told = torch.tensor([value], dtype=torch.float64)
        distributed.broadcast(told, src=0)
        return float(told)

    def any(self, said: bool) -> bool:
        """Whether one of them says so."""
        if self.count == 1:
            return said
        told = torch.tensor([int(said)])
        distributed.all_reduce(told)
        return bool(told)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            distributed.barrier()


ALONE = Processes()
"""One process."""
