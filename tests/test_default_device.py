"""The default device: what is asked for, else a GPU that answers and is tuned, else the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proofgrad import Device, Tensor
from proofgrad.backends import BUILT_IN, PREFERRED
from proofgrad.backends.ptx import runtime as ptx
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.machine.target import Backend, DeviceError

NAME = "STANDIN"


class StandIn(ReferenceBackend):
    """The reference machine, said to be a GPU on which schedules were measured."""

    name = NAME
    target = replace(ReferenceBackend.target, name=NAME, is_tuned=True)


class Untuned(StandIn):
    target = replace(StandIn.target, is_tuned=False)


class Printed(StandIn):
    target = replace(StandIn.target, runs=False)


def missing() -> Backend:
    warnings.warn("not wanted by anybody", stacklevel=2)
    raise DeviceError("the driver is too old")


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "_chosen", None)
    for name in (
        "DEV",
        "DEVICE",
        *Device.names(),
        *BUILT_IN,
        "CLANG",
        "LLVM",
        "GPU",
        "OPENCL",
        NAME,
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def prefer() -> Iterator[Callable[[Callable[[], Backend]], None]]:
    """Register a machine that may be the default, for one test."""
    yield lambda maker: Device.register(NAME, maker, is_preferred=True)
    for table in (Device._makers, Device._devices, Device._opened, Device._is_tuned):
        table.pop(NAME, None)
    Device._preferred[:] = [name for name in Device._preferred if name != NAME]


def test_gpu_that_answers_and_is_tuned_is_the_default(prefer: Callable[..., None]) -> None:
    prefer(StandIn)
    assert Device.DEFAULT == NAME
    x = Tensor([1.0, 2.0]) * 2
    assert (x.device, x.tolist()) == (NAME, [2.0, 4.0])


@pytest.mark.parametrize("maker", [Untuned, Printed, missing])
def test_gpu_that_is_not_tuned_or_does_not_answer_leaves_the_cpu(
    prefer: Callable[..., None], maker: Callable[[], Backend]
) -> None:
    prefer(maker)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Device.DEFAULT == "CPU"
    assert (Tensor([1.0]) + 1).tolist() == [2.0]
    assert NAME not in Device._devices  # asked for by name, it is opened with its warnings


def test_environment_goes_before_the_gpu_which_is_not_even_opened(
    prefer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    prefer(lambda: opened.append(NAME) or StandIn())  # type: ignore[func-returns-value]
    for name, value in (("DEV", "CPU"), ("CPU", "1")):
        monkeypatch.setenv(name, value)
        assert Device.DEFAULT == "CPU"
        monkeypatch.delenv(name)
    assert opened == []
    monkeypatch.setattr(Device, "_chosen", "REFERENCE")
    assert Device.DEFAULT == "REFERENCE"


def test_gpu_is_tried_once(prefer: Callable[..., None]) -> None:
    tried: list[str] = []

    def maker() -> Backend:
        tried.append(NAME)
        raise DeviceError("the driver is too old")

    prefer(maker)
    assert [Device.DEFAULT for _ in range(3)] == ["CPU"] * 3
    assert tried == [NAME]


def test_machine_that_is_preferred_says_on_what_it_was_measured() -> None:
    assert set(PREFERRED) == {"CUDA"} and ptx.TUNED == {90}
    assert Device._makers.keys() >= PREFERRED.keys()
    page = (Path(__file__).parents[1] / "docs" / "performance.md").read_text()
    assert "sm_90" in page


def test_emulated_gpu_is_never_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    emulated = EmulatedDriver(devices=1)
    assert not ptx.PTXBackend(Driver(emulated)).target.is_tuned
    monkeypatch.setattr(EmulatedDriver, "is_emulated", False)
    assert ptx.PTXBackend(Driver(emulated)).target.is_tuned


def test_a_tuple_of_one_device_is_that_device() -> None:
    names = (Device.DEFAULT,)
    there = Tensor([1.0], device=names) + Tensor.zeros(1, device=names)  # type: ignore[arg-type]
    assert there.device == Device.DEFAULT and there.to(names).uop is there.uop  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match=r"one device, and \('CPU', 'CPU'\) are 2"):
        Tensor([1.0], device=("CPU", "CPU"))  # type: ignore[arg-type]
