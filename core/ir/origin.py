"""Where nodes come from: the methods of Tensor and the laws that made them, for people who ask.

Owns: that memory. Methods fill it only while DEBUG asks for it. Nothing that is computed depends on
it. A node that a rule has changed is found by its likeness: the same operation, type, shape and arg.
"""

from __future__ import annotations

import sys
from pathlib import Path
from weakref import WeakKeyDictionary

from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp

MOST_KINDS = 4096  # remembered by likeness

_METHODS = str(Path(__file__).parent.parent / "tensor")
_NAMES: WeakKeyDictionary[UOp, str] = WeakKeyDictionary()
_BY_LIKENESS: dict[tuple[object, ...], str] = {}
_LAWS: WeakKeyDictionary[UOp, str] = WeakKeyDictionary()


def note_origin(node: UOp) -> None:
    """Remember for `node` the outermost method of Tensor that is running now."""
    frame = sys._getframe(1)
    name = ""
    while frame.f_back is not None:
        if frame.f_code.co_filename.startswith(_METHODS):
            name = frame.f_code.co_name
            if name == "method":  # of a decorator, which has the method that users call
                name = getattr(frame.f_locals.get("function"), "__name__", name)
        elif name:
            break
        frame = frame.f_back
    for part in node.toposort(lambda n: n not in _NAMES):
        if part not in _NAMES and (part.op in ELEMENTWISE or part.op is Ops.REDUCE_AXIS):
            _NAMES[part] = name
            if len(_BY_LIKENESS) < MOST_KINDS:
                _BY_LIKENESS[_likeness(part)] = name


def origin_of(node: UOp) -> str | None:
    """The name of the method that made `node`, or one like it; None if it was not traced."""
    if not _BY_LIKENESS:
        return None
    return _NAMES.get(node) or _BY_LIKENESS.get(_likeness(node))


def note_law(node: UOp, rule: str) -> None:
    """Remember that a method of Tensor made `node` by a rule that is not exact to the bit."""
    _LAWS[node] = rule


def law_of(node: UOp) -> str | None:
    """The full name of the rule that a method of Tensor made `node` by, if one did."""
    return _LAWS.get(node)


def _likeness(node: UOp) -> tuple[object, ...]:
    return node.op, node.dtype, node.shape, str(node.arg)
