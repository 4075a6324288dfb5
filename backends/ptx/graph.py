"""Many launches as one CUDA graph: what a recorded function costs the host is then one call.

Owns: the graph, its nodes, new addresses for them. Does not own: kernels (runtime.py), which waits for which (order.py).

A launch waits for those whose memory it needs, so that others may run beside it. Where buffers lie elsewhere at a later run, and
overlap as they did not before, the graph is made anew.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.order import Extent, is_within, overlapping, waits
from proofgrad.core.compile.machine.target import Launch

if TYPE_CHECKING:
    from proofgrad.backends.ptx.runtime import KernelLaunch

KNOWN_PLACES = 64  # of the buffers of a graph, for which its order is known to be right


class GraphSequence:
    """Launches as if in order, over buffers whose addresses `point` changes. Made when it first runs."""

    def __init__(
        self,
        driver: Driver,
        launches: Sequence[tuple[KernelLaunch, Sequence[int], Sequence[int]]],
        memory: Sequence[Any],
    ) -> None:
        """`launches`: each with the slots of its buffers and the bytes that each begins behind."""
        self.driver = driver
        self._launches = list(launches)
        self._addresses = [[0] * len(slots) for _, slots, _ in launches]
        self._positions: dict[int, list[tuple[int, int]]] = {}
        for k, (_, slots, _) in enumerate(launches):
            for j, slot in enumerate(slots):
                self._positions.setdefault(slot, []).append((k, j))
        self._changed: set[int] = set()
        self._extents: dict[int, Extent] = {}
        self._is_moved = False  # since the last run
        self._overlapping: dict[int, int] = {}  # as the graph is ordered for
        self._known: set[tuple[Extent, ...]] = set()
        self._graph = self._program = None
        self._nodes: list[Any] = []
        self._lock = threading.Lock()
        for slot, handle in enumerate(memory):
            if handle is not None and slot in self._positions and hasattr(handle, "address"):
                self.point(slot, handle)

    def point(self, slot: int, handle: Any) -> None:
        """The buffer of a slot is another one."""
        if slot in self._positions:
            extent = handle.address, handle.address + max(1, handle.nbytes)
            self._is_moved |= self._extents.get(slot) != extent
            self._extents[slot] = extent
        for k, j in self._positions.get(slot, ()):
            address = handle.address + self._launches[k][2][j]
            if self._addresses[k][j] != address:
                self._addresses[k][j] = address
                self._changed.add(k)

    def listed(self) -> list[tuple[Launch | None, list[Any]]]:
        """Each launch with the addresses that it will be given."""
        return [
            (launch, list(addresses))
            for (launch, _, _), addresses in zip(self._launches, self._addresses)
        ]

    def run(self) -> None:
        """All launches, as if in order."""
        self.driver.require_usable()
        with self._lock:
            if self._is_moved and not self._is_ordered():
                self._drop()
            if self._program is None:
                self._make()
            self._is_moved = False
            for k in sorted(self._changed):
                arguments = self._arguments(k)
                parameters = self._parameters(k, arguments)
                node = self._nodes[k]
                self.driver.call("cuGraphExecKernelNodeSetParams", self._program, node, parameters)
            self._changed.clear()
            self.driver.note([launch.name for launch, _, _ in self._launches])
            self.driver.call("cuGraphLaunch", self._program, self.driver.stream)

    def _make(self) -> None:
        """Keeps nothing of a graph that could not be finished: the next run begins anew."""
        call, nodes = self.driver.call, list[Any]()
        memory = overlapping(self._extents)
        slots = [[memory.get(slot, -1 - slot) for slot in own] for _, own, _ in self._launches]
        graph = call("cuGraphCreate", 0)
        try:
            for k, earlier in enumerate(waits(slots)):
                arguments = self._arguments(k)
                parameters = self._parameters(k, arguments)
                before = [nodes[one] for one in earlier]
                nodes.append(call("cuGraphAddKernelNode", graph, before, len(before), parameters))
            program = call("cuGraphInstantiate", graph, 0)
        except BaseException:
            self.driver.release("cuGraphDestroy", graph)
            raise
        self._graph, self._nodes, self._program = graph, nodes, program
        self._overlapping = memory
        self._changed.clear()

    def _is_ordered(self) -> bool:
        """Whether the graph, if there is one, has an order for where the buffers are now."""
        if self._program is None:
            return True
        places = tuple(self._extents.values())
        if places not in self._known:
            if not is_within(overlapping(self._extents), self._overlapping):
                return False
            if len(self._known) >= KNOWN_PLACES:
                self._known.clear()
            self._known.add(places)
        return True

    def _arguments(self, k: int) -> tuple[Any, Any]:
        """The addresses of a launch, and their addresses: read while a call of the driver runs."""
        launch, own = self._launches[k][0], self._addresses[k]
        return launch.arguments([own[slot] for slot in launch.slots])

    def _parameters(self, k: int, arguments: tuple[Any, Any]) -> Any:
        launch = self._launches[k][0]
        parameters = self.driver.api.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = launch.function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = launch.blocks, 1, 1
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = launch.threads, 1, 1
        parameters.sharedMemBytes = launch.shared_bytes
        parameters.kernelParams = ctypes.addressof(arguments[1])
        return parameters

    def __del__(self) -> None:
        self._drop()

    def _drop(self) -> None:
        """Let go of the graph. The driver waits itself for one that is running."""
        for name, made in (
            ("cuGraphExecDestroy", getattr(self, "_program", None)),
            ("cuGraphDestroy", getattr(self, "_graph", None)),
        ):
            if made is not None:
                self.driver.release(name, made)
        self._graph = self._program = None
        self._known = set()
