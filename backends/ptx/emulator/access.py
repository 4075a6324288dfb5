"""Loads, stores, atomic operations and copies that go on while others compute.

Owns: those of global, shared, local, constant and parameter memory, each looked at before it is done: outside of what the
launch was given, or not aligned, it ends the launch as a GPU does. Does not own: what address spaces there are (function.py).

A copy by cp.async is done when it is waited for, and not before: until then its position holds no value.
"""

from __future__ import annotations

import re

from proofgrad.backends.ptx.emulator.function import FLOAT, WARP, Function, Operation
from proofgrad.backends.ptx.emulator.parse import WIDTH, Instruction, Refused, listed

ILLEGAL, MISALIGNED, TRAPPED, TOO_MANY = 1, 2, 3, 4  # kinds of faults
SPACES = ("global", "shared", "local", "const", "param")
QUEUE_ENTRIES = 256  # copies of one thread that are under way
ENTRY_BYTES, QUEUE_HEAD = 32, 16
# Of caches and of the order that other threads see: threads of a block run one after the other here.
_HINTS = frozenset({
    "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "cta",
    "gpu", "sys", "cluster", "L1::no_allocate", "L1::evict_last", "L1::evict_first", "L1::evict_normal",
    "L1::evict_unchanged", "L2::128B", "L2::64B", "L2::256B", "shared::cta",
})  # fmt: skip
_VECTORS = frozenset({"v2", "v4", "v8"})


def _space(ins: Instruction) -> str:
    """The address space that it names; "" for any."""
    for part in ins.parts:
        if part.partition("::")[0] in SPACES:
            return part.partition("::")[0]
    return ""


