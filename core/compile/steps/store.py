"""Values of a program get memory of their own, each filled by a kernel, and are read from there.

    f(v)   =   b <- v; f(b)

    r = g(f(x), f(x) + y)   =   b <- f(x); c <- g(b, b + y)     where f(x) and r are stored

The root of a program is one of the values, or memory that is there already. Each value is computed by one kernel, from the
elements of memory that is there or that kernels before it have filled. No memory is filled twice, and none that is there.
Elements lie in memory in row-major order, which RESHAPE keeps; CONTIGUOUS and DETACH leave their source as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any, TypeVar

from proofgrad.core import settings
from proofgrad.core.compile.steps.loop_nest import require
from proofgrad.core.compile.steps.tensor_program import TensorProgram, graph_step
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import BUFFER, COPY, PARAM
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.origin import origin_of
from proofgrad.core.ir.shapes import elements, is_plain, sizes
from proofgrad.core.ir.uop import UOp, toposort

_SAME = frozenset({Ops.DETACH, Ops.CONTIGUOUS})
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What a CALL carries beside its body: the device it runs on, and where it comes from.

    `origin` are the methods of Tensor whose nodes it holds, if they were traced.
    """

    device: str
    origin: tuple[str, ...] = ()
    ast: UOp | None = None  # the body again, in a graph that a user looks at (kernelize)

    def __repr__(self) -> str:
        if self.ast is None:
            return f"CallInfo({self.device!r}, {self.origin!r})"
        return f"<KERNEL on {self.device}: {' '.join(['SINK', *self.origin])}>"


# -- the functions of the law ---------------------------------------------------------------------


def over_memory(
    op: Ops, sources: tuple[_Value, ...], computed: Callable[[tuple[_Value, ...]], _Value]
) -> _Value:
    """A node of a kernel, over what its sources became."""
    return sources[0] if op in _SAME else computed(sources)


def number_of(made: Any) -> Any:
    """The number of the buffer that is made after so many; those that are there count from 0 up."""
    return -1 - made


# -- the step -------------------------------------------------------------------------------------


@graph_step("f(v) = b <- v; f(b)")
def store(program: TensorProgram, values: Set[UOp]) -> UOp:
    """One CALL for each of the values that has elements, in running order.

    The arg of the SINK holds the buffer of each root. Each CALL is (body, buffer written, buffers
    read ...). The body is SINK(value over PARAMs), slot 0 being the buffer written. New buffers are
    numbered from -1 down. The arg of the program's SINK is the device for values that read no buffer.
    """
    return _Kernels(program.graph, values).calls()


def below_reshape(root: UOp) -> UOp:
    """The node that has the elements of a root in the same order: a buffer has no shape."""
    while root.op is Ops.RESHAPE:
        root = root.src[0]
    return root


