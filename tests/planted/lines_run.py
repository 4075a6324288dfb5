"""Which lines of some files a program runs: a fault elsewhere cannot change it.

Owns: the count, in a process of its own. Does not own: which programs there are (procedure_programs.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from planted.plant import ROOT, forget, in_a_fork, module_of


@dataclass(frozen=True, slots=True)
class Run:
    """What a program is known by: how long it takes of its process, and the lines of each file that it runs."""

    seconds: float
    lines: dict[str, frozenset[int]] = field(default_factory=dict)


def lines_run(program: Callable[[], Any], files: Collection[str], seconds: int) -> Run:
    """The lines of `files` that a program runs. `seconds`: it takes at most."""
    names = {str(ROOT / file): file for file in files}

    def timed(tell: Callable[[Any], None]) -> None:
        start = time.process_time()
        program()
        tell(time.process_time() - start)

    def traced(tell: Callable[[Any], None]) -> None:
        for file in files:
            forget(module_of(file))
        found: dict[str, set[int]] = {}
        sys.settrace(_tracer(names, found))
        try:
            program()
        finally:
            sys.settrace(None)
        tell({file: sorted(lines) for file, lines in found.items()})

    (took,), (lines,) = in_a_fork(timed, seconds), in_a_fork(traced, seconds)
    return Run(took, {file: frozenset(numbers) for file, numbers in lines.items()})


def _tracer(names: dict[str, str], found: dict[str, set[int]]) -> Callable[..., Any]:
    seen: dict[CodeType, set[int] | None] = {}

    def of_line(frame: FrameType, event: str, _: Any) -> Any:
        lines = seen[frame.f_code]
        assert lines is not None
        lines.add(frame.f_lineno)
        return of_line

    def of_call(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in seen:
            file = names.get(code.co_filename)
            seen[code] = None if file is None else found.setdefault(file, set())
        return None if seen[code] is None else of_line

    return of_call
