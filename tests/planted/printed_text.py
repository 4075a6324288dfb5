"""Faults of a printer: every position of LLVM IR where a number, an operation, a lane or a register could be another.

Owns: the kinds of change. Does not own: the programs (printed_programs.py), which faults show and who finds them (printed_faults.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# What a line may say instead, by the word that it says.
_OPERATIONS = {
    "add": "sub", "sub": "add", "mul": "add", "fadd": "fsub", "fsub": "fadd", "fmul": "fadd", "fdiv": "fmul",
    "and": "or", "or": "and", "xor": "or", "shl": "lshr", "lshr": "ashr", "ashr": "lshr", "sext": "zext", "zext": "sext",
    "uitofp": "sitofp", "sitofp": "uitofp", "sdiv": "udiv", "udiv": "sdiv", "srem": "urem", "urem": "srem",
}  # fmt: skip
_COMPARISONS = {
    "slt": "sle", "sle": "slt", "sgt": "sge", "sge": "sgt", "ult": "ule", "ule": "ult", "ugt": "uge", "uge": "ugt",
    "eq": "ne", "ne": "eq", "olt": "ole", "ole": "olt", "ogt": "oge", "oge": "ogt", "oeq": "une", "une": "oeq", "uno": "ord",
}  # fmt: skip
_UNORDERED = {"olt": "ult", "ole": "ule", "ogt": "ugt", "oge": "uge", "oeq": "ueq", "une": "one"}
_FUNCTIONS = {
    "smax": "smin", "smin": "smax", "umax": "umin", "umin": "umax", "maxnum": "minnum", "minnum": "maxnum",
    "maximum": "maxnum", "minimum": "minnum", "sqrt": "fabs", "floor": "ceil", "ceil": "floor", "trunc": "floor",
    "rint": "trunc", "roundeven": "trunc", "sadd": "uadd", "fshl": "fshr", "fshr": "fshl",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a text that says something else; `kind`: what sort of fault it is."""

    kind: str
    number: int
    line: str

    def of(self, text: str) -> str:
        """The text with the fault."""
        lines = text.split("\n")
        lines[self.number] = self.line
        return "\n".join(lines)


def changes(text: str) -> Iterator[Change]:
    """Every change of one line of the body of a kernel."""
    inside, known = False, dict[str, str]()  # the register of each type that was written last
    for number, line in enumerate(text.split("\n")):
        if line.startswith("define"):
            inside, known = ".body(" in line, {}
        if not inside or not line.startswith("  "):
            continue
        for kind, make in _KINDS.items():
            for other in make(line):
                if other != line:
                    yield Change(kind, number, other)
        for other in _other_registers(line, known):
            yield Change("another register", number, other)
        if found := re.match(
            r"  (%\S+) = (?:load|fadd|fmul|add|mul|shufflevector|call|select)\b.*", line
        ):
            if made := _made_type(line):
                known[made] = found[1]


def _made_type(line: str) -> str:
    """The type of the register that a line writes, where its text names it first."""
    found = re.match(
        r"  %\S+ = (?:load|fadd|fmul|add|mul|call)(?: nsw| nuw| contract)* (<[^>]*>|\w+)", line
    )
    return found[1] if found else ""


def _other_registers(line: str, known: dict[str, str]) -> Iterator[str]:
    """An operand that is the value written last, of the same type."""
    for kind, name in known.items():
        for found in re.finditer(rf"(?<=[ (,]){re.escape(kind)} (%[\w.]+)", line):
            if found[1] != name and " = phi " not in line:
                yield f"{line[: found.start(1)]}{name}{line[found.end(1) :]}"


def _each(pattern: str, instead: Callable[[re.Match[str]], str]) -> Callable[[str], Iterator[str]]:
    """A line with one match of a pattern changed."""

    def make(line: str) -> Iterator[str]:
        for found in re.finditer(pattern, line):
            yield f"{line[: found.start()]}{instead(found)}{line[found.end() :]}"

    return make


def _lanes(line: str) -> Iterator[str]:
    """Two indices of a shuffle exchanged, or one of them the next."""
    found = re.search(r"shufflevector .*<\d+ x i32> <([^>]*)>", line)
    lanes = found[1].split(", ") if found else []
    for k, (one, other) in enumerate(zip(lanes, lanes[1:])):
        changed = ", ".join([*lanes[:k], other, one, *lanes[k + 2 :]])
        assert found is not None
        yield f"{line[: found.start(1)]}{changed}{line[found.end(1) :]}"


