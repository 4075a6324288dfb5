"""Kernels for an ARM processor, run by qemu: are their values right?

Usage: python tests/under_qemu.py [NAME]

Needs qemu-aarch64 and the binutils for aarch64 (Debian: qemu-user, binutils-aarch64-linux-gnu); no part of the test suite.
Each launch is a program of its own: the object code of a kernel, linked with a start that reads its buffers from standard
input and writes the first of them, its result, to standard output.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proofgrad import Device, Tensor, dtypes
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.generator import ENTRY
from proofgrad.backends.cpu.processors import processor_named
from proofgrad.core.compile.machine.target import Binary, Launch, Source

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-as", "aarch64-linux-gnu-ld")
READ, WRITE, EXIT = 63, 64, 93  # numbers of system calls of Linux on aarch64
CALL = ".globl sys\nsys:\n mov x8,x0\n mov x0,x1\n mov x1,x2\n mov x2,x3\n svc #0\n ret\n"
# What a kernel may ask of the C library, and buffers through standard input and output.
LIBRARY = """
@heap = internal global [33554432 x i8] zeroinitializer, align 64
@top = internal global i64 0
declare i64 @sys(i64, i64, i64, i64)
define ptr @malloc(i64 %n) {
  %from = load i64, ptr @top
  %to = add i64 %from, %n
  store i64 %to, ptr @top
  %p = getelementptr i8, ptr @heap, i64 %from
  ret ptr %p
}
define void @free(ptr %p) {
  ret void
}
define internal void @move(i64 %call, i64 %file, ptr %p, i64 %n) noinline {
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %j, %more ]
  %is_more = icmp ult i64 %i, %n
  br i1 %is_more, label %more, label %exit
more:
  %at = getelementptr i8, ptr %p, i64 %i
  %address = ptrtoint ptr %at to i64
  %left = sub i64 %n, %i
  %moved = call i64 @sys(i64 %call, i64 %file, i64 %address, i64 %left)
  %j = add i64 %i, %moved
  br label %look
exit:
  ret void
}
"""


class Emulated(AbsentCpu):
    """An ARM processor whose kernels run under qemu. Memory is bytes of this process."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(Host(processor=processor_named(name)), name, "")
        self.target = self.dialect.target = replace(self.target, runs=True)
        self.folder, self.kernels = folder, 0
        (folder / "sys.s").write_text(CALL)
        self._tool("aarch64-linux-gnu-as", "-o", "sys.o", "sys.s")

    def alloc(self, nbytes: int) -> Any:
        return bytearray(nbytes)

    def adopt(self, address: int, nbytes: int, keep: object) -> Any:
        return bytearray(ctypes.string_at(address, nbytes))

    def copyin(self, handle: Any, data: memoryview) -> None:
        handle[: data.nbytes] = data.cast("B") if data.nbytes else b""

    def copyout(self, data: memoryview, handle: Any) -> None:
        data.cast("B")[:] = handle[: data.nbytes]

    def load(self, binary: Binary) -> Launch:
        self.kernels += 1
        code, program = f"kernel{self.kernels}.o", f"./kernel{self.kernels}"
        (self.folder / code).write_bytes(binary.data)

        def launch(buffers: Sequence[Any]) -> None:
            start = _start(binary.source, [len(buffer) for buffer in buffers])
            (self.folder / "start.o").write_bytes(self.host.object_code(start))
            self._tool("aarch64-linux-gnu-ld", "-static", "-o", program, "start.o", code, "sys.o")
            given = b"".join([bytes(buffer) for buffer in buffers])
            buffers[0][:] = self._tool("qemu-aarch64", "-cpu", "max", program, given=given)

        return launch

    def _tool(self, *command: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            command, input=given, capture_output=True, cwd=self.folder, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr.decode()}")
        return done.stdout


