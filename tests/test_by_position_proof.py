"""PROVE=1 on sources that go to positions in memory: proven, and an error planted in any step is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tactics import (
    choose_axes,
    lower_scatters,
    nest_of,
    on_nests,
    reductions_to_accumulators,
    unroll_upcasts,
)
from test_kernel_proof import CPU, GPU, PLAIN, Recorder, compile_with, planted, prove
from ways_of_positions import set_way

from proofgrad import Tensor
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.steps import accumulate, scatter
from proofgrad.core.compile.tactics import axes
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

STAGE = "lower scatters"


def programs() -> list[Tensor]:
    """Gradients of a choice in two loops, along an axis, of half floats; counts; a sum beside other work; pairs."""
    rng = np.random.default_rng(0)
    positions = Tensor(rng.integers(-9, 9, (5, 3)).astype(np.int32)).realize()
    line = positions.flatten().contiguous().realize()
    own, halves = [
        Tensor.zeros(9, 16).cast(kind).contiguous().realize() for kind in ("float32", "float16")
    ]
    weights = Tensor(rng.normal(size=(15, 16)).astype(np.float32)).realize()
    chosen = (own[positions.T] * weights.reshape(3, 5, 16)).sum().gradient(own)[0]
    small = (halves[line] * weights.cast("float16")).sum().gradient(halves)[0]
    along = (own.gather(0, line.reshape(15, 1).expand(15, 16)[:9] % 9) * weights[:9]).sum()
    counts = (line.reshape(1, 15) == Tensor.arange(9).reshape(9, 1)).float().sum(1)
    wide = Tensor.zeros(9, 7).contiguous().realize()
    joined = (
        wide.scatter_reduce(
            0, line.cast("int64").reshape(15, 1).expand(15, 7), weights[:, :7], "sum"
        )[3:8]
        * 2
    )
    pairs = (line.reshape(1, 1, 15) == Tensor.arange(9).reshape(9, 1, 1)) & (
        (line * 2 % 5).contiguous().reshape(1, 1, 15) == Tensor.arange(5).reshape(1, 5, 1)
    )
    return [chosen, small, along.gradient(own)[0], counts, joined, pairs.sum(2)]


@pytest.fixture(scope="module")
def bodies() -> Iterator[list[UOp]]:
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        set_way(patch, goes=True)
        for value in programs():
            compile_with(recorder, value, patch)
        yield [body for body in recorder.bodies if has_parts(body)]
    compiler().forget()


WIDE = Target("test-wide", vector_bytes=64)
UNROLL = "unroll"


@pytest.fixture
def rows_of_several_vectors(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """Gradients of chosen rows of two vectors and of two and a part, whose loops over vectors are written out."""
    rng, found = np.random.default_rng(1), list[UOp]()
    positions = Tensor(rng.integers(0, 600, 500).astype(np.int32)).realize()
    for columns in (32, 33):
        recorder = Recorder()
        table = Tensor.zeros(600, columns).contiguous().realize()
        compile_with(
            recorder, (table[positions] * 2).square().sum().gradient(table)[0], monkeypatch
        )
        found.append(recorder.bodies[-1])
    return found


def test_rows_of_several_vectors_are_proven(rows_of_several_vectors: list[UOp]) -> None:
    for body in rows_of_several_vectors:
        assert prove(body, WIDE).count.unknown == 0


@pytest.mark.parametrize("fault", ["left out", "twice", "another order"])
def test_a_vector_of_a_row_that_is_left_out_or_added_twice_is_found(
    rows_of_several_vectors: list[UOp], fault: str
) -> None:
    def wrong(kernel: UOp, target: Target, bounds: Any = None, override: Any = None) -> UOp:
        found = unroll_upcasts(kernel, target, bounds, override)
        stores = found.src
        if len(stores) < 2:
            return found
        first, second, *others = stores
        changed = {
            "left out": (first, *others),
            "twice": (first, first, *others),
            "another order": (second, first, *others),
        }
        return UOp.sink(*changed[fault])

    assert planted(rows_of_several_vectors, WIDE, UNROLL, wrong)


def has_parts(body: UOp) -> bool:
    return any(node.op is Ops.REDUCE_AXIS for node in body.toposort())


@pytest.mark.parametrize("target", [CPU, GPU, PLAIN], ids=lambda target: target.name)
def test_what_is_combined_by_position_is_proven_to_be_the_reduction(
    bodies: list[UOp], target: Target
) -> None:
    assert len(bodies) == 6
    for body in bodies:
        count = prove(body, target).count
        assert count.unknown == 0
        assert count.by_solver + count.by_enumeration >= 10


def test_a_position_one_too_high_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = scatter.nearest_between
    monkeypatch.setattr(scatter, "nearest_between", lambda term, *ends: right(term + 1, *ends))
    assert planted(bodies, CPU, STAGE)


@pytest.mark.parametrize("fault", ["no fill", "filled with 1", "a part filled"])
def test_memory_that_is_not_filled_is_found(bodies: list[UOp], fault: str) -> None:
    def wrong(kernel: UOp, target: Target, bounds: Any) -> UOp:
        fill, *rest = lower_scatters(kernel, target, bounds).src
        position, value = fill.src[0].src[:2]
        if fault == "no fill":
            return UOp.sink(*rest, rest[-1])
        if fault == "filled with 1":
            value = UOp.const(value.dtype, 1)
        else:
            loop = position.src[1]
            position = position.substitute(
                {loop: loop.replace(src=(UOp.index(loop.src[0].arg - 1),))}
            )
        return UOp.sink(UOp.sink(UOp(Ops.STORE, dtypes.void, (position, value))), *rest)

    for body in bodies:
        assert planted([body], CPU, STAGE, wrong)


@pytest.mark.parametrize("mask", ["none", "too wide", "too narrow"])
def test_a_wrong_mask_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch, mask: str
) -> None:
    right = scatter.placed

    def wrong(reduction: UOp, free: frozenset[UOp], bounds: Any) -> Any:
        found = right(reduction, free, bounds)
        if found is None:
            return None
        (position,) = list(found.addresses.values())[:1]
        never = UOp(Ops.CONST, dtypes.bool, (), True)
        changed = {
            "none": never,
            "too wide": found.mask | (position.eq(0)),
            "too narrow": found.mask & (position < 2),
        }
        return type(found)(
            found.reduction, found.loops, found.addresses, changed[mask], found.value
        )

    monkeypatch.setattr(scatter, "placed", wrong)
    assert planted(bodies, CPU, STAGE)


def test_another_operation_is_found(bodies: list[UOp]) -> None:
    def wrong(kernel: UOp, target: Target, bounds: Any) -> UOp:
        fill, combine, *rest = lower_scatters(kernel, target, bounds).src
        return UOp.sink(fill, UOp.sink(combine.src[0].replace(arg=Ops.MAX)), *rest)

    assert planted(bodies, CPU, STAGE, wrong)


def test_loops_of_a_store_that_change_their_order_are_found(bodies: list[UOp]) -> None:
    def wrong(kernel: UOp, target: Target, bounds: Any = None, override: Any = None) -> UOp:
        store = kernel.src[0]
        own = store.src[2:]
        if len(own) < 2:
            return choose_axes(kernel, target, bounds, override)
        return UOp.sink(store.replace(src=(*store.src[:2], *own[::-1])))

    assert "loops of a store" in planted(bodies[:1], CPU, "choose axes", wrong)


def test_loops_of_a_store_nested_in_another_order_are_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    from proofgrad.core.compile.lowering import linearize as module

    right = module._nesting_key

    def wrong(loop: UOp) -> Any:
        return (not right(loop)[0], -loop.arg[0])

    monkeypatch.setattr(module, "_nesting_key", wrong)
    assert "do not run in its order" in planted(bodies[:1], PLAIN, "linearize", linearize)


def test_iterations_left_out_or_done_twice_are_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = axes.split

    def twice(kernel: UOp, loop: UOp, *arguments: Any) -> UOp:
        long = loop.replace(src=(UOp.index(loop.src[0].arg * 2),))
        return right(nest_of(kernel.substitute({loop: long})), long, *arguments).graph

    def short(kernel: UOp, loop: UOp, *arguments: Any) -> UOp:
        less = loop.replace(src=(UOp.index(loop.src[0].arg - 1),))
        return right(nest_of(kernel.substitute({loop: less})), less, *arguments).graph

    for wrong in (twice, short):
        monkeypatch.setattr(axes, "split", on_nests(right, wrong))
        assert planted(bodies[:1], CPU, "choose axes")


def test_reading_another_element_than_is_written_is_found(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(store: UOp) -> UOp:
        position, value, *loops = store.src
        other = position.replace(
            src=(position.src[0], position.src[1] + 0 * loops[0], *position.src[2:])
        )
        there = UOp(Ops.LOAD, value.dtype, (other.replace(src=position.src[:2]), *loops))
        return store.replace(
            src=(position, UOp(store.arg, value.dtype, (there, value)), *loops), arg=None
        )

    monkeypatch.setattr(accumulate, "_read_first", elsewhere)
    reason = planted(bodies[:1], PLAIN, "accumulators", reductions_to_accumulators)
    assert "does not read the element that it writes" in reason
