"""Linear -> WGSL: one statement for each node that has a value.

Owns: statements, loops, memory, the head of a kernel. Does not own: the meaning of the ops in WGSL (functions.py), types and
constants (types.py).

The items of a workgroup share rows: what they keep together is in its memory, and they wait for each other at barriers.

Elements of 8 and 16 bits share words of 32. An item that stores one clears and sets its bits by two atomic operations, which
leave those of its neighbours alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.webgpu.floats import NOTHING
from proofgrad.backends.webgpu.functions import Functions, expression
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
from proofgrad.core.ir.dtypes import DType
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
        self._names: dict[UOp, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._values = 0
        self._stored = {n.src[0].src[0] for n in nodes if n.op is Ops.STORE}
        self._group, self._waits = group_size(linear), waits(linear)
        self._turns = loop_turns(nodes, self._group)
        kept = [n for n in nodes if n.op is Ops.FILLED and is_of_group(n.src[1:])]
        self._of_group = {*kept, *map(memory_of, kept)}
        self._shared = 0  # open loops that the items of a group share out
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
                self._names[node] = f"data{node.arg[0]}"
            case Ops.CONST:
                self._names[node] = constant(node.arg, node.dtype)
            case Ops.SCRATCH:
                number, size = node.arg
                name = self._names[node] = f"kept{number}"
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
            case Ops.BROADCAST if node.dtype.lanes == 1:
                self._names[node] = self._names[node.src[0]]
            case Ops.LOAD if node.dtype.lanes == 1:
                self._load(node)
            case Ops.STORE if node.src[1].dtype.lanes == 1:
                self._store(node)
            case Ops.ACCUMULATOR:
                name = self._next_value().replace("v", "total")
                self._declare(node, name, self._names[node.src[0]], "var")
            case Ops.UPDATE:
                self._names[node] = self._names[node.src[0]]
                self._line(f"{self._names[node]} = {self._names[node.src[1]]};")
            case Ops.RESULT:
                self._names[node] = self._names[node.src[0]]
            case op if op in ELEMENTWISE:
                self._value(node)
            case op:
                raise CompileError(f"{op.name} cannot be printed as WGSL: {node!r}")

    def _open(self, node: UOp) -> None:
        number, role = node.arg
        kind, size = register_type(node.dtype), self._names[node.src[0]]
        name = self._names[node] = f"i{number}"
        if role is AxisRole.GLOBAL:
            self._line(f"let {name} = {kind}(item.x + item.y * {ITEMS_A_ROW}u);")
            self._line(f"if ({name} >= {size}) {{ return; }}")
        elif role is AxisRole.BLOCK:
            self._line(f"let {name} = {kind}(group.x + group.y * {MOST_GROUPS}u);")
            self._line(f"if ({name} >= {size}) {{ return; }}")
        elif role is AxisRole.LANE:
            self._shared += 1
            if is_one_each(node, self._group):
                return self._line(f"let {name} = {kind}(lane);")
            first = f"var {name} = {kind}(lane)"
            self._line(f"for ({first}; {name} < {size}; {name} += {self._group}) {{")
            self._depth += 1
        elif role in (AxisRole.LOOP, AxisRole.REDUCE):
            self._line(f"for (var {name}: {kind} = 0; {name} < {size}; {name}++) {{")
            self._depth += 1
        else:
            raise CompileError(f"a loop with the role {role.value} cannot be printed as WGSL")

    def _close(self, loop: UOp) -> None:
        role = loop.arg[1]
        self._shared -= role is AxisRole.LANE
        if role not in (AxisRole.GLOBAL, AxisRole.BLOCK) and not is_one_each(loop, self._group):
            self._depth -= 1
            self._line("}")

    def _wait(self, node: UOp) -> None:
        if node in self._waits:
            self._line("workgroupBarrier();")

    def _load(self, node: UOp) -> None:
        memory, at, *mask = [*node.src[0].src]
        text, dtype = self._read(memory, at), node.dtype
        if not mask:
            self._declare(node, self._next_value(), text)
            return
        name = self._next_value()
        self._declare(node, name, constant(0, dtype), "var")
        self._line(f"if ({self._names[mask[0]]}) {{ {name} = {text}; }}")

    def _read(self, memory: UOp, at: UOp) -> str:
        position = f"{self._names[memory]}[{self._index(at)}]"
        if memory.op is not Ops.PARAM or not is_small(memory.dtype):
            return position
        bits = f"get_{self._names[memory]}({self._index(at)})"
        dtype, width = memory.dtype, memory_bits(memory.dtype)
        if dtype.is_bool:
            return f"({bits} != 0u)"
        if dtype.is_unsigned or is_bits(dtype):
            return bits
        return f"extractBits(bitcast<i32>({bits}), 0u, {width}u)"

    def _store(self, node: UOp) -> None:
        index, value = node.src[:2]
        memory, at, *mask = index.src
        text = self._names[value]
        if memory.op is Ops.PARAM and is_small(memory.dtype):
            bits = f"select(0u, 1u, {text})" if memory.dtype.is_bool else f"u32({text})"
            line = f"put_{self._names[memory]}({self._index(at)}, {bits});"
        else:
            line = f"{self._names[memory]}[{self._index(at)}] = {text};"
        if self._group and not self._shared and memory.op is Ops.PARAM:  # what one item stores
            line = f"if (lane == 0u) {{ {line} }}"
        self._line(f"if ({self._names[mask[0]]}) {{ {line} }}" if mask else line)

    def _index(self, at: UOp) -> str:
        return f"u32({self._names[at]})"

    def _value(self, node: UOp) -> None:
        operands = [self._names[s] for s in node.src]
        if all(
            [s.op is Ops.CONST for s in node.src]
        ):  # WGSL would compute it, and refuse what wraps
            operands = [self._named(s) for s in node.src]
        kinds = [s.dtype for s in node.src]
        text = expression(node.op, node.dtype, operands, kinds, self.functions)
        self._declare(node, self._next_value(), text)

    def _named(self, node: UOp) -> str:
        name = self._next_value()
        self._line(f"var {name}: {register_type(node.dtype)} = {self._names[node]};")
        return name

    def _declare(self, node: UOp, name: str, text: str, word: str = "let") -> None:
        self._names[node] = name
        self._line(f"{word} {name}: {register_type(node.dtype)} = {text};")

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
            total += around[-1] * LOOPS.get(node.op, 0)
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
