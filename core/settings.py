"""The environment, read in one place and when it is used, so that a change mid-script counts.

Owns: names, defaults and meanings of every variable. Does not own: what they change.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEANING: dict[str, str] = {
    "DEBUG": (
        "0..6: 1 counts, 2 each kernel and the methods it comes from, 3 its source, 4 each stage's"
        " graph, 5 only what each stage changed, and the rules that fired, 6 machine code"
    ),
    "DEBUG_NANS": "1: look for NaN in what each kernel writes, and stop at the first",
    "DEV": "the default device; also DEVICE=NAME or NAME=1, as in CPU=1 or CLANG=1",
    "DEVICE": "the same as DEV, which goes first",
    "TRAINING": "1: Tensor.training is on from the start: dropout and batch norm train",
    "DEFAULT_FLOAT": "the type of floats whose type nobody names, as half or float64; default float32",
    "DEFAULT_INT": "the type of ints whose type nobody names, as int64; default int32",
    "CI": "set by services that run tests; `helpers.CI` tells whether it is",
    "JIT": "0: TinyJit runs functions without recording them",
    "NOOPT": "1: NOALG and NOSCHED: one plain loop nest a kernel",
    "NOALG": "1: no rules but those that a machine needs",
    "NOSCHED": "1: no choice of axes: no merged, tiled, vector or parallel loops",
    "CHOICES": "what to ask of every kernel, as BEAM prints it: tile=8x3x16 staged=none ...",
    "SCHEDULE": "as CHOICES, but a kernel that cannot be so is an error: what `with schedule(...)` sets",
    "BEAM": "n: time kernels with other tiles, vectors, ...; keep the best n of each round",
    "BEAM_SECONDS": "how long BEAM may search for one kernel; default 5",
    "FASTMATH": "classes of float laws that are not exact to the bit, of nsz,finite,real",
    "WINO": "1: conv2d by Winograd's law of reals, where it saves half; not exact to the bit",
    "FLUSH": "1: products of bfloat16 by units that take denormal numbers for 0 (AMX, AVX-512 BF16), also where some are; not exact to the bit",
    "TRANSCENDENTAL": "0: exp2 and log2 of float32 by the machine's own instruction, where it has one (CUDA); not the same bits everywhere",
    "ALLOW_TF32": "1: factors of products of float32 are rounded to 11 binary digits, as matrix units take them (CUDA); not exact to the bit",
    "PROVE": "1: show for each compiled kernel that its accesses are those of its tensor graph",
    "CHECK": "1: compare each compiled kernel with its tensor graph at sampled elements; 2: run it, too, on drawn memory",
    "SPEC": "1: check the form after every stage",
    "PLANS": "0: no plans from the disk and none kept there; each process rewrites its graphs",
    "PARALLEL": "0: the kernels of a large graph are made by this process alone, not by copies of it on other cores as well",
    "PROOFGRAD_CACHE": "folder for compiled kernels and rules; default $XDG_CACHE_HOME/proofgrad",
    "PROOFGRAD_DATA": "folder for data sets that were fetched; default data in PROOFGRAD_CACHE",
    "POCL_CACHE_DIR": "folder for kernels compiled by PoCL; default pocl in PROOFGRAD_CACHE",
    "OCL_ICD_VENDORS": "folder of files that name OpenCL drivers; default: the system's, and Intel's if pip installed it",
    "NUM_THREADS": "CPU threads; default: what the process may use",
    "CPU_TARGET": "a processor to make code for, as LLVM names it: haswell, znver4, apple-m1 ...",
    "CALIBRATION": "0: the numbers that `calibrate` measured of this machine are not used",
    "MOCKGPU": "n: CUDA is n GPUs that an emulator runs on this processor, to try programs without one",
    "NO_COLOR": "anything: no colours",
    "FORCE_COLOR": "anything: colours, even if the output is no terminal",
    "XDG_CACHE_HOME": "where programs keep what can be made again; default ~/.cache",
}


class Encoded(tuple[Any, ...]):
    """Names of variables as the environment stores them."""

    __slots__ = ()


# What of these changes how a graph is compiled.
READ_BY_STAGES = (
    "NOOPT",
    "NOALG",
    "NOSCHED",
    "PROVE",
    "CHECK",
    "FASTMATH",
    "FLUSH",
    "TRANSCENDENTAL",
    "CHOICES",
    "SCHEDULE",
    "BEAM",
    "BEAM_SECONDS",
)

# What of these lets values be other than those of exact programs.
NOT_EXACT = ("FASTMATH", "FLUSH", "TRANSCENDENTAL", "ALLOW_TF32", "WINO")


def text(name: str) -> str:
    """The variable as it is now; "" if it is not set.

    `os.environ.get` takes a microsecond to encode the name and to raise and catch a KeyError. Each
    replay of a recorded function asks for five names, so this looks below: changes made in
    `os.environ` are seen at once all the same.
    """
    environment = os.environ
    found = environment._data.get(_encoded(name))  # type: ignore[attr-defined]
    return "" if found is None else environment.decodevalue(found)


@functools.cache
def encoded(*names: str) -> Encoded:
    """These names for `stored` and `is_any_set`, which launches ask each time."""
    return Encoded([_encoded(name) for name in names])


def stored(names: Encoded) -> tuple[Any, ...]:
    """The variables as the environment stores them: equal as long as nobody changed one. () where none is set."""
    data = os.environ._data  # type: ignore[attr-defined]
    return () if data.keys().isdisjoint(names) else tuple(map(data.get, names))


def is_any_set(names: Encoded) -> bool:
    """Whether anything is asked for by these names."""
    return not os.environ._data.keys().isdisjoint(names)  # type: ignore[attr-defined]


@functools.cache
def _encoded(name: str) -> Any:
    return os.environ.encodekey(name)


def number(name: str, default: int = 0) -> int:
    """The variable as an integer. Raises: ValueError, naming it."""
    asked = text(name)
    return _as_number(name, asked) if asked else default


def _as_number(name: str, asked: str) -> int:
    try:
        return int(asked)
    except ValueError:
        raise ValueError(f"{name}={asked!r} must be an integer ({MEANING.get(name, '')})") from None


def debug_level() -> int:
    """DEBUG: how much is printed about compilation and runs; 0 where it is not set."""
    return number("DEBUG")


FASTMATH_CLASSES = ("nsz", "finite", "real")


def fastmath() -> tuple[str, ...]:
    """The classes of loose laws asked for, in one order. Raises: ValueError for another name."""
    classes = text("FASTMATH")
    if not classes:
        return ()
    asked = {part.strip() for part in classes.split(",")} - {"", "0"}
    unknown = asked.difference(FASTMATH_CLASSES)
    if unknown:
        raise ValueError(
            f"FASTMATH={classes!r} names {', '.join(sorted(unknown))}; there are"
            f" {', '.join(FASTMATH_CLASSES)}, with commas between"
        )
    return tuple([name for name in FASTMATH_CLASSES if name in asked])


def wants_winograd() -> bool:
    """Whether convolutions may be computed by a law of reals: see core/tensor/methods/nn/winograd.py."""
    return number("WINO") > 0


def flushes_denormals() -> bool:
    """Whether units may multiply for which denormal numbers are 0."""
    return number("FLUSH") > 0


def wants_approximate_functions() -> bool:
    """Whether functions may be the machine's own instructions, with the errors that its manual states."""
    return number("TRANSCENDENTAL", 1) == 0


