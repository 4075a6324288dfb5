"""The contract of backends: what one must have, what it may leave out, and what is said of that."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugins import BARE, install

from proofgrad import Device, Tensor, TinyJit
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.machine.target import (
    LOST_WITHOUT,
    OF_SOME,
    REQUIRED,
    Backend,
    Binary,
    CompileError,
    DeviceError,
    Launch,
    Source,
    Target,
    completed,
    left_out,
)
from proofgrad.core.ir.uop import UOp
from proofgrad.testing import backend as conformance

ROOT = Path(__file__).resolve().parents[1]


class Small(Backend):
    """Has what is required, and inherits the rest."""

    name = "SMALL"
    target = Target(name, arithmetic=ReferenceBackend.target.arithmetic)

    def __init__(self) -> None:
        self.machine = ReferenceBackend()

    def emit(self, linear: UOp, name: str) -> Source:
        return self.machine.emit(linear, name)

    def compile(self, source: Source) -> Binary:
        return self.machine.compile(source)

    def load(self, binary: Binary) -> Launch:
        return self.machine.load(binary)

    def alloc(self, nbytes: int) -> Any:
        return self.machine.alloc(nbytes)

    def copyin(self, handle: Any, data: memoryview) -> None:
        self.machine.copyin(handle, data)

    def copyout(self, data: memoryview, handle: Any) -> None:
        self.machine.copyout(data, handle)

    def synchronize(self) -> None:
        self.machine.synchronize()


def test_every_member_is_required_or_says_what_is_lost_without_it() -> None:
    written = {n for n in vars(Backend) if not n.startswith("_")} | set(Backend.__annotations__)
    assert written == {*REQUIRED, *LOST_WITHOUT, *OF_SOME}
    assert set(REQUIRED).isdisjoint(LOST_WITHOUT)
    told = " ".join(inspect.getsource(Backend).split())
    for lost in LOST_WITHOUT.values():
        assert f"Without it, {lost}." in told


def test_members_of_a_backend_are_never_looked_for_by_name() -> None:
    """A member that some code looks for by its name is one that the contract does not have."""
    found = []
    for folder in ("core", "rules", "verify", "proofgrad"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name != "target.py":
                found += [f"{path}:{line}" for line in _lookups(path.read_text("utf-8"))]
    assert not found


def _lookups(text: str) -> list[int]:
    """Lines with getattr or hasattr of something called a backend."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("getattr", "hasattr", "vars"):
                last = ast.unparse(node.args[0]).rpartition(".")[2] if node.args else ""
                if "backend" in last.lower() or last.startswith("Device["):
                    lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("getattr(backend, 'x', None)", True),
        ("hasattr(self._backend, 'x')", True),
        ("getattr(kernel.backend, name)", True),
        ("hasattr(Device['CPU'], 'x')", True),
        ("getattr(backend.target, 'x')", False),
        ("getattr(handle, 'address', handle)", False),
    ],
)
def test_such_a_lookup_would_be_found(text: str, is_found: bool) -> None:
    assert bool(_lookups(text)) == is_found


def programs(device: str) -> None:
    """What asks a backend for optional members: values, a second call, a replay, memory of others."""
    x = Tensor([[1.0, 2.0, 3.0]], device=device)
    assert (x * 2 + 1).tolist() == [[3.0, 5.0, 7.0]]
    double = TinyJit(lambda x: (x + x).realize())
    for first in range(5):
        given = Tensor([first, 2 * first, 7], device=device).realize()
        assert double(given).tolist() == [2 * first, 4 * first, 14]


@pytest.mark.parametrize("plans", ["0", "1"])
def test_backend_with_what_is_required_alone_works_as_an_entry_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], plans: str
) -> None:
    monkeypatch.setenv("PLANS", plans)
    monkeypatch.setenv("DEBUG", "6")
    device = f"BARE{plans}"  # plans are known by the name of their device
    install(monkeypatch, tmp_path, device, f"bare_machine_{plans}")
    programs(device.lower())
    assert left_out(Device[device]) == list(LOST_WITHOUT)
    assert "no machine code to show" in capsys.readouterr().err


def test_backend_that_inherits_needs_no_more_than_what_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(Device._devices, "SMALL", Small())
    programs("SMALL")
    assert left_out(Device["SMALL"]) == list(LOST_WITHOUT)


