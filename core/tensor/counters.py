"""What has been run so far, for tests and for DEBUG."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Totals since the start or the last `reset`. Times in seconds, memory in bytes."""

    kernel_count: int = 0
    copy_count: int = 0
    global_ops: int = 0
    time_sum_s: float = 0.0

    def reset(self) -> None:
        """Everything back to zero."""
        self.kernel_count = self.copy_count = self.global_ops = 0
        self.time_sum_s = 0.0


GlobalCounters = Counters()
