"""Memory of a group of work items: what a module says of it, and where in it each part lies.

Owns: definitions, positions, how much a launch gives. Does not own: what is kept (steps/local_buffer.py), accesses (memory.py).

Each part has a definition of its own, as long as all of them are not more than a text may define; beyond that
they lie one behind the other in memory whose size the launch says.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.text import memory_type
from proofgrad.core.ir.uop import UOp


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """The lines of a module, a pointer to each part, and the bytes that a launch gives."""

    lines: tuple[str, ...]
    pointers: dict[UOp, str]
    launch_bytes: int


def memory_of_group(name: str, parts: Collection[UOp], dialect: Dialect) -> GroupMemory:
    """The memory of a kernel of this name; `parts`: its SCRATCH nodes of a group."""
    sizes = {part: _elements(part, dialect) for part in parts}
    nbytes = {part: sizes[part] * part.dtype.itemsize for part in parts}
    if dialect.group_bytes is None or sum(nbytes.values()) <= dialect.group_bytes:
        names = {part: f"@{name}.kept{part.arg[0]}" for part in parts}
        arrays = {part: f"[{sizes[part]} x {memory_type(part.dtype)}]" for part in parts}
        lines = [dialect.memory_of_group(names[part], arrays[part]) for part in parts]
        return GroupMemory(tuple(lines), names, 0)
    whole, end = f"@{name}_kept", 0  # a name that PTX takes as it is
    pointers: dict[UOp, str] = {}
    for part in parts:
        first = f"{dialect.group_pointer} {whole}, i32 {end}"
        pointers[part] = f"getelementptr (i8, {first})" if end else whole
        end += -(-nbytes[part] // dialect.memory_bytes) * dialect.memory_bytes
    return GroupMemory((dialect.memory_from_launch(whole),), pointers, end)


def _elements(part: UOp, dialect: Dialect) -> int:
    """Those of a part, and what one load may read beyond the last."""
    whole = max(1, dialect.memory_bytes // part.dtype.itemsize)
    return -(-int(part.arg[1]) // whole) * whole
