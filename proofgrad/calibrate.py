"""`python -m proofgrad calibrate`: what a probe of this processor says, and what kernels are chosen by from then on.

Owns: the text. Does not own: measuring (backends/cpu/probe.py), figures and files (backends/cpu/calibration.py).
"""

from __future__ import annotations

import time

from proofgrad.backends.cpu import backend, calibration
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.cpu.calibration import Calibration, default_of
from proofgrad.backends.cpu.generator import memory_of
from proofgrad.backends.cpu.processors import Memory
from proofgrad.core import settings
from proofgrad.core.compile.machine.target import DeviceError

# What a probe measures that no choice depends on, with units.
_FOR_PEOPLE = {
    "cycle_ns": "ns a cycle", "start_us": "us to start the threads", "gflops": "GFLOP/s of multiply-adds, all threads",
    "copy_gbs": "GB/s copied, read and written, all threads", "read_gbs": "GB/s read, all threads",
}  # fmt: skip


def run() -> str:
    """Measure, keep, and say what changed. Raises: DeviceError."""
    machine, memory = _machine()
    before = calibration.kept(machine.host, memory)
    start = time.perf_counter()
    from proofgrad.backends.cpu.probe import measure

    found = calibration.calibrated(measure(machine, memory.cache_bytes), memory, before)
    calibration.keep(found, machine.host, memory)
    seconds = time.perf_counter() - start
    return "\n".join(
        [
            f"measured in {seconds:.1f} s, kept in {settings.cache_folder() / 'calibration'}",
            *_rates(found),
            f"{'':22}{'measured':>12}{'default':>12}{'taken':>12}",
            *[_line(name, found, memory) for name in _figures()],
            _changes(found, before, memory),
        ]
    )


def forget() -> str:
    """Use the defaults again, in processes that start from now on."""
    machine, memory = _machine()
    if calibration.forget(machine.host, memory):
        return "the calibration of this machine is gone: the defaults are used"
    return "this machine has no calibration: the defaults are used"


def state() -> str:
    """One line for `doctor`."""
    try:
        machine, memory = _machine()
    except DeviceError:
        return f"not used: CPU_TARGET={settings.text('CPU_TARGET')}"
    found = calibration.kept(machine.host, memory)
    if not settings.uses_calibration():
        return "not used: CALIBRATION=0"
    if found is None:
        return "none; python -m proofgrad calibrate"
    return _differences(found.figures, {}, memory) or "all figures are as by default"


def _machine() -> tuple[CpuBackend, Memory]:
    """This processor, and how it describes itself."""
    machine = backend()
    if not isinstance(machine, CpuBackend) or machine.host.processor is not None:
        raise DeviceError(
            f"CPU_TARGET={settings.text('CPU_TARGET')} asks for code of a processor by its name, which is"
            " described in a table; unset CPU_TARGET to measure the one that is here"
        )
    return machine, memory_of(machine.host)


def _figures() -> tuple[str, ...]:
    return (*calibration.WHOLE, *calibration.FITTED_WHERE, *calibration.CACHES)


def _rates(found: Calibration) -> list[str]:
    rates = [f"{name} {rate:.2f}" for name, rate in found.measured.items() if " x " in name]
    loads = [
        f"{name.removeprefix('load of ')} {cycles:.0f}"
        for name, cycles in found.measured.items() if name.startswith("load of ")
    ]  # fmt: skip
    return [
        *[f"{found.measured[name]:.4g} {unit}" for name, unit in _FOR_PEOPLE.items()],
        f"multiply-adds of vectors in a cycle: {', '.join(rates)}",
        f"cycles of a load that waits for the one before, by the memory: {', '.join(loads)}",
    ]


def _line(name: str, found: Calibration, memory: Memory) -> str:
    default = default_of(memory, name)
    taken = found.figures.get(name, default)
    mark = "" if taken == default else "  changed"
    return f"{name:22}{found.measured[name]:>12.5g}{default:>12g}{taken:>12g}{mark}"


def _changes(found: Calibration, before: Calibration | None, memory: Memory) -> str:
    now = _differences(found.figures, {}, memory)
    first = f"beside the defaults: {now or 'nothing changed'}"
    if before is None:
        return first
    since = _differences(found.figures, before.figures, memory)
    return f"{first}\nsince the last time: {since or 'nothing changed'}"


def _differences(figures: dict[str, float], before: dict[str, float], memory: Memory) -> str:
    """Each figure that is another one, as `name 2048 -> 4096`."""
    changed = []
    for name in _figures():
        default = default_of(memory, name)
        old, new = before.get(name, default), figures.get(name, default)
        if old != new:
            changed.append(f"{name} {old:g} -> {new:g}")
    return ", ".join(changed)
