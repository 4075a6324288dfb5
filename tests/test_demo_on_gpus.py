"""The demo's kernels on the machines with work items: run by OpenCL, assembled for CUDA."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proofgrad import demo
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.machine import target
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.device import Device

PTXAS = shutil.which("ptxas")


class RecordingPTX(PTXBackend):
    """The machine without a GPU, keeping what it printed."""

    def __init__(self) -> None:
        super().__init__(None, "no GPU in this test")
        self.sources: list[Source] = []

    def emit(self, linear: UOp, name: str) -> Source:
        self.sources.append(super().emit(linear, name))
        return self.sources[-1]


@pytest.fixture
def default_device() -> Iterator[None]:
    """Puts the default device back after a test."""
    before = Device.DEFAULT
    yield
    Device.DEFAULT = before


@pytest.fixture
def printed(default_device: None) -> list[Source]:
    """Every kernel of the demo as PTX: of a training step, and of the measurement after it."""
    machine = RecordingPTX()
    Device.register("RECORDED", lambda: machine)
    Device.DEFAULT = "RECORDED"
    demo.compile_kernels(demo.load_digits())
    return machine.sources


@pytest.mark.skipif(PTXAS is None, reason="ptxas, of the CUDA toolkit, is not on the PATH")
def test_every_kernel_of_the_demo_assembles(printed: list[Source], tmp_path: Path) -> None:
    assert len(printed) > 50
    refused = []
    for source in printed:
        path = tmp_path / "kernel.ptx"
        path.write_text(source.text)
        command = ["ptxas", "-arch=sm_90", str(path), "-o", str(tmp_path / "kernel.cubin")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        refused += [f"{source.entry}: {result.stderr}"] if result.returncode else []
    assert refused == []


def test_one_epoch_on_opencl_learns_most_digits(default_device: None) -> None:
    try:
        Device["CL"]
    except target.DeviceError as error:
        pytest.skip(f"no OpenCL here: {error}")
    Device.DEFAULT = "CL"
    outcome = demo.train(demo.load_digits(), 1, lambda epoch, loss: None)
    assert outcome.accuracy > 0.8