def _numbers(line: str) -> Iterator[str]:
    """A whole number that is one larger; not of types, alignments or lanes."""
    if "shufflevector" in line or " phi " in line:
        return
    for found in re.finditer(r"(?<=[ (])(-?\d+)(?=[,)\s]|$)", line):
        if not re.search(r"(align|alloca \[?|!\w+|<)\s*$", line[: found.start()]):
            yield f"{line[: found.start()]}{int(found[1]) + 1}{line[found.end() :]}"


def _floats(line: str) -> Iterator[str]:
    """A constant of floats of which a bit in the middle is another."""
    for found in re.finditer(r"0x([0-9A-F]{16})\b", line):
        bits = int(found[1], 16) ^ 1 << 50
        yield f"{line[: found.start(1)]}{bits:016X}{line[found.end(1) :]}"


def _starts(line: str) -> Iterator[str]:
    """What a register holds before its loop."""
    found = re.match(r"(  %\S+ = phi (\S+|<[^>]*>) \[ ?)([^%,]+)(,.*)", line)
    if found and found[2].startswith(("float", "double", "<", "half")):
        zero = "zeroinitializer" if "<" in found[2] else "0.0"
        yield f"{found[1]}{zero}{found[4]}"
    elif found and found[3].lstrip("-").isdigit():
        yield f"{found[1]}{int(found[3]) + 1}{found[4]}"


def _selects(line: str) -> Iterator[str]:
    """A choice that is lost: always the first, always the second, or the other one."""
    found = re.match(
        r"(  %\S+ = select [^,]*, )((?:<[^>]*>|\w+) )([^,]+), (?:<[^>]*>|\w+) ([^,]+)$", line
    )
    if found:
        head, kind, one, other = found.groups()
        for a, b in ((one, one), (other, other), (other, one)):
            yield f"{head}{kind}{a}, {kind}{b}"


def _exchanged(line: str) -> Iterator[str]:
    """The operands of what does not commute."""
    found = re.match(
        r"(  %\S+ = (?:fsub|sub|fdiv|shl|lshr|ashr|sdiv|fcmp \w+|icmp \w+) (?:<[^>]*>|\w+) )([^,]+), ([^,]+)$",
        line,
    )
    if found and found[2] != found[3]:
        yield f"{found[1]}{found[3]}, {found[2]}"


def _stores(line: str) -> Iterator[str]:
    if re.match(r"  (store |call void @llvm\.masked\.(store|scatter))", line):
        yield "  ; dropped"


def _branches(line: str) -> Iterator[str]:
    found = re.match(r"  br i1 (\S+), (label \S+), (label \S+)$", line)
    if found:
        yield f"  br i1 {found[1]}, {found[3]}, {found[2]}"


def _nontemporal(line: str) -> Iterator[str]:
    if ", !nontemporal" in line:
        yield re.sub(r", !nontemporal !\d+", "", line)


_KINDS: dict[str, Callable[[str], Iterator[str]]] = {
    "operation": _each(r"(?<== )(\w+)(?= )", lambda m: _OPERATIONS.get(m[1], m[1])),
    "comparison": _each(r"(?<=cmp )(\w+)(?= )", lambda m: _COMPARISONS.get(m[1], m[1])),
    "comparison of NaN": _each(r"(?<=fcmp )(\w+)(?= )", lambda m: _UNORDERED.get(m[1], m[1])),
    "function": _each(r"(?<=@llvm\.)(\w+)(?=\.)", lambda m: _FUNCTIONS.get(m[1], m[1])),
    "lanes of a shuffle": _lanes,
    "number": _numbers,
    "constant of floats": _floats,
    "start of a loop": _starts,
    "lost choice": _selects,
    "operands exchanged": _exchanged,
    "lane of a mask": _each(r"\bi1 (true|false)\b", lambda m: "i1 false" if m[1] == "true" else "i1 true"),
    "dropped store": _stores,
    "branch": _branches,
    "alignment": _each(r"\balign (?:1|2|4|8|16|32)\b", lambda m: "align 64"),
    "nontemporal": _nontemporal,
}  # fmt: skip
