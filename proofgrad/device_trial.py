"""Does a device compute? One small kernel on each, in a process of its own.

Owns: that kernel, the processes and their time, what is said of each device. Does not own: the commands that print it
(commands.py), a thorough check of one machine (testing/backend.py).

A device that opens need not work: its compiler may not know the processor, or its kernels may compute something else.
And a driver can end the process that uses it, or never answer, so no device is tried in the process that asks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from proofgrad.core.compile.machine.target import CompileError, DeviceError

SECONDS = 60.0  # for one device: drivers take some seconds when they first start
RIGHT = "available"
_ANSWER = (
    "\x02the device is "  # before the answer, so that what a driver prints is not taken for it
)
_VALUES = [k - 18 for k in range(37)]
_EXPECTED = [3.0 * value + 1.0 for value in _VALUES]  # exact in float32


def try_devices(names: Sequence[str], seconds: float = SECONDS) -> dict[str, str]:
    """What is to be said of each device: "available" if a kernel was run there and gave the right values."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        told = pool.map(lambda name: _try(name, seconds), names)
        return dict(zip(names, told, strict=True))


def _try(name: str, seconds: float) -> str:
    """The answer of a process that tries the device, or how that process ended without one."""
    path = os.pathsep.join([os.path.abspath(folder) for folder in sys.path])
    command = [sys.executable, "-m", "proofgrad.device_trial", name]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        printed, complaints = process.communicate(timeout=seconds)
        ended = _end(process.returncode, complaints)
    except subprocess.TimeoutExpired:
        process.kill()
        printed, _ = process.communicate()
        ended = f"did not end in {seconds:g} s"
    _, was_answered, answer = printed.rpartition(_ANSWER)
    if not was_answered:
        return f"fails: a process that tries it {ended or 'ended without an answer'}"
    return f"{answer.splitlines()[0]}{f'; its process then {ended}' if ended else ''}"


def _end(status: int, complaints: str) -> str:
    """How a process ended; "" if well."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}: {_last_line(complaints)}" if status else ""


def try_here(name: str) -> str:
    """Open the device and run the kernel, in this process."""
    from proofgrad import Device, Tensor, dtypes  # a process that only asks does without them
    from proofgrad.core.tensor.runtime.realize import compile_only

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            runs = Device[name].target.runs
        except Exception as error:  # a backend of somebody else may raise anything
            return f"not available: {_told(error)}"
        try:
            result = Tensor(_VALUES, name, dtypes.float32) * 3 + 1
            if runs:
                problem = _difference(result.tolist())
            else:
                with compile_only():
                    result.realize()
                problem = ""
        except Exception as error:
            verb = "compiles" if isinstance(error, CompileError) else "runs"
            return f"fails: no kernel {verb}: {_told(error)}"
    if problem:
        return f"fails: {problem}"
    state = RIGHT if runs else "prints kernels and runs none"
    return "; ".join([state, *[_first_line(str(warning.message)) for warning in caught]])


def _difference(found: Sequence[float]) -> str:
    wrong = [
        k for k, (mine, right) in enumerate(zip(found, _EXPECTED, strict=True)) if mine != right
    ]
    if not wrong:
        return ""
    first = wrong[0]
    return (
        f"a kernel gives wrong values: {len(wrong)} of {len(_EXPECTED)} differ,"
        f" the first is {found[first]} instead of {_EXPECTED[first]}"
    )


def _told(error: Exception) -> str:
    kind = "" if isinstance(error, (DeviceError, CompileError)) else f"{type(error).__name__}: "
    return f"{kind}{_first_line(str(error))}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


def _last_line(text: str) -> str:
    return _first_line("\n".join(reversed(text.splitlines())))


if __name__ == "__main__":
    print(f"{_ANSWER}{try_here(sys.argv[1])}", flush=True)
