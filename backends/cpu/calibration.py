"""What a probe of this machine changes in its description, kept on disk between processes.

Owns: which figures follow from what was measured, the file, the check of what is read. Does not own: measuring (probe.py),
the defaults (core/compile/machine/machine.py, processors.py).

Figures are round, and a figure that was taken before is kept until a measurement is far from it, so that two probes of a
machine that is left alone choose the same kernels:

- a whole number in a cycle is the nearest one, if the one before is more than 0.65 away;
- a number that was fitted is that of the machines that it was fitted on, times a power of 2: by how much more or less the probe measures here than
  on those (`FITTED_WHERE`); a figure within three quarters of an octave is kept,
  and else the default, if it is as near;
- a cache is as large as Linux says, if the time of a load does not say that it is less than half as large, or more than twice.

The key of a plan has every number of the target in it, so none that was made with other figures is used.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.processors import Memory
from proofgrad.core import settings
from proofgrad.core.compile.machine.machine import Core, FirstCache
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.messages import warn

VERSION = 1  # of the file and of the probe: raise it when either changes
LIMIT_BYTES = 1 << 20  # of all calibrations: a file has some kilobytes
WHOLE = ("multiply_adds_a_cycle", "multiply_add_cycles", "loads_a_cycle")
WHOLE_MARGIN = 0.65
# What the probe measures where the defaults were fitted: between virtual servers of Ice Lake and of Sapphire Rapids.
FITTED_WHERE = {
    "cache_bytes_a_cycle": 48.0, "memory_bytes_a_cycle": 5.0, "memory_line_cycles": 20.0, "gather_cycles": 1.0,
    "scatter_cycles": 1.1, "launch_cycles": 4000.0, "share_cycles": 6000.0, "wake_cycles": 23_000.0,
}  # fmt: skip
MARGIN_OCTAVES = 0.75
CACHES = ("first_cache_bytes", "cache_bytes")
# No machine is so far from the default: a figure beyond is refused, in a file, too.
MOST_TIMES = 64
WAY_BYTES = 4096  # of a first cache whose sets the offset in a page names


@dataclass(frozen=True, slots=True)
class Calibration:
    """`figures` are taken in place of the defaults; `measured` is what the probe said, for people and benchmarks."""

    figures: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)

    def applied(self, memory: Memory) -> Memory:
        """The description of the machine with the figures in it."""
        core: dict[str, Any] = {
            name: _as(memory, name, value)
            for name, value in self.figures.items() if name not in CACHES
        }  # fmt: skip
        first = int(self.figures.get("first_cache_bytes", memory.first_cache.nbytes))
        return replace(
            memory,
            core=replace(memory.core, **core),
            first_cache=_first_cache(memory.first_cache, first),
            cache_bytes=int(self.figures.get("cache_bytes", memory.cache_bytes)),
        )


def calibrated(
    measured: dict[str, float], memory: Memory, before: Calibration | None
) -> Calibration:
    """The figures that differ from those of `memory`, the machine as it is without a probe."""
    kept = before.figures if before is not None else {}
    figures = {}
    for name in (*WHOLE, *FITTED_WHERE, *CACHES):
        default = default_of(memory, name)
        taken = _settled(name, measured[name], default, kept.get(name, default))
        if taken != default and _is_likely(taken, default):
            figures[name] = taken
    return Calibration(figures, measured)


def default_of(memory: Memory, name: str) -> float:
    """A figure as it is without a probe."""
    match name:
        case "first_cache_bytes":
            return memory.first_cache.nbytes
        case "cache_bytes":
            return memory.cache_bytes
    value: float = getattr(memory.core, name)
    return value


def _settled(name: str, measured: float, default: float, before: float) -> float:
    """The figure for what was measured, where `before` is the one so far."""
    if name in WHOLE:
        is_near = abs(measured - before) <= WHOLE_MARGIN
        return before if is_near else max(1.0, float(round(measured)))
    if name in CACHES:
        return before if before / 2 <= measured <= before * 2 else measured
    fitted: float = getattr(Core(), name)  # where the probe measures FITTED_WHERE
    wanted = math.log2(measured / FITTED_WHERE[name])
    own, octaves = [round(math.log2(figure / fitted)) for figure in (default, before)]
    if abs(wanted - octaves) > MARGIN_OCTAVES:
        octaves = round(wanted) if abs(wanted - own) > MARGIN_OCTAVES else own
    return fitted * 2.0**octaves


def _is_likely(value: float, default: float) -> bool:
    return math.isfinite(value) and default / MOST_TIMES <= value <= default * MOST_TIMES


def _as(memory: Memory, name: str, value: float) -> float:
    """Of the type that the field has."""
    return int(value) if isinstance(getattr(memory.core, name), int) else value


def _first_cache(known: FirstCache, nbytes: int) -> FirstCache:
    if nbytes == known.nbytes:
        return known
    return FirstCache(nbytes, max(1, nbytes // WAY_BYTES), known.line_bytes)


# -- on disk --------------------------------------------------------------------------------------


def kept(host: Host, memory: Memory) -> Calibration | None:
    """What `calibrate` kept for this machine; None if nothing, or if CALIBRATION=0.

    A file that is damaged, or says what no probe of such a machine can, is left out with a warning.
    """
    if not settings.uses_calibration():
        return None
    data = _files().get(_key(host, memory))
    if data is None:
        return None
    try:
        return _read(data, memory)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        warn(
            f"the calibration of this machine in {_files().folder} is refused: {error!s}; the defaults"
            " are used; python -m proofgrad calibrate makes it again"
        )
        return None


def keep(calibration: Calibration, host: Host, memory: Memory) -> None:
    """For later processes."""
    text = json.dumps({"figures": calibration.figures, "measured": calibration.measured})
    _files().put(_key(host, memory), text.encode())


def forget(host: Host, memory: Memory) -> bool:
    """Use the defaults again; whether there was a calibration."""
    return _files().delete(_key(host, memory))


def _files() -> DiskCache:
    return DiskCache(settings.cache_folder() / "calibration", LIMIT_BYTES)


def _key(host: Host, memory: Memory) -> str:
    """Of the machine, and of all that figures are made from."""
    return sha256(f"{VERSION} {host.identity} {memory!r}".encode()).hexdigest()


def _read(data: bytes, memory: Memory) -> Calibration:
    """Raises: ValueError, TypeError, KeyError for what `keep` does not write."""
    read = json.loads(data)
    figures, measured = _numbers(read["figures"]), _numbers(read["measured"])
    for name, value in figures.items():
        if name not in (*WHOLE, *FITTED_WHERE, *CACHES):
            raise ValueError(f"it has a figure {name!r}, which is none")
        default = default_of(memory, name)
        if not _is_likely(value, default):
            raise ValueError(f"{name} = {value:g} is too far from {default:g}")
    return Calibration(figures, measured)


def _numbers(read: Any) -> dict[str, float]:
    if type(read) is not dict:
        raise TypeError("it is no table of numbers")
    for name, value in read.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"{name} = {value!r} is no number")
    return read
