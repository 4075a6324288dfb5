"""Twice the program, twice the work of cutting it into kernels: nodes that walks come by are counted, so no clock is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, nn
from proofgrad.core.compile.lowering import linearize as order
from proofgrad.core.compile.nests import running_reductions as running
from proofgrad.core.ir import uop
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine

# Of twice the nodes; of what grows with the square it is nearly four times as much.
MOST_GROWTH = 2.8


def recurrent(steps: int) -> list[Tensor]:
    """A training step of an LSTM over so many steps."""
    layer = nn.LSTM(4, 8, batch_first=True)
    loss = layer(Tensor.ones(2, steps, 4).contiguous())[0][:, -1].square().sum()
    loss.backward()
    return [loss, *[w.grad for w in nn.state.get_parameters(layer) if w.grad is not None]]


def by_hand(parts: int) -> list[Tensor]:
    """Products of the input, which is there before all steps, and of the state, in the one sum of each of three times as many steps."""
    steps = 3 * parts
    x, of_input, of_state = Tensor.ones(steps, 4, 8), Tensor.ones(8, 16), Tensor.ones(8, 16)
    x, of_input, of_state = [value.contiguous() for value in (x, of_input, of_state)]
    state = Tensor.ones(4, 8).contiguous()
    for k in range(steps):
        gates = x[k] @ of_input + state @ of_state
        state = gates[:, :8] * gates[:, 8:]
    return [state]


def deep(layers: int) -> list[Tensor]:
    """So many layers, each with a sum of what one of its masks leaves."""
    x, weight = Tensor.ones(32, 8).contiguous(), Tensor.ones(8, 8).contiguous()
    for _ in range(layers):
        x = (x - (x > 0).where(x, 0).sum(0)) @ weight
    return [x]


def some(*shape: int) -> Tensor:
    """What memory holds."""
    return Tensor(np.ones(shape, np.float32))


def filtered(steps: int) -> list[Tensor]:
    """Each element of a signal made of the one before, written one after the other, and the gradients."""
    x, a = some(steps), some(1)
    y = Tensor.zeros(steps).contiguous()
    for k in range(steps):
        y[k] = a[0] * y[k - 1] + x[k] if k else x[k]
    return [y, *y.square().sum().gradient(x, a)]


def added(steps: int) -> list[Tensor]:
    """Rows that are added to one after the other, from behind, and the gradient."""
    x, y = some(steps, 8), Tensor.zeros(steps, 8).contiguous()
    for k in range(steps):
        y[k] += x[steps - 1 - k] * 2
    return [y, *y.square().sum().gradient(x)]


def states(steps: int) -> list[Tensor]:
    """States, stacked, and gradients of a loss that each of them adds to."""
    scaled, weight = some(steps, 4, 8), some(8, 8)
    x, state, found = (scaled - 0.5) * 2, Tensor.zeros(4, 8), list[Tensor]()
    for k in range(steps):
        state = (x[k] + state @ weight).tanh()
        found.append(state)
    loss = (Tensor.stack(*found) - 0.5).square().sum()
    return [loss, *loss.gradient(weight)]


@pytest.mark.parametrize("make", [filtered, added, states])
def test_steps_of_a_loop_are_the_same_kernels(make: Callable[[int], list[Tensor]]) -> None:
    """But for what puts them together, some steps each."""
    few, many = [_kernels(make(steps)) for steps in (48, 72)]
    assert many - few <= 24 // 4


def _kernels(tensors: list[Tensor]) -> int:
    """How many different kernels a program has."""
    graph = machine.graph_to_run([tensor.uop for tensor in tensors], tensors[0].device)
    return len({call.src[0] for call in machine.compiler().kernel_graph(graph).src})


@pytest.mark.parametrize("make", [recurrent, by_hand, deep])
def test_cutting_grows_with_the_program(
    make: Callable[[int], list[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = [_nodes_walked(make(steps), monkeypatch) for steps in (24, 48)]
    assert many < MOST_GROWTH * few


def _nodes_walked(tensors: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> int:
    """So many nodes come by in all walks while a program is cut into kernels."""
    graph = machine.graph_to_run([tensor.uop for tensor in tensors], tensors[0].device)
    walk, found = uop._in_order, 0

    def counted(roots: Iterable[UOp], enter: Any) -> list[UOp]:
        nonlocal found
        nodes = walk(roots, enter)
        found += len(nodes)
        return nodes

    with monkeypatch.context() as patch:
        patch.setattr(uop, "_in_order", counted)
        machine.compiler().kernel_graph(graph)
    return found


class Counted(frozenset[Ops]):
    """Operations, and how often one was looked for."""

    asked = 0

    def __contains__(self, op: object) -> bool:
        Counted.asked += 1
        return super().__contains__(op)


def test_choices_of_a_chain_are_not_walked_down_to_its_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_OF_COUNTERS", Counted(running._OF_COUNTERS))
    asked = []
    for steps in (12, 24):
        Counted.asked = 0
        x = some(steps, steps).solve(some(steps, 1))  # each step chooses a row by all before it
        machine.compiler().kernel_graph(machine.graph_to_run([x.uop], x.device))
        asked.append(Counted.asked)
    assert 0 < asked[1] < MOST_GROWTH * asked[0]


def test_ordering_asks_each_node_once_however_deep_its_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[UOp] = []

    def counted(node: UOp) -> tuple[UOp, ...]:
        asked.append(node)
        return node.src

    monkeypatch.setattr(order, "sources_before", counted)
    two = UOp.const(dtypes.int64, 2)
    loops = [UOp(Ops.RANGE, dtypes.int64, (two,), UOp.range(2, k).arg) for k in range(6)]
    at = loops[0]
    for loop in loops[1:]:
        at = at * two + loop
    memory = UOp(Ops.PARAM, dtypes.int64, (), (0, 2**6))
    place = UOp(Ops.INDEX, dtypes.int64, (memory, at))
    order.linearize(UOp.sink(UOp(Ops.STORE, dtypes.void, (place, at))))
    assert len(asked) == len(set(asked))
