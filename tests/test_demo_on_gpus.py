"""The demo's kernels on the machines with work items: run by OpenCL and by an emulated GPU, assembled for CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from devices import opened

from proofgrad import demo
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.runtime import PTXBackend
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


@pytest.mark.long
def test_one_epoch_on_opencl_learns_most_digits(default_device: None) -> None:
    Device.DEFAULT = opened("CL")
    outcome = demo.train(demo.load_digits(), 1, lambda epoch, loss: None)
    assert outcome.accuracy > 0.8


@pytest.mark.long
def test_steps_of_training_on_an_emulated_gpu_are_those_of_the_cpu(default_device: None) -> None:
    """The text that is printed for a GPU, run by the runtime that talks to the driver."""
    api = EmulatedDriver()
    machine = PTXBackend(Driver(api))
    Device.register("EMULATED", lambda: machine)
    digits = demo.load_digits()
    few = replace(
        digits,
        train_images=digits.train_images[:200],
        train_labels=digits.train_labels[:200],
        test_images=digits.test_images[:50],
        test_labels=digits.test_labels[:50],
    )
    outcomes = []
    for name in ("CPU", "EMULATED"):
        Device.DEFAULT = name
        outcomes.append(demo.train(few, 1, lambda epoch, loss: None))
    first, second = outcomes
    assert len(second.losses) == 3
    assert api.launches > 100
    assert max(abs(a - b) for a, b in zip(first.losses, second.losses)) < 1e-3


EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("00_intro.py", "at 2 = 7.0"),
        ("03_autograd.py", "[2.5, 0.245, 0.005, 0.405, 2.0]"),
        ("custom_activation.py", "derivatives [1.0, 1.0, 0.75, 12.0]"),
        ("fit_line.py", "y = 3.0 x -1.0"),
    ],
)
def test_example_runs_on_an_emulated_gpu(script: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "MOCKGPU": "1", "DEV": "CUDA"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert printed in done.stdout
