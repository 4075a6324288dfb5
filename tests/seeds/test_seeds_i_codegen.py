"""Seed lines I01 to I13: generated code, optimisation, search."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from seed_lines import debug_text, page, run_snippet, searched

from proofgrad import Device, Tensor
from proofgrad.core.compile.nests.kernel_schedule import Schedule
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run
from proofgrad.renderer.cstyle import CStyleLanguage


def kernel_text(tensor: Tensor, device: str) -> str:
    """The source of the one kernel of a Tensor, printed for a device that need not be here."""
    graph = compiler().kernel_graph(graph_to_run([tensor.uop], tensor.device))
    bodies = [call.src[0] for call in graph.src if call.src[0].src[0].op.name != "COPY"]
    assert len(bodies) == 1
    return "\n".join([source.text for source in compiler().sources(bodies[0], device)])


def test_I01_generated_code_adds_seven() -> None:
    """the kernel of `t + 3 + 4` adds 7, and can be read"""
    text = CStyleLanguage().render_tensor(Tensor([1, 2, 3, 4]).realize() + 3 + 4)
    assert text.count("+ 7") + text.count("+ 7u") >= 1
    assert re.search(r"void E_\w+\(int \*restrict data0, const int \*restrict data1\)", text)
    for number in ("3u", "4u", "+ 3", "+ 4"):
        assert number not in text
    assert "<4 x i32>" in kernel_text(Tensor([1, 2, 3, 4]).realize() + 3 + 4, "CPU") or "i32 7" in (
        kernel_text(Tensor([1, 2, 3, 4]).realize() + 3 + 4, "CPU")
    )


def test_I02_names_of_kernels_have_a_grammar() -> None:
    """`E_` for elementwise, `r_` for reductions, then sizes"""
    x = Tensor.randn(24, 50).realize()
    elementwise = debug_text(2, lambda: (x * 2).realize())
    reduction = debug_text(2, lambda: x.sum(axis=1).realize())
    assert re.search(r"\bE_\d+(_\d+)*\b", elementwise)
    assert re.search(r"\br_\d+(_\d+)*\b", reduction)


def test_I03_noopt_gives_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """`NOOPT=1`: a loop, no vectors"""
    t = Tensor([[1, 2, 3, 4], [5, 6, 7, 8]]).realize() + 3
    vectors = kernel_text(t, "CPU")
    monkeypatch.setenv("NOOPT", "1")
    plain = kernel_text(t, "CPU")
    assert re.search(r"<\d+ x i32>", vectors) and not re.search(r"<\d+ x ", plain)
    assert "phi" in plain  # the counter of a loop


def test_I04_roles_of_axes_can_be_seen() -> None:
    """upcast, unroll, group, local, global: the chosen roles are printed"""
    text = debug_text(4, lambda: (Tensor.randn(33, 40).realize() * 2).realize())
    assert re.search(r"for r\d+ < \d+ as (vector|upcast)\n", text)


def test_I05_opencl_text() -> None:
    """OpenCL C with get_global_id(0), `__global float*`; global and local sizes"""
    if "CL" not in Device.get_available_devices():
        pytest.skip("no OpenCL device compiles kernels here")
    text = kernel_text(Tensor.rand(1000).realize() + 1, "CL")
    assert "get_global_id(0)" in text
    assert re.search(
        r"kernel void \w+\(\s*global float \*data0,\s*global const float \*data1\)", text
    )


def test_I06_opencl_fuses() -> None:
    """`(x * 2 + 1).relu()` is one kernel"""
    if "CL" not in Device.get_available_devices():
        pytest.skip("no OpenCL device compiles kernels here")
    ran = run_snippet(
        """\
# TinyGrad operation
x = Tensor.rand(1000)
y = (x * 2 + 1).relu()
""",
        Tensor=Tensor,
    )
    ran["x"].realize()
    text = kernel_text(ran["y"], "CL")
    assert text.count("kernel void") == 1 and "2.0f" in text and "1.0f" in text


def test_I07_every_backend_prints_without_its_machine() -> None:
    """CLANG→C, CUDA→PTX, OpenCL; ours print without the hardware"""
    t = Tensor.rand(1000).realize() * 3
    assert "define" in kernel_text(t, "CPU")
    if "CL" in Device.get_available_devices():  # OpenCL C is made for a device that was asked
        assert "kernel void" in kernel_text(t, "CL")
    assert ".visible .entry" in kernel_text(t, "CUDA") or "ptx_kernel" in kernel_text(t, "CUDA")


def test_I08_search_is_not_slower() -> None:
    """BEAM=2; BEAM=0 against BEAM=4, and the tile that was chosen"""
    for width in (2, 4):
        text = searched(31, width)
        assert re.search(rf"BEAM={width} r_\w+: (keeps|takes) .*tile=\d+x\d+x\d+", text)
        gain = re.search(r"([\d.]+) times as fast", text)
        assert gain is None or float(gain[1]) > 1  # what wins is taken, else the default is kept


def test_I09_search_space_is_documented() -> None:
    """BEAM explores loop order, tiles, work-group sizes, unrolling, vector widths"""
    text = page("schedules.md")
    assert "BEAM" in text
    for choice in fields(Schedule):
        assert f"| `{choice.name}` |" in text


def test_I10_search_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """slow first run, fast after caching"""
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    assert re.search(r"\d+ timings in", searched(29, 2))
    compiler().forget()
    assert "timings of an earlier search" in searched(29, 2)


def test_I11_matmul_of_the_cpu_is_printed() -> None:
    """the kernel of a matrix product is printed"""
    printed = debug_text(
        3,
        lambda: run_snippet("""\
from tinygrad import Tensor
x = Tensor.randn(4, 43)
y = Tensor.randn(43, 4)
(x @ y).realize()
# Prints: actual C function that implements the matmul
"""),
        CLANG="1",
    )
    assert re.search(r"define .*@r_", printed)
    text = CStyleLanguage().render_tensor(
        Tensor.rand(4, 43).realize() @ Tensor.rand(43, 4).realize()
    )
    assert re.search(r"for \(\w+ i\d = 0; i\d < 43; i\d\+\+\)", text) and "*" in text


def test_I12_loops_of_reductions_are_visible() -> None:
    """the loops of a reduction can be seen"""
    text = CStyleLanguage().render_tensor(Tensor.rand(12, 345).realize().sum(axis=1))
    loops = re.findall(r"for \(\w+ \w+ = 0; \w+ < (\d+);", text)
    assert loops == ["12", "345"]
    assert re.search(r"float total0 = 0\.0f;", text)


def test_I13_every_kernel_is_compiled_here() -> None:
    """a kernel is compiled for every operation; no library of kernels is called"""
    from seed_lines import in_new_process

    code = (
        "import sys; from proofgrad import Tensor;"
        "(Tensor.rand(64, 64) @ Tensor.rand(64, 64)).realize();"
        "print([line.split()[-1] for line in open('/proc/self/maps') if 'blas' in line or 'mkl' in line])"
    )
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    assert in_new_process("-c", code, CHECK="0").strip() == "[]"
