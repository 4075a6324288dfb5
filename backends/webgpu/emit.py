"""Linear -> WGSL: one statement for each node that has a value.

Owns: statements, loops, memory, the head of a kernel. Does not own: the meaning of the ops in WGSL (functions.py), types and
constants (types.py).

The items of a workgroup share rows and tiles: what they keep together is in its memory, and they wait for each other at barriers.

Vectors are written out, a statement for each lane: items of GPUs compute lane by lane, and memory is of single elements. What a tile gains
is that its lanes share what they load.

Elements of 8 and 16 bits share words of 32. An item that stores one clears and sets its bits by two atomic operations, which
leave those of its neighbours alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.webgpu.floats import NOTHING
from proofgrad.backends.webgpu.functions import Functions, expression, widened
from proofgrad.backends.webgpu.transcendental import LOOPS
from proofgrad.backends.webgpu.types import constant, is_bits, is_small, memory_bits, register_type
from proofgrad.core.compile.lowering.held_by_warps import memory_of
from proofgrad.core.compile.lowering.program_facts import (
    group_size,
    is_one_each,
    items_to_start,
    operation_count,
    parameter_types,
    parameters,
)
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import CompileError, Source
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group

GROUP_SIZE = 64  # work items of a group that shares nothing: every device takes so many
MOST_GROUPS = 65535  # along an axis: what every device takes
ITEMS_A_ROW = GROUP_SIZE * MOST_GROUPS  # of groups side by side; more items are in further rows
LOOPS_RUN = "// times that the loops of an item run: "  # some devices end loops early


def emit(linear: UOp, name: str) -> Source:
    """The kernel `name` of a program. Raises: CompileError for a node that it cannot print."""
    printer = _Printer(linear)
    for node in linear.src:
        printer.print_node(node)
    return Source(
        language="wgsl",
        entry=name,
        text=printer.module(name, parameters(linear)),
        params=parameter_types(linear),
        global_size=items_to_start(linear),
        group_size=group_size(linear),
        cost_flops=operation_count(linear),
        program=linear,
    )


class _Printer:
    """The text so far. `names` holds, for each node printed, the expression of its value."""

    def __init__(self, linear: UOp) -> None:
        nodes = linear.src
        self.functions = Functions()
        self._names: dict[UOp, tuple[str, ...]] = {}  # of each of its lanes
        self._lines: list[str] = []
        self._depth = 1
        self._values = 0
        self._stored = {n.src[0].src[0] for n in nodes if n.op is Ops.STORE}
        self._group, self._waits = group_size(linear), waits(linear)
        self._turns = loop_turns(nodes, self._group)
        kept = [n for n in nodes if n.op is Ops.FILLED and is_of_group(n.src[1:])]
        self._of_group = {*kept, *map(memory_of, kept)}
        self._shared = 0  # open loops that the items of a group share out
        self._running: list[UOp] = []  # open loops of one item
        self._is_grid = any(n.op is Ops.RANGE and n.arg[1] is AxisRole.GLOBAL for n in nodes)

    def module(self, name: str, slots: dict[int, UOp]) -> str:
        """The whole text."""
        bindings = [self._binding(k, slot, param) for k, (slot, param) in enumerate(slots.items())]
        size = self._group or (GROUP_SIZE if self._is_grid else 1)
        head = f"""@compute @workgroup_size({size})
