"""A kernel as plain values, for files and other processes.

Owns: both directions, the check of what is read. Does not own: binaries, which a backend makes of the text; whole plans (store.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.compile.machine.target import Backend, Binary, Source
from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.ir.dtypes import dtype_named


def written_kernel(kernel: Kernel) -> dict[str, Any]:
    """All of a kernel but its binary and its machine, of plain values."""
    source = kernel.source
    return {
        "language": source.language,
        "entry": source.entry,
        "text": source.text,
        "params": [dtype.name for dtype in source.params],
        "sizes": [source.global_size, source.thread_size, source.group_size],
        "counts": [source.cost_flops, source.group_bytes, source.cost_instructions],
        "own_bytes": source.own_bytes,
        "slots": kernel.slots,
        "size": kernel.size,
        "variables": list(kernel.variables.items()),
    }


def read_kernel(
    parts: dict[str, Any], backend: Backend, compiled: Callable[[Source], Binary]
) -> Kernel:
    """The kernel of a machine; `compiled` gives its binary. Raises: ValueError, TypeError, KeyError for what is none."""
    global_size, thread_size, group_size = parts["sizes"]
    flops, group_bytes, instructions = parts["counts"]
    source = Source(
        str(parts["language"]),
        str(parts["entry"]),
        str(parts["text"]),
        tuple([dtype_named(name) for name in parts["params"]]),
        global_size if global_size is None else read_count(global_size),
        thread_size if thread_size is None else read_count(thread_size),
        group_size if group_size is None else read_count(group_size),
        read_count(flops),
        read_count(group_bytes),
        read_count(instructions),
        tuple([read_count(own) for own in parts["own_bytes"]]),
    )
    slots = tuple([read_count(slot) for slot in parts["slots"]])
    variables = {read_count(slot): str(name) for slot, name in parts["variables"]}
    size = read_count(parts["size"])
    return Kernel(source, compiled(source), backend, slots, size, variables)


def read_count(value: Any) -> int:
    """A count. Raises: ValueError for what is none."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value
