"""Settings for a while, and a schedule written by hand.

Owns: `Context`, `schedule`. Does not own: what the settings mean (core/settings.py), what a schedule is
(core/compile/nests/kernel_schedule.py).
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from proofgrad.core import settings
from proofgrad.core.compile.nests.kernel_schedule import Schedule, read_schedule
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.within import block
from proofgrad.settings_elsewhere import ELSEWHERE, warn_of

own_variables: set[str] = set()  # of the program: those of `helpers.ContextVar`


@block
def Context(**variables: int | str) -> Iterator[None]:
    """Environment variables of proofgrad set within the block, as they were after it.

    TRAINING is `Tensor.training`, DEFAULT_FLOAT and DEFAULT_INT are `dtypes.default_float` and `default_int`, whoever
    sets them. A setting of tinygrad that chooses how kernels are made does nothing here, which is said once.

    Raises: KeyError for a name that no part of proofgrad reads; ValueError for what is no type of floats, or of ints.

    Example:
        with Context(DEBUG=2):
            model(x).realize()
    """
    known = {*settings.MEANING, *own_variables, *ELSEWHERE}
    unknown = sorted(set(variables) - known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known - ELSEWHERE.keys(), 1)
        raise KeyError(
            f"{unknown[0]} is no setting{f'; is {near[0]} meant?' if near else ''}"
            f" (`python -m proofgrad env` lists them)"
        )
    for name in ELSEWHERE.keys() & variables.keys() - own_variables:
        warn_of(name, variables[name])
    with ExitStack() as blocks:
        for name, value in variables.items():
            blocks.enter_context(_set(name, value))
        yield


def _set(name: str, value: int | str) -> AbstractContextManager[None]:
    match name:
        case "TRAINING":
            from proofgrad import Tensor

            return Tensor.train(bool(int(value)))
        case "DEFAULT_FLOAT":
            return _default("default_float", float_named(str(value)))
        case "DEFAULT_INT":
            return _default("default_int", int_named(str(value)))
    return _variable(name, str(value))


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def _default(name: str, dtype: DType) -> Iterator[None]:
    before = getattr(dtypes, name)
    setattr(dtypes, name, dtype)
    try:
        yield
    finally:
        setattr(dtypes, name, before)


@functools.cache
def start_defaults() -> None:
    """`dtypes.default_float` and `default_int` as the environment asks, once. Raises: ValueError for what is no such type."""
    if asked := settings.text("DEFAULT_FLOAT"):
        dtypes.default_float = float_named(asked)
    if asked := settings.text("DEFAULT_INT"):
        dtypes.default_int = int_named(asked)


def float_named(name: str) -> DType:
    """A type of floats by its name in `dtypes`, in capitals or not. Raises: ValueError."""
    return _one_of(dtypes.floats, name, "DEFAULT_FLOAT", "floats")


def int_named(name: str) -> DType:
    """A type of ints by its name in `dtypes`, in capitals or not. Raises: ValueError."""
    return _one_of(dtypes.ints, name, "DEFAULT_INT", "ints")


def _one_of(kinds: tuple[DType, ...], name: str, variable: str, what: str) -> DType:
    found = getattr(dtypes, name.lower().removeprefix("dtypes."), None)
    if not isinstance(found, DType) or found not in kinds:
        names = ", ".join([dtype.name for dtype in kinds])
        raise ValueError(f"{variable}={name!r} is no type of {what}; there are {names}")
    return found


@block
def schedule(asked: Schedule | str) -> Iterator[None]:
    """Every kernel that is compiled within the block does what `asked` says; a step that does not fit is refused.

    `asked`: as `explain` and DEBUG=2 print it; what it does not name, the heuristics choose. A schedule is applied
    by proven steps, so a kernel computes the same, or there is an error.

    Raises: TypeError, ValueError for what is no schedule; ScheduleError (a ValueError), where a kernel is compiled, if
    that kernel cannot do what is asked.

    Example:
        with schedule("tile=4x2x8 staged=none threads=off"):
            (a @ b).realize()
    """
    if not isinstance(asked, (Schedule, str)):
        raise TypeError(f"a schedule is text or a Schedule, not {type(asked).__name__}")
    override = read_schedule(str(asked))  # a Schedule made by hand may hold what no text says
    with Context(SCHEDULE=str(override)):
        yield
