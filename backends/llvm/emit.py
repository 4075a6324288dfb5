"""Linear -> LLVM IR text, so that no pass over the IR is needed afterwards.

Owns: the module, values that are no accesses. Does not own: loops (loop_printer.py), accesses (memory_printer.py), the
instructions of arithmetic.py, conversions.py and memory.py, the order of the nodes (linearizer).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proofgrad.backends.llvm.arithmetic import write_alu, write_op, write_unpredictable_choice
from proofgrad.backends.llvm.beside import copies_beside
from proofgrad.backends.llvm.conversions import write_bitcast, write_cast
from proofgrad.backends.llvm.dialect import Dialect, GroupNeeds
from proofgrad.backends.llvm.held import unrolled_loops
from proofgrad.backends.llvm.loop_printer import LoopPrinter
from proofgrad.backends.llvm.loops import phi
from proofgrad.backends.llvm.memory import NONTEMPORAL, UNPREDICTABLE, write_store
from proofgrad.backends.llvm.memory_printer import MemoryPrinter
from proofgrad.backends.llvm.modifiers import magnitude_below, opposite_of
from proofgrad.backends.llvm.nontemporal import FENCE
from proofgrad.backends.llvm.text import literal, register_type
from proofgrad.backends.llvm.two_ways import TwoWays
from proofgrad.core.compile.lowering.own_bytes import own_bytes
from proofgrad.core.compile.lowering.program_facts import (
    group_size,
    instruction_count,
    items_to_start,
    launch_size,
    operation_count,
    parameter_types,
    parameters,
)
from proofgrad.core.compile.machine.target import CompileError, Source
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import CONST, MUL, STORE
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import AxisRole, UOp


def emit(linear: UOp, name: str, dialect: Dialect) -> Source:
    """The LLVM IR of a program. Raises: CompileError for what is not legal Linear."""
    target = dialect.target
    room = target.core.sums_at_once * target.vector_bytes  # as many vectors that none waits
    is_shared_out = target.work_items  # other items run while one waits
    printer = _Printer(linear if is_shared_out else copies_beside(linear, room), name, dialect)
    text = "\n".join(printer.module()) + "\n"
    return Source(
        language=dialect.language,
        entry=name,
        text=text,
        params=parameter_types(linear),
        global_size=items_to_start(linear),
        group_size=group_size(linear),
        thread_size=launch_size(linear, AxisRole.THREAD),
        cost_flops=operation_count(linear),
        own_bytes=own_bytes(linear),
        program=linear,
        group_bytes=printer.kept_by_group.launch_bytes,
        cost_instructions=instruction_count(linear, dialect.target.vector_bytes),
    )


class _Printer(LoopPrinter, MemoryPrinter):
    """One kernel."""

    def module(self) -> list[str]:
        self._write_all(self.linear.src)
        if self.loops:
            raise CompileError(f"Linear of {self.name} ends inside of {len(self.loops)} loops")
        if self.has_exit:
            self.writer.do("br label %exit")
            self.writer.begin_block("exit")
        slots = list(parameters(self.linear))
        zeros = self._zeros()
        stores = [node.src[0].src[0] for node in self.linear.src if node.op is STORE]
        stored = frozenset([memory.arg[0] for memory in stores if memory.op is Ops.PARAM])
        first = self.dialect.open(self.name, slots, stored, self._needs())
        body = first + self.scratch + self.writer.lines
        body += [*self._settled(), *self.release, "  ret void"]
        ends = [*_allocator(self.release), *(["", NONTEMPORAL] if self.nontemporal else [])]
        ends += ["", UNPREDICTABLE] if self.by_data or self.choices_by_data else []
        ends += unrolled_loops(self.unrolled)
        return [
            *zeros,
            *self.kept_by_group.lines,
            *body,
            *self.dialect.close(self.name, slots),
            *ends,
        ]

    def _needs(self) -> GroupNeeds | None:
        """Of a kernel of groups, what each item holds: nothing known where it holds what it copies, or masks of it, which may be many."""
        if self.group is None:
            return None
        multiplies = any([n.op is Ops.MMA for n in self.linear.src])  # and holds sums beside a row
        if self.held and not multiplies:
            return GroupNeeds(self.group, 0, holds_rows=True)
        filled = [n.src[0] for n in self.linear.src if n.op is Ops.FILLED]
        are_masked = any([len(load.src[0].src) > 2 for load in self.copies])
        if are_masked or not self.copied.issuperset(filled):
            return GroupNeeds(self.group, 0)
        held = [[a.dtype for a in carried] for carried in self.carried.values()]
        words = [sum([d.lanes * d.scalar.itemsize for d in types]) // 4 for types in held]
        return GroupNeeds(self.group, max(words, default=0))

    def _settled(self) -> list[str]:
        """Stores past the caches keep no order with others until a fence; nothing is on its way when an item ends."""
        ends = [FENCE] if self.nontemporal else []
        return [*ends, *([f"  {self.dialect.wait_for_copies()}"] if self.copies else [])]

    def _zeros(self) -> list[str]:
        size = self.writer.zero_bytes
        space = self.dialect.constant_space
        declaration = f"@zeros = internal {space} constant [{size} x i8] zeroinitializer, align 64"
        return [" ".join(declaration.split()), ""] if size else []

    def _write(self, node: UOp) -> None:
        if node in self.of_ways or node in self.of_behind or node in self.unread:
            return  # with the first choice, with its store, or never
        if (way := self.ways.get(node)) is not None:
            self._choose(way)
        elif (own := self.behind.get(node)) is not None:
            self._store_behind(node, own)
        else:
            self._write_now(node)

    def _choose(self, way: TwoWays) -> None:
        """Values by the shorter way, and behind a branch by the longer one, for lanes that choose it."""
        writer, condition = self.writer, way.choices[0].src[0]
        for node in way.before:
            self._write_now(node)
        others = [self._register(choice.src[3 - way.operand]) for choice in way.choices]
        is_settled = self._on_all_lanes if way.operand == 2 else self._on_no_lane
        settled, label, before = is_settled(condition), writer.fresh("way"), writer.block
        writer.do(f"br i1 {settled}, label %{label}.end, label %{label}")
        writer.begin_block(label)
        for node in (*way.nodes, *way.choices):
            self._write_now(node)
        writer.do(f"br label %{label}.end")
        writer.begin_block(f"{label}.end")
        for choice, other in zip(way.choices, others):
            chosen, kind = self.registers[choice], register_type(choice.dtype)
            name = self.registers[choice] = f"%{writer.fresh('chosen')}"
            writer.do(phi(name, kind, other, before, chosen, label))

    def _store_behind(self, store: UOp, own: Sequence[UOp]) -> None:
        """A store behind a branch, with what it alone needs, which is under no mask there."""
        writer, label = self.writer, self.writer.fresh("store")
        mask = self._register(store.src[0].src[2])
        writer.do(f"br i1 {mask}, label %{label}, label %{label}.end")
        writer.begin_block(label)
        for node in own:
            self._write_now(node)
            if node.op is Ops.INDEX:
                self.positions[node] = self.positions[node]._replace(mask=None)
        position = self.positions[store.src[0]]._replace(mask=None)
        write_store(writer, position, store.src[1].dtype, self._register(store.src[1]))
        writer.do(f"br label %{label}.end")
        writer.begin_block(f"{label}.end")

    def _write_now(self, node: UOp) -> None:
        operation = _WRITERS.get(node.op)
        if operation is not None:
            operation(self, node)
        elif node in self.rounded:
            return
        elif node.op in ALU:
            if self.dialect.has_modifiers and (made := self._modified(node)) is not None:
                self.registers[node] = made
                return
            if (truth := self.whole_choices.get(node)) is not None:
                flag, added, before = [self._register(s) for s in (truth, *node.src[1:])]
                chosen = self.writer.select(flag, node.dtype, added, before, is_whole=True)
                self.registers[node] = chosen
                return
            operands = [self._register(s) for s in node.src]
            is_guess = node in self.choices_by_data
            write = write_unpredictable_choice if is_guess else write_alu
            self.registers[node] = write(self.writer, node, operands)
            if node in self.masks:
                self.writer.widen(self.registers[node], node.dtype.lanes)
            if node.op is MUL:
                self.products[node] = self.writer.block
        else:
            raise CompileError(f"{node.op.name} is no part of Linear")

    def _modified(self, node: UOp) -> str | None:
        """A node as what an instruction makes of an operand; None: it is none, or that is not there in this block."""
        if (found := magnitude_below(node)) is not None:
            value, bound = found
            size = self.writer.call("fabs", value.dtype, (self._register(value),))
            return write_op(self.writer, Ops.CMPLT, value.dtype, (size, self._register(bound)))
        opposite = opposite_of(node)
        if opposite is None or self.products.get(opposite) != self.writer.block:
            return None
        return self.writer.let(f"fneg {register_type(node.dtype)} {self.registers[opposite]}")

    # -- values -------------------------------------------------------------------------------------

    def nothing(self, node: UOp) -> None:
        """Constants stand where they are used, parameters in the signature."""

    def param(self, node: UOp) -> None:
        self.registers[node] = f"%buffer{node.arg[0]}"

    def cast(self, node: UOp) -> None:
        convert = write_cast if node.op is Ops.CAST else write_bitcast
        source = node.src[0]
        value = self._register(source)
        self.registers[node] = convert(self.writer, value, source.dtype, node.dtype)

    def broadcast(self, node: UOp) -> None:
        if node.src[0].op is not CONST:
            scalar = self._register(node.src[0])
            is_vector = node.dtype.lanes > 1
            if scalar == literal(True, node.src[0].dtype):
                self.registers[node] = literal(True, node.dtype)
                return
            self.registers[node] = self.writer.splat(scalar, node.dtype) if is_vector else scalar

    def horizontal(self, node: UOp) -> None:
        """Halves combined until one lane is left; an odd lane is kept for the end."""
        vector, dtype = self._register(node.src[0]), node.src[0].dtype
        spare: list[str] = []
        while dtype.lanes > 1:
            if dtype.lanes % 2:
                spare.append(self.writer.lane(vector, dtype, dtype.lanes - 1))
            half = dtype.lanes // 2
            low, high = [self._part(vector, dtype, first, half) for first in (0, half)]
            dtype = dtype.vec(half)
            vector = write_op(self.writer, node.arg, dtype, (low, high))
        for lane in reversed(spare):
            vector = write_op(self.writer, node.arg, dtype, (vector, lane))
        self.registers[node] = vector

    def _part(self, vector: str, dtype: DType, first: int, count: int) -> str:
        if count == 1:
            return self.writer.lane(vector, dtype, first)
        lanes = ", ".join([f"i32 {k}" for k in range(first, first + count)])
        vector_type = register_type(dtype)
        operands = f"{vector_type} {vector}, {vector_type} poison, <{count} x i32> <{lanes}>"
        return self.writer.let(f"shufflevector {operands}")


def _allocator(used: list[str]) -> list[str]:
    """Scratch memory that is too large for the stack comes from the C library."""
    return ["", "declare ptr @malloc(i64)", "declare void @free(ptr)"] if used else []


_WRITERS: dict[Ops, Callable[[_Printer, UOp], None]] = {
    Ops.CONST: _Printer.nothing,
    Ops.PARAM: _Printer.param,
    Ops.INDEX: _Printer.index,
    Ops.SINK: _Printer.nothing,
    Ops.CAST: _Printer.cast,
    Ops.BITCAST: _Printer.cast,
    Ops.BROADCAST: _Printer.broadcast,
    Ops.HREDUCE: _Printer.horizontal,
    Ops.MMA: _Printer.product_of_fragments,
    Ops.RANGE: _Printer.open_loop,
    Ops.END: _Printer.close_loop,
    Ops.ACCUMULATOR: _Printer.accumulator,
    Ops.UPDATE: _Printer.update,
    Ops.RESULT: _Printer.result,
    Ops.LOAD: _Printer.load,
    Ops.SCRATCH: _Printer.make_scratch,
    Ops.FILLED: _Printer.kept,
    Ops.STORE: _Printer.store,
}
