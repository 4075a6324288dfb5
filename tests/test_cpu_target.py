"""CPU_TARGET: kernels for processors by name, here or not: code is made for each, and values are right where it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Device, Tensor, TinyJit, dtypes
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.cpu.processors import KNOWN, processor_named
from proofgrad.core.compile.machine.target import DeviceError
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

X86 = ("x86-64-v2", "haswell", "skylake-avx512", "znver4")
ARM = ("apple-m1", "neoverse-n1")
OF_X86 = re.compile(r"%[xyz]mm\d|%r[abcds][xi]\b")
OF_ARM = re.compile(r"\b[vq]\d+\.?|\bfmla")


@contextmanager
def cpu(name: str) -> Iterator[Any]:
    """The device of a processor, with which Tensors are compiled meanwhile."""
    usual = Device["CPU"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPU_TARGET", name)
        patch.setenv("PLANS", "0")
        patch.delitem(Device._devices, "CPU")
        compiler().forget()
        try:
            yield Device["CPU"]
        finally:
            if isinstance(Device["CPU"], CpuBackend):
                Device["CPU"].threads.stop()
            compiler().forget()
            patch.setitem(Device._devices, "CPU", usual)


@contextmanager
def running(name: str) -> Iterator[Any]:
    """The device of a processor, for who computes with it; where it cannot, the test is skipped."""
    with cpu(name) as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.missing}")
        yield machine


def array(*shape: int, kind: type = np.float32) -> Any:
    drawn = np.random.default_rng(sum(shape)).standard_normal(shape)
    return (drawn if kind in (np.float32, np.float16) else drawn * 100).astype(kind)


def convolution(image: Any, weights: Any) -> Any:
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, weights)


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def embedding_gradient() -> Tensor:
    positions = Tensor((np.arange(301) * 7 % 53).astype(np.int32))
    weights = Tensor(np.zeros((53, 17), np.float32)).requires_grad_()
    (weights[positions] * Tensor(array(301, 17))).sum().backward()
    assert weights.grad is not None
    return weights.grad


def summed_by_position() -> Any:
    total = np.zeros((53, 17), np.float32)
    np.add.at(total, np.arange(301) * 7 % 53, array(301, 17))
    return total


A, B, ROW = array(37, 129), array(129, 67), array(33, 1001)
IMAGE, WEIGHTS = array(2, 5, 13, 11), array(7, 5, 3, 3)
INTS, DIVISORS = array(1013, kind=np.int32), array(1013, kind=np.int32) % 7
# A program, what numpy says, and how far apart they may be, for the order of sums and ULPs of functions.
PROGRAMS: dict[str, tuple[Callable[[], Tensor], Callable[[], Any], float]] = {
    "product": (lambda: Tensor(A) @ Tensor(B), lambda: A @ B, 1e-4),
    "large product": (lambda: Tensor(ROW) @ Tensor(ROW.T.copy()), lambda: ROW @ ROW.T, 1e-3),
    "product of float64": (lambda: Tensor(A.astype(np.float64)) @ Tensor(B.astype(np.float64)),
                           lambda: A.astype(np.float64) @ B, 1e-12),
    "convolution": (lambda: Tensor(IMAGE).conv2d(Tensor(WEIGHTS), padding=1), lambda: convolution(IMAGE, WEIGHTS), 1e-4),
    "softmax": (lambda: Tensor(ROW).softmax(), lambda: softmax(ROW), 1e-6),
    "sums of rows": (lambda: Tensor(ROW).sum(0), lambda: ROW.sum(0), 1e-4),
    "sum": (lambda: Tensor(ROW).sum(), lambda: ROW.sum(dtype=np.float64), 1e-2),
    "half": (lambda: (Tensor(ROW).cast(dtypes.half) * 3).cast(dtypes.float32),
             lambda: (ROW.astype(np.float16) * np.float16(3)).astype(np.float32), 0.0),
    "product of half": (lambda: (Tensor(A).half() @ Tensor(B).half()).float(),
                        lambda: (A.astype(np.float16).astype(np.float32) @ B.astype(np.float16).astype(np.float32)), 0.05),
    "bfloat16": (lambda: (Tensor(INTS % 128).cast(dtypes.bfloat16) + 1).cast(dtypes.int32), lambda: INTS % 128 + 1, 0.0),
    "embedding gradient": (embedding_gradient, summed_by_position, 1e-4),
    "integer division": (lambda: Tensor(INTS) // Tensor(DIVISORS + 1), lambda: INTS // (DIVISORS + 1), 0.0),
    "remainder": (lambda: Tensor(INTS) % -7, lambda: INTS % -7, 0.0),
    "largest": (lambda: Tensor(ROW).max(1), lambda: ROW.max(1), 0.0),
    "functions": (lambda: Tensor(ROW).sin() + Tensor(ROW).abs().log(), lambda: np.sin(ROW) + np.log(np.abs(ROW)), 1e-5),
    "truths": (lambda: (Tensor(ROW) > 0).any(1), lambda: (ROW > 0).any(1), 0.0),
    "transposed": (lambda: Tensor(ROW).transpose().contiguous(), lambda: ROW.T, 0.0),
    "long": (lambda: Tensor(np.arange(3_000_001, dtype=np.float32)) + 1, lambda: np.arange(1.0, 3_000_002), 0.0),
}  # fmt: skip


def texts(value: Tensor, machine: Any) -> list[str]:
    """The assembly of the kernels of a value, all of them made into object code too."""
    graph = compiler().kernel_graph(UOp.sink(value.uop).replace(arg="CPU"))
    found = []
    for call in graph.src:
        if call.src[0].src[0].op is Ops.COPY:
            continue
        for source in compiler().sources(call.src[0], "CPU"):
            assert len(machine.compile(source).data) > 100
            found.append(machine.assembly(source))
    return found


def test_native_is_the_machine_that_is_here() -> None:
    with cpu("") as machine:
        unnamed = machine.target
    with cpu("native") as here:
        assert here.target == unnamed
        assert (Tensor([1.5]) + 1).tolist() == [2.5]


@pytest.mark.parametrize("name", [*X86, *ARM])
def test_code_is_made_of_the_instructions_of_each_and_runs_where_they_are(name: str) -> None:
    own, other = (OF_X86, OF_ARM) if name in X86 else (OF_ARM, OF_X86)
    with cpu(name) as machine:
        for title, (program, expected, tolerance) in PROGRAMS.items():
            value = program()
            assembly = "\n".join(texts(value, machine))
            assert own.search(assembly) and not other.search(assembly), title
            assert ("%zmm" in assembly) <= (name in ("skylake-avx512", "znver4"))
            assert ("%ymm" in assembly) <= (name not in ("x86-64-v2", *ARM))
            if machine.target.runs:
                np.testing.assert_allclose(
                    value.numpy(), expected(), rtol=tolerance, atol=tolerance, err_msg=title
                )
            else:
                with pytest.raises(DeviceError, match=f"CPU_TARGET={name}.*this machine"):
                    value.numpy()


@pytest.mark.parametrize(("name", "instruction"), [
    ("haswell", "vfmadd"), ("skylake-avx512", "vfmadd"), ("znver4", "vfmadd"), ("x86-64-v2", "mulps"),
    ("apple-m1", "fmla"), ("neoverse-n1", "fmla")])  # fmt: skip
def test_products_are_made_of_multiply_adds_where_there_are(name: str, instruction: str) -> None:
    with cpu(name) as machine:
        assembly = "\n".join(texts(PROGRAMS["large product"][0](), machine))
        assert instruction in assembly
        assert ("vfmadd" in assembly) is (machine.target.has_fma and name in X86)


@pytest.mark.parametrize(
    ("name", "vector_bytes", "registers", "line", "page"),
    [
        ("x86-64-v2", 16, 16, 64, 4096),
        ("haswell", 32, 16, 64, 4096),
        ("znver4", 64, 32, 64, 4096),
        ("apple-m1", 16, 32, 128, 16384),
        ("cortex-a72", 16, 32, 64, 4096),
    ],
)
def test_the_target_is_that_of_the_processor(
    name: str,
    vector_bytes: int,
    registers: int,
    line: int,
    page: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NUM_THREADS", raising=False)
    with cpu(name) as machine:
        target = machine.target
        assert (target.vector_bytes, target.vector_registers) == (vector_bytes, registers)
        assert (target.first_cache.line_bytes, target.page_bytes) == (line, page)
        if name in KNOWN:
            assert target.threads == KNOWN[name].cores
            assert target.cache_bytes == KNOWN[name].cache_bytes
            masks = 0 if name == "znver4" else registers
            assert target.core == KNOWN[name].as_used(vector_bytes, masks).core


def test_a_core_that_takes_long_vectors_in_halves_takes_short_ones_whole() -> None:
    """Ryzen 9 7950X, and the same where a virtual machine hides its vectors of 64 bytes."""
    long, short = KNOWN["znver4"].as_used(64, 0).core, KNOWN["znver4"].as_used(32, 16).core
    assert (long.multiply_adds_a_cycle, long.loads_a_cycle, long.mask_registers) == (1, 1, 7)
    assert (short.multiply_adds_a_cycle, short.loads_a_cycle, short.mask_registers) == (2, 2, 16)
    assert KNOWN["cortex-a72"].as_used(16, 32).core.loads_a_cycle == 1


def test_every_zen_foresees_as_many_pages_as_those_that_were_measured() -> None:
    zen = {name: memory.core.foreseen_pages for name, memory in KNOWN.items() if "znver" in name}
    assert set(zen) == {f"znver{k}" for k in range(1, 6)} and set(zen.values()) == {16}
    assert KNOWN["skylake-avx512"].core.foreseen_pages == 32


def test_every_known_name_is_one_of_llvm() -> None:
    for name in KNOWN:
        assert processor_named(name).name == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("haswel", "did you mean haswell"),
        ("apple-m11", "apple-m1"),
        ("i386", "64-bit code"),
        ("x", "LLVM knows"),
    ],
)
def test_a_name_that_no_code_is_made_for_is_refused_at_once(name: str, said: str) -> None:
    with pytest.raises(DeviceError, match=f"CPU_TARGET='{name}'.*{said}"):
        processor_named(name)


def test_a_processor_that_is_not_here_says_which_instructions_are_missing() -> None:
    with cpu("sapphirerapids") as machine:
        if machine.target.runs:
            pytest.skip("this machine is one")
        assert isinstance(machine, AbsentCpu) and "CPU" not in Device.get_available_devices()
        x = Tensor([1.0, 2.0])
        step = TinyJit(lambda: (x + 1).realize())
        for _ in range(3):
            value = step()
        for read in (Tensor.tolist, Tensor.numpy, np.from_dlpack, np.asarray):
            with pytest.raises(DeviceError, match=r"lacks .*amx-tile|instructions of"):
                read(value)


@pytest.mark.parametrize("check", [0, 1])
def test_code_for_a_processor_that_is_not_here_reads_parts_of_memory(check: int) -> None:
    with cpu("apple-m1"), Context(CHECK=check):
        x = Tensor(np.arange(48, dtype=np.float32).reshape(12, 4)).realize()
        step = TinyJit(lambda rows: (rows * 2).realize())
        for begin in (3, 4, 5):
            value = step(x[begin : begin + 2].contiguous())
        with pytest.raises(DeviceError, match="no value was computed"):
            value.tolist()


SCRIPT = """
from proofgrad import Tensor
import numpy as np
a = np.arange(37 * 41, dtype=np.float32).reshape(37, 41) % 7
print(((Tensor(a) @ Tensor(a.T.copy())).numpy() == a @ a.T).all())
"""


def run(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PROOFGRAD_CACHE": str(folder),
        "PLANS": "1",
        "CHECK": "0",
        **settings,
    }
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )


def kept(folder: Path, kind: str) -> set[str]:
    return {path.name for path in (folder / kind).rglob("*") if path.is_file()}


@pytest.mark.long
def test_what_is_kept_on_disk_is_each_processors_own(tmp_path: Path) -> None:
    names = ["haswell", "apple-m1", ""]
    before: dict[str, set[str]] = {"cpu": set(), "plans": set()}
    for again in (False, True):
        for name in names:
            done = run(tmp_path, CPU_TARGET=name)
            runs = not name or not processor_named(name).missing
            assert done.stdout == ("True\n" if runs else ""), done.stderr
            for kind, known in before.items():
                files = kept(tmp_path, kind)
                assert known <= files and (files == known) is again, (kind, name)
                before[kind] = files


def test_a_wrong_name_ends_a_script_with_near_ones(tmp_path: Path) -> None:
    done = run(tmp_path, CPU_TARGET="hasswell")
    assert done.returncode == 1 and "did you mean haswell" in done.stderr
