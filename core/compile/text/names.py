"""What goes by a name in the text of loop nests: memory, variables, registers, loops, terms.

Owns: those names, and what the line of memory or a variable says. Does not own: which terms get one (terms.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from proofgrad.core.compile.text.syntax import REGISTER_NAME, is_plain_loop, is_reserved, type_name
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

_DECLARED = frozenset({Ops.PARAM, Ops.SCRATCH, Ops.VARIABLE, Ops.BUFFER})
_MEMORY_NAMES = ("out", "a", "b", "c", "d", "e", "f", "g", "h")


@dataclass
class Names:
    """Names of one block, each of one node."""

    wanted: Mapping[UOp, str]  # what terms are called elsewhere
    given: dict[UOp, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    number: int = 0  # of the next term

    def __post_init__(self) -> None:
        self._elsewhere = set(self.wanted.values())

    def give(self, node: UOp, name: str, letters: bool = False) -> None:
        """The name, or the first like it that is free."""
        ends = (_letters(k) if letters else f"_{k}" for k in count(1))
        while name in self.taken or is_reserved(name):
            name = name.rstrip("bcdefghijklmnopqrstuvwxyz") if letters else name.partition("_")[0]
            name += next(ends)
        self.given[node] = name
        self.taken.add(name)

    def give_number(self, node: UOp) -> None:
        """What the term is called elsewhere, or t and the next number."""
        name = self.wanted.get(node, "")
        while not name or name in self.taken:
            name = f"t{self.number}"
            self.number += 1
            if name in self._elsewhere:
                name = ""
        self.given[node] = name
        self.taken.add(name)


def _letters(number: int) -> str:
    """b, c, ..., z, bb, ..."""
    text = ""
    while number:
        number, digit = divmod(number - 1, 25)
        text = chr(ord("b") + digit) + text
    return text


def has_own_name(node: UOp) -> bool:
    """Whether it has a name that says what it is."""
    return is_plain_loop(node) or register_name(node) is not None or declaration(node) is not None


def declaration(node: UOp) -> tuple[tuple[Any, ...], str, str] | None:
    """Where memory or a variable stands among the others, its name, what is said of it."""
    if node.op not in _DECLARED:
        return None
    kind = type_name(node.dtype)
    match node.op, node.src, node.arg:
        case Ops.PARAM, (), (int() as slot, int() as size) if slot >= 0 and size >= 0:
            name = _MEMORY_NAMES[slot] if slot < len(_MEMORY_NAMES) else f"m{slot}"
            return (0, slot, kind, size), name, f"{kind}[{size}] = param {slot}"
        case Ops.PARAM, (), (int() as slot, int() as size, str() as variable) if (
            slot >= 0 and size >= 0
        ):
            name = _identifier(variable)
            text = f"{kind}[{size}] = param {slot} of {json.dumps(variable)}"
            return (1, slot, kind, size, variable), name, text
        case Ops.SCRATCH, (), (int() as number, int() as size) if number >= 0 and size >= 0:
            text = f"{kind}[{size}] = scratch {number}"
            return (2, number, kind, size), f"s{number}", text
        case Ops.VARIABLE, (), (str() as variable, int() as low, int() as high) if (
            min(low, high) >= 0
        ):
            text = f"{kind} = variable {json.dumps(variable)} in {low} .. {high}"
            return (3, variable, kind, low, high), _identifier(variable), text
        case Ops.BUFFER, (unique, device), int() as size if size >= 0 and (
            _is_buffer(unique, device)
        ):
            number, position = unique.arg, device.arg
            name = f"x{number}" if number >= 0 else f"y{-number}"
            text = f"{kind}[{size}] = buffer {number} on {json.dumps(position)}"
            return (4, number, kind, size, position), name, text
    return None


def register_name(node: UOp) -> str | None:
    """acc0 of a register whose arg is 0, acc0_5 of (0, 5); None of one that is no such thing."""
    if node.op is not Ops.ACCUMULATOR:
        return None
    arg, below = node.arg, list[int]()
    while type(arg) is tuple and len(arg) == 2:
        below.append(arg[1])
        arg = arg[0]
    name = "acc" + "_".join([f"{number!r}" for number in (arg, *below[::-1])])
    is_plain = REGISTER_NAME.fullmatch(name) is not None
    return name if is_plain and node.src and all(map(is_plain_loop, node.src[1:])) else None


def _identifier(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else "v0"


def _is_buffer(unique: UOp, device: UOp) -> bool:
    is_number = unique.op is Ops.UNIQUE and unique.dtype is dtypes.void and type(unique.arg) is int
    return is_number and device.op is Ops.DEVICE and type(device.arg) is str and (
        device.dtype is dtypes.void and not unique.src and not device.src
    )  # fmt: skip
