"""What this machine's core does in a cycle, and what takes it how many: the numbers of `Core` that are measured.

Usage: python benchmarks/measure_core.py

Prints each beside what the compiler takes (core/compile/machine/machine.py). Kernels written by hand, in one thread, and a few of
Tensors. The best of many runs counts; a cycle is a quarter of a multiplication of integers and an `xor` that wait for those
before them (A. Fog, Instruction tables: 3 cycles and 1, on Intel and AMD; the same on most ARM cores).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from machine_limits import BUFFER_BYTES, ITEMS, _kernel, _memory_ir

from proofgrad import Device, Tensor, TinyJit
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.dtypes import dtypes

SECONDS = 0.5
CHAIN, LINES, MANY = 10_000, 4096, 2048
PAIR_CYCLES = 4


def measure() -> dict[str, float]:
    """By the names of the fields of `Core`. Some seconds."""
    machine: Any = Device["CPU"]
    memory = [machine.alloc(BUFFER_BYTES) for _ in range(2)]
    for block in memory:  # pages that were never written do not count as memory
        ctypes.memset(block.address, 0, BUFFER_BYTES)
    cycle = _of(machine, memory, _chain_ir()) / CHAIN / PAIR_CYCLES
    lanes = machine.target.vector_bytes // 4
    reading = _of(machine, memory, _memory_ir(lanes, stores=False), ITEMS)
    lines = _of(machine, memory, _lines_ir(machine.target.page_bytes))
    near, apart = [_of(machine, memory, _elements_ir(lanes, way)) for way in ("gather", "scatter")]
    copied, copied_apart = _copies()
    spinning, sleeping = _shares(machine, memory)
    return {
        "memory_bytes_a_cycle": BUFFER_BYTES / (reading / cycle),
        "memory_line_cycles": lines / LINES / cycle,
        "gather_cycles": near / MANY / lanes / cycle,
        "scatter_cycles": apart / MANY / lanes / cycle,
        "copy_cycles": copied / cycle,
        "copy_apart_cycles": copied_apart / cycle,
        "launch_cycles": _launch(machine, memory) / cycle,
        "share_cycles": spinning / cycle,
        "wake_cycles": sleeping / cycle,
    }


def _best(run: Callable[[], object]) -> float:
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _of(machine: CpuBackend, memory: list[Any], ir: str, items: int = 1) -> float:
    """Seconds of a kernel in this thread."""
    library = machine.host.link(machine.object_code(ir), "limit")  # held until the end
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library["limit"])
    table = (ctypes.c_void_p * 2)(*[block.address for block in memory])
    return _best(lambda: call(table, 0, items))


def _loop(steps: int, first: str, body: str, last: str, phis: str = "") -> str:
    """A kernel of one item: `body` for each %k below `steps`."""
    return _kernel(
        f"{first}\n  br label %step\nstep:\n  %k = phi i64 [ 0, %item ], [ %k1, %step ]\n{phis}\n{body}\n"
        f"  %k1 = add i64 %k, 1\n  %more = icmp slt i64 %k1, {steps}\n"
        f"  br i1 %more, label %step, label %end\nend:\n{last}\n  br label %next"
    )


def _chain_ir() -> str:
    """Each multiplication waits for the one before, and no two of them can be made one."""
    pair = "  %y{n} = mul i64 %x{n}, %by\n  %x{m} = xor i64 %y{n}, %k"
    body = "\n".join([pair.format(n=n, m=n + 1) for n in range(8)])
    first = "  %by = load i64, ptr %source"
    phi = "  %x0 = phi i64 [ 1, %item ], [ %x8, %step ]"
    return _loop(CHAIN // 8, first, body, "  store i64 %x8, ptr %target", phi)


def _lines_ir(page_bytes: int) -> str:
    """One line of each of many pages, in an order that nothing foresees; none waits for another."""
    pages = BUFFER_BYTES // page_bytes
    body = f"""  %mixed = mul i64 %k, 40503
  %page = urem i64 %mixed, {pages}
  %in = mul i64 %k, 320
  %line = and i64 %in, {page_bytes - 64}
  %start = mul i64 %page, {page_bytes}
  %byte = add i64 %start, %line
  %at = getelementptr i8, ptr %source, i64 %byte
  %v = load i64, ptr %at
  %sum1 = add i64 %sum, %v"""
    phi = "  %sum = phi i64 [ 0, %item ], [ %sum1, %step ]"
    return _loop(LINES, "", body, "  store i64 %sum1, ptr %target", phi)


def _elements_ir(lanes: int, way: str) -> str:
    """Vectors whose elements are loaded, or stored, a line apart, in the first cache."""
    vector = f"<{lanes} x float>"
    lines = ["  %some = and i64 %k, 7", "  %g0 = getelementptr float, ptr %source, i64 %some"]
    lines.append("  %t0 = getelementptr float, ptr %target, i64 %some")
    value = "poison"
    for n in range(lanes):
        if way == "gather":
            lines += [
                f"  %a{n} = getelementptr float, ptr %g0, i64 {n * 24}",
                f"  %e{n} = load float, ptr %a{n}",
                f"  %v{n} = insertelement {vector} {value}, float %e{n}, i64 {n}",
            ]
            value = f"%v{n}"
        else:
            lines += [
                f"  %e{n} = extractelement {vector} %sum, i64 {n}",
                f"  %a{n} = getelementptr float, ptr %t0, i64 {n * 24}",
                f"  store float %e{n}, ptr %a{n}",
            ]
    added = value if way == "gather" else "%sum"
    lines.append(f"  %sum1 = fadd {vector} %sum, {added}")
    phi = f"  %sum = phi {vector} [ zeroinitializer, %item ], [ %sum1, %step ]"
    return _loop(MANY, "", "\n".join(lines), f"  store {vector} %sum1, ptr %target", phi)


def _copies() -> tuple[float, float]:
    """Seconds an element of a table: of 48 columns a piece, in the order of both, and of 8 rows, which lie apart."""
    rows, columns = 768, 768
    x = Tensor.ones(rows, columns).contiguous().realize()
    found = []
    for shape, order in (
        ((rows, columns // 48, 48), (1, 0, 2)),
        ((rows // 8, 8, columns), (0, 2, 1)),
    ):
        step = TinyJit(lambda s=shape, o=order: x.reshape(s).permute(o).contiguous().realize())
        for _ in range(4):
            step()
        found.append(_best(step) / (rows * columns))
    return found[0], found[1]


def _launch(machine: CpuBackend, memory: list[Any]) -> float:
    """Seconds to call a kernel from Python that does nothing."""
    params = (dtypes.float32, dtypes.float32)
    source = Source("llvm", "limit", _kernel("  br label %next"), params, thread_size=1)
    launch = machine.load(machine.compile(source))
    return _best(lambda: [launch(memory) for _ in range(100)]) / 100


def _shares(machine: CpuBackend, memory: list[Any]) -> tuple[float, float]:
    """Seconds to hand out next to nothing: to threads that spin, and that sleep every tenth time."""
    ir = _kernel("  br label %next")
    library = machine.host.link(machine.object_code(ir), "limit")
    address, table = int(library["limit"]), (ctypes.c_void_p * 2)()

    def run() -> None:
        machine.threads.run(address, ctypes.addressof(table), ITEMS)

    spinning, times = _best(run), []
    for _ in range(50):
        time.sleep(0.005)
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    waking = sorted(times)[len(times) // 2]
    return spinning, 0.9 * spinning + 0.1 * waking


if __name__ == "__main__":
    taken: Any = Device["CPU"].target.core
    names = [field.name for field in fields(taken)]
    for name, value in measure().items():
        assert name in names, name
        print(f"{name:22} {value:9.2f}   the compiler takes {getattr(taken, name)}")
