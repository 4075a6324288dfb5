"""Devices by name: which exist, which is the default, and their backends, opened when first used.

Owns: names and aliases, the registry, errors for unknown names. Does not own: the backends.
"""

from __future__ import annotations

import difflib
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from proofgrad.core import settings
from proofgrad.core.compile.machine import target
from proofgrad.core.compile.machine.target import Backend, completed
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.tensor.data.errors import DeviceError

HOST = "PYTHON"  # where the data of a Python list or a numpy array lives
DISK = "DISK"  # `DISK:path`: the elements are in that file; nothing is computed there
IN_FILE = f"{DISK}:"  # how the name of a file as a device begins


class _Device:
    """`Device.DEFAULT` is a name; `Device["CPU"]` is the opened backend."""

    def __init__(self) -> None:
        self._devices: dict[str, object] = {}  # as put there: a backend, or a class of backends
        self._opened: dict[str, Backend] = {}  # of these, those that are known to be whole
        self._chosen: str | None = None
        self._makers: dict[str, Callable[..., Backend]] = {}
        self._numbered: set[str] = set()  # names of which there may be several machines
        self._aliases: dict[str, str] = {}
        self._elsewhere: tuple[str, ...] = ()
        self._preferred: list[str] = []
        self._is_tuned: dict[str, bool] = {}  # of those that have been tried
        self._unlock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._unlock)  # another thread may be opening one

    def _unlock(self) -> None:
        self._opening = threading.RLock()  # a backend may ask for another while it opens

    @property
    def DEFAULT(self) -> str:
        """The device of new tensors: as assigned, else from the environment, else a GPU that answers and is tuned, else the
        first one.
        """
        if self._chosen is not None:
            return self._chosen
        asked = settings.asked_device((*self._makers, *self._devices, *self._aliases))
        if asked is not None:
            return self.canonical(asked)
        return self._tuned() or self.names()[0]

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        chosen = self.canonical(name)
        if is_on_disk(chosen):
            raise DeviceError(f"a file computes nothing, so {name!r} cannot be the default device")
        self._chosen = chosen

    @property
    def default(self) -> Backend:
        """The opened backend of the default device."""
        return self[self.DEFAULT]

    def _tuned(self) -> str | None:
        """The first preferred device that opens here, runs kernels, and whose schedules were measured on such a machine."""
        for name in self._preferred:
            if name not in self._is_tuned:
                with self._opening:
                    self._try_preferred(name)
            if self._is_tuned[name]:
                return name
        return None

    def _try_preferred(self, name: str) -> None:
        """Find out whether a preferred device is tuned."""
        with warnings.catch_warnings():  # nobody asked for it
            warnings.simplefilter("ignore")
            try:
                facts = self[name].target
            except target.DeviceError:
                facts = None
        self._is_tuned[name] = facts is not None and facts.runs and facts.is_tuned
        if not self._is_tuned[name]:  # who asks for it by name shall be told what is missing
            self._devices.pop(name, None)
            self._opened.pop(name, None)

    def __getitem__(self, name: str) -> Backend:
        opened = self._opened.get(name)  # most often this is all, and `canonical` is slow
        if opened is not None and self._devices.get(name) is opened:
            return opened
        name = self.canonical(name)
        if is_on_disk(name):
            raise DeviceError(
                f"nothing is computed on {name}: Tensors there are viewed, read and written;"
                f" move them first, with .to({self.DEFAULT!r})"
            )
        with (
            self._opening
        ):  # of two that threads open, one would have the buffers, and the other kernels
            if name not in self._devices:
                self._devices[name] = self._opened_by_name(name)
            made = self._devices[name]
            if isinstance(made, type):  # `_devices["MY"] = MyDevice`: made when first used
                made = self._devices[name] = made(name)
            if self._opened.get(name) is not made:
                self._opened[name] = completed(made, name)
            return self._opened[name]

    def _opened_by_name(self, name: str) -> object:
        family, _, number = name.partition(":")
        maker = self._makers.get(family)
        if maker is None:
            return _entry_points()[name].load()()
        return maker(int(number)) if number else maker()

    def register(
        self,
        name: str,
        maker: Callable[..., Backend],
        aliases: Sequence[str] = (),
        is_numbered: bool = False,
        is_preferred: bool = False,
    ) -> None:
        """Make a backend known under a name. The first one registered is the default.

        `is_numbered`: there may be several such machines. `maker(1)` opens `name:1`, and `name` alone is number 0.
        `is_preferred`: it is the default instead where it opens and its target `is_tuned`; it is opened to find out.
        """
        self._makers[name.upper()] = maker
        if is_preferred:
            self._preferred.append(name.upper())
            self._is_tuned.pop(name.upper(), None)
        if is_numbered:
            self._numbered.add(name.upper())
        self._aliases.update({alias: name for alias in aliases})

    def name_elsewhere(self, names: Sequence[str]) -> None:
        """Names that users know from elsewhere and that no backend here provides."""
        self._elsewhere = tuple(names)

    def aliases_of(self, name: str) -> tuple[str, ...]:
        """The other names of a device."""
        return tuple([alias for alias, device in self._aliases.items() if device == name])

    def names(self) -> tuple[str, ...]:
        """Every device that is built, whether or not this machine has it."""
        return tuple(dict.fromkeys((*self._makers, *self._devices)))

    def installed(self) -> tuple[str, ...]:
        """Every device that a new process here knows by name, those of other packages too."""
        return tuple(dict.fromkeys((*self._makers, *_entry_points())))

    def get_available_devices(self) -> list[str]:
        """The devices that open on this machine and run kernels."""
        available = []
        for name in self.names():
            try:
                runs = self[name].target.runs
            except target.DeviceError:
                continue
            if runs:
                available.append(name)
        return available

    def canonicalize(self, device: str | None) -> str:
        """`canonical` by tinygrad's name."""
        return self.canonical(device)

    def canonical(self, name: str | None) -> str:
        """The one name of a device. Raises: DeviceError, with what exists and near names.

        A tuple of one device is that device: how programs say it that run on several elsewhere.
        """
        if name is None:
            return self.DEFAULT
        if isinstance(name, (tuple, list)):
            if len(name) != 1:
                raise DeviceError(f"a program runs on one device, and {name} are {len(name)}")
            name = name[0]
        upper, _, rest = str(name).partition(":")
        upper = upper.upper()
        if upper == DISK:
            if not rest or "\0" in rest:
                raise DeviceError(f"{name!r} names no file; write 'disk:' and its path")
            return f"{DISK}:{os.path.abspath(rest)}"
        upper = self._aliases.get(upper, upper)
        if ":" in str(name) and not (rest.isascii() and rest.isdigit()):
            raise DeviceError(
                f"{name!r} names no device: behind the colon stands its number, as in {upper}:1"
            )
        if upper in self._numbered and int(rest or 0):
            return f"{upper}:{int(rest)}"
        if upper in self._makers or upper in self._devices or upper == HOST:
            return upper
        if upper in _entry_points():
            return upper
        known = tuple(dict.fromkeys((*self.names(), *_entry_points())))
        provided = ", ".join(known)
        if upper in self._elsewhere:
            raise DeviceError(f"device {name!r} is not built here; provided: {provided}")
        if isinstance(name, DType):
            raise DeviceError(f"{name} is a type, not a device: x.cast({name})")
        near = difflib.get_close_matches(upper, [*known, HOST, *self._aliases], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DeviceError(f"unknown device {name!r}{hint} provided: {provided}")


def _entry_points() -> dict[str, Any]:
    # Imported here: it is a tenth of `import proofgrad`, and few name such devices.
    from importlib.metadata import entry_points

    return {point.name.upper(): point for point in entry_points(group="proofgrad.backends")}


Device = _Device()


def is_on_disk(device: str) -> bool:
    """Is this the one name of a file as a device?"""
    return device.startswith(IN_FILE)


def canonical_device(name: str | None) -> str:
    """The one name of a device; None: the default. Raises: DeviceError."""
    return Device.canonical(name)
