"""CUDA graphs of recorded functions: launches wait for those whose memory they need, and for no others."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from linear_kernels import map_kernel

from proofgrad import Device, Tensor, TinyJit, dtypes
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.emulator.state import Graph
from proofgrad.backends.ptx.order import is_within, overlapping, waits
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.ir.ops import Ops


class Noting(EmulatedDriver):
    """A driver that keeps the graphs that it made."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: list[Graph] = []

    def cuGraphInstantiate(self, graph: Graph, flags: int) -> object:
        """A graph that can be launched."""
        self.graphs.append(graph)
        return super().cuGraphInstantiate(graph, flags)

    def edges(self) -> list[list[int]]:
        """Of each node of the last graph the numbers of those that it waits for."""
        nodes = self.graphs[-1].nodes
        return [[nodes.index(one) for one in node.before] for node in nodes]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noting]:
    driver = Noting()
    monkeypatch.setitem(Device._devices, "CUDA", PTXBackend(Driver(driver)))
    yield driver
    gc.collect()


# -- order ------------------------------------------------------------------------------------------


def test_memory_that_overlaps_has_one_number() -> None:
    extents = {0: (100, 200), 1: (0, 50), 2: (150, 160), 3: (200, 300), 4: (40, 60)}
    assert overlapping(extents) == {1: 0, 4: 0, 0: 1, 2: 1, 3: 2}


def test_order_for_less_memory_that_overlaps_is_not_one_for_more() -> None:
    apart, together = {0: 0, 1: 1, 2: 2}, {0: 0, 1: 0, 2: 1}
    assert is_within(apart, together)
    assert is_within(together, together)
    assert not is_within(together, apart)


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        ([[1, 0], [2, 0], [3, 1, 2]], [[], [], [1, 0]]),  # two that read one input, their sum
        ([[1, 0], [2, 1], [3, 2]], [[], [0], [1]]),  # a chain
        ([[1, 0], [0, 5]], [[], [0]]),  # what is read is written behind
        ([[1, 0], [1, 5]], [[], [0]]),  # what is written is written again
        ([[1, 0], [2, 1], [3, 1, 2]], [[], [0], [1]]),  # the first ends before the second
        ([[0, 0], [1, 0], [0, 0], [2, 1, 0]], [[], [0], [1], [2]]),  # in place
        ([[1, 0], [2, 0], [0, 9]], [[], [], [1, 0]]),  # it waits for all readers
    ],
)
def test_launch_waits_for_those_whose_memory_it_needs(
    launches: list[list[int]], expected: list[list[int]]
) -> None:
    assert waits(launches) == expected


def test_drawn_orders_hold_each_pair_that_touches_what_one_writes() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        count, memories = random.integers(1, 12), random.integers(1, 8)
        launches = [random.integers(0, memories, random.integers(1, 4)).tolist() for _ in range(count)]  # fmt: skip
        behind: list[set[int]] = []
        for earlier in waits(launches):
            behind.append(set(earlier).union(*[behind[one] for one in earlier]))
        for k, later in enumerate(launches):
            for j, one in enumerate(launches[:k]):
                if one[0] in later or later[0] in one:
                    assert j in behind[k]


# -- graphs -----------------------------------------------------------------------------------------


def test_launches_of_their_own_memory_do_not_wait(api: Noting) -> None:
    """Column sums and row sums of an input, each by itself, and then what needs both."""

    @TinyJit
    def step(x: Tensor) -> Tensor:
        rows, columns = x.softmax(1).contiguous(), x.softmax(0).contiguous()
        return (rows @ columns).realize()

    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32)
        powers = np.exp(x)
        expected = (powers / powers.sum(1, keepdims=True)) @ (powers / powers.sum(0))
        found = step(Tensor(x, device="CUDA").realize()).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert len(api.graphs) == 1
    edges = api.edges()
    assert edges[0] == []
    assert [] in edges[1:]
    assert len(edges[-1]) == 2


def test_chain_of_launches_stays_one(api: Noting) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x.softmax(1).contiguous().softmax(0).contiguous() @ x).realize()

    for _ in range(3):
        step(Tensor.ones(6, 6, device="CUDA").contiguous().realize())
    edges = api.edges()
    assert all(earlier for earlier in edges[1:])


def test_graph_is_made_anew_where_buffers_overlap_as_they_did_not(api: Noting) -> None:
    """What the first launch reads, the second writes: at first two buffers, then one."""
    machine = Device["CUDA"]
    assert isinstance(machine, PTXBackend)
    negate = map_kernel([(Ops.NEG, dtypes.float32)], [dtypes.float32], 4)
    launch = machine.load(machine.compile(machine.emit(negate, "negate")))
    first, second, third, fourth = [machine.alloc(16) for _ in range(4)]
    values = [np.arange(4, dtype=np.float32) * 10**k for k in range(4)]
    for handle, value in zip((first, second, third, fourth), values, strict=True):
        machine.copyin(handle, memoryview(value))
    memory = [first, second, third, fourth]
    both = machine.sequence([(launch, [0, 1], [0, 0]), (launch, [2, 3], [0, 0])], memory)
    assert both is not None
    both.run()
    assert api.edges() == [[], []]
    both.point(2, second)  # which the first launch reads before the second writes it
    both.run()
    assert api.edges() == [[], [0]]
    assert _values(machine, first) == [-0.0, -10.0, -20.0, -30.0]
    assert _values(machine, second) == [-0.0, -1000.0, -2000.0, -3000.0]
    both.point(2, third)
    both.run()
    assert len(api.graphs) == 2  # whose order is right for this, too


def _values(machine: PTXBackend, handle: object) -> list[float]:
    data = bytearray(16)
    machine.copyout(memoryview(data), handle)
    return np.frombuffer(data, np.float32).tolist()
