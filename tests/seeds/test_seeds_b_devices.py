"""Seed lines B01 to B11: devices."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from seed_lines import differs, later, run_snippet

from proofgrad import Device, DeviceError, Tensor
from proofgrad.commands import doctor
from proofgrad.core.ir.ops import Ops

SPELLINGS = ("DEV", "DEVICE", "CPU", "CLANG", "LLVM", "CL", "GPU", "REFERENCE")


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device assigned and none asked for, as in a fresh process; given back after the test."""
    monkeypatch.setattr(Device, "_chosen", None)
    for name in SPELLINGS:
        monkeypatch.delenv(name, raising=False)


def second_device() -> str:
    """A device beside the CPU that runs on every machine."""
    return "REFERENCE"


def test_B01_default_device_is_a_name() -> None:
    """`Device.DEFAULT` is the name of an available device"""
    ran = run_snippet("""\
from tinygrad import Device

print(Device.DEFAULT)  # On Apple Silicon Mac: "METAL"
""")
    assert ran.printed[0] in Device.get_available_devices()


@later("kernels for GPUs are not tuned, so a GPU is used when asked for (DEV=) and not by itself")
def test_B02_best_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """the best device of the machine becomes the default"""
    a_gpu = SimpleNamespace(name="CUDA", target=SimpleNamespace(runs=True))
    monkeypatch.setitem(Device._devices, "CUDA", a_gpu)
    assert Device.DEFAULT == "CUDA"


def test_B03_default_device_can_be_assigned() -> None:
    """`Device.DEFAULT = "CPU"`; a wrong name is an error with a suggestion"""
    ran = run_snippet(
        """\
Device.DEFAULT = "CPU"
print(Device.DEFAULT)  # "CPU"
""",
        Device=Device,
    )
    assert ran.printed == ["CPU"]
    assert Tensor([1]).device == "CPU"
    with pytest.raises(DeviceError, match="did you mean CUDA"):
        Device.DEFAULT = "CUDDA"


def test_B04_tensors_stay_on_their_device() -> None:
    """`Tensor(..., device=)`: results stay there; mixing devices is a clear error"""
    ran = run_snippet(
        """\
# Available devices
from tinygrad.runtime.lib import Device

Device.DEFAULT = "CPU"  # or "CPU", "METAL", "CUDA", etc.

# Create tensors on different devices
x_cpu = Tensor([1, 2, 3], device="CPU")
x_gpu = Tensor([1, 2, 3], device=second)

# Operations stay on same device
y_gpu = x_gpu * 2  # Executes on GPU
""",
        Tensor=Tensor,
        second=second_device(),
    )
    assert ran["y_gpu"].device == ran["x_gpu"].device == second_device()
    assert ran["y_gpu"].tolist() == [2, 4, 6]
    with pytest.raises(DeviceError, match=r"CPU and REFERENCE.*\.to\('CPU'\)"):
        ran["x_cpu"] + ran["x_gpu"]


@pytest.mark.parametrize("spelling", ["CPU=1", "CLANG=1", "DEVICE=CLANG", "DEV=CPU"])
def test_B05_environment_chooses_the_device(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CPU=1`, `CLANG=1`, `DEVICE=CLANG`, `DEV=CPU` all mean the CPU"""
    monkeypatch.setattr(Device, "_makers", dict(reversed(Device._makers.items())))
    assert Device.DEFAULT != "CPU"  # unless it is asked for
    name, _, value = spelling.partition("=")
    monkeypatch.setenv(name, value)
    assert Device.DEFAULT == "CPU"


def test_B06_environment_counts_when_set_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.environ['CLANG'] = '1'` before or after the import"""
    monkeypatch.setenv("CLANG", "")  # so that it is restored after the test
    monkeypatch.setenv("REF", "")
    run_snippet("""\
import os
os.environ['CLANG'] = '1'    # use CPU backend to see readable C

from tinygrad import Tensor
""")
    assert Device.DEFAULT == "CPU"
    os.environ["CLANG"], os.environ["REF"] = "0", "1"
    assert Device.DEFAULT == "REFERENCE"


def test_B07_names_of_devices_are_known() -> None:
    """METAL, CUDA, CPU, GPU, CLANG, LLVM, ...: ours, an alias, or a clear refusal"""
    aliases = {
        "CLANG": "CPU",
        "LLVM": "CPU",
        "GPU": "CL",
        "OPENCL": "CL",
        "NV": "CUDA",
        "cpu": "CPU",
    }
    for name, ours in aliases.items():
        assert Device.canonical(name) == ours
    assert Device.canonical("PYTHON") == "PYTHON"
    assert Device.canonical("HIP") == "AMD"
    for name in ("METAL", "WEBGPU", "AMD"):
        assert Device.canonical(name) == name
    for name in ("QCOM", "HSA"):
        with pytest.raises(
            DeviceError, match="not built here; provided: CPU, CL, CUDA, WEBGPU, AMD"
        ):
            Device.canonical(name)


def test_B08_lists_live_on_the_python_device_first() -> None:
    """a host-data node on device PYTHON and a COPY to the device"""
    node = Tensor([1, 2, 3, 4]).uop
    assert node.op is Ops.COPY
    buffer = node.src[0]
    assert buffer.op is Ops.BUFFER and buffer.arg == 4
    assert [part.op for part in buffer.src] == [Ops.UNIQUE, Ops.DEVICE]
    assert buffer.src[1].arg == "PYTHON"


@pytest.mark.long
def test_B09_doctor_says_which_devices_work() -> None:
    """a table of devices: CPU, OpenCL, CUDA"""
    rows = doctor().splitlines()
    for name in ("CPU", "CL", "CUDA", "REFERENCE"):
        assert any(row.startswith(f"device {name} ") for row in rows)
    assert any(row.startswith("device CPU ") and row.endswith(" available") for row in rows)


def test_B10_same_code_runs_on_every_device() -> None:
    """the same code on every device"""
    results: dict[str, Any] = {}
    for name in Device.get_available_devices():
        x = Tensor([[1.5, -2.0, 0.25], [3.0, 4.0, -5.0]], device=name)
        results[name] = ((x.relu() + 1) @ x.T).max(axis=0).tolist()
    assert {"CPU", "REFERENCE"} <= results.keys()
    assert results == dict.fromkeys(results, results["CPU"])
    assert results["CPU"] == [2.0625, 27.0]


@differs("D-17", "a Device is asked for by name; it is no class of numbers")
def test_B11_old_home_of_device_still_imports() -> None:
    """`from tinygrad.runtime.lib import Device`, `class Device: CPU, GPU, ... = range(6)`"""
    ran = run_snippet("from tinygrad.runtime.lib import Device")
    assert ran["Device"] is Device
    assert not hasattr(Device, "METAL")
