"""Who is told of what is run: recorders, which put it off, and witnesses, which watch.

Owns: what those must be able to do, who records now, the Tensors that are written to. Does not own:
running (realize.py), recording itself (jit.py, replay.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from proofgrad.core.ir.shapes import at_least, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.variables import has_values

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import Plan


class Recorder(Protocol):
    """Who records what is run (see jit.py)."""

    def defer(self, roots: list[UOp]) -> list[UOp]:
        """In place of computing `roots` now."""
        ...

    def before_write(self, tensor: Any) -> None:
        """`tensor` is about to be written to."""
        ...

    def before_accumulate(self, leaf: Any) -> None:
        """A gradient is about to be added to `leaf.grad`."""
        ...

    def refuse_read(self) -> None:
        """Raises: JitError, for a value is wanted while there is none."""
        ...

    def note_random(self, key: UOp, fresh: Callable[[], bytes]) -> None:
        """The host buffer `key` has to hold what `fresh` gives, anew at each replay."""
        ...

    def note_choice(self, size: UOp, holds: bool) -> None:
        """What is recorded is right only where `size >= 0` is `holds`, by the values of its variables."""
        ...


class Witness(Protocol):
    """Who wants to know how something was computed (see replay.py)."""

    def before(self, nodes: set[UOp], inputs: list[UOp], values: dict[str, int]) -> None:
        """All nodes of the graph that will run, its buffers in the order of their numbers, the values of its variables."""
        ...

    def refused(self, plan: Plan) -> frozenset[int]:
        """The inputs whose memory the plan writes results to that must not get it."""
        ...

    def after(self, plan: Plan, given: list[Any]) -> None:
        """The plan that has run, and the memory of its inputs."""
        ...


class _Told(threading.local):
    """The state of this module: what one thread records is nothing to the others."""

    recorder: Recorder | None = None
    written: list[Any] | None = None  # Tensors, within `watch_writes`


_TOLD = _Told()


def before_write(tensor: Any) -> None:
    """Tell whoever records what is run that `tensor` is about to be written to."""
    if _TOLD.written is not None:
        _TOLD.written.append(tensor)
    if _TOLD.recorder is not None:
        _TOLD.recorder.before_write(tensor)


def before_accumulate(leaf: Any) -> None:
    """Tell whoever records that a gradient is about to be added to `leaf.grad`."""
    if _TOLD.recorder is not None:
        _TOLD.recorder.before_accumulate(leaf)


def note_random(key: UOp, fresh: Callable[[], bytes]) -> None:
    """Tell whoever records that `key`, a host buffer, holds a key for random numbers."""
    if _TOLD.recorder is not None:
        _TOLD.recorder.note_random(key, fresh)


def at_least_now(size: Any, least: Any) -> bool:
    """Whether size >= least: for all values of the variables, or else for those that they have now.

    Of the latter a recorder is told. False where a variable has no value.
    """
    if at_least(size, least):
        return True
    of = sizes()
    more = of.difference(size, least)
    if of.largest(more) < 0 or not has_values(more):
        return False
    holds: bool = of.value_of(more) >= 0
    if _TOLD.recorder is not None:
        _TOLD.recorder.note_choice(more, holds)
    return holds


def recorder() -> Recorder | None:
    """Who records what is run now."""
    return _TOLD.recorder


def refuse_read() -> None:
    """Raises: JitError while somebody records: the value that is wanted is not there yet."""
    if _TOLD.recorder is not None:
        _TOLD.recorder.refuse_read()


@contextmanager
def recording(by: Recorder) -> Iterator[None]:
    """Inside, nothing is computed: `by` is told what was to be."""
    before, _TOLD.recorder = _TOLD.recorder, by
    try:
        yield
    finally:
        _TOLD.recorder = before


@contextmanager
def watch_writes() -> Iterator[list[Any]]:
    """Gives a list to which every Tensor is added that is written to inside."""
    before, _TOLD.written = _TOLD.written, []
    try:
        yield _TOLD.written
    finally:
        _TOLD.written = before