class _Kernels:
    """The kernels of one program."""

    def __init__(self, root: UOp, values: Set[UOp]) -> None:
        self.root, self.stored = root, values
        self.nodes = toposort((root,))
        self.buffer_of: dict[UOp, UOp] = {n: n for n in self.nodes if n.op is BUFFER}
        self.device_of = _devices(self.nodes)
        self.made = 0

    def calls(self) -> UOp:
        there = [buffer for buffer in self.buffer_of if buffer.src[0].arg < 0]
        require(not there, "memory with the number of a new one", *there)
        stored = [node for node in self.nodes if node in self.stored]
        require(len(stored) == len(self.stored), "values that are not in the graph")
        found: list[UOp] = []
        for node in stored:
            require(node.dtype is not dtypes.void and node.op is not Ops.BUFFER, "no value", node)
            if elements(node.shape):
                found.append(self._call(node))
            else:
                self.buffer_of[node] = self._new_buffer(node)
        results = [self._filled(source) for source in self.root.src]
        missing = [node for node in results if node not in self.buffer_of]
        require(not missing, "a root that is not stored", *missing)
        buffers = tuple([self.buffer_of[node] for node in results])
        return UOp(Ops.SINK, dtypes.void, tuple(found), buffers)

    def _filled(self, root: UOp) -> UOp:
        """The value whose memory has the elements of a root: the root, or what is the same below it."""
        node = below_reshape(root)
        while node not in self.buffer_of and node.op in _SAME:
            node = below_reshape(node.src[0])
        return node

    def _call(self, node: UOp) -> UOp:
        """The kernel, or the copy between devices, that fills the buffer of `node`."""
        inputs: dict[UOp, UOp] = {}
        body = self._body(node, inputs)
        self.buffer_of[node] = buffer = self._new_buffer(node)
        far = [b for b in inputs if b.src[1] is not buffer.src[1] and node.op is not Ops.COPY]
        require(not far, "memory of another device", *far)
        info = CallInfo(buffer.src[1].arg, self._origin(node))
        return UOp(Ops.CALL, dtypes.void, (UOp.sink(body), buffer, *inputs), info)

    def _new_buffer(self, node: UOp) -> UOp:
        unique = UOp(Ops.UNIQUE, dtypes.void, (), number_of(self.made))
        name = self.device_of.get(node, self.root.arg)
        device = UOp(Ops.DEVICE, dtypes.void, (), name)
        self.made += 1
        return UOp(Ops.BUFFER, node.dtype, (unique, device), elements(node.shape))

    def _body(self, target: UOp, inputs: dict[UOp, UOp]) -> UOp:
        """The value of `target` with every stored node below it read from a parameter."""
        done: dict[UOp, UOp] = {}

        def inside(node: UOp) -> bool:
            return node is target or not self._is_read(node)

        for node in toposort((target,), inside):
            if inside(node):
                is_copy = node.op is COPY
                is_whole = node is target and self._is_read(node.src[0]) if is_copy else True
                require(is_whole, "a copy of what no memory holds, or in a kernel", node)
                sources = tuple([done[s] for s in node.src])
                done[node] = over_memory(node.op, sources, node.with_src)
            else:
                done[node] = self._parameter(node, inputs)
        return done[target]

    def _origin(self, target: UOp) -> tuple[str, ...]:
        """The methods of Tensor that the nodes of a kernel come from, where they were traced."""
        if not settings.traces_methods():
            return ()
        inside = target.toposort(lambda n: n is target or not self._is_read(n))
        names = [origin_of(n) for n in inside if n is target or not self._is_read(n)]
        return tuple(dict.fromkeys([name for name in names if name]))

    def _is_read(self, node: UOp) -> bool:
        return node.op is BUFFER or node in self.stored

    def _parameter(self, node: UOp, inputs: dict[UOp, UOp]) -> UOp:
        buffer = self.buffer_of[node]  # sources first: it was filled before
        if buffer not in inputs:
            slot = len(inputs) + 1
            inputs[buffer] = UOp(PARAM, buffer.dtype, (), (slot, buffer.arg))
        parameter = inputs[buffer]
        return parameter if node.shape == parameter.shape else _reshaped(parameter, node)


def _reshaped(parameter: UOp, node: UOp) -> UOp:
    if not is_plain(node.shape):  # a buffer is as large as the variables allow
        used = UOp(Ops.SHRINK, node.dtype, (parameter,), ((0, sizes().product(node.shape)),))
        return (
            used if used.shape == node.shape else UOp(Ops.RESHAPE, node.dtype, (used,), node.shape)
        )
    return UOp(Ops.RESHAPE, node.dtype, (parameter,), node.shape)


def _devices(nodes: Iterable[UOp]) -> dict[UOp, str]:
    """The device each node is computed on: that of the buffers below it, or where COPY brings it."""
    found: dict[UOp, str] = {}
    for node in nodes:
        if node.op is BUFFER:
            found[node] = node.src[1].arg
        elif node.op is COPY:
            found[node] = node.arg
        else:
            for source in node.src:
                if source in found:
                    found[node] = found[source]
                    break
    return found
