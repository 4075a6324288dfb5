"""The reference machine: runs Linear in plain Python. The simplest backend; read this one first.

Owns: memory and loops in Python. Does not own: the value of each operation (core/ir/evaluate.py).
Buffers are bytearrays. Slow by design: every other backend is compared with this one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from proofgrad.backends.reference.warps import product_of_warp
from proofgrad.core.compile.lowering import program_facts
from proofgrad.core.compile.machine.target import (
    COMPUTED_TYPES,
    Backend,
    Binary,
    CompileError,
    Launch,
    Source,
    Target,
)
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.evaluate import evaluate, evaluate_lanes, from_bits, to_bits
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp

_NATIVE = frozenset({Ops.EXP2, Ops.EXP, Ops.LOG2, Ops.SIN, Ops.COS, Ops.POW, Ops.FMOD})
_UNWRITTEN = b"\xa5"  # fresh memory, so that a program that reads it does not find zeros
_CODES = {8: "<B", 16: "<H", 32: "<I", 64: "<Q"}


class ReferenceBackend(Backend):
    """Runs Linear itself. No `identity`: a Source that is read from a file has no Linear to run."""

    name = "REFERENCE"
    target = Target(name, arithmetic=COMPUTED_TYPES, native=_NATIVE)

    def emit(self, linear: UOp, name: str) -> Source:
        return Source(
            language="linear",
            entry=name,
            text="\n".join([f"{node.op.name} {node.dtype!r} {node.arg}" for node in linear.src]),
            params=program_facts.parameter_types(linear),
            thread_size=program_facts.launch_size(linear, AxisRole.THREAD),
            cost_flops=program_facts.operation_count(linear),
            program=linear,
        )

    def compile(self, source: Source) -> Binary:
        return Binary(source.entry, b"", source)

    def load(self, binary: Binary) -> Launch:
        program = binary.source.program
        if program is None:
            raise CompileError(f"{binary.entry} has no Linear program to run")
        return lambda buffers: _Run(program, buffers).run_between(0, len(program.src))

    def alloc(self, nbytes: int) -> bytearray:
        try:
            return bytearray(_UNWRITTEN * nbytes)
        except (MemoryError, OverflowError):
            raise MemoryError(f"cannot allocate {nbytes} bytes on {self.name}") from None

    def copyin(self, handle: bytearray, data: memoryview) -> None:
        handle[: data.nbytes] = bytes(data)

    def copyout(self, data: memoryview, handle: bytearray) -> None:
        data.cast("B")[:] = handle[: data.nbytes]

    def synchronize(self) -> None:
        """Kernels have run when their launch returns."""


class _Run:
    """One run of a program: the value of each node so far, and the buffers."""

    def __init__(self, program: UOp, buffers: Sequence[bytearray]) -> None:
        self.order, self.buffers = program.src, buffers
        self.ends = {n.src[0]: at for at, n in enumerate(self.order) if n.op is Ops.END}
        self.values: dict[UOp, Any] = {}

    def run_between(self, position: int, stop: int) -> None:
        """Run the nodes at position .. stop-1; a loop runs its body once for each value."""
        while position < stop:
            node = self.order[position]
            if node.op is Ops.RANGE:
                end = self.ends.get(node, stop)  # the range of a work item need not be closed
                for value in range(self.value(node.src[0])):
                    self.values[node] = value
                    self.run_between(position + 1, end)
                position = end
            else:
                self.step(node)
            position += 1

    def value(self, node: UOp) -> Any:
        if node.op is Ops.CONST:
            is_splat = node.dtype.lanes > 1 and not isinstance(node.arg, tuple)
            return (node.arg,) * node.dtype.lanes if is_splat else node.arg
        if node.op is Ops.BROADCAST and node.src[0].op is Ops.CONST:
            return (node.src[0].arg,) * node.dtype.lanes
        return self.values[node]

    def step(self, node: UOp) -> None:
        source = node.src
        match node.op:
            case Ops.PARAM | Ops.CONST | Ops.INDEX | Ops.END | Ops.SINK | Ops.FILLED:
                return
            case Ops.SCRATCH:
                self.values[node] = bytearray(_UNWRITTEN * (node.arg[1] * node.dtype.itemsize))
            case Ops.BROADCAST:
                self.values[node] = (self.value(source[0]),) * node.dtype.lanes
            case Ops.LOAD:
                self.values[node] = self.load(node)
            case Ops.STORE:
                self.store(source[0], source[1].dtype, self.value(source[1]))
            case Ops.ACCUMULATOR:
                self.values[node] = self.value(source[0])
            case Ops.UPDATE:
                self.values[node] = self.values[source[0]] = self.value(source[1])
            case Ops.RESULT:
                self.values[node] = self.values[source[0].src[0]]
            case Ops.HREDUCE:
                self.values[node] = _combine(node.arg, node.dtype, self.value(source[0]))
            case Ops.MMA:
                self.values[node] = product_of_warp(self, node)
            case op if op in ELEMENTWISE:
                arguments = [self.value(s) for s in source]
                types = [s.dtype for s in source]
                self.values[node] = evaluate_lanes(op, node.dtype, arguments, types, node.arg)
            case op:
                raise CompileError(f"{op.name} is no part of Linear")

    def positions(self, index: UOp, lanes: int) -> list[int | None]:
        """The element of each lane; None under a false mask."""
        first = self.value(index.src[1])
        elements = first if isinstance(first, tuple) else range(first, first + lanes)
        mask = self.value(index.src[2]) if len(index.src) > 2 else True
        masks = mask if isinstance(mask, tuple) else (mask,) * lanes
        return [element if held else None for element, held in zip(elements, masks)]

    def load(self, node: UOp) -> Any:
        buffer, dtype = node.src[0].src[0], node.dtype.scalar
        zero = from_bits(0, dtype)
        positions = self.positions(node.src[0], node.dtype.lanes)
        lanes = [zero if at is None else self.read(buffer, dtype, at) for at in positions]
        return lanes[0] if node.dtype.lanes == 1 else tuple(lanes)

    def store(self, index: UOp, dtype: DType, value: Any) -> None:
        lanes = value if isinstance(value, tuple) else (value,)
        for at, lane in zip(self.positions(index, dtype.lanes), lanes):
            if at is not None:
                self.write(index.src[0], dtype.scalar, at, lane)

    def read(self, buffer: UOp, dtype: DType, element: int) -> Any:
        (bits,) = struct.unpack_from(*self.position(buffer, dtype, element))
        return from_bits(bits, dtype)

    def write(self, buffer: UOp, dtype: DType, element: int, value: Any) -> None:
        struct.pack_into(*self.position(buffer, dtype, element), to_bits(value, dtype))

    def position(self, buffer: UOp, dtype: DType, element: int) -> tuple[str, bytearray, int]:
        """Format, memory and offset of an element. Raises: IndexError outside of the buffer."""
        if buffer.op is Ops.FILLED:
            buffer = buffer.src[0].src[0].src[0]
        slot, size = buffer.arg
        if not 0 <= element < size:
            raise IndexError(f"element {element} of slot {slot}, which has {size} elements")
        memory = self.values[buffer] if buffer.op is Ops.SCRATCH else self.buffers[slot]
        return _CODES[dtype.bits], memory, element * dtype.itemsize


def _combine(op: Ops, dtype: DType, lanes: tuple[Any, ...]) -> Any:
    """Halves combined until one lane is left, in the order of the LLVM printer."""
    spare: list[Any] = []
    while len(lanes) > 1:
        half = len(lanes) // 2
        spare += lanes[2 * half :]
        pairs = zip(lanes[:half], lanes[half : 2 * half])
        lanes = tuple([evaluate(op, dtype, pair) for pair in pairs])
    result = lanes[0]
    for lane in reversed(spare):
        result = evaluate(op, dtype, (result, lane))
    return result


def backend() -> ReferenceBackend:
    """The reference machine, which is everywhere."""
    return ReferenceBackend()
