"""PTX text as instructions: names, operands and the line of each.

Owns: the syntax of what LLVM prints and of what people write by hand for one module. Does not own: what an instruction does.

Source: PTX ISA, "Syntax", "Directives". Directives that say nothing of the meaning (.pragma, .maxntid, ...) are named here;
any other is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDTH = {
    "pred": 1, "b8": 8, "s8": 8, "u8": 8, "b16": 16, "s16": 16, "u16": 16, "f16": 16, "bf16": 16, "b32": 32,
    "s32": 32, "u32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32, "b64": 64, "s64": 64, "u64": 64,
    "f64": 64, "b128": 128,
}  # fmt: skip
_WITHOUT_MEANING = re.compile(
    r"\.(pragma|maxntid|reqntid|minnctapersm|maxnreg|noreturn|loc|file|section)\b"
)
_VARIABLE = re.compile(
    r"(?:\.(?P<linkage>visible|extern|weak|common)\s+)?\.(?P<space>global|const|shared|local)\s+(?:\.align\s+(?P<align>\d+)\s+)?"
    r"\.(?P<kind>\w+)\s+(?P<name>[\w$%]+)\s*(?:\[(?P<size>\d*)\])?\s*(?:=\s*(?P<value>.*))?$",
    re.S,
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$", re.S)
_ENTRY = re.compile(r"(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)\s*(?:\((.*?)\))?(.*)$", re.S)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.\w+\s+|\d+\s+)*([\w$]+)$")
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w]+)\s+)?([a-z]\w*(?:\.[\w:]+)*)\s*(.*)$", re.S)


class Refused(ValueError):
    """The text is not PTX, or uses something that is not emulated: says what, and in which line."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`@guard name.part.part operand, operand;`"""

    line: int
    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str = ""
    when: bool = True  # the truth of the guard for which it runs

    @property
    def text(self) -> str:
        """As it stands in the kernel, but for its guard."""
        return f"{'.'.join(self.parts)} {', '.join(self.operands)}".strip()


@dataclass(frozen=True, slots=True)
class Label:
    """A position to branch to."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """Memory with a name. `data`: what it holds before the first launch; without, any bytes."""

    name: str
    space: str
    nbytes: int
    align: int
    data: bytes = b""
    is_of_launch: bool = False  # as large as a launch says, behind all other shared memory


@dataclass(slots=True)
class Kernel:
    """An `.entry`: bytes of each parameter, width of each register, what it does."""

    name: str
    parameters: dict[str, int]
    registers: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instruction | Label] = field(default_factory=list)


@dataclass(slots=True)
class Module:
    """What one text holds."""

    version: str = ""
    target: str = ""
    variables: dict[str, Variable] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)


def parse(text: str) -> Module:
    """The kernels of PTX text. Raises: Refused."""
    module = Module()
    statements = _statements(re.sub(r"//[^\n]*", "", text))
    kernel: Kernel | None = None
    scopes: list[dict[str, str]] = []  # names of registers declared between inner braces
    for line, statement in statements:
        if statement == "{":
            scopes.append({})
        elif statement == "}":
            if not scopes:
                raise Refused(f"line {line}: a brace closes nothing")
            scopes.pop()
            kernel = kernel if scopes else None
        elif kernel is not None and scopes:
            _in_kernel(kernel, scopes, line, statement)
        else:
            kernel = _outside(module, line, statement)
    if scopes:
        raise Refused("the text ends inside of braces")
    if not module.version or not module.target:
        raise Refused("the text does not begin with .version and .target")
    return module


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each statement, label, brace and header with its line. Braces of operands belong to their statement."""
    start, line, counted = 0, 1, 0
    for match in re.finditer(r"[;{}:\n]", text):
        letter, at = match[0], match.start()
        found = text[start:at].strip()
        is_header = letter == "\n" and found.startswith((".version", ".target", ".address_size"))
        is_label = letter == ":" and re.fullmatch(r"[\w$]+", found) is not None
        if not (letter == ";" or is_header or is_label or _is_scope(found, letter)):
            continue
        begin = at if not found else at - len(text[start:at].lstrip())
        line, counted = line + text.count("\n", counted, begin), begin
        if found:
            yield line, found + (":" if is_label else "")
        if letter in "{}":
            yield line, letter
        start = at + 1
    if text[start:].strip():
        raise Refused(f"line {line}: {text[start:].strip()[:80]!r} has no end")


def _is_scope(before: str, letter: str) -> bool:
    """Whether a brace opens or closes a scope, and not a list of operands."""
    if letter == "}":
        return before.count("{") <= before.count("}")
    return letter == "{" and (not before or ".entry" in before or ".func" in before)


