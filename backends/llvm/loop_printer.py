"""Where loops of a kernel begin and end in LLVM IR, and in which order their nodes are written.

Owns: blocks, phi nodes, waits between parts of a loop. Does not own: what a loop carries (loops.py), what is in it (emit.py).

A loop whose size is a constant above 0 tests its counter at the end; any other tests it at the
start. The phi nodes of a loop are reserved lines, filled in when the loop ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.llvm.conversions import write_cast
from proofgrad.backends.llvm.held import unroll_whole
from proofgrad.backends.llvm.lanes_off import known_lanes
from proofgrad.backends.llvm.loops import OpenLoop, phi
from proofgrad.backends.llvm.printer_state import PrinterState
from proofgrad.backends.llvm.skipping import at_last, end_of_asked, parts_of_truths, settled
from proofgrad.backends.llvm.text import literal, register_type
from proofgrad.backends.llvm.tiles import TILE, write_nothing
from proofgrad.backends.llvm.written_out import AT_ONCE, Ahead, Turn
from proofgrad.core.compile.lowering.program_facts import is_one_each
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import END, RANGE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp


class LoopPrinter(PrinterState):
    """Blocks of a kernel."""

    def _write_all(self, nodes: Sequence[UOp]) -> None:
        """The nodes in order; a loop whose masks may all hold, with its body, twice."""
        position = 0
        starts = self.starts
        while position < len(nodes):
            node, end = nodes[position], position + 1
            if node not in starts:
                self._write(node)
            elif masks := self._left(self.unswitched.get(node, ())):
                end = end_of_asked(nodes, _end_of(nodes, position), masks)
                self._write_twice(nodes[position:end], masks, self._where_all(masks))
            elif (masks := self.peeled.get(node, ())) and node not in self.skipped:
                end = _end_of(nodes, position)
                self._write_peeled(nodes[position:end], masks)
            elif (masks := self.growing.get(node, ())) and node not in self.skipped:
                end = _end_of(nodes, position)
                asked = tuple([at_last(mask, node) for mask in masks])
                for truth in asked:
                    self._term(truth)
                self._write_twice(nodes[position:end], masks, self._where_all(asked))
            elif (inside := self.turns.get(node)) is not None:
                self._write_turns(node, inside)
                end += len(inside) + 1
            else:
                if (ahead := self.filled_ahead.get(node)) is not None:
                    self._fill_first(node, ahead)
                self._write(node)
            if node in self.truths_of_all:
                self._end_without(node)
            position = end

    def _end_without(self, truth: UOp) -> None:
        """Nothing is left to do where the truth does not hold."""
        label = self.writer.fresh("asked")
        self.writer.do(f"br i1 {self._register(truth)}, label %{label}, label %exit")
        self.writer.begin_block(label)
        self.registers[truth] = literal(True, truth.dtype)
        self.has_exit = True

    def _left(self, masks: Sequence[UOp]) -> tuple[UOp, ...]:
        """The masks of which a loop around does not say that they hold."""
        return tuple([m for m in masks if self.registers.get(m) != literal(True, m.dtype)])

    def _write_turns(self, loop: UOp, inside: Sequence[UOp]) -> None:
        """Each iteration of a loop; of some at once, node by node, so that loads come before stores."""
        registers, positions, of_first = self.registers, self.positions, dict(self.positions)
        turns = range(int(loop.src[0].arg))
        for first in turns[::AT_ONCE]:
            together = turns[first : first + AT_ONCE]
            own = [({**registers, loop: str(turn)}, dict(positions)) for turn in together]
            of_first = own[0][1] if first == 0 else of_first
            for node in inside:
                if node in self.read_along or (node.op in (RANGE, END) and self.read_along):
                    self.registers, self.positions, self.turn = *own[0], None
                    made = self._write_once(node)
                    for (known, _), register in zip(own, made):
                        known[node] = register
                    continue
                for turn, (self.registers, self.positions) in zip(together, own):
                    self.turn = Turn(loop, turn, of_first) if turn else None
                    self._write(node)
        self.registers, self.positions, self.turn = registers, positions, None

    def _write_once(self, node: UOp) -> list[str]:
        """A node of which all turns run together: a loop inside, or a load of what all of them take; the registers of the turns."""
        if node in self.read_along:
            return self._load_transposed(node, self.read_along[node])
        self._write(node)
        return [self.registers[node]] * AT_ONCE if node.op is RANGE else []

    def _fill_first(self, loop: UOp, ahead: Ahead) -> None:
        """Before a loop that fills memory ahead: all parts but the one that its first iteration fills."""
        registers, positions = self.registers, self.positions
        for part in range(_parts_of(ahead.parts) - 1):
            self.registers = {**registers, loop: "0", ahead.parts: str(part)}
            self.positions = dict(positions)
            self._write_all((*ahead.before, *ahead.filling))
            self._end_copies(ahead.parts)
        self.registers, self.positions = registers, positions

    def _write_twice(self, loop: Sequence[UOp], masks: tuple[UOp, ...], runs: str) -> None:
        """A loop where all masks hold, as `runs` says, which are not asked there, or the same loop with them."""
        writer, label = self.writer, self.writer.fresh("unmasked")
        registers, positions, current = (
            dict(self.registers),
            dict(self.positions),
            dict(self.current),
        )
        writer.do(f"br i1 {runs}, label %{label}, label %{label}.else")
        writer.begin_block(label)
        for truth in (known := settled(parts_of_truths(masks), self.linear.src)):
            self.registers[truth] = literal(True, truth.dtype)
        skipped, self.skipped = self.skipped, {}  # nothing is left to ask
        ends = [self._written_to([n for n in loop if n not in known], label)]
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

    def _write_peeled(self, nodes: Sequence[UOp], masks: tuple[UOp, ...]) -> None:
        """A loop without its last iteration, in which all masks hold; then that iteration, in which each lane is known."""
        loop, *body, end = nodes
        last, registers, positions = size_of(loop) - 1, dict(self.registers), dict(self.positions)
        around = self.at_last
        for truth in (known := settled(masks, self.linear.src)):
            self.registers[truth] = literal(True, truth.dtype)
        self.at_last = {**around, loop: last}
        self.open_loop(loop)
        self.at_last = around
        self._write_all([node for node in body if node not in known])
        self.close_loop(end)
        self.registers, self.positions = {**registers, loop: str(last)}, positions
        self.at_last = {**around, loop: last}
        for mask in masks:
            lanes = known_lanes(mask, self.at_last)
            self.registers[mask] = literal(lanes if len(lanes) > 1 else lanes[0], mask.dtype)
        label = self._ask_for_last(last) if loop.arg[1] is AxisRole.THREAD else None
        self._write_all([node for node in body if node not in masks])
        self.at_last = around
        if label is not None:
            self.writer.do(f"br label %{label}.end")
            self.writer.begin_block(f"{label}.end")

    def _ask_for_last(self, last: int) -> str:
        """Branch around what runs for the last iteration, where it is not of the part that threads share out; the name of the end."""
        writer, label = self.writer, self.writer.fresh("last")
        not_before = writer.let(f"icmp sle i64 %first, {last}")
        not_behind = writer.let(f"icmp slt i64 {last}, %last")
        is_there = writer.let(f"and i1 {not_before}, {not_behind}")
        writer.do(f"br i1 {is_there}, label %{label}, label %{label}.end")
        writer.begin_block(label)
        return label

    def _written_to(self, loop: Sequence[UOp], label: str) -> tuple[str, dict[UOp, str]]:
        """The block in which the loop ends, and the registers of the accumulators there."""
        for node in loop:
            self._write(node)
        self.writer.do(f"br label %{label}.end")
        return self.writer.block, dict(self.current)

    def open_loop(self, node: UOp) -> None:
        """Up to the first instruction of an iteration."""
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
        if is_one_each(node, self.group):
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

    def _limits(self, node: UOp) -> tuple[str, str, bool]:
        """First value, bound, and whether the loop may run zero times."""
        if node.arg[1] is AxisRole.THREAD:
            end = "%last"
            if node in self.at_last:
                end = self.writer.let(
                    f"call i64 @llvm.smin.i64(i64 %last, i64 {self.at_last[node]})"
                )
            limits = [
                write_cast(self.writer, argument, dtypes.int64, node.dtype)
                for argument in ("%first", end)
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
        bound = str(self.at_last[node]) if node in self.at_last else self._register(size)
        return "0", bound, not is_positive

    def close_loop(self, node: UOp) -> None:
        """The next iteration, or what is behind the loop."""
        self.shared -= node.src[0].arg[1] is AxisRole.LANE
        if node.src[0].arg[1] in (AxisRole.GLOBAL, AxisRole.BLOCK):
            return
        if is_one_each(node.src[0], self.group):
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
        """A register that a loop carries."""
        if (size := self.tiles.get(node)) is not None:
            self.current[node] = write_nothing(self.writer, size)
        else:
            self.current[node] = self._register(node.src[0])

    def _kind(self, node: UOp) -> str:
        """The type of the register of a node."""
        return TILE if node in self.tiles else register_type(node.dtype)

    def update(self, node: UOp) -> None:
        """What an accumulator holds from here on."""
        accumulator, value, *_ = node.src  # and what reads it before
        self.current[accumulator] = self.registers[node] = self._register(value)

    def result(self, node: UOp) -> None:
        """What an accumulator holds behind its loop."""
        self.registers[node] = self.current[node.src[0].src[0]]


def _end_of(nodes: Sequence[UOp], position: int) -> int:
    """Behind the end of the loop that begins at a position."""
    loop, ends = nodes[position], range(position, len(nodes))
    return next(k for k in ends if nodes[k].op is END and nodes[k].src[0] is loop) + 1


def _parts_of(loop: UOp) -> int:
    """Of memory that is filled ahead."""
    return int(loop.src[0].arg)