def _address(f: Function, operand: str, space: str) -> str:
    """`[base+offset]` as an address of the host, an i64."""
    match = re.fullmatch(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
    if match is None:
        raise Refused(f"the address {operand}")
    base, offset = match[1], int(match[2] or 0)
    address = f.read(base, 64)
    if space == "shared":
        address = f.let(f"add i64 {address}, {f.let('ptrtoint ptr %shared to i64')}")
    return f.let(f"add i64 {address}, {offset}") if offset else address


def _pointer(
    f: Function, ins: Instruction, operand: str, space: str, nbytes: int, inside: int = 0
) -> str:
    """A pointer that may be used: the fault is written where it may not. `inside`: as many bytes are of memory; 0: all."""
    if space == "param":
        return _parameter(f, ins, operand, nbytes)
    address = _address(f, operand, space)
    _require(f, ins, address, space, nbytes, inside)
    return f.let(f"inttoptr i64 {address} to ptr")


def _parameter(f: Function, ins: Instruction, operand: str, nbytes: int) -> str:
    """A parameter by its name, or by a register with its address in their own space (PTX ISA, "Kernel Function Parameters")."""
    offset = _address(f, operand, "param")
    if "%" in operand:
        is_inside = f.let(f"icmp ule i64 {offset}, {f.parameter_bytes - nbytes}")
        _or_fault(f, ins, is_inside, ILLEGAL, offset, nbytes)
    return f.let(f"getelementptr i8, ptr %params, i64 {offset}")


def _require(
    f: Function, ins: Instruction, address: str, space: str, nbytes: int, inside: int = 0
) -> None:
    if nbytes & (nbytes - 1) == 0 and nbytes > 1:
        rest = f.let(f"and i64 {address}, {nbytes - 1}")
        _or_fault(f, ins, f.let(f"icmp eq i64 {rest}, 0"), MISALIGNED, address, nbytes)
    if space in ("global", "shared", ""):
        where = space or "any"
        operands = (("ptr", "%launch"), ("ptr", "%shared"), ("ptr", "%frame"))
        wanted = ("i64", str(inside or nbytes))
        usable = f.call("i1", f"usable.{where}", *operands, ("i64", address), wanted)
        _or_fault(f, ins, usable, ILLEGAL, address, nbytes)


def _or_fault(
    f: Function, ins: Instruction, truth: str, kind: int, address: str, nbytes: int
) -> None:
    good, bad = f.fresh("good"), f.fresh("bad")
    f.do(f"br i1 {truth}, label %{good}, label %{bad}")
    f.label(bad)
    f.fault(kind, address, nbytes, ins.line)
    f.label(good)


def _load(f: Function, ins: Instruction) -> None:
    kind, space = ins.parts[-1], _space(ins)
    targets, width = listed(ins.operands[0]), WIDTH[ins.parts[-1]]
    nbytes = width // 8
    # A vector that begins in memory may end behind it, for it lies in one page: LLVM loads 12 bytes as 16 where they are aligned.
    pointer = _pointer(f, ins, ins.operands[1], space, nbytes * len(targets), nbytes)
    for k, target in enumerate(targets):
        position = f.let(f"getelementptr i8, ptr {pointer}, i64 {k * nbytes}")
        value = f.let(f"load i{width}, ptr {position}, align {nbytes}")
        f.write(target, value, f"{'s' if kind[0] == 's' else 'b'}{width}")


def _store(f: Function, ins: Instruction) -> None:
    space, width = _space(ins), WIDTH[ins.parts[-1]]
    sources, nbytes = listed(ins.operands[1]), width // 8
    pointer = _pointer(f, ins, ins.operands[0], space, nbytes * len(sources))
    for k, source in enumerate(sources):
        position = f.let(f"getelementptr i8, ptr {pointer}, i64 {k * nbytes}")
        f.do(f"store i{width} {f.read(source, width)}, ptr {position}, align {nbytes}")


# -- atomic operations ------------------------------------------------------------------------------

_PLAIN = {"add": "add", "and": "and", "or": "or", "xor": "xor"}
_ATOMIC = frozenset({*_PLAIN, "min", "max", "exch", "cas", "inc", "dec"})


def _atomic(f: Function, ins: Instruction) -> None:
    has_result = ins.parts[0] == "atom"
    target, position, *operands = ins.operands if has_result else ("_", *ins.operands)
    kind, space = ins.parts[-1], _space(ins)
    name = next(part for part in ins.parts[1:] if part in _ATOMIC)
    width = WIDTH[kind]
    pointer = _pointer(f, ins, position, space, width // 8)
    old = f.let(f"load i{width}, ptr {pointer}, align {width // 8}")
    new = _combined(f, name, kind, old, [f.read(one, width) for one in operands])
    f.do(f"store i{width} {new}, ptr {pointer}, align {width // 8}")
    f.write(target, old, f"b{width}")


def _combined(f: Function, name: str, kind: str, old: str, operands: list[str]) -> str:
    llvm = f"i{WIDTH[kind]}"
    if kind in FLOAT:
        if name != "add":
            raise Refused("on floats only .add")
        floats = [f.let(f"bitcast {llvm} {bits} to {FLOAT[kind]}") for bits in (old, operands[0])]
        total = f.let(f"fadd {FLOAT[kind]} {floats[0]}, {floats[1]}")
        return f.let(f"bitcast {FLOAT[kind]} {total} to {llvm}")
    if name in _PLAIN:
        return f.let(f"{name} {llvm} {old}, {operands[0]}")
    if name in ("min", "max"):
        return f.call(llvm, f"llvm.{kind[0]}{name}.{llvm}", (llvm, old), (llvm, operands[0]))
    if name == "exch":
        return operands[0]
    if name == "cas":
        is_same = f.let(f"icmp eq {llvm} {old}, {operands[0]}")
        return f.let(f"select i1 {is_same}, {llvm} {operands[1]}, {llvm} {old}")
    raise Refused(f".{name}")


# -- copies under way -------------------------------------------------------------------------------


def _copy(f: Function, ins: Instruction) -> None:
    if ins.parts[1:2] != ("async",):
        raise Refused("only cp.async")
    rest = ins.parts[2:]
    queue = _queue(f)
    if rest == ("commit_group",):
        f.call("void", "copies.commit", ("ptr", queue))
    elif rest == ("wait_all",):
        f.call("void", "copies.wait", ("ptr", queue), ("i32", "-1"))
    elif rest == ("wait_group",):
        f.call("void", "copies.wait", ("ptr", queue), ("i32", str(int(ins.operands[0]))))
    elif rest[0] in ("ca", "cg") and {"shared", "global"} == {
        p.partition("::")[0] for p in rest[1:3]
    }:
        nbytes = int(ins.operands[2])
        target = _address(f, ins.operands[0], "shared")
        _require(f, ins, target, "shared", nbytes)
        source = _address(f, ins.operands[1], "global")
        given = f.read(ins.operands[3], 32) if len(ins.operands) > 3 else str(nbytes)
        _require_source(f, ins, source, given, nbytes)
        words = (("i64", target), ("i64", source), ("i32", str(nbytes)), ("i32", given))
        fits = f.call("i1", "copies.begin", ("ptr", queue), *words)
        _or_fault(f, ins, fits, TOO_MANY, target, nbytes)
    else:
        raise Refused("this form of cp.async")


def _require_source(f: Function, ins: Instruction, source: str, given: str, nbytes: int) -> None:
    """Of a copy that reads nothing the source may lie anywhere."""
    reads, after = f.fresh("reads"), f.fresh("after")
    f.do(f"br i1 {f.let(f'icmp ne i32 {given}, 0')}, label %{reads}, label %{after}")
    f.label(reads)
    rest = f.let(f"and i64 {source}, {nbytes - 1}")
    _or_fault(f, ins, f.let(f"icmp eq i64 {rest}, 0"), MISALIGNED, source, nbytes)
    operands = (("ptr", "%launch"), ("ptr", "%shared"), ("ptr", "%frame"), ("i64", source))
    usable = f.call("i1", "usable.global", *operands, ("i64", f.resized(given, 32, 64)))
    _or_fault(f, ins, usable, ILLEGAL, source, nbytes)
    f.do(f"br label %{after}")
    f.label(after)


def _queue(f: Function) -> str:
    """Where the copies of a thread that are under way are listed: in its frame."""
    if f.queue is None:
        f.queue = f.take(QUEUE_HEAD + QUEUE_ENTRIES * ENTRY_BYTES, 16)
    return f.let(f"getelementptr i8, ptr %frame, i64 {f.queue}")


def check_shared(f: Function, ins: Instruction, operand: str, nbytes: int, lanes: int) -> str:
    """The address of shared memory as one of the host; of the first lanes of a warp it must be one that may be used."""
    address = _address(f, operand, "shared")
    reads, after = f.fresh("reads"), f.fresh("after")
    lane = f.let(f"and i32 %tid, {WARP - 1}")
    f.do(f"br i1 {f.let(f'icmp ult i32 {lane}, {lanes}')}, label %{reads}, label %{after}")
    f.label(reads)
    _require(f, ins, address, "shared", nbytes)
    f.do(f"br label %{after}")
    f.label(after)
    return address


def _order(f: Function, ins: Instruction) -> None:
    """Threads see each other's stores in order here, so a fence has nothing to do."""


def _trap(f: Function, ins: Instruction) -> None:
    f.fault(TRAPPED, "0", 0, ins.line)
    f.label(f.fresh("unreached"))


_SPACE = frozenset(SPACES)
ACCESS = {
    "ld": Operation(_load, _SPACE | _HINTS | _VECTORS),
    "ldu": Operation(_load, _SPACE | _HINTS | _VECTORS),
    "st": Operation(_store, _SPACE | _HINTS | _VECTORS),
    "atom": Operation(_atomic, _SPACE | _HINTS | _ATOMIC),
    "red": Operation(_atomic, _SPACE | _HINTS | _ATOMIC),
    "cp": Operation(
        _copy, _SPACE | _HINTS | {"async", "commit_group", "wait_group", "wait_all"}
    ),
    "membar": Operation(_order, frozenset({"cta", "gl", "sys"})),
    "fence": Operation(_order, frozenset({"sc", "acq_rel", "cta", "gpu", "sys"})),
    "prefetch": Operation(_order, frozenset({"global", "L1", "L2"})),
    "trap": Operation(_trap),
}  # fmt: skip
