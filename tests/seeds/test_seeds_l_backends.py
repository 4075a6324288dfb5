"""Seed lines L01 to L12: a backend of one's own."""

from __future__ import annotations

import ctypes
import inspect
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from seed_lines import ROOT, my_backend, page, run_snippet

from proofgrad import Device, Ops, Tensor

SKELETON = """\
# my_backend.py - minimal custom backend skeleton

from tinygrad.device import Compiled, Allocator, Compiler, Runner
from tinygrad.renderer.cstyle import CStyleLanguage

class MyAllocator(Allocator):
    def _alloc(self, size: int, options):
        # Allocate `size` bytes on your device
        # Return a handle (pointer, buffer object, etc.)
        ...

    def _free(self, buf, options):
        # Free the buffer
        ...

    def copyin(self, dst, src: memoryview):
        # Copy from host (numpy array) to device buffer
        ...

    def copyout(self, dst: memoryview, src):
        # Copy from device buffer to host (numpy array)
        ...

class MyCompiler(Compiler):
    def compile(self, src: str) -> bytes:
        # src is the generated C/kernel source as a string
        # Compile it to binary and return bytes
        ...

class MyRunner(Runner):
    def __init__(self, name: str, lib: bytes):
        # Load the compiled binary
        ...

    def __call__(self, *bufs, global_size, local_size, wait=False):
        # Execute the kernel with given buffers and launch dimensions
        ...

class MyDevice(Compiled):
    def __init__(self, device: str):
        super().__init__(
            device,
            MyAllocator(),
            CStyleLanguage(),   # reuse the C code generator
            MyCompiler(),
            MyRunner,
        )

# Register the device:
from tinygrad.device import Device
Device._devices["MYDEVICE"] = MyDevice
"""


@pytest.fixture(autouse=True)
def devices_as_before() -> Iterator[None]:
    """The registry is given back after each test."""
    before = dict(Device._devices)
    yield
    Device._devices.clear()
    Device._devices.update(before)


@pytest.fixture
def example() -> ModuleType:
    return my_backend()


def test_L01_three_parts() -> None:
    """Allocator, Compiler, Runner: abstract classes; the skeleton runs as printed"""
    ran = run_snippet(SKELETON)
    for name in ("Allocator", "Compiler", "Runner"):
        assert inspect.isabstract(ran[name]) and not inspect.isabstract(ran[f"My{name}"])


def test_L02_allocator() -> None:
    """`_alloc(size, options)`, `_free`, `copyin`, `copyout`; also `_alloc(size)` without options"""
    from proofgrad.device import Allocator, Compiled

    calls: list[Any] = []

    class Plain(Allocator):
        def _alloc(self, size: int) -> Any:  # type: ignore[override]
            return bytearray(size)

        def _free(self, buf: Any) -> None:  # type: ignore[override]
            calls.append(len(buf))

        def copyin(self, dst: Any, src: memoryview) -> None:
            dst[: src.nbytes] = src

        def copyout(self, dst: memoryview, src: Any) -> None:
            dst[:] = src[: dst.nbytes]

    language = run_snippet(SKELETON)["CStyleLanguage"]()
    backend = Compiled("MY", Plain(), language, None, None)  # type: ignore[arg-type]
    handle, out = backend.alloc(4), bytearray(4)
    backend.copyin(handle, memoryview(b"abcd"))
    backend.copyout(memoryview(out), handle)
    assert out == b"abcd"
    del handle
    assert calls == [4]


def test_L03_compiler(example: ModuleType) -> None:
    """`Compiler.compile(src: str) -> bytes`"""
    lib = example.MyCompiler().compile("void kernel(float* a) { a[0] = 42.0f; }")
    assert isinstance(lib, bytes) and len(lib) > 100


def test_L04_runner(example: ModuleType) -> None:
    """`Runner(name, lib)`, called with buffers, global_size, local_size, wait"""
    lib = example.MyCompiler().compile("void kernel(float* a) { a[0] = 42.0f; }")
    memory = (ctypes.c_float * 1)()
    example.MyRunner("kernel", lib)(memory, global_size=(1, 1, 1), local_size=(1, 1, 1), wait=True)
    assert memory[0] == 42.0


