"""Truths that memory holds, under which kernels store: what a kernel writes is asked for each of their values.

    if c: out[r] = f(r)      and      if not c: out[r] = f(r)      write each element once, whether c holds or not

Owns: which truths there are, and the stores for some values of them. Does not own: counting what is written (kernels/writes.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.readback import Written, free_loops

MOST_TRUTHS = 4  # of which all values are tried
_LOGIC = frozenset({Ops.AND, Ops.OR, Ops.NOT})


def by_truths(stores: Sequence[Written]) -> Iterator[list[Written]]:
    """What is stored, for all values of the truths that memory holds and that are the same in all iterations of the loops."""
    truths = dict.fromkeys([t for w in stores for m in w.store.src[0].src[2:] for t in _truths(m)])
    if len(truths) > MOST_TRUTHS:
        truths = {}
    for values in product((True, False), repeat=len(truths)):
        known = dict(zip(truths, values))
        found = [_stored(written, known) for written in stores] if known else list(stores)
        yield [written for written in found if written is not None]


def _truths(mask: UOp) -> list[UOp]:
    """Those of a mask that no loop changes."""
    if mask.op in _LOGIC:
        return [truth for part in mask.src for truth in _truths(part)]
    reads = any([n.op is Ops.LOAD for n in toposort((mask,))])
    return [mask] if reads and not free_loops(mask) else []


def _stored(written: Written, known: dict[UOp, bool]) -> Written | None:
    """A store without the truths that are known; None: it stores nothing."""
    address, *rest = written.store.src
    if len(address.src) < 3:
        return written
    mask = _settled(address.src[2], known)
    if mask is False:
        return None
    left = () if mask is True else (mask,)
    bare = address.with_src((*address.src[:2], *left))
    return Written(written.store.with_src((bare, *rest)), written.loops)


def _settled(mask: UOp, known: dict[UOp, bool]) -> UOp | bool:
    """What is left of a mask: whether it holds, where that is known."""
    if mask in known:
        return known[mask]
    if mask.op not in _LOGIC:
        return mask
    parts = [_settled(part, known) for part in mask.src]
    if mask.op is Ops.NOT:
        (part,) = parts
        return not part if isinstance(part, bool) else mask.with_src((part,))
    decides = mask.op is Ops.OR  # the value that one part alone decides with
    if any([part is decides for part in parts]):
        return decides
    left = [part for part in parts if not isinstance(part, bool)]
    if len(left) == 2:
        return mask.with_src(tuple(left))
    return left[0] if left else not decides