def _start(source: Source, sizes: Sequence[int]) -> str:
    """The start of a program that runs a kernel; its items in two parts, the last part first."""
    names = [f"@buffer{k}" for k in range(len(sizes))]
    items = source.thread_size or 1
    parts = [(items // 2, items), (0, items // 2)] if items > 1 else [(0, items)]
    lines = [
        f"{name} = internal global [{max(1, size)} x i8] zeroinitializer, align 64"
        for name, size in zip(names, sizes, strict=True)
    ]
    table = ", ".join([f"ptr {name}" for name in names])
    lines += [f"@table = internal global [{len(names)} x ptr] [{table}]", LIBRARY]
    lines += [f"declare void @{ENTRY}(ptr, i64, i64)", "define void @_start() noreturn {"]
    for name, size in zip(names, sizes, strict=True):
        lines.append(f"  call void @move(i64 {READ}, i64 0, ptr {name}, i64 {size})")
    for first, last in parts:
        lines.append(f"  call void @{ENTRY}(ptr @table, i64 {first}, i64 {last})")
    lines += [
        f"  call void @move(i64 {WRITE}, i64 1, ptr {names[0]}, i64 {sizes[0]})",
        f"  %never = call i64 @sys(i64 {EXIT}, i64 0, i64 0, i64 0)",
        "  unreachable",
        "}",
    ]
    return "\n".join(lines)


Case = tuple[str, Callable[[], Tensor], Any, float]  # name, program, what numpy says, tolerance


def cases() -> Iterator[Case]:
    """The programs of test_cpu_target.py, odd products, all types, and every float16."""
    from test_cpu_target import PROGRAMS

    for name, (program, expected, tolerance) in PROGRAMS.items():
        if name != "long":  # 12 MB would take qemu long
            yield name, program, expected(), tolerance
    drawn = np.random.default_rng(1)
    for m, k, n in (
        (1, 1, 1),
        (2, 3, 5),
        (64, 64, 64),
        (31, 257, 129),
        (17, 300, 1000),
        (130, 33, 1),
    ):
        a, b = drawn.standard_normal((m, k)), drawn.standard_normal((k, n))
        a, b = a.astype(np.float32), b.astype(np.float32)
        yield f"{m}x{k}x{n}", lambda a=a, b=b: Tensor(a) @ Tensor(b), a @ b, 1e-3
        yield f"{m}x{k}x{n} turned", lambda a=a, b=b: Tensor(b).T @ Tensor(a).T, (a @ b).T, 1e-3
    for kind in [
        "float16",
        "float32",
        "float64",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "uint32",
        "uint64",
    ]:
        for n in (1, 7, 64, 65):
            x, y = [(drawn.standard_normal(n) * 40).astype(kind) for _ in range(2)]
            with np.errstate(all="ignore"):
                yield from _of_types(f"{kind} of {n}", x, y)
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    single = half[np.isfinite(half)].astype(np.float32)
    near = (single * np.float32(1.0003)).clip(-65504, 65504)
    yield "from float16", lambda: Tensor(half[np.isfinite(half)]).float(), single, 0.0
    yield (
        "to float16",
        lambda: Tensor(near).half().float(),
        near.astype(np.float16).astype(np.float32),
        0.0,
    )


def _of_types(name: str, x: Any, y: Any) -> Iterator[Case]:
    yield f"larger, {name}", lambda: Tensor(x).maximum(Tensor(y)), np.maximum(x, y), 0.0
    yield f"product, {name}", lambda: Tensor(x) * Tensor(y), x * y, 0.0
    yield f"less, {name}", lambda: Tensor(x) < Tensor(y), x < y, 0.0
    narrow = x.astype(np.float64).astype(np.float16)
    cast = lambda: Tensor(x).cast(dtypes.float64).half().float()  # noqa: E731
    yield f"cast, {name}", cast, narrow.astype(np.float32), 0.0
    if x.dtype.kind in "iu":
        y = np.where(y == 0, np.ones_like(y), y)
        yield f"quotient, {name}", lambda: Tensor(x) // Tensor(y), x // y, 0.0
        yield f"remainder, {name}", lambda: Tensor(x) % Tensor(y), x % y, 0.0


def main(name: str) -> int:
    """How many values were wrong."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"there is no {', '.join(missing)}: see the head of {__file__}")
    os.environ.update(PLANS="0", CHECK="0", NUM_THREADS="2")
    wrong = count = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROOFGRAD_CACHE"] = f"{folder}/cache"
        machine = Device._devices["CPU"] = Emulated(name, Path(folder))
        for title, program, expected, tolerance in cases():
            count += 1
            try:
                found = program().numpy()
                np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
            except (AssertionError, RuntimeError) as error:
                wrong += 1
                print(f"{title}: {error}")
    print(f"{name}: {count} programs, {machine.kernels} kernels, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1] if len(sys.argv) > 1 else "neoverse-n1")))
