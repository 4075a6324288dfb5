"""What was found, as a script that runs on its own."""

from __future__ import annotations

import numpy as np

from proofgrad.testing.fuzz.compare import SAFETY, UNITS
from proofgrad.testing.fuzz.oracle import expected
from proofgrad.testing.fuzz.program import Program, source_of
from proofgrad.testing.fuzz.run import SECONDS, Outcome
from proofgrad.testing.fuzz.values import Value, kind_of, unit_of

_HEAD = '''"""{title}"""
import os
import time
from math import inf, nan

os.environ.update({settings!r})
import numpy as np

from proofgrad import Tensor, TinyJit, Variable
{more}
# name: (type, what numpy says, how far a rounded value may be; None where rounding decides)
EXPECTED = {expected}
WRONG = []


def see(name, tensor):
    if name not in EXPECTED:
        return
    dtype, wanted, allowed = EXPECTED[name]
    got = tensor.numpy()
    known = np.array([w is not None for w in np.ravel(np.array(wanted, object))]).reshape(np.shape(wanted))
    want = np.where(known, np.array(wanted, object), 0).astype(got.dtype)
    near = got.shape == want.shape and (
        (got == want) | ((got != got) & (want != want)) | ~known
        | (abs(got.astype(float) - want.astype(float)) <= np.array(allowed, float))
    )
    if tensor.dtype.name != dtype or not np.all(near):
        WRONG.append(name)
        print(f"{{name}}\\n  got      {{got.tolist()}} {{tensor.dtype.name}}\\n  expected {{wanted}} {{dtype}}")


'''
_THREADS = 'from proofgrad import Device\n\nDevice["CPU"].parallel_instructions = 0\n'


def script_of(program: Program, outcome: Outcome) -> str:
    """A program of its own: exit code 0 once the fault is mended."""
    names = [outcome.detail.split(" at (")[0]] if outcome.status == "wrong" else []
    wanted = {
        name: value for name, value in expected(program).items() if name in names or not names
    }
    lines = [f"    {name!r}: {_entry(value)}," for name, value in wanted.items()]
    settings = dict(program.settings)
    head = _HEAD.format(
        title=f"{outcome.detail.splitlines()[0] if outcome.detail else outcome.status}; {program.note}.".replace(
            '"', "'"
        ).replace("\\", "/"),
        settings=settings,
        more=_THREADS if "threads=on" in settings.get("CHOICES", "") else "",
        expected="{\n" + "\n".join(lines) + "\n}",
    )
    tail = (
        f'\nspent = time.process_time() - begin\nassert spent < {SECONDS}, f"{{spent:.1f}} s"\n'
        if outcome.status == "slow"
        else ""
    )
    return f"{head}begin = time.process_time()\n{source_of(program)}{tail}assert not WRONG, WRONG\n"


def _entry(value: Value) -> str:
    first = value.estimate
    if kind_of(value.dtype) not in ("float", "code"):
        unknown = np.zeros(first.shape, bool)
        for sample in value.samples[1:]:
            unknown |= sample != first
        return f"({value.dtype!r}, {_listed(first, unknown)!r}, 0)"
    wide = first.astype(np.float64)
    spread, unknown = np.zeros(first.shape), np.zeros(first.shape, bool)
    with np.errstate(all="ignore"):
        for sample in value.samples[1:]:
            apart = np.abs(sample.astype(np.float64) - wide)
            unknown |= np.isnan(apart) & ~(np.isnan(sample) & np.isnan(wide))
            spread = np.maximum(spread, np.where(np.isfinite(apart), apart, 0))
    allowed = (
        0 if value.is_exact else (SAFETY * spread + UNITS * unit_of(wide, value.dtype)).tolist()
    )
    return f"({value.dtype!r}, {_listed(first, unknown)!r}, {allowed!r})"


def _listed(array: object, unknown: object) -> object:
    filled = np.array(array, dtype=object)
    filled[np.asarray(unknown)] = None
    return filled.tolist()
