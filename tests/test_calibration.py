"""Measuring this processor: what is made of the numbers, what is kept on disk, what kernels are then chosen by."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from proofgrad import calibrate
from proofgrad.__main__ import main
from proofgrad.backends.cpu import calibration, probe
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.cpu.calibration import CACHES, FITTED_WHERE, WHOLE, Calibration, calibrated
from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.processors import KNOWN, Memory, processor_named
from proofgrad.core.compile.machine.machine import Core, FirstCache
from proofgrad.core.compile.plan.store import PlanStore
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

MEMORY = Memory()


def typical(memory: Memory = MEMORY, **other: float) -> dict[str, float]:
    """What a probe says of a machine that is just as described."""
    core = {name: calibration.default_of(memory, name) for name in (*WHOLE, *CACHES)}
    fitted = {
        name: measured * calibration.default_of(memory, name) / getattr(Core(), name)
        for name, measured in FITTED_WHERE.items()
    }
    return {**core, **fitted, **other}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    monkeypatch.setenv("CALIBRATION", "1")
    monkeypatch.delenv("CPU_TARGET", raising=False)
    yield


def measuring(monkeypatch: pytest.MonkeyPatch, **other: float) -> None:
    """`calibrate` shall find these numbers, without measuring."""
    _, memory = calibrate._machine()
    people = dict.fromkeys(calibrate._FOR_PEOPLE, 1.0)
    found = {**people, "float32 x 4": 2.0, "load of 16 KB": 5.0, **typical(memory, **other)}
    monkeypatch.setattr(probe, "measure", lambda machine, cache_bytes: found)


def only_file(folder: Path) -> Path:
    (found,) = [path for path in (folder / "calibration").rglob("*") if path.is_file()]
    return found


def test_a_machine_as_described_changes_nothing() -> None:
    for memory in (MEMORY, *KNOWN.values()):
        found = calibrated(typical(memory), memory, None)
        assert found.figures == {} and found.applied(memory) == memory


@pytest.mark.parametrize(("name", "measured", "taken"), [
    ("multiply_adds_a_cycle", 1.05, 1), ("multiply_adds_a_cycle", 1.5, 2), ("multiply_add_cycles", 5.1, 5),
    ("loads_a_cycle", 2.9, 3), ("launch_cycles", 16_100, 8192), ("launch_cycles", 5600, 2048),
    ("memory_bytes_a_cycle", 1.2, 1.5), ("memory_line_cycles", 39, 80.0), ("first_cache_bytes", 20 << 10, 20 << 10),
    ("cache_bytes", 600 << 10, 1 << 20), ("cache_bytes", 256 << 10, 256 << 10),
])  # fmt: skip
def test_a_figure_is_round_and_the_default_where_that_is_near(
    name: str, measured: float, taken: float
) -> None:
    applied = calibrated(typical(**{name: measured}), MEMORY, None).applied(MEMORY)
    assert calibration.default_of(applied, name) == taken


def test_noise_of_a_third_changes_no_figure_that_was_taken() -> None:
    for scale in (0.2, 0.45, 1.0, 2.9, 6.0):
        scaled = {name: value * scale for name, value in typical().items() if name in FITTED_WHERE}
        first = calibrated(typical(**scaled), MEMORY, None)
        for noise in (0.67, 1.0, 1.4):
            noisy = {name: value * noise for name, value in scaled.items()}
            second = calibrated(typical(**noisy), MEMORY, first)
            third = calibrated(typical(**scaled), MEMORY, second)
            assert third.figures == second.figures
            assert noise != 1.0 or second.figures == first.figures


def test_the_default_is_taken_again_where_it_is_near() -> None:
    for measured in (0.61, 1.0, 1.6):
        far = Calibration({"launch_cycles": 4 * 2048.0})
        launch = FITTED_WHERE["launch_cycles"] * measured
        assert calibrated(typical(launch_cycles=launch), MEMORY, far).figures == {}


def test_numbers_that_no_machine_has_are_left_out() -> None:
    assert calibrated(typical(launch_cycles=1e9), MEMORY, None).figures == {}


def test_a_first_cache_of_another_size_has_sets_of_a_page() -> None:
    applied = Calibration({"first_cache_bytes": 32 << 10}).applied(MEMORY)
    assert applied.first_cache == FirstCache(32 << 10, 8, 64)


def test_every_figure_is_one_of_the_description_and_keeps_its_type() -> None:
    types = {field.name: type(getattr(Core(), field.name)) for field in fields(Core)}
    figures = {name: 2 * calibration.default_of(MEMORY, name) for name in (*WHOLE, *FITTED_WHERE)}
    core = Calibration(figures).applied(MEMORY).core
    for name, value in figures.items():
        assert getattr(core, name) == value and type(getattr(core, name)) is types[name]


def test_the_steps_of_a_load_give_both_caches() -> None:
    sizes = {1 << k: 5.0 for k in range(14, 16)} | {1 << k: 15.0 for k in range(16, 21)}
    assert probe.ends_of_caches(sizes | {1 << k: 90.0 for k in range(21, 25)}) == (1 << 15, 1 << 20)
    assert probe.ends_of_caches(dict.fromkeys(sizes, 5.0)) == (1 << 20, 1 << 20)


def test_calibrate_says_what_changed_and_later_processes_use_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = CpuBackend().target
    measuring(monkeypatch, launch_cycles=16_100.0, multiply_add_cycles=9.0)
    for again in (False, True):
        assert main(["calibrate"]) == 0
        printed = capsys.readouterr().out
        assert "launch_cycles 2048 -> 8192" in printed and "multiply_add_cycles" in printed
        assert ("since the last time: nothing changed" in printed) is again
    target = CpuBackend().target
    assert target.core == replace(before.core, launch_cycles=8192, multiply_add_cycles=9)
    assert "launch_cycles 2048 -> 8192" in calibrate.state()
    monkeypatch.setenv("CALIBRATION", "0")
    assert CpuBackend().target == before
    monkeypatch.setenv("CALIBRATION", "1")
    assert main(["calibrate", "--forget"]) == 0 and "is gone" in capsys.readouterr().out
    assert CpuBackend().target == before
    assert main(["calibrate", "--forget"]) == 0 and "has no calibration" in capsys.readouterr().out


def test_a_plan_of_other_figures_is_another_plan() -> None:
    host = CpuBackend().host
    memory = calibrate.memory_of(host)
    graph, store = UOp.const(dtypes.float32, 1.0), PlanStore(lambda: "")
    before = store.key(graph, frozenset(), (), CpuBackend())
    calibration.keep(Calibration({"launch_cycles": 8192.0}), host, memory)
    assert store.key(graph, frozenset(), (), CpuBackend()) != before
    assert graph.op is Ops.CONST


@pytest.mark.parametrize("figures", [
    {"launch_cycles": 1e9}, {"launch_cycles": 0}, {"launch_cycles": -2048}, {"launch_cycles": True},
    {"launch_cycles": "2048"}, {"launch_cycles": math.nan}, {"launch_cycles": 10**400}, {"mask_registers": 7},
    {"__class__": 1}, {"cache_bytes": None}, [], "figures", None, {"first_cache_bytes": 1}])  # fmt: skip
def test_a_file_that_says_what_no_probe_says_is_refused(figures: object) -> None:
    before, host = CpuBackend().target, CpuBackend().host
    key = calibration._key(host, calibrate.memory_of(host))
    calibration._files().put(key, json.dumps({"figures": figures, "measured": {}}).encode())
    with pytest.warns(UserWarning, match=r"refused: .*python -m proofgrad calibrate"):
        assert CpuBackend().target == before


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff", b"[]", b'{"figures": {}}'])
def test_a_file_that_is_no_table_is_refused(data: bytes) -> None:
    before, host = CpuBackend().target, CpuBackend().host
    calibration._files().put(calibration._key(host, calibrate.memory_of(host)), data)
    with pytest.warns(UserWarning, match="refused"):
        assert CpuBackend().target == before


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    before, host = CpuBackend().target, CpuBackend().host
    memory = calibrate.memory_of(host)
    for damage in ("a byte", "too large"):
        calibration.keep(Calibration({"launch_cycles": 8192.0}), host, memory)
        path = only_file(tmp_path)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + b"!" if damage == "a byte" else data + bytes(1 << 20))
        with pytest.warns(UserWarning, match="is damaged and is not used"):
            assert CpuBackend().target == before
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert CpuBackend().target == before  # it was deleted


def test_a_processor_by_name_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CPU_TARGET", "haswell")
    assert main(["calibrate"]) == 1 and "unset CPU_TARGET" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "x86-64-v2"])
def test_the_probe_itself_gives_every_number(name: str) -> None:
    processor = processor_named(name) if name else None
    if processor is not None and processor.missing:
        pytest.skip(processor.missing)
    machine = CpuBackend(Host(processor=processor))
    found = probe.measure(machine, machine.target.cache_bytes, seconds=0.002)
    assert {*WHOLE, *FITTED_WHERE, *CACHES, *calibrate._FOR_PEOPLE} <= found.keys()
    assert all(0 < value < math.inf for value in found.values())
