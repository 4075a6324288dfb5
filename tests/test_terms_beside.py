"""Long terms of one value run operation by operation: which, how many at a time, and each behind what it needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from linear_kernels import linear

from proofgrad import Device, Tensor
from proofgrad.backends.llvm import beside
from proofgrad.backends.llvm.terms import LONG, terms_beside
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

VECTOR = dtypes.float32.vec(8)  # of 32 bytes


def part_of(terms: int, length: int) -> list[UOp]:
    """A sum of chains of roots of what is loaded, one chain behind the other."""
    memory = UOp(Ops.PARAM, dtypes.float32, (), (1, 8 * terms))
    total, part = None, list[UOp]()
    for k in range(terms):
        at = UOp.const(dtypes.int32, 8 * k)
        position = UOp(Ops.INDEX, dtypes.float32, (memory, at))
        value = UOp(Ops.LOAD, VECTOR, (position,))
        part += [at, position, value]
        for _ in range(length):
            value = UOp(Ops.SQRT, VECTOR, (value,))
            part.append(value)
        if total is not None:
            value = UOp(Ops.ADD, VECTOR, (total, value))
            part.append(value)
        total = value
    return part


def places(part: Sequence[UOp], room: int) -> dict[UOp, int]:
    """Where each node stands, which is behind all that it needs."""
    order = terms_beside(part, room)
    assert len(order) == len(part) and set(order) == set(part)
    place = {node: k for k, node in enumerate(order)}
    assert all(place[s] < k for node, k in place.items() for s in node.src if s in place)
    return place


def test_terms_run_operation_by_operation() -> None:
    part = part_of(4, LONG)
    place = places(part, 4 * 32)
    loads = [place[n] for n in part if n.op is Ops.LOAD]
    roots = [place[n] for n in part if n.op is Ops.SQRT and n.src[0].op is Ops.SQRT]
    assert max(loads) < min(roots)


@pytest.mark.parametrize(("terms", "room", "first"), [(8, 8, 8), (9, 8, 5), (7, 4, 4), (6, 2, 2)])
def test_as_many_run_at_a_time_as_have_room_and_are_summed_before_the_next(
    terms: int, room: int, first: int
) -> None:
    part = part_of(terms, LONG)
    place = places(part, room * 32)
    roots = [place[n] for n in part if n.op is Ops.SQRT]
    sums = [place[n] for n in part if n.op is Ops.ADD]
    assert len([k for k in roots if k < min(sums)]) == first * LONG
    later = terms - first
    assert len([k for k in sums if k > max(roots)]) <= max(later, first - 1)


@pytest.mark.parametrize(
    ("terms", "length", "room"), [(1, LONG, 256), (4, LONG - 1, 256), (4, LONG, 32), (4, LONG, 0)]
)
def test_one_term_short_ones_and_those_without_room_stay_as_they_were(
    terms: int, length: int, room: int
) -> None:
    part = part_of(terms, length)
    assert terms_beside(part, room) == part


def test_terms_of_registers_stay_as_they_were() -> None:
    """A tile holds them all already."""
    part = part_of(4, LONG)
    held = {n: UOp(Ops.RESULT, VECTOR, n.src, n.arg) for n in part if n.op is Ops.LOAD}
    changed = [n.substitute(held) for n in part]
    assert terms_beside(changed, 256) == changed


def test_as_many_vectors_have_room_as_none_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = list[int]()

    def seen(part: Sequence[UOp], room: int) -> list[UOp]:
        rooms.append(room)
        return list(part)

    monkeypatch.setattr(beside, "terms_beside", seen)
    cpu = Device["CPU"]
    part = part_of(2, 1)
    (memory,) = {n.src[0] for n in part if n.op is Ops.INDEX}
    cpu.emit(linear([memory, *part]), "roots")
    assert set(rooms) == {cpu.target.core.sums_at_once * cpu.target.vector_bytes}


@pytest.mark.parametrize("shape", [(7, 8, 5), (3, 11, 13), (2, 16, 8)])
def test_sums_of_long_terms_that_are_written_out_are_right(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    expected = np.exp(data.astype(np.float64)).sum(1)
    np.testing.assert_allclose(Tensor(data).exp().sum(1).numpy(), expected, rtol=1e-5)
