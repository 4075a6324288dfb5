"""Linear -> LLVM IR text, so that no pass over the IR is needed afterwards.

Owns: blocks, where loops begin and end. Does not own: what a loop carries (loops.py), the
instructions of arithmetic.py, conversions.py and memory.py, the order of the nodes (linearizer).

A loop whose size is a constant above 0 tests its counter at the end; any other tests it at the
start. The phi nodes of a loop are reserved lines, filled in when the loop ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from proofgrad.backends.llvm.alignment import largest_power_of_two
from proofgrad.backends.llvm.arithmetic import write_alu, write_op
from proofgrad.backends.llvm.conversions import write_bitcast, write_cast
from proofgrad.backends.llvm.copies import copies_of, is_aligned, write_copy
from proofgrad.backends.llvm.dialect import Dialect, GroupNeeds
from proofgrad.backends.llvm.group_memory import memory_of_group
from proofgrad.backends.llvm.held import (
    held_in_registers,
    memory_of,
    room_in_item,
    unroll_whole,
    unrolled_loops,
)
from proofgrad.backends.llvm.interleave import interleaved_stores, write_interleaved
from proofgrad.backends.llvm.lanes_off import may_be_on
from proofgrad.backends.llvm.loops import OpenLoop, carried_accumulators, phi
from proofgrad.backends.llvm.matrix_loads import loads_together
from proofgrad.backends.llvm.memory import (
    NONTEMPORAL,
    UNPREDICTABLE,
    Position,
    masks_by_data,
    write_address,
    write_load,
    write_nontemporal_store,
    write_prefetch,
    write_store,
)
from proofgrad.backends.llvm.modifiers import magnitude_below, opposite_of
from proofgrad.backends.llvm.nontemporal import nontemporal_stores
from proofgrad.backends.llvm.pieces import lanes_from, load_pieces, store_pieces
from proofgrad.backends.llvm.prefetch import prefetched
from proofgrad.backends.llvm.prefetch_tiles import Hint
from proofgrad.backends.llvm.register_transpose import (
    lanes_apart,
    transposed_stores,
    write_transposed_stores,
)
from proofgrad.backends.llvm.skipping import parts_of_truths, settled, skipped, unswitched
from proofgrad.backends.llvm.text import literal, memory_type, register_type
from proofgrad.backends.llvm.tiles import (
    TILE,
    tiles_of,
    write_nothing,
    write_product,
    write_tile_load,
    write_tile_store,
)
from proofgrad.backends.llvm.vector_tiles import write_product_of_vectors
from proofgrad.backends.llvm.writer import Writer
from proofgrad.backends.llvm.written_out import (
    AT_ONCE,
    Ahead,
    Turn,
    filled_ahead,
    turns_written_out,
)
from proofgrad.core.compile.lowering.held_by_items import item_of
from proofgrad.core.compile.lowering.program_facts import (
    group_size,
    items_to_start,
    launch_size,
    operation_count,
    parameter_types,
    parameters,
)
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.compile.machine.target import CompileError, Source
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.fragments import Fragments, fragments_of
from proofgrad.core.ir.op_names import ACCUMULATOR, BROADCAST, CONST, END
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group, toposort

# Scratch memory up to here lies on the stack of the thread that runs a kernel.
STACK_BYTES = 1 << 16


def emit(linear: UOp, name: str, dialect: Dialect) -> Source:
    """The LLVM IR of a program. Raises: CompileError for what is not legal Linear."""
    printer = _Printer(linear, name, dialect)
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
        program=linear,
        group_bytes=printer.kept_by_group.launch_bytes,
    )


class _Printer:
    def __init__(self, linear: UOp, name: str, dialect: Dialect) -> None:
        self.linear, self.name, self.dialect = linear, name, dialect
        self.writer = Writer(dialect)
        self.registers: dict[UOp, str] = {}
        self.positions: dict[UOp, Position] = {}
        self.products: dict[UOp, str] = {}  # in which block each stands
        self.current: dict[UOp, str] = {}  # the register that holds each accumulator now
        self.loops: list[OpenLoop] = []
        self.carried = carried_accumulators(linear)
        self.ahead = prefetched(linear, dialect.target) if dialect.has_prefetch else {}
        self.nontemporal = nontemporal_stores(linear, dialect.nontemporal_bytes)
        self.skipped = skipped(linear)
        self.unswitched = unswitched(linear, self.skipped)
        self.by_data = masks_by_data(linear)
        self.transposed = transposed_stores(linear)
        self.between = {} if dialect.target.work_items else interleaved_stores(linear)
        together = {**self.transposed, **self.between}
        self.waiting = frozenset().union(*together.values()).difference(together)
        self.tiles = tiles_of(linear) if dialect.has_tiles else {}
        self.has_exit = False
        kept = [n for n in linear.src if n.op is Ops.FILLED and is_of_group(n.src[1:])]
        self.held = held_in_registers(linear, dialect.row_part_bytes)
        self.written_out = frozenset().union(*[x.loops for x in self.held.values()])
        self.held.update({n: self.held[m] for n in kept if (m := memory_of(n)) in self.held})
        kept = [n for n in kept if n not in self.held]
        filled = set(map(memory_of, kept))
        parts = [n for n in linear.src if n in filled]
        self.kept_by_group = memory_of_group(name, parts, dialect)
        self.of_group = {*parts, *kept}
        if dialect.keeps_in_registers:
            theirs = {*self.of_group, *self.held}
            own = [n for n in linear.src if n.op is Ops.FILLED and n not in theirs]
            self.written_out |= {loop for n in own for loop in n.src[1:]}
        self.group = group_size(linear)
        self.waits = waits(linear)
        self.copies = copies_of(linear) if dialect.copies_ahead else {}
        self.copied = frozenset(self.copies.values())
        of_items = self.group is not None
        self.turns = turns_written_out(linear, self.group, self.copied) if of_items else {}
        self.turn: Turn | None = None
        self.filled_ahead = filled_ahead(linear) if of_items else {}
        self.straight = {ahead.parts for ahead in self.filled_ahead.values()}
        by_warps = self.dialect.loads_matrices
        self.together = (
            loads_together(linear, frozenset(self.of_group), self.group) if by_warps else {}
        )
        self.term_block, self.terms = "", list[UOp]()
        self.shared = 0  # open loops that the items of a group share out
        self.unrolled = 0  # loops that LLVM shall write out
        self.scratch: list[str] = []  # lines that make room, once in a call
        self.release: list[str] = []

    def module(self) -> list[str]:
        self._write_all(self.linear.src)
        if self.loops:
            raise CompileError(f"Linear of {self.name} ends inside of {len(self.loops)} loops")
        if self.has_exit:
            self.writer.do("br label %exit")
            self.writer.begin_block("exit")
        slots = list(parameters(self.linear))
        zeros = self._zeros()
        stores = [node.src[0].src[0] for node in self.linear.src if node.op is Ops.STORE]
        stored = frozenset([memory.arg[0] for memory in stores if memory.op is Ops.PARAM])
        first = self.dialect.open(self.name, slots, stored, self._needs())
        body = first + self.scratch + self.writer.lines
        body += [*self._settled(), *self.release, "  ret void"]
        ends = [*_allocator(self.release), *(["", NONTEMPORAL] if self.nontemporal else [])]
        ends += ["", UNPREDICTABLE] if self.by_data else []
        ends += unrolled_loops(self.unrolled)
        return [
            *zeros,
            *self.kept_by_group.lines,
            *body,
            *self.dialect.close(self.name, slots),
            *ends,
        ]

    def _needs(self) -> GroupNeeds | None:
        """Of a kernel of groups, what each item holds. Not known where it holds what it copies, or masks of it: they may be many."""
        if self.held and self.group is not None:
            return GroupNeeds(self.group, 0, holds_rows=True)
        filled = [n.src[0] for n in self.linear.src if n.op is Ops.FILLED]
        are_masked = any([len(load.src[0].src) > 2 for load in self.copies])
        if self.group is None or are_masked or not self.copied.issuperset(filled):
            return None
        held = [[a.dtype for a in carried] for carried in self.carried.values()]
        words = [sum([d.lanes * d.scalar.itemsize for d in types]) // 4 for types in held]
        return GroupNeeds(self.group, max(words, default=0))

    def _settled(self) -> list[str]:
        """Stores past the caches keep no order with others until a fence; nothing is on its way when an item ends."""
        ends = ["  fence seq_cst"] if self.nontemporal else []
        return [*ends, *([f"  {self.dialect.wait_for_copies()}"] if self.copies else [])]

    def _zeros(self) -> list[str]:
        size = self.writer.zero_bytes
        space = self.dialect.constant_space
        declaration = f"@zeros = internal {space} constant [{size} x i8] zeroinitializer, align 64"
        return [" ".join(declaration.split()), ""] if size else []

    def _write_all(self, nodes: Sequence[UOp]) -> None:
        """The nodes in order; a loop whose masks may all hold, with its body, twice."""
        position = 0
        while position < len(nodes):
            node, end = nodes[position], position + 1
            if masks := self.unswitched.get(node):
                while nodes[end - 1].op is not END:  # the loop has none inside of it
                    end += 1
                self._write_twice(nodes[position:end], masks)
            elif (inside := self.turns.get(node)) is not None:
                self._write_turns(node, inside)
                end += len(inside) + 1
            else:
                if (ahead := self.filled_ahead.get(node)) is not None:
                    self._fill_first(node, ahead)
                self._write(node)
            position = end

    def _write_turns(self, loop: UOp, inside: Sequence[UOp]) -> None:
        """Each iteration of a loop; of some at once, node by node, so that loads come before stores."""
        registers, positions, of_first = self.registers, self.positions, dict(self.positions)
        turns = range(int(loop.src[0].arg))
        for first in turns[::AT_ONCE]:
            together = turns[first : first + AT_ONCE]
            own = [({**registers, loop: str(turn)}, dict(positions)) for turn in together]
            of_first = own[0][1] if first == 0 else of_first
            for node in inside:
                for turn, (self.registers, self.positions) in zip(together, own):
                    self.turn = Turn(loop, turn, of_first) if turn else None
                    self._write(node)
        self.registers, self.positions, self.turn = registers, positions, None

    def _fill_first(self, loop: UOp, ahead: Ahead) -> None:
        """Before a loop that fills memory ahead: all parts but the one that its first iteration fills."""
        registers, positions = self.registers, self.positions
        for part in range(_parts_of(ahead.parts) - 1):
            self.registers = {**registers, loop: "0", ahead.parts: str(part)}
            self.positions = dict(positions)
            self._write_all((*ahead.before, *ahead.filling))
            self._end_copies(ahead.parts)
        self.registers, self.positions = registers, positions

    def _write_twice(self, loop: Sequence[UOp], masks: tuple[UOp, ...]) -> None:
        """A loop where all masks hold, which are not asked there, or the same loop with them."""
        writer, label = self.writer, self.writer.fresh("unmasked")
        runs = self._where_all(masks)
        registers, positions, current = (
            dict(self.registers),
            dict(self.positions),
            dict(self.current),
        )
        writer.do(f"br i1 {runs}, label %{label}, label %{label}.else")
        writer.begin_block(label)
        for truth in settled(parts_of_truths(masks), self.linear.src):
            self.registers[truth] = literal(True, truth.dtype)
        skipped, self.skipped = self.skipped, {}  # nothing is left to ask
        ends = [self._written_to(loop, label)]
        self.skipped = skipped
        self.registers, self.positions, self.current = dict(registers), dict(positions), current
        writer.begin_block(f"{label}.else")
        ends.append(self._written_to(loop, label))
        self.registers, self.positions = registers, positions
        writer.begin_block(f"{label}.end")
        (first, unmasked), (second, masked) = ends
        for accumulator, value in masked.items():
            if unmasked[accumulator] != value:
                name = self.current[accumulator] = f"%{writer.fresh('sum')}"
                kind = self._kind(accumulator)
                writer.do(phi(name, kind, unmasked[accumulator], first, value, second))

    def _written_to(self, loop: Sequence[UOp], label: str) -> tuple[str, dict[UOp, str]]:
        """The block in which the loop ends, and the registers of the accumulators there."""
        for node in loop:
            self._write(node)
        self.writer.do(f"br label %{label}.end")
        return self.writer.block, dict(self.current)

    def _write(self, node: UOp) -> None:
        operation = _WRITERS.get(node.op)
        if operation is not None:
            operation(self, node)
        elif node.op in ALU:
            if self.dialect.has_modifiers and (made := self._modified(node)) is not None:
                self.registers[node] = made
                return
            operands = [self._register(s) for s in node.src]
            self.registers[node] = write_alu(self.writer, node, operands)
            if node.op is Ops.MUL:
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

    def _register(self, node: UOp) -> str:
        op = node.op
        if op is ACCUMULATOR:
            return self.current[node]
        known = self.registers.get(node)
        if known is not None:
            return known
        if op is CONST:
            text = literal(node.arg, node.dtype)
        elif op is BROADCAST and node.src[0].op is CONST:
            text = literal(node.src[0].arg, node.dtype)
        else:
            raise CompileError(f"Linear of {self.name} uses a {op.name} before it is made")
        self.registers[node] = text
        return text

    def _term(self, wanted: UOp) -> str:
        """The register of a term that may be no node of the program."""
        block = self.writer.block
        if block != self.term_block:  # what another block has computed need not be known here
            for term in self.terms:
                self.registers.pop(term, None)
            self.term_block, self.terms = block, []
        for term in toposort((wanted,), lambda n: n not in self.registers):
            if term not in self.registers and term.op is not CONST:
                self._write(term)
                self.terms.append(term)
        return self._register(wanted)

    # -- values -------------------------------------------------------------------------------------

    def nothing(self, node: UOp) -> None:
        """Constants stand where they are used, parameters in the signature."""

    def param(self, node: UOp) -> None:
        self.registers[node] = f"%buffer{node.arg[0]}"

    def make_scratch(self, node: UOp) -> None:
        number, size = node.arg
        if node in self.of_group:
            self.registers[node] = self.kept_by_group.pointers[node]
            return
        if node in self.held:
            self.registers[node], line = room_in_item(node, self.held[node])
            self.scratch.append(line)
            return
        name = self.registers[node] = f"%scratch{number}"
        if size * node.dtype.itemsize <= STACK_BYTES:
            apart = size + LINE_BYTES // node.dtype.itemsize  # neighbours in other sets of a cache
            self.scratch.append(
                f"  {name} = alloca [{apart} x {memory_type(node.dtype)}], align 64"
            )
            return
        pointer = self.dialect.pointer
        self.scratch += [
            f"  {name}.all = call {pointer} @malloc(i64 {size * node.dtype.itemsize + LINE_BYTES})",
            f"  {name}.at = ptrtoint {pointer} {name}.all to i64",
            f"  {name}.end = add i64 {name}.at, {LINE_BYTES - 1}",
            f"  {name}.line = and i64 {name}.end, -{LINE_BYTES}",
            f"  {name} = inttoptr i64 {name}.line to {pointer}",
        ]
        self.release.append(f"  call void @free({pointer} {name}.all)")

    def kept(self, node: UOp) -> None:
        self.registers[node] = self._register(node.src[0].src[0].src[0])
        if node in self.waits:
            self._wait_for_group(self.waits[node])

    def cast(self, node: UOp) -> None:
        convert = write_cast if node.op is Ops.CAST else write_bitcast
        source = node.src[0]
        value = self._register(source)
        self.registers[node] = convert(self.writer, value, source.dtype, node.dtype)

    def broadcast(self, node: UOp) -> None:
        if node.src[0].op is not Ops.CONST:
            scalar = self._register(node.src[0])
            is_vector = node.dtype.lanes > 1
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

    # -- loops --------------------------------------------------------------------------------------

    def open_loop(self, node: UOp) -> None:
        role = node.arg[1]
        if role is AxisRole.GLOBAL:
            return self._open_work_item(node)
        if role is AxisRole.BLOCK:
            group = self.dialect.group(self.writer.let)
            self.registers[node] = write_cast(self.writer, group, dtypes.uint32, node.dtype)
            return
        if role in (AxisRole.UPCAST, AxisRole.VECTOR):
            raise CompileError(f"a {role!r} range is no part of Linear")
        if node in self.straight:
            return self._open_last_part(node)
        self.shared += role is AxisRole.LANE
        if self._is_one_each(node):
            item = self.dialect.item_of_group(self.writer.let)
            self.registers[node] = write_cast(self.writer, item, dtypes.uint32, node.dtype)
            return
        writer, llvm_type = self.writer, register_type(node.dtype)
        start, bound, tested_first = self._limits(node)
        label = writer.fresh("loop")
        step = self.group if role is AxisRole.LANE and self.group is not None else 1
        counter = self.registers[node] = f"%i{node.arg[0]}_{label}"
        loop = OpenLoop(node, label, writer.block, start, bound, 0, tested_first, counter, step)
        if node in self.skipped and not tested_first:
            runs = self._where_all(self.skipped[node])
            writer.do(f"br i1 {runs}, label %{label}, label %{label}.end")
            loop.before = dict(self.registers)
            for truth in settled(self.skipped[node], self.linear.src):
                self.registers[truth] = literal(True, truth.dtype)
        else:
            writer.do(f"br label %{label}")
        writer.begin_block(label)
        loop.counter_line = writer.reserve()
        if role is AxisRole.AHEAD:
            self._open_part(node, loop)
        for accumulator in self.carried.get(node, ()):
            name = f"%{writer.fresh('sum')}"
            loop.phis[accumulator] = (writer.reserve(), name, self.current[accumulator])
            self.current[accumulator] = name
        if tested_first:
            inside = writer.let(f"icmp slt {llvm_type} {counter}, {bound}")
            writer.do(f"br i1 {inside}, label %{label}.body, label %{label}.end")
            writer.begin_block(f"{label}.body")
        self.loops.append(loop)

    def _open_part(self, node: UOp, loop: OpenLoop) -> None:
        """The parts that are filled for the first iterations of the loop around, then the one furthest ahead, before which items wait."""
        writer, llvm_type = self.writer, register_type(node.dtype)
        if node in self.waits:
            is_last = writer.let(f"icmp eq {llvm_type} {loop.counter}, {_parts_of(node) - 1}")
            writer.do(f"br i1 {is_last}, label %{loop.label}.next, label %{loop.label}.fill")
            writer.begin_block(f"{loop.label}.next")
            self._wait_for_group(self.waits[node])
            writer.do(f"br label %{loop.label}.fill")
            writer.begin_block(f"{loop.label}.fill")
        iteration = self.registers[self.loops[-1].range]
        later = writer.let(f"add {llvm_type} {iteration}, {loop.counter}")
        self.registers[node] = writer.let(f"urem {llvm_type} {later}, {_parts_of(node)}")

    def _open_last_part(self, node: UOp) -> None:
        """The part furthest ahead, before which items wait; all others are filled before the loop around."""
        if node in self.waits:
            self._wait_for_group(self.waits[node])
        iteration, llvm_type = self.registers[self.loops[-1].range], register_type(node.dtype)
        later = self.writer.let(f"add {llvm_type} {iteration}, {_parts_of(node) - 1}")
        self.registers[node] = self.writer.let(f"urem {llvm_type} {later}, {_parts_of(node)}")

    def _end_copies(self, parts: UOp) -> None:
        """What was begun to copy for a part is waited for together, where some wait does not wait for all."""
        if self.copies and self.waits.get(parts):
            self.writer.do(self.dialect.end_copies())

    def _first_part(self, node: UOp) -> str:
        """Where a loop over parts begins: later iterations of the loop around find what the one before has filled."""
        if not self.loops or self.loops[-1].range.arg[1] is not AxisRole.REDUCE:
            raise CompileError(f"Linear of {self.name} fills memory ahead outside of a reduction")
        iteration, llvm_type = self.registers[self.loops[-1].range], register_type(node.dtype)
        is_first = self.writer.let(f"icmp eq {llvm_type} {iteration}, 0")
        return self.writer.let(
            f"select i1 {is_first}, {llvm_type} 0, {llvm_type} {_parts_of(node) - 1}"
        )

    def _wait_for_group(self, on_their_way: int) -> None:
        """All items wait for each other; the last so many groups of their copies may be on their way."""
        if self.copies:
            self.writer.do(self.dialect.wait_for_copies(on_their_way))
        self.writer.do(self.dialect.wait_for_group())

    def _limits(self, node: UOp) -> tuple[str, str, bool]:
        """First value, bound, and whether the loop may run zero times."""
        if node.arg[1] is AxisRole.THREAD:
            limits = [
                write_cast(self.writer, argument, dtypes.int64, node.dtype)
                for argument in ("%first", "%last")
            ]
            return limits[0], limits[1], True
        size = node.src[0]
        if node.arg[1] is AxisRole.AHEAD:
            return self._first_part(node), self._register(size), False
        if node.arg[1] is AxisRole.LANE:
            item = self.dialect.item_of_group(self.writer.let)
            return (
                write_cast(self.writer, item, dtypes.uint32, node.dtype),
                self._register(size),
                True,
            )
        is_positive = size.op is Ops.CONST and size.arg > 0
        return "0", self._register(size), not is_positive

    def _is_one_each(self, node: UOp) -> bool:
        """Whether each item of a group has one iteration of a loop."""
        size = node.src[0]
        return node.arg[1] is AxisRole.LANE and size.op is CONST and size.arg == self.group

    def close_loop(self, node: UOp) -> None:
        self.shared -= node.src[0].arg[1] is AxisRole.LANE
        if node.src[0].arg[1] in (AxisRole.GLOBAL, AxisRole.BLOCK):
            return
        if self._is_one_each(node.src[0]):
            return
        if node in self.waits:
            self._wait_for_group(self.waits[node])
        if node.src[0].arg[1] is AxisRole.AHEAD:
            self._end_copies(node.src[0])
        if node.src[0] in self.straight:
            return
        if not self.loops or self.loops[-1].range is not node.src[0]:
            raise CompileError(f"Linear of {self.name} closes a loop that is not the innermost one")
        loop = self.loops.pop()
        writer, llvm_type = self.writer, register_type(loop.range.dtype)
        counter = loop.counter
        stepped = writer.let(f"add nuw nsw {llvm_type} {counter}, {loop.step}", "next")
        latch = writer.block
        if loop.tested_first:
            writer.do(f"br label %{loop.label}")
        else:
            again = writer.let(f"icmp ult {llvm_type} {stepped}, {loop.bound}")
            branch = f"br i1 {again}, label %{loop.label}, label %{loop.label}.end"
            if loop.range in self.written_out:
                self.unrolled += 1
                branch += unroll_whole(self.unrolled)
            writer.do(branch)
        head = phi(counter, llvm_type, loop.start, loop.entered_from, stepped, latch)
        writer.fill(loop.counter_line, head)
        writer.begin_block(f"{loop.label}.end")
        for accumulator, (line, name, first) in loop.phis.items():
            acc_type, last = self._kind(accumulator), self.current[accumulator]
            writer.fill(line, phi(name, acc_type, first, loop.entered_from, last, latch))
            if loop.tested_first:
                self.current[accumulator] = name
            elif loop.before is not None:
                name = self.current[accumulator] = f"%{writer.fresh('sum')}"
                writer.do(phi(name, acc_type, first, loop.entered_from, last, latch))
        if loop.before is not None:
            self.registers = loop.before

    def _where_all(self, truths: tuple[UOp, ...]) -> str:
        """The register that says whether all of some truths hold, on all lanes."""
        first, *rest = [self._on_all_lanes(truth) for truth in truths]
        for other in rest:
            first = self.writer.let(f"and i1 {first}, {other}")
        return first

    def _on_all_lanes(self, truth: UOp) -> str:
        register, lanes = self._register(truth), truth.dtype.lanes
        if lanes == 1:
            return register
        bits = self.writer.let(f"bitcast {register_type(truth.dtype)} {register} to i{lanes}")
        return self.writer.let(f"icmp eq i{lanes} {bits}, -1")

    def _open_work_item(self, node: UOp) -> None:
        writer = self.writer
        is_wide = node.dtype.bits > dtypes.uint32.bits
        item = self.dialect.work_item(writer.let, is_wide)
        kind = dtypes.uint64 if is_wide else dtypes.uint32
        number = write_cast(writer, item, kind, node.dtype)
        self.registers[node] = number
        bound = self._register(node.src[0])
        inside = writer.let(f"icmp ult {register_type(node.dtype)} {number}, {bound}")
        writer.do(f"br i1 {inside}, label %item, label %exit")
        writer.begin_block("item")
        self.has_exit = True

    def accumulator(self, node: UOp) -> None:
        if (size := self.tiles.get(node)) is not None:
            self.current[node] = write_nothing(self.writer, size)
        else:
            self.current[node] = self._register(node.src[0])

    def _kind(self, node: UOp) -> str:
        """The type of the register of a node."""
        return TILE if node in self.tiles else register_type(node.dtype)

    def update(self, node: UOp) -> None:
        accumulator, value = node.src
        self.current[accumulator] = self.registers[node] = self._register(value)

    def result(self, node: UOp) -> None:
        self.registers[node] = self.current[node.src[0].src[0]]

    # -- memory -------------------------------------------------------------------------------------

    def index(self, node: UOp) -> None:
        buffer, index = node.src[:2]
        mask = node.src[2] if len(node.src) > 2 else None
        is_held = buffer in self.held
        position = Position(
            buffer=self._register(buffer),
            element=buffer.dtype.scalar,
            index=self._index_in_item(buffer, index) if is_held else self._register(index),
            index_dtype=index.dtype,
            mask=None if mask is None else self._register(mask),
            mask_lanes=1 if mask is None else mask.dtype.lanes,
            of_group=buffer in self.of_group,
            of_item=buffer.op is not Ops.PARAM and buffer not in self.of_group,
            is_by_data=mask in self.by_data,
        )
        is_aligned = buffer.op is Ops.PARAM or buffer in self.of_group
        if self.dialect.memory_bytes > 1 and is_aligned and index.dtype.lanes == 1:
            position = replace(position, multiple_of=largest_power_of_two(index))
        if is_held and index.dtype.lanes == 1:
            address = write_address(self.writer, position, position.index, position.index_dtype)
            position = replace(position, address=address)
        elif index.dtype.lanes == 1:
            position = replace(position, address=self._address(node, position, index))
        elif (apart := lanes_apart(index) or self._lanes_from(index)) is not None:
            first, offsets = apart
            multiple = largest_power_of_two(first) if is_aligned else 1
            address = self._address(node, position, first)
            position = replace(position, address=address, offsets=offsets, multiple_of=multiple)
        if mask is not None and mask.dtype.lanes > self.dialect.target.lanes(position.element) > 1:
            position = replace(position, may_be_on=may_be_on(mask))
        self.positions[node] = position

    def _address(self, node: UOp, position: Position, first: UOp) -> str:
        """The pointer to an element; in a loop that is written out, from that of the first iteration, if it is so far from it."""
        distance = None if self.turn is None else self.turn.distance(first)
        if self.turn is None or distance is None:
            return write_address(self.writer, position, self._term(first), first.dtype)
        known = replace(position, buffer=str(self.turn.positions[node].address))
        return write_address(self.writer, known, str(distance), dtypes.int64)

    def _index_in_item(self, memory: UOp, index: UOp) -> str:
        """Where an element is in what this item has: the turn, which is the position without the item, over all items."""
        item = item_of(index)
        assert item is not None  # held_by_items
        known = dict(self.registers)
        turn = index.substitute({item: item.const_like(0)})
        for node in toposort((turn,)):
            if node not in self.registers:
                self._write(node)
        whole = f"{register_type(index.dtype)} {self._register(turn)}"
        self.registers = known
        return self.writer.let(f"udiv exact {whole}, {self.held[memory].items}")

    def _lanes_from(self, index: UOp) -> tuple[UOp, tuple[int, ...]] | None:
        """Where a machine reads and writes aligned pieces, those that lanes lie in are worth it."""
        return lanes_from(index) if self.dialect.memory_bytes > 1 else None

    def product_of_fragments(self, node: UOp) -> None:
        """An MMA of vectors of what this item holds."""
        parts = fragments_of(node)
        if parts.square is not None:
            self.registers[node] = self._product_in_item(node, parts)
            return
        before, column, *rows = [
            self._register(s) for s in (parts.before, parts.column, *parts.rows)
        ]
        types = parts.column.dtype.scalar, node.dtype.scalar
        self.registers[node] = self.dialect.product_of_fragments(
            self.writer.let, types, before, column, rows, parts.steps
        )

    def _product_in_item(self, node: UOp, parts: Fragments) -> str:
        """The same where this item holds all."""
        (rows,), nothing = parts.rows, parts.before.op is not ACCUMULATOR
        column, row = self._register(parts.column), self._register(rows)
        if node in self.tiles:
            size = self.tiles[node]
            before = write_nothing(self.writer, size) if nothing else self.current[parts.before]
            return write_product(self.writer, node, before, column, row)
        rows_at = self.positions.get(rows.src[0]) if rows.op is Ops.LOAD else None
        before = self._register(parts.before)
        return write_product_of_vectors(self.writer, node, before, (column, row), rows_at)

    def load(self, node: UOp) -> None:
        position = self.positions[node.src[0]]
        if node in self.copies:
            return
        if node in self.together:
            self.registers[node] = self._load_of_warp(node, position)
        elif node in self.tiles:
            self.registers[node] = write_tile_load(self.writer, position, self.tiles[node])
        else:
            is_plain = position.mask is None and not node.dtype.is_bool
            load = load_pieces if is_plain and self._lies_in_pieces(position) else write_load
            self.registers[node] = load(self.writer, position, node.dtype)
        for hint in self.ahead.get(node, ()):
            self.prefetch(position, hint)

    def _load_of_warp(self, node: UOp, position: Position) -> str:
        """What an item gets of the rows of which each gives one."""
        row = self.together[node]
        address = write_address(self.writer, position, self._term(row), row.dtype)
        return self.dialect.load_matrices(self.writer.let, address, memory_type(node.dtype))

    def prefetch(self, position: Position, hint: Hint) -> None:
        buffer, element = hint.buffer, position.element
        line = position.address
        if buffer is not None:
            line, element = self._register(buffer), buffer.dtype.scalar
        assert line is not None
        parts = [f"i64 {hint.elements}"]
        parts += [f"{register_type(part.dtype)} {self._register(part)}" for part in hint.parts]
        for term in hint.along:
            llvm_type, number = register_type(term.loop.dtype), self._register(term.loop)
            if term.divisor != 1:
                number = self.writer.let(f"udiv {llvm_type} {number}, {term.divisor}", "part")
            if term.modulus:
                number = self.writer.let(f"urem {llvm_type} {number}, {term.modulus}", "part")
            far = self.writer.let(f"mul {llvm_type} {number}, {term.elements}", "far")
            parts.append(f"{llvm_type} {far}")
        write_prefetch(self.writer, element, line, parts, hint.cache, hint.is_written)

    def store(self, node: UOp) -> None:
        position, value = node.src[:2]
        if node in self.waiting:
            return
        if value in self.tiles:
            size, tile = self.tiles[value], self._register(value)
            return write_tile_store(self.writer, self.positions[position], size, tile)
        if node in self.transposed:
            rows = [self._register(row.src[1]) for row in self.transposed[node]]
            first = self.positions[self.transposed[node][0].src[0]]
            return write_transposed_stores(self.writer, first, value.dtype, rows)
        if node in self.copied:
            return self._copy(node)
        if node in self.between:
            rows = [self._register(row.src[1]) for row in self.between[node]]
            first = self.positions[self.between[node][0].src[0]]
            return write_interleaved(self.writer, first, value.dtype, rows)
        if self._lies_in_pieces(self.positions[position]) and not self._is_every_items(
            position.src[0]
        ):
            register = self._register(value)
            return store_pieces(self.writer, self.positions[position], value.dtype, register)
        write = write_nontemporal_store if node in self.nontemporal else write_store
        if self._is_every_items(position.src[0]):
            return self._store_once(position, value)
        write(self.writer, self.positions[position], value.dtype, self._register(value))

    def _lies_in_pieces(self, position: Position) -> bool:
        """Whether lanes are neighbours in memory that a machine reads and writes in wide pieces."""
        is_wide = self.dialect.memory_bytes > 1 and not position.element.is_bool
        return is_wide and position.offsets is not None

    def _copy(self, node: UOp) -> None:
        """A copy that goes on by itself, where both sides are aligned to it."""
        source, value = self.positions[node.src[1].src[0]], node.src[1]
        target = self.positions[node.src[0]]
        if is_aligned(self.writer, target, source, value.dtype):
            return write_copy(self.writer, target, source, value.dtype)
        loaded = write_load(self.writer, source, value.dtype)
        write_store(self.writer, target, value.dtype, loaded)

    def _is_every_items(self, memory: UOp) -> bool:
        """Whether all items of a group come to a store of what one of them stores."""
        return self.group is not None and memory.op is Ops.PARAM and not self.shared

    def _store_once(self, position: UOp, value: UOp) -> None:
        writer = self.writer
        item, label = self.dialect.item_of_group(writer.let), writer.fresh("one")
        first = writer.let(f"icmp eq i32 {item}, 0")
        writer.do(f"br i1 {first}, label %{label}, label %{label}.end")
        writer.begin_block(label)
        write_store(writer, self.positions[position], value.dtype, self._register(value))
        writer.do(f"br label %{label}.end")
        writer.begin_block(f"{label}.end")


def _parts_of(loop: UOp) -> int:
    """Of memory that is filled ahead."""
    return int(loop.src[0].arg)


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
