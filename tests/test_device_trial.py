"""`devices` and `doctor` run a kernel on each device, and tell those that compute from those that only open."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from plugins import BARE, install

from proofgrad.__main__ import main
from proofgrad.device_trial import try_devices, try_here

# What replaces the last line of the backend's constructor, or its `backend()`.
_LOAD = "self.synchronize = machine.synchronize"
_OPEN = "    return Bare()"


def _raises(error: str) -> str:
    return f"{_LOAD}\n\n    def compile(self, source):\n        {error}"


_WITHOUT_COMPILE = (
    "self.emit, self.compile, self.load = machine.emit, machine.compile, machine.load"
)
_COMPILES_BY_ITSELF = "self.emit, self.load = machine.emit, machine.load"

FAULTS = {
    "RIGHT": ("", "", r"available"),
    "UNKNOWNCPU": (
        _LOAD,
        _raises(
            "from proofgrad.device import CompileError; raise CompileError('unknown target CPU\\nlog')"
        ),
        r"fails: no kernel compiles: unknown target CPU",
    ),
    "NOLAUNCH": (
        _LOAD,
        f"{_LOAD}\n        self.load = lambda binary: 1 / 0",
        r"fails: no kernel runs: ZeroDivisionError: division by zero",
    ),
    "WRONG": (
        _LOAD,
        f"{_LOAD}\n        self.copyout = lambda data, handle: data.cast('B').__setitem__("
        "slice(None), bytes(data.nbytes))",
        r"fails: a kernel gives wrong values: 37 of 37 differ, the first is 0\.0 instead of -53\.0",
    ),
    "ONEWRONG": (
        _LOAD,
        f"{_LOAD}\n        self.copyout = lambda data, handle: (machine.copyout(data, handle),"
        " data.cast('B').__setitem__(data.nbytes - 1, 0xff))",
        r"fails: a kernel gives wrong values: 1 of 37 differ, .* instead of 55\.0",
    ),
    "CLOSED": (
        _OPEN,
        "    raise RuntimeError('no licence\\nmore')",
        r"not available: RuntimeError: no licence",
    ),
    "NOPACKAGE": (
        _OPEN,
        "    import a_package_that_nobody_has",
        r"not available: ModuleNotFoundError: No module named 'a_package_that_nobody_has'",
    ),
    "NOMEMBERS": (
        _OPEN,
        "    return object()",
        r"not available: the backend of NOMEMBERS, .* lacks .*",
    ),
    "BROKENFILE": (_OPEN, "    this is no Python", r"not available: SyntaxError: .*"),
    "LOUD": (_OPEN, "    print('available', end=''); return Bare()", r"available"),
    "WARNS": (
        _OPEN,
        "    import warnings; warnings.warn('an old driver'); return Bare()",
        r"available; an old driver",
    ),
    "PRINTS": (
        _LOAD,
        f"{_LOAD}\n        import dataclasses"
        "\n        self.target = dataclasses.replace(machine.target, runs=False)",
        r"prints kernels and runs none",
    ),
    "ABORTS": (
        _OPEN,
        "    import os; os.abort()",
        r"fails: a process that tries it was ended by SIGABRT",
    ),
    "EXITS": (
        _OPEN,
        "    raise SystemExit('no GPU on this bus')",
        r"fails: a process that tries it ended with status 1: no GPU on this bus",
    ),
    "DIESLATER": (
        _OPEN,
        "    import atexit, os; atexit.register(os.abort); return Bare()",
        r"available; its process then was ended by SIGABRT",
    ),
}


def install_faulty(patch: pytest.MonkeyPatch, folder: Path, device: str) -> None:
    """A backend with one fault of FAULTS."""
    old, new, _ = FAULTS[device]
    assert old in BARE
    text = BARE.replace(old, new) if old else BARE
    if "def compile" in new:
        text = text.replace(_WITHOUT_COMPILE, _COMPILES_BY_ITSELF)
    install(patch, folder / device, device, f"trial_{device.lower()}", text)


@pytest.mark.long
def test_each_fault_is_told_from_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for device in FAULTS:
        install_faulty(monkeypatch, tmp_path, device)
    told = try_devices(list(FAULTS))
    assert list(told) == list(FAULTS)
    for device, (_, _, expected) in FAULTS.items():
        assert re.fullmatch(expected, told[device]), f"{device}: {told[device]}"


@pytest.mark.long
def test_commands_list_devices_of_other_packages_and_go_on_after_one_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for device in ("ABORTS", "RIGHT"):
        install_faulty(monkeypatch, tmp_path, device)
    assert main(["devices"]) == 0
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines()}
    assert rows["CPU"].endswith(" available") and rows["RIGHT"].endswith(" available")
    assert rows["ABORTS"].endswith(FAULTS["ABORTS"][2])
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device CPU"] == found["device RIGHT"] == "available"
    assert found["device ABORTS"] == FAULTS["ABORTS"][2]
    assert found["package numpy"] == found["package llvmlite"] == "found"


@pytest.mark.parametrize("where", ["opens", "ends"])
def test_device_that_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    wait = "import time; time.sleep(600)" if where == "opens" else (
        "import atexit, time; atexit.register(time.sleep, 600)"
    )  # fmt: skip
    module = f"trial_slow_{where}"
    install(monkeypatch, tmp_path, "SLOW", module, BARE.replace(_OPEN, f"    {wait}\n{_OPEN}"))
    (told,) = try_devices(["SLOW"], 20.0 if where == "ends" else 2.0).values()
    if where == "opens":
        assert told == "fails: a process that tries it did not end in 2 s"
    else:
        assert told == "available; its process then did not end in 20 s"


def test_unknown_device_is_refused_with_those_of_other_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_faulty(monkeypatch, tmp_path, "RIGHT")
    told = try_here("RIHGT")
    assert told.startswith("not available: unknown device 'RIHGT'; did you mean RIGHT")
    assert "trial_right" not in sys.modules
