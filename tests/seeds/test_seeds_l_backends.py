"""Seed lines L01 to L12: a backend of one's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from seed_lines import later, page, run_snippet

from proofgrad import Device, Ops, Tensor

INTERFACE = "a backend of one's own through Allocator, Compiler and Runner"


@later(INTERFACE)
def test_L01_three_parts() -> None:
    """Allocator, Compiler, Runner"""
    run_snippet("from tinygrad.device import Compiled, Allocator, Compiler, Runner")


@later(INTERFACE)
def test_L02_allocator() -> None:
    """`_alloc(size, options)`, `_free`, `copyin`, `copyout`"""
    run_snippet("""\
from tinygrad.device import Allocator
class MyAllocator(Allocator):
    def _alloc(self, size: int, options): ...
    def _free(self, buf, options): ...
    def copyin(self, dst, src: memoryview): ...
    def copyout(self, dst: memoryview, src): ...
""")


@later(INTERFACE)
def test_L03_compiler() -> None:
    """`Compiler.compile(src: str) -> bytes`"""
    run_snippet("from tinygrad.device import Compiler")


@later(INTERFACE)
def test_L04_runner() -> None:
    """`Runner(name, lib)`, called with buffers, global_size, local_size"""
    run_snippet("from tinygrad.device import Runner")


@later(INTERFACE)
def test_L05_compiled() -> None:
    """`Compiled(device, allocator, renderer, compiler, runtime)`"""
    run_snippet("from tinygrad.device import Compiled")


def test_L06_c_is_printed(tmp_path: Path) -> None:
    """`CStyleLanguage()` without arguments prints C that a C compiler takes"""
    ran = run_snippet(
        "from tinygrad.renderer.cstyle import CStyleLanguage\nlanguage = CStyleLanguage()"
    )
    text = ran["language"].render_tensor(
        (Tensor.rand(10, 20).realize() @ Tensor.rand(20, 3).realize()).exp()
    )
    assert "void r_" in text
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    file = tmp_path / "kernel.c"
    file.write_text(text)
    done = subprocess.run(
        [compiler, "-std=c11", "-Wall", "-Werror", "-Wno-unused-function", "-fsyntax-only", file],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + text


@later(INTERFACE)
def test_L07_registration() -> None:
    """`Device._devices["MYDEVICE"] = MyDevice`"""
    run_snippet(
        "from tinygrad.device import Device, Compiled\nDevice._devices['MYDEVICE'] = Compiled"
    )


@later(INTERFACE)
def test_L08_sum_on_ones_own_device() -> None:
    """`Tensor([1,2,3], device="MY") + Tensor([4,5,6], device="MY")` is [5,7,9]"""
    run_snippet("""\
from tinygrad import Tensor
print((Tensor([1,2,3], device="MY") + Tensor([4,5,6], device="MY")).tolist())
""")


@later(INTERFACE)
def test_L09_runner_loops_in_python() -> None:
    """the runner may loop over global_size in Python"""
    run_snippet("from tinygrad.device import Runner")


@later(INTERFACE)
def test_L10_clang_as_a_subprocess() -> None:
    """compile with clang, load with ctypes"""
    run_snippet("from tinygrad.device import Compiler")


def test_L11_backends_have_a_checklist() -> None:
    """a checklist that any backend can run"""
    run_snippet("import tinygrad.testing.backend")


@later("a page that is not written yet")
def test_L12_operations_that_a_machine_must_support() -> None:
    """which operations an accelerator must support: a table for each backend"""
    text = page("ops.md")
    for backend in ("CPU", "CL", "CUDA", "REFERENCE"):
        assert backend in text
    assert all(f"`{op.name}`" in text for op in Ops)
    assert "CPU" in Device.names()
