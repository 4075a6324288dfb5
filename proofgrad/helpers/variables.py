"""Variables of the environment as objects, which compare as their values do.

Owns: `ContextVar` and those of proofgrad by name. Does not own: what they mean (core/settings.py), setting several for
a block (proofgrad/context.py).
"""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
from collections.abc import Callable
from functools import total_ordering
from pathlib import Path
from typing import Any

from proofgrad.context import float_named, int_named, own_variables
from proofgrad.settings_elsewhere import ELSEWHERE, warn_of

OSX, WIN, CI = sys.platform == "darwin", sys.platform == "win32", bool(os.environ.get("CI"))


def getenv(key: str, default: Any = 0) -> Any:
    """The variable as it is now, of the type of `default`, which it is where it is not set.

    Raises: ValueError, naming it, for text that is no such value.
    """
    found = os.environ.get(key)
    if found is None:
        return default
    try:
        return type(default)(int(found) if isinstance(default, bool) else found)
    except ValueError:
        kind = type(default).__name__
        raise ValueError(f"{key}={found!r} in the environment must be of type {kind}") from None


def temp(x: str, append_user: bool = False) -> str:
    """The path of a file of this name, with that of the user behind it if asked, in the folder for temporary files."""
    return str(Path(tempfile.gettempdir()) / (f"{x}.{getpass.getuser()}" if append_user else x))


@total_ordering
class ContextVar:
    """A variable of the environment, of the type of `default_value`; `with Context(KEY=...)` sets it for a block.

    It is true, equal and less as its `value` is, which is read when asked for.
    """

    def __init__(self, key: str, default_value: Any) -> None:
        self.key, self.default_value = key, default_value
        own_variables.add(key)

    @property
    def value(self) -> Any:
        """The value as it is now."""
        return getenv(self.key, self.default_value)

    @value.setter
    def value(self, value: Any) -> None:
        os.environ[self.key] = str(value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == _value_of(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < _value_of(other))

    def __hash__(self) -> int:
        return hash(self.key)

    def __int__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"ContextVar({self.key!r}, {self.value!r})"


class _OfProgram(ContextVar):
    """A variable that is an attribute of the program while it runs."""

    def __init__(self, key: str, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        super().__init__(key, None)
        self._read, self._write = read, write

    @property
    def value(self) -> Any:
        """The value as it is now."""
        return self._read()

    @value.setter
    def value(self, value: Any) -> None:
        self._write(value)


class _Elsewhere(ContextVar):
    """A setting of tinygrad that nothing here reads but the program."""

    def __init__(self, key: str) -> None:
        self.key, self.default_value = key, ELSEWHERE[key][0]

    @property
    def value(self) -> Any:
        """The value as it is now."""
        return getenv(self.key, self.default_value)

    @value.setter
    def value(self, value: Any) -> None:
        warn_of(self.key, value)
        os.environ[self.key] = str(value)


def setting_elsewhere(name: str) -> ContextVar | None:
    """The variable of a setting of tinygrad by its name, if that is one."""
    return _Elsewhere(name) if name in ELSEWHERE else None


def _value_of(other: Any) -> Any:
    return other.value if isinstance(other, ContextVar) else other


def _training() -> bool:
    from proofgrad import Tensor

    return bool(Tensor.training)


def _set_training(value: Any) -> None:
    from proofgrad import Tensor

    Tensor.training = bool(value)


def _device() -> str:
    from proofgrad import Device

    return Device.DEFAULT


def _set_device(value: Any) -> None:
    from proofgrad import Device

    Device.DEFAULT = str(value)


def _float() -> str:
    from proofgrad import dtypes

    return dtypes.default_float.name


def _set_float(value: Any) -> None:
    from proofgrad import dtypes

    dtypes.default_float = float_named(str(value))


def _int() -> str:
    from proofgrad import dtypes

    return dtypes.default_int.name


def _set_int(value: Any) -> None:
    from proofgrad import dtypes

    dtypes.default_int = int_named(str(value))


DEBUG, BEAM, NOOPT, WINO = [ContextVar(name, 0) for name in ("DEBUG", "BEAM", "NOOPT", "WINO")]
ALLOW_TF32, SPEC, NO_COLOR = (
    ContextVar("ALLOW_TF32", 0),
    ContextVar("SPEC", 0),
    ContextVar("NO_COLOR", ""),
)
JIT, PARALLEL, TRANSCENDENTAL = [ContextVar(k, 1) for k in ("JIT", "PARALLEL", "TRANSCENDENTAL")]
TRAINING = _OfProgram("TRAINING", _training, _set_training)
DEV = _OfProgram("DEV", _device, _set_device)
DEFAULT_FLOAT = _OfProgram("DEFAULT_FLOAT", _float, _set_float)
DEFAULT_INT = _OfProgram("DEFAULT_INT", _int, _set_int)
