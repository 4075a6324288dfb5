"""Modules that stood elsewhere: importing one by its old name says its new one.

Owns: the names that documents named. Does not own: anything that is imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Never

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_COMPILE, _TENSOR = "proofgrad.core.compile", "proofgrad.core.tensor"
MOVED = {
    f"{_COMPILE}.target": f"{_COMPILE}.machine.target",
    f"{_COMPILE}.cost_model": f"{_COMPILE}.schedule.cost_model",
    f"{_COMPILE}.kernel_schedule": f"{_COMPILE}.nests.kernel_schedule",
    f"{_COMPILE}.stages": f"{_COMPILE}.passes.stages",
    f"{_COMPILE}.forms": f"{_COMPILE}.passes.forms",
    f"{_COMPILE}.text.changes": f"{_COMPILE}.passes.changes",
    f"{_COMPILE}.lower": f"{_COMPILE}.lowering.lower",
    f"{_COMPILE}.names": f"{_COMPILE}.lowering.kernel_names",
    f"{_COMPILE}.transcendental": f"{_COMPILE}.math.transcendental",
    f"{_COMPILE}.search": f"{_COMPILE}.tune.search",
    f"{_TENSOR}.realize": f"{_TENSOR}.runtime.realize",
    f"{_TENSOR}.numbering": f"{_TENSOR}.runtime.canonical",
    f"{_TENSOR}.device": f"{_TENSOR}.runtime.device",
    f"{_TENSOR}.errors": f"{_TENSOR}.data.errors",
}


class _Finder:
    """Asked last, for what no other finder knows."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Never | None:
        """Raises: ModuleNotFoundError with the new name of a module that was moved."""
        if name in MOVED:
            raise ModuleNotFoundError(f"{name} is now {MOVED[name]}", name=name)
        return None


def tell_new_names() -> None:
    """From now on, imports of old names say the new ones."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
