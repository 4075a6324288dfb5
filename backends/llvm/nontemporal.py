"""Nontemporal stores, past the caches: whole lines of a result that is longer than they hold.

Owns: which stores. Does not own: the instruction (memory.py), from which size on (the dialect).

A line that is stored as usual is first read into the cache, to be changed there. One that is written as a
whole, and read by nobody soon, needs neither.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.ir.op_names import ADD, CONST, LOAD, MUL, PARAM, STORE
from proofgrad.core.ir.uop import UOp

# How a store says it, and what waits for such stores where a program ends.
MARK, FENCE = ", !nontemporal !0", "  fence seq_cst"


def is_stored_past(text: str) -> bool:
    """Whether a program stores past the caches."""
    return MARK in text


def stored_in_caches(text: str) -> str:
    """The text of a program whose results are read soon: its stores go through the caches."""
    return text.replace(MARK, "").replace(FENCE, "")


def nontemporal_stores(linear: UOp, least_bytes: int | None) -> frozenset[UOp]:
    """The STOREs of whole lines to buffers of so many bytes that the program does not read."""
    if least_bytes is None:
        return frozenset()
    long = {node for node in linear.src if node.op is PARAM and _nbytes(node) >= least_bytes}
    if not long:
        return frozenset()
    long -= {node.src[0].src[0] for node in linear.src if node.op is LOAD}
    stores = [node for node in linear.src if node.op is STORE]
    return frozenset([s for s in stores if s.src[0].src[0] in long and _is_whole_lines(s)])


def _nbytes(buffer: UOp) -> int:
    return int(buffer.arg[1] * buffer.dtype.itemsize)


def _is_whole_lines(store: UOp) -> bool:
    position, value = store.src[:2]
    if len(position.src) > 2 or position.src[1].dtype.lanes > 1 or value.dtype.is_bool:
        return False
    nbytes = value.dtype.lanes * value.dtype.itemsize
    return nbytes % LINE_BYTES == 0 and _is_multiple(position.src[1], value.dtype.lanes)


def _is_multiple(term: UOp, size: int) -> bool:
    """Whether the index is known to be a multiple of `size`, a power of two."""
    if term.op is CONST:
        return bool(term.arg % size == 0)
    if term.op is ADD:
        return all([_is_multiple(part, size) for part in term.src])
    return term.op is MUL and any([_is_multiple(part, size) for part in term.src])