def test_backend_can_be_replaced_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Small(), Small()
    monkeypatch.setitem(Device._devices, "SMALL", first)
    assert Device["SMALL"] is first and Device["small"] is first
    monkeypatch.setitem(Device._devices, "SMALL", second)
    assert Device["SMALL"] is second


def test_adopting_memory_without_adopt_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match="SMALL cannot use the memory of another library"):
        Small().adopt(np.zeros(4).ctypes.data, 32, None)


def test_the_cpu_leaves_nothing_out() -> None:
    assert isinstance(Device["CPU"], CpuBackend)
    assert left_out(Device["CPU"]) == []


GIVEN: dict[str, Any] = {
    "identity": "machine 7, compiler 3",
    "compiles_in_background": True,
    "compiles_in_copies": True,
    "sequence": lambda self, launches, memory: None,
    "timed": lambda self, work: 1.0,
    "assembly": lambda self, source: "nop",
    "part": lambda self, handle, offset_bytes: handle,
    "adopt": lambda self, address, nbytes, keep: None,
}


@pytest.mark.parametrize("inherits", [True, False])
@pytest.mark.parametrize("member", LOST_WITHOUT)
def test_a_member_that_is_given_is_not_left_out(member: str, inherits: bool) -> None:
    bare: dict[str, Any] = {}
    exec(BARE, bare)
    parent = Small if inherits else bare["Bare"]
    machine = completed(type("Given", (parent,), {member: GIVEN[member]})(), "GIVEN")
    assert left_out(machine) == [other for other in LOST_WITHOUT if other != member]


def test_backend_that_lacks_required_members_is_refused_with_their_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = BARE.replace("self.synchronize = machine.synchronize", "del self.emit, self.target")
    install(monkeypatch, tmp_path, "HALF", "half_machine", text)
    for _ in range(2):
        with pytest.raises(DeviceError, match="HALF, Bare, lacks target, emit, synchronize"):
            Device["HALF"]
    assert "HALF" not in Device.get_available_devices()


def test_backend_that_takes_no_members_is_told_to_inherit() -> None:
    class Slots:
        __slots__ = REQUIRED

        def __init__(self) -> None:
            for member in REQUIRED:
                setattr(self, member, None)

    with pytest.raises(DeviceError, match="Slots, has no identity and takes none;.* inherit"):
        completed(Slots(), "SLOTS")


def test_a_required_method_cannot_be_left_out_of_a_class_that_inherits() -> None:
    class NoCopies(Backend):
        name = "NO"

    with pytest.raises(TypeError, match="copyin"):
        NoCopies()  # type: ignore[abstract]


# -- python -m proofgrad.testing.backend ----------------------------------------------------------


@pytest.fixture
def one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "CHECKS", conformance.CHECKS[:1])


@pytest.mark.usefixtures("one_check")
def test_conformance_names_what_is_left_out_and_the_cost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, tmp_path, "BARE", "bare_machine_told")
    assert conformance.main(["BARE"]) == 0
    printed = capsys.readouterr().out
    assert "BARE: 8 passed, 0 failed, 0 skipped" in printed
    assert "no identity: plans are not kept between processes" in printed
    assert all(f"no {member}: {lost}" in printed for member, lost in LOST_WITHOUT.items())
    assert conformance.main(["CPU"]) == 0
    assert "no identity" not in capsys.readouterr().out


class Absent(Small):
    """Prints kernels, and runs none."""

    name = "ABSENT"
    target = Target(name, runs=False)


@pytest.mark.usefixtures("one_check")
def test_conformance_that_ran_nothing_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(Device._devices, "ABSENT", Absent())
    assert conformance.main(["ABSENT"]) == 2
    printed = capsys.readouterr().out
    assert "memory         5 compiled, not run, 3 skipped" in printed
    assert "nothing was run: ABSENT is not on this machine" in printed
    assert "passed" not in printed


@pytest.mark.usefixtures("one_check")
def test_conformance_of_nothing_that_does_not_compile_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing(Absent):
        name = "REFUSING"

        def compile(self, source: Source) -> Binary:
            raise CompileError("no such processor")

    monkeypatch.setitem(Device._devices, "REFUSING", Refusing())
    assert conformance.main(["REFUSING"]) == 1
    printed = capsys.readouterr().out
    assert "64 bytes: CompileError: no such processor" in printed
    assert "The kernels of 0 results compile, those of 5 do not" in printed