fn {name}(
    @builtin(global_invocation_id) item: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32
) {{
  {NOTHING} = groups.z - 1u;"""
        body = "".join([f"{line}\n" for line in self._lines])
        shared = [self._shared_memory(n) for n in self._of_group if n.op is Ops.SCRATCH]
        memory = f"{LOOPS_RUN}{self._turns}\n{''.join([*bindings, *sorted(shared)])}"
        return f"{memory}var<private> {NOTHING}: u32;\n\n{self.functions}\n{head}\n{body}}}\n"

    def _shared_memory(self, node: UOp) -> str:
        number, size = node.arg
        return f"var<workgroup> kept{number}: array<{register_type(node.dtype)}, {size}>;\n"

    def _binding(self, k: int, slot: int, param: UOp) -> str:
        """A slot in use, and for elements that share words how one is read and written."""
        name, is_stored = f"data{slot}", param in self._stored
        element = self._element(param.dtype, is_stored)
        access = "read_write" if is_stored else "read"
        text = f"@group(0) @binding({k}) var<storage, {access}> {name}: array<{element}>;\n"
        return text + (_accessors(name, param.dtype, is_stored) if is_small(param.dtype) else "")

    def _element(self, dtype: DType, is_stored: bool) -> str:
        if not is_small(dtype):
            return register_type(dtype)
        return "atomic<u32>" if is_stored else "u32"

    def print_node(self, node: UOp) -> None:
        match node.op:
            case Ops.PARAM:
                self._names[node] = (f"data{node.arg[0]}",)
            case Ops.CONST:
                each = node.arg if isinstance(node.arg, tuple) else (node.arg,) * node.dtype.lanes
                self._names[node] = tuple([constant(x, node.dtype.scalar) for x in each])
            case Ops.SCRATCH:
                number, size = node.arg
                name = f"kept{number}"
                self._names[node] = (name,)
                if node in self._of_group:
                    return
                self._line(f"var {name}: array<{register_type(node.dtype)}, {size}>;")
            case Ops.FILLED:
                self._names[node] = self._names[memory_of(node)]
                self._wait(node)
            case Ops.RANGE:
                self._open(node)
            case Ops.END:
                self._wait(node)
                self._close(node.src[0])
            case Ops.INDEX:
                return
            case Ops.BROADCAST:
                self._names[node] = self._names[node.src[0]] * node.dtype.lanes
            case Ops.HREDUCE:
                self._horizontal(node)
            case Ops.LOAD:
                self._declare(node, [self._loaded(node, k) for k in range(node.dtype.lanes)])
            case Ops.STORE:
                for k in range(node.src[1].dtype.lanes):
                    self._store(node, k)
            case Ops.ACCUMULATOR:
                self._declare(node, self._names[node.src[0]], "var", "total")
            case Ops.UPDATE:
                self._names[node] = self._names[node.src[0]]
                for name, text in zip(self._names[node], self._names[node.src[1]], strict=True):
                    self._line(f"{name} = {text};")
            case Ops.RESULT:
                self._names[node] = self._names[node.src[0]]
            case op if op in ELEMENTWISE:
                self._value(node)
            case op:
                raise CompileError(f"{op.name} cannot be printed as WGSL: {node!r}")

    def _open(self, node: UOp) -> None:
        number, role = node.arg
        kind, size = register_type(node.dtype), self._name(node.src[0])
        name = f"i{number}"
        self._names[node] = (name,)
        if role is AxisRole.GLOBAL:
            self._line(f"let {name} = {widened(f'item.x + item.y * {ITEMS_A_ROW}u', kind)};")
            self._line(f"if ({name} >= {size}) {{ return; }}")
        elif role is AxisRole.BLOCK:
            self._line(f"let {name} = {widened(f'group.x + group.y * {MOST_GROUPS}u', kind)};")
            self._line(f"if ({name} >= {size}) {{ return; }}")
        elif role is AxisRole.LANE:
            self._shared += 1
            if is_one_each(node, self._group):
                return self._line(f"let {name} = {widened('lane', kind)};")
            first = f"var {name} = {widened('lane', kind)}"
            self._line(f"for ({first}; {name} < {size}; {name} += {self._group}) {{")
            self._depth += 1
        elif role is AxisRole.AHEAD:
            self._open_part(node, name, kind)
        elif role in (AxisRole.LOOP, AxisRole.REDUCE):
            self._running.append(node)
            self._line(f"for (var {name}: {kind} = 0; {name} < {size}; {name}++) {{")
            self._depth += 1
        else:
            raise CompileError(f"a loop with the role {role.value} cannot be printed as WGSL")

    def _open_part(self, node: UOp, name: str, kind: str) -> None:
        """The parts that are filled for the first iterations of the loop around, then the one furthest ahead, before which items wait."""
        later, around, parts = f"later{node.arg[0]}", self._name(self._running[-1]), node.src[0].arg
        first = f"select({kind}({parts - 1}), {kind}(0), {around} == 0)"
        self._line(f"for (var {later}: {kind} = {first}; {later} < {parts}; {later}++) {{")
        self._depth += 1
        self._line(f"let {name} = ({around} + {later}) % {parts};")
        if node in self._waits:
            self._line(f"if ({later} == {parts - 1}) {{ workgroupBarrier(); }}")

    def _close(self, loop: UOp) -> None:
        role = loop.arg[1]
        if role in (AxisRole.LOOP, AxisRole.REDUCE):
            self._running.remove(loop)
        self._shared -= role is AxisRole.LANE
        if role not in (AxisRole.GLOBAL, AxisRole.BLOCK) and not is_one_each(loop, self._group):
            self._depth -= 1
            self._line("}")

    def _wait(self, node: UOp) -> None:
        if node in self._waits:
            self._line("workgroupBarrier();")

    def _name(self, node: UOp, lane: int = 0) -> str:
        """That of a lane; of a scalar, which all lanes share, its own."""
        names = self._names[node]
        return names[lane] if len(names) > 1 else names[0]

    def _loaded(self, node: UOp, lane: int) -> str:
        memory, at, *mask = node.src[0].src
        text, dtype = self._read(memory, self._index(at, lane)), node.dtype.scalar
        if not mask:
            return text
        name = self._next_value()
        self._line(f"var {name}: {register_type(dtype)} = {constant(0, dtype)};")
        self._line(f"if ({self._name(mask[0], lane)}) {{ {name} = {text}; }}")
        return name

    def _read(self, memory: UOp, at: str) -> str:
        position = f"{self._name(memory)}[{at}]"
        if memory.op is not Ops.PARAM or not is_small(memory.dtype):
            return position
        bits = f"get_{self._name(memory)}({at})"
        dtype, width = memory.dtype, memory_bits(memory.dtype)
        if dtype.is_bool:
            return f"({bits} != 0u)"
        if dtype.is_unsigned or is_bits(dtype):
            return bits
        return f"extractBits(bitcast<i32>({bits}), 0u, {width}u)"

    def _store(self, node: UOp, lane: int) -> None:
        index, value = node.src[:2]
        memory, at, *mask = index.src
        text, position = self._name(value, lane), self._index(at, lane)
        if memory.op is Ops.PARAM and is_small(memory.dtype):
            bits = f"select(0u, 1u, {text})" if memory.dtype.is_bool else f"u32({text})"
            line = f"put_{self._name(memory)}({position}, {bits});"
        else:
            line = f"{self._name(memory)}[{position}] = {text};"
        if self._group and not self._shared and memory.op is Ops.PARAM:  # what one item stores
            line = f"if (lane == 0u) {{ {line} }}"
        self._line(f"if ({self._name(mask[0], lane)}) {{ {line} }}" if mask else line)

    def _index(self, at: UOp, lane: int) -> str:
        """Of a lane: its own, or so many behind the first one's. WGSL would convert constants itself, and wgpu cannot those of 64 bits."""
        behind = f" + {lane}u" if lane and at.dtype.lanes == 1 else ""
        if at.op is Ops.CONST:
            position = at.arg[lane] if isinstance(at.arg, tuple) else at.arg
            return constant(int(position) % (1 << 32), dtypes.uint32) + behind
        return f"u32({self._name(at, lane)}){behind}"

    def _value(self, node: UOp) -> None:
        sources = [[self._name(s, k) for s in node.src] for k in range(node.dtype.lanes)]
        if all(
            [s.op is Ops.CONST for s in node.src]
        ):  # WGSL would compute it, and refuse what wraps
            sources = [[self._named(s, k) for s in node.src] for k in range(node.dtype.lanes)]
        kinds = [s.dtype.scalar for s in node.src]
        self._declare(node, [self._expression(node, lane, kinds) for lane in sources])

    def _expression(self, node: UOp, operands: Sequence[str], kinds: Sequence[DType]) -> str:
        return expression(node.op, node.dtype.scalar, operands, kinds, self.functions)

    def _horizontal(self, node: UOp) -> None:
        """Halves combined until one lane is left."""
        names, dtype = list(self._names[node.src[0]]), node.dtype
        while len(names) > 1:
            half = len(names) // 2
            texts = [expression(node.arg, dtype, pair, (dtype, dtype), self.functions)
                     for pair in zip(names[:half], names[half:])]  # fmt: skip
            names = [self._let(text, dtype) for text in texts]
        self._names[node] = tuple(names)

    def _named(self, node: UOp, lane: int) -> str:
        return self._let(self._name(node, lane), node.dtype.scalar, "var")

    def _declare(self, node: UOp, texts: Sequence[str], word: str = "let", stem: str = "v") -> None:
        """A name for each lane of a value."""
        self._names[node] = tuple([self._let(x, node.dtype.scalar, word, stem) for x in texts])

    def _let(self, text: str, dtype: DType, word: str = "let", stem: str = "v") -> str:
        name = self._next_value().replace("v", stem)
        self._line(f"{word} {name}: {register_type(dtype)} = {text};")
        return name

    def _next_value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)


def loop_turns(nodes: Sequence[UOp], group: int | None = None) -> int:
    """How often the loops of one item, of a group of so many, run together, at most; a loop whose size is no constant counts once."""
    total, around = 0, [1]
    for node in nodes:
        if node.op is Ops.RANGE:
            role, size = node.arg[1], node.src[0]
            is_loop = role not in (AxisRole.GLOBAL, AxisRole.BLOCK)
            turns = int(size.arg) if is_loop and size.op is Ops.CONST else 1
            turns = -(-turns // (group or 1)) if role is AxisRole.LANE else turns
            around.append(around[-1] * turns)
            total += around[-1] if is_loop else 0
        elif node.op is Ops.END:
            around.pop()
        else:
            total += around[-1] * LOOPS.get(node.op, 0) * node.dtype.lanes
    return total


def _accessors(name: str, dtype: DType, is_stored: bool) -> str:
    """Reading, and where it is stored writing, one of the elements that share a word."""
    bits = memory_bits(dtype)
    inside = {8: "(at & 3u) * 8u", 16: "(at & 1u) * 16u"}[bits]
    word = f"{name}[at >> {2 if bits == 8 else 1}u]"
    value = f"atomicLoad(&{word})" if is_stored else word
    mask = f"{(1 << bits) - 1:#x}u"
    text = f"fn get_{name}(at: u32) -> u32 {{ return ({value} >> ({inside})) & {mask}; }}\n"
    if is_stored:
        text += f"""fn put_{name}(at: u32, value: u32) {{
  let by = {inside};
  atomicAnd(&{word}, ~({mask} << by));
  atomicOr(&{word}, (value & {mask}) << by);
}}
"""
    return text
