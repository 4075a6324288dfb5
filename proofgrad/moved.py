"""Modules that are not there: importing one that stood elsewhere says where it is, one of tinygrad's inside what to use.

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
# Modules of tinygrad that programs import from, and what they were imported for.
ABSENT = {
    "proofgrad.datasets": "use proofgrad.nn.datasets",
    "proofgrad.engine.schedule": "Tensor.schedule gives the kernels, `python -m proofgrad explain` shows them",
    "proofgrad.engine.realize": "Tensor.realize runs a graph, Tensor.schedule shows its kernels, GlobalCounters counts them",
    "proofgrad.gradient": "use Tensor.gradient or Tensor.backward",
    "proofgrad.lazy": "use Tensor.uop",
    "proofgrad.llm.cli": "write the model in proofgrad.nn; proofgrad.nn.state.gguf_load reads its weights",
    "proofgrad.llm.model": "write the model in proofgrad.nn; proofgrad.nn.state.gguf_load reads its weights",
    "proofgrad.llm.serve": "write the model in proofgrad.nn; proofgrad.nn.state.gguf_load reads its weights",
    "proofgrad.mixin": "these are methods of proofgrad.Tensor",
    "proofgrad.ops": "use proofgrad.uop.ops",
    "proofgrad.optim": "use proofgrad.nn.optim",
    "proofgrad.schedule": "see docs/kernel.md for the stages, and `python -m proofgrad explain`",
    "proofgrad.shape": "from proofgrad import Variable; Tensor.view_info tells strides, offset and mask",
    "proofgrad.state": "use proofgrad.nn.state",
    "proofgrad.viz": "DEBUG=2, profile() and `python -m proofgrad explain` show what was compiled",
}


class _Finder:
    """Asked last, for what no other finder knows."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Never | None:
        """Raises: ModuleNotFoundError with the new name of a module that was moved, or what does the same."""
        if name in MOVED:
            raise ModuleNotFoundError(f"{name} is now {MOVED[name]}", name=name)
        if name in ABSENT:
            raise ModuleNotFoundError(f"there is no {name}: {ABSENT[name]}", name=name)
        return None


def tell_new_names() -> None:
    """From now on, imports of old names say the new ones."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
