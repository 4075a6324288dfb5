"""A package with a backend, as somebody else would install it: a module and an entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofgrad import Device

BARE = '''
from proofgrad.backends.reference import ReferenceBackend


class Bare:
    """What a backend must have, and nothing else."""

    def __init__(self):
        machine = ReferenceBackend()
        self.name, self.target = "BARE", machine.target
        self.emit, self.compile, self.load = machine.emit, machine.compile, machine.load
        self.alloc, self.copyin, self.copyout = machine.alloc, machine.copyin, machine.copyout
        self.synchronize = machine.synchronize


def backend():
    return Bare()
'''


def install(
    patch: pytest.MonkeyPatch, folder: Path, device: str, module: str, text: str = BARE
) -> None:
    """Make `module` with this text importable, here and by processes started from here, and `device` its backend."""
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[proofgrad.backends]\n{device} = {module}:backend\n")
    (folder / f"{module}.py").write_text(text)
    patch.syspath_prepend(folder)
    patch.setattr(Device, "_devices", {**Device._devices})
