"""What the machine can do at most: multiply-adds, copying memory, reading memory, by all its threads.

Usage: python benchmarks/machine_limits.py

Three kernels written by hand, run by the threads of the CPU backend: sums of products that stay in
registers; vectors loaded and stored; vectors loaded and added. The best of many runs counts.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

from proofgrad.backends.cpu import backend
from proofgrad.backends.cpu.backend import CpuBackend

ACCUMULATORS = 16  # enough that no multiply-add waits for another one
STEPS = 20_000  # of each item
ITEMS = 64
BUFFER_BYTES = 1 << 26  # more than any cache
SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of this machine, measured now."""

    gflops: float
    copy_gbs: float  # bytes read and bytes written
    read_gbs: float


def measure() -> Limits:
    """All three; some seconds."""
    machine = backend()
    lanes = machine.target.vector_bytes // 4
    source, target = machine.alloc(BUFFER_BYTES), machine.alloc(BUFFER_BYTES)
    for block in (source, target):  # pages that were never written do not count as memory
        ctypes.memset(block.address, 1, BUFFER_BYTES)
    products = 2 * ITEMS * STEPS * ACCUMULATORS * lanes
    multiplying = _seconds(machine, _multiply_ir(lanes), target, source)
    copying = _seconds(machine, _memory_ir(lanes, stores=True), target, source)
    reading = _seconds(machine, _memory_ir(lanes, stores=False), target, source)
    gigabytes = BUFFER_BYTES / 1e9
    return Limits(products / multiplying / 1e9, 2 * gigabytes / copying, gigabytes / reading)


def _seconds(machine: CpuBackend, ir: str, target: object, source: object) -> float:
    """The least time of a kernel shared out over all threads."""
    library = machine.host.link(machine.object_code(ir), "limit")  # held until the end
    address = int(library["limit"])
    table = (ctypes.c_void_p * 2)(target.address, source.address)  # type: ignore[attr-defined]
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        machine.threads.run(address, ctypes.addressof(table), ITEMS)
        best = min(best, time.perf_counter() - start)
    return best


def _multiply_ir(lanes: int) -> str:
    """Items of STEPS steps, each a multiply-add into every accumulator; the sums are stored."""
    vector = f"<{lanes} x float>"
    names = range(ACCUMULATORS)
    phis = [f"  %a{k} = phi {vector} [ %one, %item ], [ %b{k}, %step ]" for k in names]
    fma = f"call {vector} @llvm.fma.v{lanes}f32"
    adds = [f"  %b{k} = {fma}({vector} %a{k}, {vector} %one, {vector} %one)" for k in names]
    sums = [f"  %s{k + 1} = fadd {vector} %s{k}, %b{k}" for k in names]
    body = "\n".join(
        [
            f"  %one = load {vector}, ptr %source, align 4",
            "  br label %step",
            "step:",
            "  %k = phi i64 [ 0, %item ], [ %k1, %step ]",
            *phis,
            *adds,
            "  %k1 = add i64 %k, 1",
            f"  %more = icmp slt i64 %k1, {STEPS}",
            "  br i1 %more, label %step, label %end",
            "end:",
            f"  %s0 = fadd {vector} %one, %one",
            *sums,
            f"  store {vector} %s{ACCUMULATORS}, ptr %target, align 4",
            "  br label %next",
        ]
    )
    intrinsic = f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
    return f"{intrinsic}\n{_kernel(body)}"


def _memory_ir(lanes: int, stores: bool) -> str:
    """Items that go over their part of the memory, four vectors a step."""
    vector, width = f"<{lanes} x float>", 4 * lanes
    steps = BUFFER_BYTES // ITEMS // (4 * width)
    lines = []
    for k in range(4):
        lines += [
            f"  %at{k} = add i64 %first_byte, {k * width}",
            f"  %from{k} = getelementptr i8, ptr %source, i64 %at{k}",
            f"  %v{k} = load {vector}, ptr %from{k}, align 4",
        ]
        if stores:
            lines += [
                f"  %to{k} = getelementptr i8, ptr %target, i64 %at{k}",
                f"  store {vector} %v{k}, ptr %to{k}, align 4",
            ]
        lines.append(f"  %b{k} = fadd {vector} %a{k}, %v{k}")
    phis = [
        f"  %a{k} = phi {vector} [ zeroinitializer, %item ], [ %b{k}, %step ]" for k in range(4)
    ]
    body = "\n".join(
        [
            "  br label %step",
            "step:",
            "  %k = phi i64 [ 0, %item ], [ %k1, %step ]",
            *phis,
            f"  %done = mul i64 %i, {steps}",
            "  %position = add i64 %done, %k",
            f"  %first_byte = mul i64 %position, {4 * width}",
            *lines,
            "  %k1 = add i64 %k, 1",
            f"  %more = icmp slt i64 %k1, {steps}",
            "  br i1 %more, label %step, label %end",
            "end:",
            f"  %s0 = fadd {vector} %b0, %b1",
            f"  %s1 = fadd {vector} %b2, %b3",
            f"  %sum = fadd {vector} %s0, %s1",
            f"  %never = extractelement {vector} %sum, i64 0",
            "  %is = fcmp oeq float %never, 1.0",
            "  br i1 %is, label %note, label %next",
            "note:",  # so that the loads are needed
            f"  store {vector} %sum, ptr %target, align 4",
            "  br label %next",
        ]
    )
    return _kernel(body)


def _kernel(body: str) -> str:
    """A function of the backend's form: items first .. last - 1, `body` for each."""
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


if __name__ == "__main__":
    found = measure()
    print(f"multiply-adds {found.gflops:.0f} GFLOP/s")
    print(f"copying {found.copy_gbs:.1f} GB/s read and written, reading {found.read_gbs:.1f} GB/s")