def allows_tf32() -> bool:
    """Whether factors of products of float32 are rounded to 11 binary digits: see core/tensor/methods/linalg/rounding.py."""
    return number("ALLOW_TF32") > 0


def asked_of_machine() -> tuple[bool, bool]:
    """What a machine may do that is not exact to the bit: flush denormal numbers, approximate functions."""
    return flushes_denormals(), wants_approximate_functions()


def wants_colours(is_terminal: bool) -> bool:
    """Never with NO_COLOR (https://no-color.org), always with FORCE_COLOR, else on terminals."""
    if text("NO_COLOR"):
        return False
    return is_terminal or bool(text("FORCE_COLOR"))


def wants_no_rules() -> bool:
    """No rule stage that may be left out."""
    return number("NOOPT") > 0 or number("NOALG") > 0


def wants_plain_loops() -> bool:
    """No procedure that may be left out: no choice of axes."""
    return number("NOOPT") > 0 or number("NOSCHED") > 0


def choices_text() -> str:
    """What is asked of every kernel: see core/compile/nests/kernel_schedule.py."""
    return text("CHOICES")


def schedule_text() -> str:
    """What every kernel must do, or be refused: see core/compile/nests/kernel_schedule.py."""
    return text("SCHEDULE")


def beam_width() -> int:
    """How many choices each round of the search for fast kernels keeps; 0: no search."""
    return max(0, number("BEAM"))


