"""Which kernels take the time: `profile`.

Owns: the report. Does not own: taking times, which execute.py does for whoever listens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from proofgrad.core import settings
from proofgrad.core.tensor.runtime import execute
from proofgrad.core.tensor.runtime.report import size_text
from proofgrad.core.tensor.runtime.tracing import TRACING


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """All runs of one kernel (or of all copies) on one device. `seconds` is their sum.

    `methods` are those of Tensor that it comes from, of all places where it runs.
    """

    name: str
    device: str
    count: int
    seconds: float
    flops: int
    nbytes: int
    methods: tuple[str, ...] = ()


@dataclass(slots=True)
class Profile:
    """What ran within a `profile` block."""

    _rows: dict[tuple[str, str], ProfileRow] = field(default_factory=dict)

    def add(
        self,
        name: str,
        device: str,
        seconds: float,
        flops: int,
        nbytes: int,
        methods: Sequence[str] = (),
    ) -> None:
        """One run of a kernel."""
        old = self._rows.get((name, device), ProfileRow(name, device, 0, 0.0, 0, 0))
        self._rows[name, device] = ProfileRow(
            name, device, old.count + 1, old.seconds + seconds, old.flops + flops,
            old.nbytes + nbytes, tuple(dict.fromkeys((*old.methods, *methods))),
        )  # fmt: skip

    @property
    def rows(self) -> list[ProfileRow]:
        """The slowest first."""
        return sorted(self._rows.values(), key=lambda row: -row.seconds)

    def __str__(self) -> str:
        total = sum([row.seconds for row in self.rows]) or 1e-12
        lines = [
            f"{'kernel':<32} {'device':<10} {'runs':>6} {'ms':>10} {'share':>6}  rates, methods"
        ]
        for row in self.rows:
            rates = f"{row.flops / max(row.seconds, 1e-9) / 1e9:.1f} GFLOPS"
            flow = f"{size_text(row.nbytes / max(row.seconds, 1e-9))}/s"
            told = f"  {' '.join(row.methods)}" if row.methods else ""
            lines.append(
                f"{row.name:<32} {row.device:<10} {row.count:>6} {row.seconds * 1e3:>10.3f}"
                f" {row.seconds / total:>6.1%}  {rates}, {flow}{told}"
            )
        return "\n".join(lines)


@contextmanager
def profile() -> Iterator[Profile]:
    """Within: every kernel is timed. Gives the report, slowest kernel first, with the methods of Tensor that it comes from.

    Methods are known of what is made and compiled within; a function that TinyJit recorded before has none.

    Example:
        with profile() as report:
            model(x).realize()
        print(report)
    """
    report, before = Profile(), execute.LISTENER.add
    execute.LISTENER.add = report.add
    try:
        with settings.tracing_methods():
            TRACING.on = True
            yield report
    finally:
        execute.LISTENER.add = before
        TRACING.on = settings.traces_methods()
