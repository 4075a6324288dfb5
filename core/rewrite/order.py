"""One stable order of nodes, the same in every process.

Owns: the key by which operands of commutative operations and the atoms of sums are ordered. The
order is by op, then by the number of a loop or parameter, then by a digest of the structure. Two
different nodes with equal keys keep the order in which they were written, which costs a rewrite at
most. Does not own: which operands may be exchanged.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from functools import cache
from typing import Any
from zlib import crc32

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.uop import UOp, known_below

OrderKey = tuple[int, int, int]


class StableOrder:
    """Keys of nodes, each computed once."""

    def __init__(self) -> None:
        self._keys: dict[UOp, OrderKey] = {}

    def key(self, node: UOp) -> OrderKey:
        """What to sort `node` by: its op, the number of its loop or parameter, a digest of its structure."""
        known = self._keys.get(node)
        return known_below(node, self._keys, self._key_of) if known is None else known

    def _key_of(self, node: UOp) -> OrderKey:
        parts = (int(node.op), _digest_of_type(node.dtype), _digest(node.arg))
        digest = hash((hash(parts), *[self._keys[s][2] for s in node.src]))
        return int(node.op), _number(node.arg), digest


@cache
def _digest_of_type(dtype: DType) -> int:
    return crc32(dtype.name.encode())


@cache
def _digest_of_choice(choice: Enum) -> int:
    return crc32(str(choice.value).encode())


def rank(node: UOp) -> tuple[int, int]:
    """The first parts of the key of `node`, which are quick to find."""
    return node.op, _number(node.arg)


def _number(arg: Any) -> int:
    """The number of a loop, the slot of a parameter, the size of an index table."""
    if arg is None:
        return 0
    if isinstance(arg, tuple) and arg and type(arg[0]) is int:
        return arg[0]
    return arg if type(arg) is int else 0


def _digest(arg: Any) -> int:
    """A number for `arg`; Python's own hashes of text, None, NaN and -1 will not do."""
    if arg is None:
        return 1
    if isinstance(arg, tuple):
        return hash(tuple([_digest(part) for part in arg]))
    if type(arg) is int or isinstance(arg, IntEnum | bool):
        return hash((arg < 0, abs(int(arg))))
    if isinstance(arg, Enum):
        return _digest_of_choice(arg)
    text = arg.hex() if isinstance(arg, float) else repr(arg)
    return crc32(text.encode())
