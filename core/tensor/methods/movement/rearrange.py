"""The language of `rearrange`: axes by name, as in "b c (h p) -> b (c p) h".

Owns: reading a formula, the sizes that its names stand for. Does not own: the views (views.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.tensor.data.arguments import shape_with_rest
from proofgrad.core.tensor.data.errors import ArgumentError

# One side of a `rearrange` formula: names, each alone or in a group that is one axis.
_Side: TypeAlias = list[tuple[str, ...]]
_TOKEN = re.compile(r"\s*(\(|\)|\.\.\.|…|[A-Za-z][A-Za-z0-9_]*|1)")
_ELLIPSIS = "..."  # any axes, each for itself
_JOINED = "(...)"  # any axes in a group, which is one axis


def sides(formula: str) -> tuple[_Side, _Side]:
    """What stands left and right of the arrow. Raises: ValueError."""
    parts = formula.split("->")
    if len(parts) != 2:
        raise ArgumentError(f"rearrange needs one '->', as in 'a b -> b a': {formula!r}")
    return _parse(parts[0], formula), _parse(parts[1], formula)


def _parse(text: str, formula: str) -> _Side:
    groups: _Side = []
    inner: list[str] | None = None
    position, text = 0, text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ArgumentError(f"rearrange {formula!r}: cannot read {text[position:].strip()!r}")
        position = found.end()
        token = found[1].replace("…", _ELLIPSIS)
        if token in "()":
            if (token == "(") is not (inner is None):
                raise ArgumentError(f"rearrange {formula!r}: parentheses do not match")
            if inner is not None:
                groups.append(tuple(inner))
            inner = [] if token == "(" else None
        elif inner is not None:
            inner += [] if token == "1" else [_JOINED if token == _ELLIPSIS else token]
        else:
            groups.append(() if token == "1" else (token,))
    if inner is not None:
        raise ArgumentError(f"rearrange {formula!r}: parentheses do not match")
    return groups


def without_ellipsis(left: _Side, right: _Side, rank: int, formula: str) -> tuple[_Side, _Side]:
    """Both sides with "..." spelt out as names that no user can write."""
    if any(_JOINED in group for group in left):
        raise ArgumentError(f"rearrange {formula!r}: '...' on the left cannot be part of a group")
    if left.count((_ELLIPSIS,)) > 1:
        raise ArgumentError(f"rearrange {formula!r}: only one '...' a side")
    count = rank - len(left) + 1 if (_ELLIPSIS,) in left else 0
    names = [f"{_ELLIPSIS}{k}" for k in range(max(0, count))]

    def spelt(side: _Side) -> _Side:
        result: _Side = []
        for group in side:
            if group == (_ELLIPSIS,):
                result += [(name,) for name in names]
            else:
                position = [names if name == _JOINED else [name] for name in group]
                result.append(tuple([name for part in position for name in part]))
        return result

    stands = [name for group in right for name in group if name in (_ELLIPSIS, _JOINED)]
    if len(stands) != left.count((_ELLIPSIS,)):
        raise ShapeError(f"rearrange {formula!r}: both sides must have '...' once, or none")
    return spelt(left), spelt(right)


def group_sizes(
    group: Sequence[str], total: int, given: dict[str, int], formula: str
) -> dict[str, int]:
    """The size of each name of one axis; at most one is not given."""
    known = {name: given[name] for name in group if name in given}
    missing = [name for name in group if name not in given]
    if len(missing) > 1:
        raise ArgumentError(
            f"rearrange {formula!r}: give the sizes of all but one of {', '.join(missing)}"
        )
    parts = shape_with_rest([*known.values(), *[-1 for _ in missing]], total)
    if parts is None:
        raise ShapeError(
            f"rearrange {formula!r}: an axis of {total} elements is no product of {known}"
        )
    return dict(zip([*known, *missing], parts))