def test_L05_compiled() -> None:
    """`Compiled(device, allocator, renderer, compiler, runtime)`, by position"""
    device = run_snippet(SKELETON)["MyDevice"]("MYDEVICE")
    assert device.name == "MYDEVICE" and type(device.renderer).__name__ == "CStyleLanguage"


def test_L06_c_is_printed(tmp_path: Path) -> None:
    """`CStyleLanguage()` without arguments prints C that a C compiler takes"""
    ran = run_snippet(
        "from tinygrad.renderer.cstyle import CStyleLanguage\nlanguage = CStyleLanguage()"
    )
    product = Tensor.rand(10, 20).realize() @ Tensor.rand(20, 3).realize()
    text = ran["language"].render_tensor(product.exp())
    assert "void r_" in text
    compiler = shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    file = tmp_path / "kernel.c"
    file.write_text(text)
    done = subprocess.run(
        [compiler, "-std=c11", "-Wall", "-Werror", "-Wno-unused-function", "-fsyntax-only", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr + text


def test_L07_registration() -> None:
    """`Device._devices["MYDEVICE"] = MyDevice`; also `Device.register`"""
    ran = run_snippet(SKELETON)
    assert Device["MYDEVICE"].name == "MYDEVICE"
    assert isinstance(Device["MYDEVICE"], ran["MyDevice"])
    assert Device["MYDEVICE"] is Device["mydevice"]


def test_L08_sum_on_ones_own_device(example: ModuleType) -> None:
    """`Tensor([1,2,3], device="MY") + Tensor([4,5,6], device="MY")` is [5,7,9]"""
    Device._devices["MY"] = example.MyDevice
    ran = run_snippet("""\
from tinygrad import Tensor
total = Tensor([1,2,3], device="MY") + Tensor([4,5,6], device="MY")
print(total.tolist())
""")
    assert ran.printed == ["[5, 7, 9]"] and ran["total"].device == "MY"


def test_L09_runner_loops_in_python(example: ModuleType) -> None:
    """the runner may loop over global_size in Python: a kernel has its loops, so it runs once"""
    sizes: list[Any] = []

    class Counting(example.MyRunner):  # type: ignore[misc, name-defined]
        def __call__(
            self, *bufs: Any, global_size: Any, local_size: Any, wait: bool = False
        ) -> None:
            sizes.append((global_size, local_size))
            super().__call__(*bufs, global_size=global_size, local_size=local_size, wait=wait)

    class Counted(example.MyDevice):  # type: ignore[misc, name-defined]
        def __init__(self, device: str) -> None:
            super().__init__(device)
            self.runtime = Counting

    Device._devices["MY"] = Counted
    x = Tensor(np.arange(12, dtype=np.float32), device="MY")
    assert (x * 2).sum().item() == 132.0
    assert sizes == [((1, 1, 1), (1, 1, 1))]


def test_L10_clang_as_a_subprocess(example: ModuleType) -> None:
    """compile with clang (or another C compiler), load with ctypes: an example that runs"""
    text = (ROOT / "examples/07_custom_backend/my_backend.py").read_text()
    assert 'shutil.which("clang")' in text and "ctypes.CDLL" in text
    Device._devices["MY"] = example.MyDevice
    a = np.random.default_rng(0).normal(size=(8, 8)).astype("f")
    x = Tensor(a, device="MY")
    np.testing.assert_allclose((x @ x).softmax().numpy(), (Tensor(a) @ Tensor(a)).softmax().numpy(),
                               rtol=1e-5, atol=1e-6)  # fmt: skip


def test_L11_backends_have_a_checklist() -> None:
    """a checklist that any backend can run: `python -m proofgrad.testing.backend NAME`"""
    run_snippet("import tinygrad.testing.backend")


def test_L12_operations_that_a_machine_must_support() -> None:
    """which operations an accelerator must support: a table for each backend"""
    text = page("ops.md")
    for backend in ("CPU", "CL", "CUDA", "REFERENCE"):
        assert backend in text
    assert all(f"`{op.name}`" in text for op in Ops)
    assert "CPU" in Device.names()