def _outside(module: Module, line: int, statement: str) -> Kernel | None:
    """A statement outside of kernels; the kernel that it opens."""
    word, _, rest = statement.partition(" ")
    if word == ".version":
        module.version = rest.strip()
    elif word == ".target":
        module.target = rest.strip()
    elif word == ".address_size":
        if rest.strip() != "64":
            raise Refused(f"line {line}: addresses of {rest.strip()} bits; only 64 are emulated")
    elif (found := _VARIABLE.match(statement)) and found["space"] != "local":
        variable = _variable(line, found)
        module.variables[variable.name] = variable
    elif entry := _ENTRY.match(statement):
        name, parameters, directives = entry.groups()
        _check_directives(line, directives)
        kernel = module.kernels[name] = Kernel(name, _parameters(line, parameters or ""))
        return kernel
    else:
        raise Refused(f"line {line}: {statement[:80]!r} is not emulated")
    return None


def _check_directives(line: int, text: str) -> None:
    for directive in re.findall(r"\.\w+", text):
        if not _WITHOUT_MEANING.match(directive):
            raise Refused(f"line {line}: the directive {directive} is not emulated")


def _parameters(line: int, text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in [" ".join(p.split()) for p in text.split(",") if p.strip()]:
        plain = re.sub(r"\.ptr(?: \.(?:global|shared|const|local))?(?: \.align \d+)?", "", part)
        match = _PARAMETER.match(" ".join(plain.split()))
        if match is None or match[1] not in WIDTH:
            raise Refused(f"line {line}: the parameter {part!r} is not emulated")
        found[match[2]] = WIDTH[match[1]] // 8
    return found


def _variable(line: int, found: re.Match[str]) -> Variable:
    kind, size, value = found["kind"], found["size"], found["value"]
    is_of_launch = size == "" and found["space"] == "shared" and found["linkage"] == "extern"
    if kind not in WIDTH or (size == "" and not is_of_launch):
        raise Refused(f"line {line}: {found[0][:80]!r} is not emulated (no size)")
    item = WIDTH[kind] // 8
    nbytes = 0 if is_of_launch else item * int(size or 1)
    data = b""
    if value is not None:
        numbers = [int(n.rstrip("uU"), 0) for n in re.findall(r"-?\w+", value)]
        data = b"".join([(n % (1 << 8 * item)).to_bytes(item, "little") for n in numbers])
        data = data.ljust(nbytes, b"\0")
    elif found["space"] in ("global", "const"):
        data = bytes(nbytes)  # PTX ISA, "Initializers": by default 0
    align = int(found["align"] or item)
    return Variable(found["name"], found["space"], nbytes, align, data, is_of_launch)


def _in_kernel(kernel: Kernel, scopes: list[dict[str, str]], line: int, statement: str) -> None:
    if _WITHOUT_MEANING.match(statement):
        return
    if registers := _REGISTERS.match(statement):
        _declare(kernel, scopes, line, registers[1], registers[2])
    elif found := _VARIABLE.match(statement):
        variable = _variable(line, found)
        kernel.variables[variable.name] = variable
    elif statement.endswith(":"):
        kernel.body.append(Label(statement[:-1]))
    elif match := _INSTRUCTION.match(statement):
        negated, guard, name, rest = match.groups()
        operands = tuple([_renamed(text, scopes) for text in _operands(rest)])
        guard = _renamed(guard or "", scopes)
        kernel.body.append(Instruction(line, tuple(name.split(".")), operands, guard, not negated))
    else:
        raise Refused(f"line {line}: {statement[:80]!r} is not emulated")


def _declare(
    kernel: Kernel, scopes: list[dict[str, str]], line: int, kind: str, names: str
) -> None:
    if kind not in WIDTH:
        raise Refused(f"line {line}: registers of type .{kind} are not emulated")
    for name in [part.strip() for part in names.split(",")]:
        series = re.fullmatch(r"([%\w$]+)<(\d+)>", name)
        each = [f"{series[1]}{k}" for k in range(int(series[2]))] if series else [name]
        for one in each:
            own = one if len(scopes) == 1 else f"{one}.{len(kernel.registers)}"
            scopes[-1][one] = own
            kernel.registers[own] = WIDTH[kind]


def _renamed(text: str, scopes: list[dict[str, str]]) -> str:
    """An operand with the registers of inner scopes under names of their own."""
    if len(scopes) == 1:
        return text
    names = {one: own for scope in scopes for one, own in scope.items() if one != own}
    return re.sub(r"[%\w$]+", lambda word: names.get(word[0], word[0]), text)


def _operands(text: str) -> list[str]:
    """`a, {b, c}, [d+4]` at its outer commas."""
    parts = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", text)
    return [" ".join(part.split()) for part in parts if part.strip()]


def listed(operand: str) -> list[str]:
    """The members of `{a, b}`; of anything else, itself."""
    if operand.startswith("{"):
        return [part.strip() for part in operand[1:-1].split(",")]
    return [operand]
