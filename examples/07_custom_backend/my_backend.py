"""A machine of one's own, as project 7 of a tinygrad course asks for: ctypes memory, a C compiler, ctypes calls.

Run: python examples/07_custom_backend/my_backend.py        (needs clang, gcc or cc)
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from proofgrad import Tensor
from proofgrad.device import Allocator, Compiled, Compiler, Device, Runner
from proofgrad.renderer.cstyle import CStyleLanguage


class MyAllocator(Allocator):
    """Part A: memory from ctypes."""

    def _alloc(self, size: int, options: Any = None) -> Any:
        return ctypes.create_string_buffer(size)

    def _free(self, buf: Any, options: Any = None) -> None:
        """Python frees it."""

    def copyin(self, dst: Any, src: memoryview) -> None:
        ctypes.memmove(dst, bytes(src), src.nbytes)

    def copyout(self, dst: memoryview, src: Any) -> None:
        dst[:] = memoryview(src).cast("B")[: dst.nbytes]


def c_compiler() -> str | None:
    """The path of a C compiler; None if there is none."""
    return shutil.which("clang") or shutil.which("gcc") or shutil.which("cc")


class MyCompiler(Compiler):
    """Part B: a C compiler as a subprocess; the bytes of a shared library."""

    def compile(self, src: str) -> bytes:
        command = c_compiler()
        if command is None:
            raise RuntimeError("no C compiler: install clang or gcc")
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "kernel.so"
            flags = ["-std=c11", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c", "-"]
            subprocess.run(
                [command, *flags, "-o", str(library), "-lm"], input=src.encode(), check=True
            )
            return library.read_bytes()


class MyRunner(Runner):
    """Part C: the library through ctypes; the loop over global_size in Python."""

    def __init__(self, name: str, lib: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as file:
            file.write(lib)
        self.function = getattr(ctypes.CDLL(file.name), name)
        Path(file.name).unlink()

    def __call__(self, *bufs: Any, global_size: Any, local_size: Any, wait: bool = False) -> None:
        for _ in product(*[range(n) for n in global_size]):
            self.function(*bufs)


class MyDevice(Compiled):
    """Part D: the parts put together."""

    def __init__(self, device: str) -> None:
        super().__init__(device, MyAllocator(), CStyleLanguage(), MyCompiler(), MyRunner)


def main() -> int:
    """Register the device and add two Tensors on it."""
    if c_compiler() is None:
        print("no C compiler here: install clang or gcc")
        return 0
    Device._devices["MY"] = MyDevice
    total = Tensor([1, 2, 3], device="MY") + Tensor([4, 5, 6], device="MY")
    print(total.device, total.tolist())
    return 0


if __name__ == "__main__":
    sys.exit(main())
