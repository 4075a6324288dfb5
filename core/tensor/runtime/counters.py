"""What has been run so far, for tests and for DEBUG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Totals since the start or the last `reset`. Times in seconds, memory in bytes.

    `time_sum_s` counts kernels that were timed, as they are with DEBUG=2 or more; with DEBUG=1 it
    counts whole runs. `global_ops` are operations and `global_mem` the bytes of the buffers that
    kernels name, both estimates; `mem_used` is what the buffers of Tensors hold now, and
    `mem_used_per_device["CPU"]` those of one device.
    """

    kernel_count: int = 0
    copy_count: int = 0
    global_ops: int = 0
    global_mem: int = 0
    time_sum_s: float = 0.0
    measure_memory: Callable[[], Counter[str]] = field(default=Counter, repr=False)

    @property
    def mem_used(self) -> int:
        """Bytes held by all buffers that are alive."""
        return self.measure_memory().total()

    @property
    def mem_used_per_device(self) -> Counter[str]:
        """Bytes held by the buffers of each device; 0 for one that has none."""
        return self.measure_memory()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What runs within the block is not counted."""
        names = ("kernel_count", "copy_count", "global_ops", "global_mem", "time_sum_s")
        before = [getattr(self, name) for name in names]
        try:
            yield
        finally:
            for name, value in zip(names, before):
                setattr(self, name, value)

    def reset(self) -> None:
        """Everything that is counted back to zero."""
        self.kernel_count = self.copy_count = self.global_ops = self.global_mem = 0
        self.time_sum_s = 0.0


GlobalCounters = Counters()


@contextmanager
def uncounted() -> Iterator[None]:
    """What runs inside is no part of the totals: it only checks the user's program."""
    totals = GlobalCounters
    before = totals.kernel_count, totals.copy_count, totals.global_ops, totals.global_mem
    seconds = totals.time_sum_s
    try:
        yield
    finally:
        totals.kernel_count, totals.copy_count, totals.global_ops, totals.global_mem = before
        totals.time_sum_s = seconds
