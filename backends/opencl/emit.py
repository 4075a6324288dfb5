"""Linear -> OpenCL C: one statement for each node that needs a name, the others inside expressions.

Owns: statements, loops, scalar memory, names. Does not own: the meaning of the ops in C (functions.py, vectors.py), vectors in
memory (vector_memory.py), which values have no name (in_place.py), what differs between OpenCL C and plain C (dialect.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from proofgrad.backends.llvm.lanes_off import known_lanes
from proofgrad.backends.opencl import subgroups, vector_memory, vectors
from proofgrad.backends.opencl.dialect import OPENCL, Dialect
from proofgrad.backends.opencl.functions import (
    Functions,
    constant,
    expression,
    memory_type,
    register_type,
)
from proofgrad.backends.opencl.in_place import bare, used_once_in_place
from proofgrad.backends.opencl.vectors import vector_type
from proofgrad.core.compile.lowering.held_by_warps import bits_apart, exchanged_memory, memory_of
from proofgrad.core.compile.lowering.program_facts import (
    group_size,
    is_one_each,
    items_to_start,
    lanes_apart,
    operation_count,
    parameter_types,
    parameters,
)
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import CompileError, Source
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group, toposort

ITEM = "item"  # the number of an item in its group, where subgroups are warps
EXCHANGED_BYTES = 16  # of each memory; for more, waiting once for each other takes less
LONGEST_INLINE = 60  # characters; a longer expression gets a name, so that lines stay readable


def emit(
    linear: UOp,
    name: str,
    has_fma: bool = True,
    dialect: Dialect | None = None,
    divides_in_double: bool = False,
    called_bytes: int = 0,
) -> Source:
    """The kernel `name` of a program. Raises: CompileError for a node that it cannot print.

    has_fma: print MULACC on floats as fma(), which is a slow function where it is no instruction.
    divides_in_double: the device does not promise to round quotients and square roots of float32 correctly.
    called_bytes: of a vector that the device's functions are given, at most; 0: of any.
    """
    dialect = dialect or OPENCL
    printer = _Printer(linear, has_fma, dialect, called_bytes)
    printer.divides_in_double = divides_in_double
    for node in linear.src:
        printer.print_node(node)
    attributes = subgroups.ATTRIBUTE if printer.item == ITEM else _hint(linear.src)
    words = {"arguments": _arguments(linear, dialect), "attributes": attributes}
    signature = dialect.signature.format(name=name, **words)
    text = f"{printer.functions}{signature} {{\n{printer.body}}}\n"
    return Source(
        language=dialect.language,
        entry=name,
        text=dialect.finish(linear.src, name, text),
        params=parameter_types(linear),
        global_size=items_to_start(linear),
        group_size=group_size(linear),
        cost_flops=operation_count(linear),
        program=linear,
    )


def _arguments(linear: UOp, dialect: Dialect) -> str:
    """One pointer for each slot in use."""
    stored = {node.src[0].src[0] for node in linear.src if node.op is Ops.STORE}
    pointers = []
    for slot, param in parameters(linear).items():
        pointer = dialect.written_pointer if param in stored else dialect.read_pointer
        pointers.append(f"{pointer.format(type=memory_type(param.dtype))}data{slot}")
    return dialect.between_arguments.join(pointers)


def _hint(nodes: Sequence[UOp]) -> str:
    """That a kernel of vectors is written in vectors: Intel's compiler makes scalars of all others, and vectors of neighbouring items.

    A tile is then no longer in registers (a product with columns under a mask takes ten times as long).
    """
    kinds = [n.dtype for n in nodes if n.dtype.lanes > 1 and not n.dtype.is_bool]
    widest = max(kinds, key=lambda kind: kind.lanes * kind.scalar.itemsize, default=None)
    return "" if widest is None else f"__attribute__((vec_type_hint({vector_type(widest)})))\n"


class _Printer:
    """The text so far. `names` holds, for each node printed, the C expression of its value."""

    def __init__(self, linear: UOp, has_fma: bool, dialect: Dialect, called_bytes: int) -> None:
        nodes = linear.src
        self.has_fma, self.dialect = has_fma, dialect
        self.divides_in_double = False
        self.functions = Functions(called_bytes)
        self._names: dict[UOp, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._values = 0
        self._alone = used_once_in_place(nodes)
        by_warps = exchanged_memory(linear, EXCHANGED_BYTES) if dialect.exchanges else {}
        self._of_warp = frozenset(by_warps)
        self._read_of_warp = {load: items for x in by_warps.values() for load, items in x.items()}
        kept = [n for n in nodes if n.op is Ops.FILLED and is_of_group(n.src[1:])]
        kept = [n for n in kept if memory_of(n) not in by_warps]
        self._of_group = {*kept, *map(memory_of, kept)}
        self._group = group_size(linear)
        self._waits = waits(linear, by_warps)
        self._running: list[UOp] = []  # open loops of reductions
        self._shared = 0  # open loops that the items of a group share out
        self.item = "get_local_id(0)"  # of its group
        if by_warps:
            self.item = ITEM
            self._line(f"int {ITEM} = {subgroups.ITEM};")

    @property
    def body(self) -> str:
        return "".join([f"{line}\n" for line in self._lines])

    def print_node(self, node: UOp) -> None:
        match node.op:
            case Ops.PARAM:
                self._names[node] = f"data{node.arg[0]}"
            case Ops.SCRATCH:
                self._scratch(node)
            case Ops.FILLED:
                self._names[node] = self._names[node.src[0].src[0].src[0]]
                self._wait(node)
            case Ops.CONST:
                write = constant if node.dtype.lanes == 1 else vectors.vector_constant
                self._names[node] = write(node.arg, node.dtype)
            case Ops.BROADCAST:
                self._broadcast(node)
            case Ops.HREDUCE:
                self._horizontal(node)
            case Ops.RANGE:
                self._open(node)
            case Ops.END:
                self._wait(node)
                self._close(node.src[0])
            case Ops.INDEX:
                self._names[node] = f"{self._names[node.src[0]]}[{bare(self._names[node.src[1]])}]"
            case Ops.LOAD if node.dtype.lanes > 1:
                position = self._position(node.src[0])
                text = vector_memory.load(position, node.dtype, self.functions)
                self._declare(node, self._next_value(), text)
            case Ops.STORE if node.src[1].dtype.lanes > 1:
                self._store_vector(node)
            case Ops.LOAD:
                self._load(node)
            case Ops.STORE:
                self._store(node)
            case Ops.ACCUMULATOR:
                name = self._unused(f"total{_number(node.arg)}")
                self._declare(node, name, self._names[node.src[0]])
            case Ops.UPDATE:
                self._names[node] = self._names[node.src[0]]
                self._line(f"{self._names[node]} = {bare(self._names[node.src[1]])};")
            case Ops.RESULT:
                self._names[node] = self._names[node.src[0]]
            case op if op in ELEMENTWISE:
                self._value(node)
            case op:
                raise CompileError(f"{op.name} cannot be printed as OpenCL C: {node!r}")

    def _open(self, node: UOp) -> None:
        number, role = node.arg
        name, kind = self._unused(f"i{number}"), register_type(node.dtype)
        size = self._names[node.src[0]]
        self._names[node] = name
        match role:
            case AxisRole.GLOBAL:
                self._line(f"if (get_global_id(0) >= {size}) return;")
                self._line(f"{kind} {name} = ({kind})get_global_id(0);")
            case AxisRole.BLOCK:
                self._line(f"{kind} {name} = ({kind})get_group_id(0);")
            case AxisRole.LANE:
                self._shared += 1
                first = f"{kind} {name} = ({kind}){self.item}"
                if is_one_each(node, self._group):
                    return self._line(f"{first};")
                self._line(f"for ({first}; {name} < {size}; {name} += {self._group}) {{")
                self._depth += 1
            case AxisRole.AHEAD:
                self._open_part(node, name, kind)
            case AxisRole.LOOP | AxisRole.REDUCE:
                self._running.append(node)
                self._line(f"for ({kind} {name} = 0; {name} < {size}; {name}++) {{")
                self._depth += 1
            case AxisRole.THREAD | AxisRole.VECTOR | AxisRole.UPCAST:
                raise CompileError(f"a loop with the role {role.value} cannot run on OpenCL")
            case _:
                assert_never(role)

    def _open_part(self, node: UOp, name: str, kind: str) -> None:
        """The parts that are filled for the first iterations of the loop around, then the one furthest ahead, before which items wait."""
        later, around = self._unused(f"later{node.arg[0]}"), self._names[self._running[-1]]
        parts = int(node.src[0].arg)
        first = f"{around} == 0 ? 0 : {parts - 1}"
        self._line(f"for ({kind} {later} = {first}; {later} < {parts}; {later}++) {{")
        self._depth += 1
        self._line(f"{kind} {name} = ({around} + {later}) % {parts};")
        if node in self._waits:
            self._line(f"if ({later} == {parts - 1}) barrier(CLK_LOCAL_MEM_FENCE);")

    def _close(self, range_node: UOp) -> None:
        role = range_node.arg[1]
        if role in (AxisRole.LOOP, AxisRole.REDUCE):
            self._running.remove(range_node)
        self._shared -= role is AxisRole.LANE
        if role not in (AxisRole.GLOBAL, AxisRole.BLOCK) and not is_one_each(
            range_node, self._group
        ):
            self._depth -= 1
            self._line("}")

    def _wait(self, node: UOp) -> None:
        if node in self._waits:
            self._line("barrier(CLK_LOCAL_MEM_FENCE);")

    def _load(self, node: UOp) -> None:
        position = node.src[0]
        if node in self._read_of_warp:
            return self._declare(node, self._next_value(), self._of_other_item(node))
        text = self._names[position]
        if node.dtype is dtypes.bool:
            text = f"({text} != 0)"
        if len(position.src) == 3:
            text = f"({self._names[position.src[2]]} ? {text} : {constant(0, node.dtype)})"
        self._declare(node, self._next_value(), text)

    def _of_other_item(self, node: UOp) -> str:
        """What an item of the warp holds; often itself, or the one whose number differs in a bit."""
        memory, at = node.src[0].src
        held, apart = self._names[memory], bits_apart(self._read_of_warp[node])
        if apart is None:
            return subgroups.of_item(held, node.dtype, self._names[at])
        return subgroups.across(held, node.dtype, apart) if apart else held

    def _store(self, node: UOp) -> None:
        position, value = node.src[:2]
        if position.src[0] in self._of_warp:
            return self._line(f"{self._names[position.src[0]]} = {bare(self._names[value])};")
        mask = f"if ({bare(self._names[position.src[2]])}) " if len(position.src) == 3 else ""
        self._line(
            f"{self._only_one(position.src[0])}{mask}{self._names[position]} = {bare(self._names[value])};"
        )

    def _scratch(self, node: UOp) -> None:
        number, size = node.arg
        name = self._names[node] = self._unused(f"kept{number}")
        if node in self._of_warp:
            return self._line(f"{register_type(node.dtype)} {name};")
        space = "local " if node in self._of_group else ""
        self._line(f"{space}{memory_type(node.dtype)} {name}[{size}];")

    def _position(self, index: UOp) -> vector_memory.Position:
        memory, at, *mask = index.src
        known = known_lanes(mask[0], {}) if mask and mask[0].dtype.lanes > 1 else ()
        lanes, (first, apart) = at.dtype.lanes, lanes_apart(at) or (at, ())
        return vector_memory.Position(
            memory=self._names[memory],
            space=self._space(memory),
            index=self._names[first],
            apart=apart,
            lanes=tuple([self._index_of_lane(at, k) for k in range(lanes if lanes > 1 else 0)]),
            mask=self._names[mask[0]] if mask else "",
            has_mask_a_lane=bool(mask) and mask[0].dtype.lanes > 1,
            known=() if None in known else known,
            last=memory.arg[1] - mask[0].dtype.lanes if self._stays(index) else -1,
        )

    def _stays(self, index: UOp) -> bool:
        """Whether the same lanes of memory that is a parameter's are masked in all turns of a loop: then it is not rare that some are."""
        memory, _, *mask = index.src
        if not mask or memory.op is not Ops.PARAM:
            return False
        return set(self._running[-1:]).isdisjoint(toposort((mask[0],)))

    def _index_of_lane(self, at: UOp, number: int) -> str:
        """Of a sum what its lane is the sum of: a vector that is made of a scalar, to be taken apart again, takes longer."""
        if at.op is Ops.BROADCAST:
            return self._names[at.src[0]]
        if at.op is Ops.CONST and isinstance(at.arg, tuple):
            return constant(at.arg[number], at.dtype.scalar)
        if at.op is not Ops.ADD:
            return vectors.lane(self._names[at], number)
        terms = [self._index_of_lane(term, number) for term in at.src]
        kinds = (at.dtype.scalar, at.dtype.scalar)
        return bare(expression(Ops.ADD, at.dtype.scalar, terms, kinds, self.functions))

    def _space(self, memory: UOp) -> str:
        if memory.op is Ops.PARAM:
            return "global"
        return "local" if memory in self._of_group else "private"

    def _only_one(self, memory: UOp) -> str:
        """What stands before a store that all items of a group come to, of what one of them stores."""
        is_repeated = self._group and not self._shared and memory.op is Ops.PARAM
        return f"if ({self.item} == 0) " if is_repeated else ""

    def _store_vector(self, node: UOp) -> None:
        index, value = node.src[:2]
        position, only = self._position(index), self._only_one(index.src[0])
        for line in vector_memory.store(position, value.dtype, self._names[value], self.functions):
            self._line(f"{only}{line}")

    def _broadcast(self, node: UOp) -> None:
        source = node.src[0]
        if node.dtype.lanes == 1:
            self._names[node] = self._names[source]
            return
        if not self._names[source].isidentifier() and source.op is not Ops.CONST:
            self._declare(source, self._next_value(), self._names[source])
        text = vectors.broadcast(self._names[source], node.dtype)
        if source.op is Ops.CONST:
            self._names[node] = text
        else:
            self._declare(node, self._next_value(), text)

    def _horizontal(self, node: UOp) -> None:
        """Halves combined until one lane is left."""
        text, dtype = self._names[node.src[0]], node.src[0].dtype
        while dtype.lanes > 2:
            dtype = dtype.vec(dtype.lanes // 2)
            halves = [f"{text}.lo", f"{text}.hi"]
            half = vectors.expression(node.arg, dtype, halves, (dtype, dtype), self.functions)
            text = self._next_value()
            self._line(f"{vector_type(dtype)} {text} = {bare(half)};")
        ends = [vectors.scalar_lane(text, dtype, number) for number in range(2)]
        kinds = (dtype.scalar, dtype.scalar)
        value = expression(node.arg, node.dtype, ends, kinds, self.functions)
        self._declare(node, self._next_value(), value)

    def _value(self, node: UOp) -> None:
        operands = [self._names[s] for s in node.src]
        text = self._expression(node, operands)
        is_short = len(text) <= LONGEST_INLINE and node.dtype.lanes == 1
        if node in self._alone and is_short:
            self._names[node] = text
        else:
            self._declare(node, self._next_value(), text)

    def _expression(self, node: UOp, operands: Sequence[str]) -> str:
        if node.op in self.dialect.native:
            return f"{self.dialect.native[node.op]}({', '.join(operands)})"
        if node.op is Ops.MULACC and node.dtype.is_float and not self.has_fma:
            return self._multiply_add(node.dtype, operands)
        is_loose = node.op in (Ops.FDIV, Ops.SQRT) and node.dtype.scalar is dtypes.float32
        kinds = [s.dtype for s in node.src]
        if is_loose and self.divides_in_double:
            return _in_double(node.op, node.dtype, operands, self.functions.called_bytes)
        write = expression if node.dtype.lanes == 1 else vectors.expression
        return write(node.op, node.dtype, operands, kinds, self.functions)

    def _multiply_add(self, dtype: DType, operands: Sequence[str]) -> str:
        """A product and a sum, for a compiler to make one instruction of where the machine has it."""
        x, y, z = operands
        if not self.dialect.contracts:
            return f"({x} * {y} + {z})"
        kind = vector_type(dtype)
        name = f"mulacc_{kind}"
        text = f"""{kind} {name}({kind} x, {kind} y, {kind} z) {{
#pragma OPENCL FP_CONTRACT ON
  return x * y + z;
}}"""
        return f"{self.functions.define(name, text)}({x}, {y}, {z})"

    def _declare(self, node: UOp, name: str, text: str) -> None:
        self._names[node] = name
        self._line(f"{vector_type(node.dtype)} {name} = {bare(text)};")

    def _next_value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def _unused(self, name: str) -> str:
        taken = set(self._names.values())
        while name in taken:
            name += "_"
        return name

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)


def _in_double(op: Ops, dtype: DType, operands: Sequence[str], called_bytes: int) -> str:
    """A quotient or square root of float32, rounded to float64 and then once more, which changes nothing.

    Source: Figueroa, "When is double rounding innocuous?": 53 bits are at least twice 24 and two more.
    """

    def write(kind: DType, these: Sequence[str], _: Sequence[DType]) -> str:
        count = "" if kind.lanes == 1 else str(kind.lanes)
        wide = [f"convert_double{count}({operand})" for operand in these]
        exact = f"sqrt({wide[0]})" if op is Ops.SQRT else f"{wide[0]} / {wide[1]}"
        return f"convert_float{count}({exact})"

    if dtype.lanes == 1:
        return write(dtype, operands, ())
    kinds = [dtypes.float64.vec(dtype.lanes)] * len(operands)
    return vectors.in_parts(write, dtype, operands, kinds, called_bytes)


def _number(number: int | tuple[int, ...]) -> str:
    """That of a register; of one for each lane of a loop, with the number of the loop."""
    return "_".join(map(str, number)) if isinstance(number, tuple) else str(number)
