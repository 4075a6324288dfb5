"""One thread of a kernel as an LLVM function of the host: registers, blocks, operands, meetings.

Owns: the function in the making. Does not own: what each instruction does (scalar.py, convert.py, access.py, meeting.py),
the module around it (module.py).

    i32 @thread(ptr %launch, ptr %params, ptr %shared, ptr %frames, ptr %frame, i32 %tid, i32 %resume)

returns the number of the meeting that the thread waits at, and is called with that number to go on; DONE or FAULT end it.
`%frames` are the frames of all threads of the block, of which `%frame` is its own: FRAME bytes each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proofgrad.backends.ptx.emulator.parse import (
    WIDTH,
    Instruction,
    Kernel,
    Label,
    Module,
    Refused,
    Variable,
)
from proofgrad.backends.ptx.emulator.registers import outliving

DONE, FAULT = -1, -2
FRAME = "FRAME_BYTES"  # stands for the size of a frame until all of it is known
FLOAT = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
ROLES = ("ntid", "nctaid", "ctaid")  # of a launch, three numbers each, in its first words
GIVEN = 10  # the word of a launch with the bytes of shared memory that it gives a block
RANGES = 11  # the word of a launch where the first and last addresses begin that may be used
FAULT_WORD = 9  # the address where a fault is written down: kind, address, bytes, line
WARP = 32
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.([xyz])$")


@dataclass(frozen=True, slots=True)
class Operation:
    """How an instruction is written, and which modifiers it may have beside its types."""

    write: Callable[[Function, Instruction], None]
    modifiers: frozenset[str] = frozenset()


class Function:
    """See the head of this file."""

    def __init__(self, module: Module, kernel: Kernel, operations: Mapping[str, Operation]) -> None:
        self.module, self.kernel, self._operations = module, kernel, operations
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}  # of functions that are called, by name
        self.points: dict[int, int] = {}  # of each meeting, its line
        self.frame_bytes = 0
        self.queue: int | None = None  # where copies under way are listed in each frame
        shared = [*_of_space(module, "shared"), *_of_space(kernel, "shared")]
        own = [variable for variable in shared if not variable.is_of_launch]
        given = [variable for variable in shared if variable.is_of_launch]
        self.shared, self.shared_bytes = _placed(own)
        align = max([variable.align for variable in given], default=1)
        self.shared_bytes = -(-self.shared_bytes // align) * align
        self.shared.update({variable.name: self.shared_bytes for variable in given})
        self.takes_shared = bool(given)
        self._names = self._line = 0
        self._entry: list[str] = []
        self.parameter_bytes = 0
        self.parameters: dict[str, int] = {}
        for name, nbytes in kernel.parameters.items():
            self.parameter_bytes = -(-self.parameter_bytes // nbytes) * nbytes
            self.parameters[name] = self.parameter_bytes
            self.parameter_bytes += nbytes
        self._make_room(outliving(kernel))

    def text(self) -> list[str]:
        """The lines of the function. Raises: Refused, naming an instruction that is not emulated."""
        ended = False
        for node in self.kernel.body:
            if isinstance(node, Label):
                if not ended:
                    self.do(f"br label %{_label(node.name)}")
                self.lines.append(f"{_label(node.name)}:")
                ended = False
                continue
            if ended:
                self.lines.append(f"{self.fresh('unreached')}:")
            ended = self._write(node)
        if not ended:
            self.do(f"ret i32 {DONE}")
        cases = " ".join([f"i32 {k}, label %point{k}" for k in self.points])
        head = [
            f"define internal i32 @thread({SIGNATURE}) nounwind {{",
            "entry:",
            *self._entry,
            f"  switch i32 %resume, label %start [ {cases} ]",
            "start:",
            *self._no_copies(),
        ]
        return [*head, *self.lines, "}"]

    def _no_copies(self) -> list[str]:
        """A thread begins without copies under way."""
        if self.queue is None:
            return []
        return [
            f"  %queue = getelementptr i8, ptr %frame, i64 {self.queue}",
            "  store i128 0, ptr %queue, align 16",
        ]

    # -- lines ---------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A name that nothing else has."""
        self._names += 1
        return f"{hint}.{self._names}"

    def do(self, text: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """Add `%name = text`; the name."""
        name = f"%{self.fresh('v')}"
        self.do(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")

    def call(self, kind: str, name: str, *operands: tuple[str, str]) -> str:
        """The result of a function of LLVM or of module.py; operands are pairs of type and value."""
        types = ", ".join([one for one, _ in operands])
        if name.startswith("llvm."):
            self.declarations[name] = f"declare {kind} @{name}({types})"
        given = ", ".join([f"{one} {value}" for one, value in operands])
        if kind == "void":
            self.do(f"call void @{name}({given})")
            return ""
        return self.let(f"call {kind} @{name}({given})")

    # -- operands ------------------------------------------------------------------------------------

    def read(self, operand: str, bits: int) -> str:
        """An operand as an integer of so many bits."""
        negated = operand.startswith("!")
        name = operand[1:] if negated else operand
        width = self.kernel.registers.get(name)
        if width is not None:
            value = self.resized(self.let(f"load i{width}, ptr {self._slots[name]}"), width, bits)
            return self.let(f"xor i{bits} {value}, -1") if negated else value
        if negated:
            raise Refused(f"the operand {operand} is not emulated")
        if number := re.fullmatch(r"0[fFdD]([0-9A-Fa-f]{8}|[0-9A-Fa-f]{16})", operand):
            return str(int(number[1], 16))
        if re.fullmatch(r"-?(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)U?", operand):
            return str(int(operand.rstrip("U"), 0) % (1 << bits))
        if operand in ("true", "false"):
            return operand
        return self.resized(*self._named(operand), bits)

    def _named(self, operand: str) -> tuple[str, int]:
        """A special register or the address of a variable, and its bits."""
        symbol, _, offset = operand.partition("+")
        if found := _SPECIAL.match(operand):
            return self._special(*found.groups()), 32
        if operand == "%laneid":
            return self.let(f"and i32 %tid, {WARP - 1}"), 32
        if operand == "%warpid":
            return self.let("lshr i32 %tid, 5"), 32
        if operand == "WARP_SZ":
            return str(WARP), 32
        address = self.address_of(symbol.strip())
        return (self.let(f"add i64 {address}, {int(offset)}") if offset else address), 64

    def address_of(self, symbol: str) -> str:
        """The address of a variable or a parameter, in the space that it is in."""
        if symbol in self.parameters:
            return str(self.parameters[symbol])
        if symbol in self.shared:
            return str(self.shared[symbol])
        if symbol in self._locals:
            return self.let(f"ptrtoint ptr {self._locals[symbol]} to i64")
        for holder in (self.kernel.variables, self.module.variables):
            if symbol in holder:
                return self.let(f"ptrtoint ptr @{_label(symbol)} to i64")
        raise Refused(f"the operand {symbol} is not emulated")

    def _special(self, role: str, axis: str) -> str:
        number = "xyz".index(axis)
        if role != "tid":
            return self.launch_word(3 * ROLES.index(role) + number)
        size_x, size_y = self.launch_word(0), self.launch_word(1)
        if axis == "x":
            return self.let(f"urem i32 %tid, {size_x}")
        rows = self.let(f"udiv i32 %tid, {size_x}")
        return self.let(f"{'urem' if axis == 'y' else 'udiv'} i32 {rows}, {size_y}")

    def launch_word(self, number: int) -> str:
        """A number of the launch, as i32."""
        position = self.let(f"getelementptr i64, ptr %launch, i64 {number}")
        return self.let(f"trunc i64 {self.let(f'load i64, ptr {position}')} to i32")

    def value(self, operand: str, kind: str) -> str:
        """An operand as a value of a PTX type: an iN, or a float of LLVM."""
        raw = self.read(operand, WIDTH[kind])
        return self.let(f"bitcast i{WIDTH[kind]} {raw} to {FLOAT[kind]}") if kind in FLOAT else raw

    def write(self, register: str, value: str, kind: str) -> None:
        """A value of a PTX type into a register, which may be wider."""
        if register == "_":
            return
        width = self.kernel.registers.get(register)
        if width is None:
            raise Refused(f"{register} is no register")
        bits = WIDTH[kind]
        if kind in FLOAT:
            value = self.let(f"bitcast {FLOAT[kind]} {value} to i{bits}")
        value = self.resized(value, bits, width, is_signed=kind[0] == "s")
        self.do(f"store i{width} {value}, ptr {self._slots[register]}")

    def resized(self, value: str, bits: int, to: int, is_signed: bool = False) -> str:
        """An integer with more or fewer bits."""
        if bits == to:
            return value
        if bits > to:
            return self.let(f"trunc i{bits} {value} to i{to}")
        return self.let(f"{'sext' if is_signed else 'zext'} i{bits} {value} to i{to}")

    # -- positions --------------------------------------------------------------------------------------

    def _make_room(self, framed: set[str]) -> None:
        """A position for each register and local variable: of the frame, if a meeting lies between its uses."""
        self._slots: dict[str, str] = {}
        self._locals: dict[str, str] = {}
        for k, (name, width) in enumerate(self.kernel.registers.items()):
            slot = self._slots[name] = f"%register{k}"
            if name in framed:
                self._entry.append(f"  {slot} = {self.in_frame(max(1, width // 8))}")
            else:
                self._entry.append(f"  {slot} = alloca i{width}")
        for k, variable in enumerate(_of_space(self.kernel, "local")):
            self._locals[variable.name] = f"%local{k}"
            room = self.in_frame(variable.nbytes, variable.align)
            self._entry.append(f"  %local{k} = {room}")

    def in_frame(self, nbytes: int, align: int = 0) -> str:
        """The address of fresh memory of the thread, as an instruction."""
        return f"getelementptr i8, ptr %frame, i64 {self.take(nbytes, align)}"

    def take(self, nbytes: int, align: int = 0) -> int:
        """Where fresh memory begins in every frame."""
        align = align or nbytes
        self.frame_bytes = -(-self.frame_bytes // align) * align
        start, self.frame_bytes = self.frame_bytes, self.frame_bytes + nbytes
        return start

    # -- control -------------------------------------------------------------------------------------

    def meet(self, warp: bool) -> None:
        """Leave the function until all others are here; odd numbers are meetings of a warp."""
        number = 2 * (len(self.points) + 1) + warp
        self.points[number] = self._line
        self.do(f"ret i32 {number}")
        self.label(f"point{number}")

    def fault(self, kind: int, address: str, nbytes: int, line: int) -> None:
        """Write down what went wrong, and end the launch."""
        position = self.let(f"getelementptr i64, ptr %launch, i64 {FAULT_WORD}")
        record = self.let(f"inttoptr i64 {self.let(f'load i64, ptr {position}')} to ptr")
        for k, word in enumerate((str(kind), address, str(nbytes), str(line))):
            self.do(
                f"store i64 {word}, ptr {self.let(f'getelementptr i64, ptr {record}, i64 {k}')}"
            )
        self.do(f"ret i32 {FAULT}")

    def _write(self, ins: Instruction) -> bool:
        """Add an instruction; whether control never goes on behind it."""
        self._line = ins.line
        try:
            return self._guarded(ins) if ins.guard else self._plain(ins)
        except (Refused, KeyError, IndexError) as error:
            told = f" ({error})" if isinstance(error, Refused) else ""
            raise Refused(f"line {ins.line}: {ins.text!r} is not emulated{told}") from None

    def _guarded(self, ins: Instruction) -> bool:
        truth = self.read(ins.guard, 1)
        yes, no = self.fresh("yes"), self.fresh("no")
        first, second = (yes, no) if ins.when else (no, yes)
        self.do(f"br i1 {truth}, label %{first}, label %{second}")
        self.label(yes)
        if not self._plain(ins):
            self.do(f"br label %{no}")
        self.label(no)
        return False

    def _plain(self, ins: Instruction) -> bool:
        match ins.parts[0]:
            case "ret" | "exit":
                self.do(f"ret i32 {DONE}")
                return True
            case "bra":
                self.do(f"br label %{_label(ins.operands[0])}")
                return True
            case name:
                operation = self._operations[name]
                unknown = {*ins.parts[1:]} - operation.modifiers - WIDTH.keys()
                if unknown:
                    raise Refused(f"what .{', .'.join(sorted(unknown))} means there is not known")
                operation.write(self, ins)
                return False


SIGNATURE = "ptr %launch, ptr %params, ptr %shared, ptr %frames, ptr %frame, i32 %tid, i32 %resume"


def _label(name: str) -> str:
    return re.sub(r"[^\w]", "_", name)


def _of_space(holder: Module | Kernel, space: str) -> list[Variable]:
    return [variable for variable in holder.variables.values() if variable.space == space]


def _placed(variables: Sequence[Variable]) -> tuple[dict[str, int], int]:
    """Where each variable begins, behind the one before it; where the last one ends."""
    found, end = {}, 0
    for variable in variables:
        found[variable.name] = -(-end // variable.align) * variable.align
        end = found[variable.name] + variable.nbytes
    return found, end
