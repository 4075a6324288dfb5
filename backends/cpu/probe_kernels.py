"""Kernels written by hand that show what a core and its memory can do, one question each.

Owns: their text, as LLVM IR. Does not own: running and timing them (probe.py).

Each is a function `limit(table, first, last)` of the backend's form: `table` has the addresses of two buffers, the target and the
source; the work is done for each item from `first` to `last - 1`. Loads whose values nobody needs are volatile, so that they stay.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.machine import LINE_BYTES

BUFFER_BYTES = 1 << 26  # of the target and of the source: more than any cache of a core
ITEMS = 64  # that kernels about memory share out
CHAIN_STEPS = 8192
PAIR_CYCLES = 4  # a multiplication of integers and an `xor`: 3 cycles and 1
MULTIPLY_ADD_STEPS = 2048
LINES = 4096
VECTORS = 2048
LOADS = 8  # of vectors in one step
GATHERED_APART = 24  # elements between two of a vector: more than a line
POINTERS = 8192
_NAMES = {"float16": "half", "float32": "float", "float64": "double"}


def chain() -> str:
    """Each multiplication waits for the one before, and no two of them can be made one."""
    pair = "  %y{n} = mul i64 %x{n}, %by\n  %x{m} = xor i64 %y{n}, %k"
    body = "\n".join([pair.format(n=n, m=n + 1) for n in range(8)])
    first = "  %by = load i64, ptr %source"
    phi = "  %x0 = phi i64 [ 1, %item ], [ %x8, %step ]"
    return _loop(CHAIN_STEPS // 8, first, body, "  store i64 %x8, ptr %target", phi)


def multiply_adds(
    dtype: str, lanes: int, sums: int, is_fused: bool, steps: int = MULTIPLY_ADD_STEPS
) -> str:
    """Items of `steps` steps, each a multiply-add into every one of `sums` vectors.

    Not fused, what is multiplied is another of the sums, so that it is not the same in each step; of one sum by itself it is,
    and what is waited for is the addition alone.
    """
    vector = f"<{lanes} x {_NAMES[dtype]}>"
    suffix = f"v{lanes}f{dtype.removeprefix('float')}"
    adds = []
    for k in range(sums):
        if is_fused:
            fma = f"call {vector} @llvm.fma.{suffix}"
            adds.append(f"  %b{k} = {fma}({vector} %one, {vector} %one, {vector} %a{k})")
        else:
            other = "%one" if sums == 1 else f"%a{(k + 1) % sums}"
            adds.append(f"  %m{k} = fmul {vector} {other}, %one")
            adds.append(f"  %b{k} = fadd {vector} %a{k}, %m{k}")
    phis = [f"  %a{k} = phi {vector} [ %one, %item ], [ %b{k}, %step ]" for k in range(sums)]
    added = [f"  %s{k + 1} = fadd {vector} %s{k}, %b{k}" for k in range(sums)]
    stored = f"  store {vector} %s{sums}, ptr %target, align 4"
    last = "\n".join([f"  %s0 = fadd {vector} %one, %one", *added, stored])
    first = f"  %one = load {vector}, ptr %source, align 4"
    declared = f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})"
    return f"{declared}\n{_loop(steps, first, chr(10).join(adds), last, chr(10).join(phis))}"


def loads(lanes: int, nbytes: int) -> str:
    """Vectors loaded one after the other from the first `nbytes` of the source, again and again."""
    width = 4 * lanes
    lines = [f"  %start = mul i64 %k, {LOADS * width}", f"  %byte = urem i64 %start, {nbytes}"]
    if nbytes & (nbytes - 1) == 0:
        lines[1] = f"  %byte = and i64 %start, {nbytes - 1}"
    for n in range(LOADS):
        lines += [
            f"  %o{n} = add i64 %byte, {n * width}",
            f"  %p{n} = getelementptr i8, ptr %source, i64 %o{n}",
            f"  %v{n} = load volatile <{lanes} x float>, ptr %p{n}, align {width}",
        ]
    return _loop(VECTORS, "", "\n".join(lines), "  store i64 0, ptr %target")


def memory(lanes: int, stores: bool) -> str:
    """Items that go over their part of the memory, four vectors a step, and copy it or add it up."""
    vector, width = f"<{lanes} x float>", 4 * lanes
    steps = BUFFER_BYTES // ITEMS // (4 * width)
    lines = [
        f"  %done = mul i64 %i, {steps}",
        "  %position = add i64 %done, %k",
        f"  %first_byte = mul i64 %position, {4 * width}",
    ]
    for n in range(4):
        lines += [
            f"  %at{n} = add i64 %first_byte, {n * width}",
            f"  %from{n} = getelementptr i8, ptr %source, i64 %at{n}",
            f"  %v{n} = load volatile {vector}, ptr %from{n}, align 4",
        ]
        if stores:
            lines += [
                f"  %to{n} = getelementptr i8, ptr %target, i64 %at{n}",
                f"  store {vector} %v{n}, ptr %to{n}, align 4",
            ]
    return _loop(steps, "", "\n".join(lines), "")


def lines_apart(page_bytes: int) -> str:
    """One line of each of many pages, in an order that nothing foresees; none waits for another."""
    body = f"""  %mixed = mul i64 %k, 40503
  %page = urem i64 %mixed, {BUFFER_BYTES // page_bytes}
  %in = mul i64 %k, 320
  %line = and i64 %in, {page_bytes - LINE_BYTES}
  %start = mul i64 %page, {page_bytes}
  %byte = add i64 %start, %line
  %at = getelementptr i8, ptr %source, i64 %byte
  %v = load volatile i64, ptr %at"""
    return _loop(LINES, "", body, "")


def gathered(lanes: int) -> str:
    """Vectors whose elements are loaded a line apart, in the first cache, and added up."""
    vector, value = f"<{lanes} x float>", "poison"
    lines = ["  %some = and i64 %k, 7", "  %at = getelementptr float, ptr %source, i64 %some"]
    for n in range(lanes):
        lines += [
            f"  %a{n} = getelementptr float, ptr %at, i64 {n * GATHERED_APART}",
            f"  %e{n} = load float, ptr %a{n}",
            f"  %v{n} = insertelement {vector} {value}, float %e{n}, i64 {n}",
        ]
        value = f"%v{n}"
    lines.append(f"  %sum1 = fadd {vector} %sum, {value}")
    phi = f"  %sum = phi {vector} [ zeroinitializer, %item ], [ %sum1, %step ]"
    return _loop(VECTORS, "", "\n".join(lines), f"  store {vector} %sum1, ptr %target", phi)


def scattered(lanes: int) -> str:
    """Vectors whose elements are stored a line apart, in the first cache."""
    vector = f"<{lanes} x float>"
    lines = ["  %some = and i64 %k, 7", "  %at = getelementptr float, ptr %target, i64 %some"]
    for n in range(lanes):
        lines += [
            f"  %e{n} = extractelement {vector} %sum, i64 {n}",
            f"  %a{n} = getelementptr float, ptr %at, i64 {n * GATHERED_APART}",
            f"  store float %e{n}, ptr %a{n}",
        ]
    lines.append(f"  %sum1 = fadd {vector} %sum, %sum")
    phi = f"  %sum = phi {vector} [ zeroinitializer, %item ], [ %sum1, %step ]"
    return _loop(VECTORS, "", "\n".join(lines), f"  store {vector} %sum1, ptr %target", phi)


def pointers() -> str:
    """Each load waits for the one before, which tells it where; the next call goes on from there."""
    body = "\n".join([f"  %p{n + 1} = load ptr, ptr %p{n}" for n in range(8)])
    first, last = "  %begin = load ptr, ptr %target", "  store ptr %p8, ptr %target"
    return _loop(
        POINTERS // 8, first, body, last, "  %p0 = phi ptr [ %begin, %item ], [ %p8, %step ]"
    )


def nothing() -> str:
    """Items that do nothing: what is left is the call, and sharing out."""
    return _kernel("  br label %next")


def _loop(steps: int, first: str, body: str, last: str, phis: str = "") -> str:
    """`body` for each %k below `steps`, in each item."""
    return _kernel(
        f"{first}\n  br label %step\nstep:\n  %k = phi i64 [ 0, %item ], [ %k1, %step ]\n{phis}\n{body}\n"
        f"  %k1 = add i64 %k, 1\n  %more = icmp slt i64 %k1, {steps}\n"
        f"  br i1 %more, label %step, label %end\nend:\n{last}\n  br label %next"
    )


def _kernel(body: str) -> str:
    return f"""
define void @limit(ptr %table, i64 %first, i64 %last) nounwind {{
entry:
  %target = load ptr, ptr %table, align 8
  %second = getelementptr ptr, ptr %table, i64 1
  %source = load ptr, ptr %second, align 8
  br label %look
look:
  %i = phi i64 [ %first, %entry ], [ %i1, %next ]
  %inside = icmp slt i64 %i, %last
  br i1 %inside, label %item, label %exit
item:
{body}
next:
  %i1 = add i64 %i, 1
  br label %look
exit:
  ret void
}}
"""
