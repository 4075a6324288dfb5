"""Kernels of emulated GPUs: modules, launches, graphs of launches.

Owns: these functions of the driver. Does not own: what a kernel does (grid.py), memory (memory_calls.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from proofgrad.backends.ptx.emulator.grid import KernelFault, Launch, run
from proofgrad.backends.ptx.emulator.module import compiled
from proofgrad.backends.ptx.emulator.parse import Refused
from proofgrad.backends.ptx.emulator.state import (
    ASKED_SHARED,
    MAX_BLOCK,
    MAX_GRID,
    MAX_GRID_YZ,
    MAX_SHARED,
    Calls,
    CUresult,
    Failed,
    Function,
    Graph,
    GraphExec,
    Module,
    Node,
    Stream,
)


def _require_shared(kernels: Mapping[str, Any]) -> None:
    """Raises: Refused for a kernel whose variables need more shared memory than ptxas gives."""
    for name, kernel in kernels.items():
        if kernel.shared_bytes > MAX_SHARED:
            sizes = f"{kernel.shared_bytes:#x} bytes, {MAX_SHARED:#x} max"
            raise Refused(f"Entry function '{name}' uses too much shared data ({sizes})")


class KernelCalls(Calls):
    """See the head of this file."""

    def __init__(self, devices: int, memory_bytes: int) -> None:
        super().__init__(devices, memory_bytes)
        self.launches = self.graph_launches = 0
        self.backwards = False  # the other order of warps
        self.max_threads = MAX_BLOCK  # of a block, for kernels that need more than there is
        self.capability = 90

    def asked_shared(self) -> tuple[int, int]:
        """Bytes of shared memory that a block may ask for, and that a multiprocessor has."""
        block, whole = ASKED_SHARED[max([one for one in ASKED_SHARED if one <= self.capability])]
        return block << 10, whole << 10

    @property
    def modules(self) -> int:
        """How many are loaded."""
        return sum([len(context.modules) for context in self.contexts])

    def cuModuleLoadDataEx(
        self, image: bytes, count: int, options: Sequence[int], values: Sequence[Any]
    ) -> Module:
        """Compile PTX text. What is wrong with it is written into the log that an option gives."""
        context = self.context()
        self.require(image.endswith(b"\0") and count == len(options) == len(values))
        try:
            kernels = compiled(image[:-1].decode())
            _require_shared(kernels)
        except Refused as error:
            for option, value in zip(options, values):
                if option == 5:
                    told = f"ptxas error   : {error}".encode()[: len(value) - 1]
                    value[: len(told)] = told
            raise Failed(CUresult.CUDA_ERROR_INVALID_PTX) from None
        module = Module(context, kernels)
        context.modules.add(module)
        return module

    def cuModuleUnload(self, module: Module) -> None:
        """Let go of a module."""
        self.own(module).modules.remove(module)

    def cuModuleGetFunction(self, module: Module, name: bytes) -> Function:
        """A kernel by its name."""
        self.own(module)
        self.require(name.decode() in module.kernels, CUresult.CUDA_ERROR_NOT_FOUND)
        return Function(module, module.kernels[name.decode()])

    def cuFuncGetAttribute(self, attribute: int, function: Function) -> int:
        """Registers or shared memory of a kernel."""
        kernel = function.kernel
        return {1: kernel.shared_bytes, 4: kernel.registers}[attribute]

    def cuFuncSetAttribute(self, function: Function, attribute: int, value: int) -> None:
        """From now on launches of a kernel may give a block more shared memory."""
        self.own(function.module)
        most = self.asked_shared()[0] - function.kernel.shared_bytes
        self.require(attribute == 8 and 0 <= value <= most)
        function.allowed_shared = function.kernel.shared_bytes + value

    def cuLaunchKernel(
        self, function: Function, gx: int, gy: int, gz: int, bx: int, by: int, bz: int,
        dynamic_bytes: int, stream: Stream, parameters: int, extra: int,
    ) -> None:  # fmt: skip
        """Put a launch behind the work that a stream has. Its parameters are read now."""
        self.own(stream)
        launch = self._launch(function, (gx, gy, gz), (bx, by, bz), dynamic_bytes, parameters)
        stream.waiting.append(lambda: self._run(function, launch))

    def _launch(
        self,
        function: Function,
        blocks: tuple[int, int, int],
        threads: tuple[int, int, int],
        dynamic_bytes: int,
        parameters: int,
    ) -> Launch:
        """A launch with its parameters as they are now. Raises: Failed for a shape that no GPU takes."""
        self.own(function.module)
        self.require(0 < blocks[0] <= MAX_GRID)
        self.require(all(0 < n <= MAX_GRID_YZ for n in blocks[1:]))
        self.require(all(n > 0 for n in threads))
        count = threads[0] * threads[1] * threads[2]
        self.require(count <= MAX_BLOCK)
        self.require(count <= self.max_threads, CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
        kernel = function.kernel
        shared = kernel.shared_bytes + dynamic_bytes
        self.require(shared <= max(MAX_SHARED, function.allowed_shared))
        packed = bytearray(kernel.parameter_bytes)
        for k, (offset, nbytes) in enumerate(kernel.parameters):
            position = ctypes.c_uint64.from_address(parameters + 8 * k).value
            packed[offset : offset + nbytes] = ctypes.string_at(position, nbytes)
        return Launch(kernel, blocks, threads, bytes(packed), dynamic_bytes)

    def _run(self, function: Function, launch: Launch) -> None:
        context = function.module.context
        if function.module not in context.modules:
            raise KernelFault("CUDA_ERROR_LAUNCH_FAILED", f"kernel {launch.kernel.name}: its module was unloaded")  # fmt: skip
        self.launches += 1
        run(launch, context.bounds, self.backwards)

    # -- graphs --------------------------------------------------------------------------------------

    def cuGraphCreate(self, flags: int) -> Graph:
        """A graph without nodes."""
        return Graph(self.context())

    def cuGraphAddKernelNode(
        self, graph: Graph, before: Sequence[Node], count: int, parameters: Any
    ) -> Node:
        """A launch that runs after those before it."""
        self.own(graph)
        self.require(count == len(before) and all(node in graph.nodes for node in before))
        node = Node(self._of_node(parameters), parameters.func, tuple(before))
        graph.nodes.append(node)
        return node

    def _of_node(self, p: Any) -> Launch:
        blocks = (p.gridDimX, p.gridDimY, p.gridDimZ)
        threads = (p.blockDimX, p.blockDimY, p.blockDimZ)
        return self._launch(p.func, blocks, threads, p.sharedMemBytes, p.kernelParams)

    def cuGraphInstantiate(self, graph: Graph, flags: int) -> GraphExec:
        """A graph that can be launched. Nodes that none waits for run in the order that nobody expects: the last of them first."""
        context, left = self.own(graph), dict.fromkeys(graph.nodes)
        ordered = list[Node]()
        while left:
            node = next(n for n in reversed(left) if left.keys().isdisjoint(n.before))
            del left[node]
            ordered.append(node)
        return GraphExec(context, {node: (node.launch, node.function) for node in ordered})

    def cuGraphExecKernelNodeSetParams(self, program: GraphExec, node: Node, p: Any) -> None:
        """Other parameters for a launch of a graph, from its next launch on."""
        self.own(program)
        self.require(node in program.launches and p.func is node.function)
        program.launches[node] = (self._of_node(p), p.func)

    def cuGraphLaunch(self, program: GraphExec, stream: Stream) -> None:
        """Put all launches of a graph behind the work that a stream has."""
        self.own(stream)
        self.own(program)
        self.graph_launches += 1
        for launch, function in list(program.launches.values()):
            stream.waiting.append(lambda f=function, one=launch: self._run(f, one))  # type: ignore[misc]

    def cuGraphExecDestroy(self, program: GraphExec) -> None:
        """Let go of a graph that can be launched."""
        self.own(program)

    def cuGraphDestroy(self, graph: Graph) -> None:
        """Let go of a graph."""
        self.own(graph)