def beam_seconds() -> int:
    """How long the search for one kernel may take."""
    return number("BEAM_SECONDS", 5)


def traces_methods() -> bool:
    """Whether kernels shall know the methods of Tensor that they come from: with DEBUG=2, and within `profile`."""
    return _TRACERS[0] > 0 or number("DEBUG") >= 2


_TRACERS = [0]


@contextmanager
def tracing_methods() -> Iterator[None]:
    """Within: kernels know the methods that they come from."""
    _TRACERS[0] += 1
    try:
        yield
    finally:
        _TRACERS[0] -= 1


def stops_at_nans() -> bool:
    """DEBUG_NANS: whether what each kernel writes is searched for NaN, and the first one stops the run."""
    return number("DEBUG_NANS") > 0


def checks_forms() -> bool:
    """Whether each stage's output is checked against its form: SPEC=1, or DEBUG=4 and above."""
    return number("SPEC") > 0 or number("DEBUG") >= 4


def proves_kernels() -> bool:
    """PROVE: whether each compiled kernel is proved to compute its graph."""
    return number("PROVE") > 0


def checks_values() -> bool:
    """Whether kernels are compared with their graphs at sampled elements; PROVE=1 does so too."""
    return number("CHECK") > 0 or proves_kernels()


def runs_kernels() -> bool:
    """Whether each kernel that is compared is run, too, on drawn memory: CHECK=2."""
    return number("CHECK") > 1


def keeps_plans() -> bool:
    """Whether plans may come from the disk: not where somebody wants to see how one is made."""
    looks = number("DEBUG") >= 2 or checks_forms() or checks_values() or beam_width() > 0
    return number("PLANS", 1) > 0 and not looks


def may_copy_process() -> bool:
    """PARALLEL: whether kernels may be made by copies of this process as well: not where somebody looks at each of them."""
    return number("PARALLEL", 1) > 0 and debug_level() == 0 and not checks_forms()


def asked_device(names: Sequence[str]) -> str | None:
    """The device named by DEV=, DEVICE= or NAME=1; None if none is."""
    if not is_any_set(encoded("DEV", "DEVICE", *names)):  # one look, most often
        return None
    for variable in ("DEV", "DEVICE"):
        asked = text(variable)
        if asked:
            return asked
    environment = os.environ._data  # type: ignore[attr-defined]
    set_ones = [name for name in names if _encoded(name) in environment]
    return next((name for name in set_ones if text(name) == "1"), None)


def uses_calibration() -> bool:
    """CALIBRATION: whether what was measured of this machine changes its description."""
    return number("CALIBRATION", 1) > 0


def emulated_gpus() -> int:
    """MOCKGPU: how many GPUs CUDA shall be that are none; 0: those that there are."""
    return max(0, number("MOCKGPU"))


def cache_folder() -> Path:
    """Where compiled kernels are kept between processes."""
    asked = text("PROOFGRAD_CACHE")
    base = text("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(asked) if asked else Path(base) / "proofgrad"


def data_folder() -> Path:
    """Where data sets are kept, and looked for before they are fetched."""
    asked = text("PROOFGRAD_DATA")
    return Path(asked) if asked else cache_folder() / "data"


def pocl_cache_folder() -> Path:
    """Where PoCL keeps compiled kernels between processes."""
    asked = text("POCL_CACHE_DIR")
    return Path(asked) if asked else cache_folder() / "pocl"
