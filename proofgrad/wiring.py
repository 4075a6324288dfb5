"""Where the parts meet: the rules, the stages and the machines are given to the core, when first used.

Owns: the one Compiler of the process. Does not own: any of the parts.
"""

from __future__ import annotations

import atexit
import os
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from proofgrad.backends import BUILT_IN, ELSEWHERE, NUMBERED, PREFERRED
from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Backend
from proofgrad.core.messages import say
from proofgrad.core.tensor.runtime import realize
from proofgrad.core.tensor.runtime.device import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proofgrad.core.compile.compiler import Compiler
    from proofgrad.core.compile.passes.stages import Library, Stage
    from proofgrad.core.compile.plan.checks import KernelCheck, ValueCheck

_ROOT = Path(realize.__file__).resolve().parents[3]
# Folders, and the endings of the files in them, that decide what a graph becomes.
_DECIDE = {
    "core": (".py",),
    "rules": (".py", ".rules"),
    "backends": (".py",),
    "verify": (".py",),  # whether evidence counts
    "proofs": (".json",),
}


def connect() -> None:
    """Register the machines and say how a compiler is made. Opens and loads nothing yet."""
    for name, (module, aliases) in BUILT_IN.items():
        package = PREFERRED.get(name)
        may_answer = package is not None and find_spec(package) is not None
        Device.register(name, partial(_open, module), aliases, name in NUMBERED, may_answer)
    Device.name_elsewhere(ELSEWHERE)
    realize.use_compiler(_compiler)


def _open(module: str, *number: int) -> Backend:
    backend: Backend = import_module(module).backend(*number)
    return backend


def _compiler() -> Compiler:
    from proofgrad.core.compile.compiler import Compiler
    from proofgrad.core.compile.plan.store import PlanStore

    store = PlanStore(_sources)
    return Compiler(_stages, _library, Device.__getitem__, _kernel_check, store, _value_check)


def _stages() -> tuple[Sequence[Stage], Sequence[Stage]]:
    """Those of graphs, and those of kernels. A process whose plans are all kept ones imports none."""
    from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

    return GRAPH_STAGES, KERNEL_STAGES


def _library() -> Library:
    from proofgrad.core.compile.passes.stages import Library
    from proofgrad.core.rewrite.journal import Journal
    from proofgrad.rules.library import COTANGENTS, FACTS, load_library, load_loose

    return Library(load_library(), FACTS, COTANGENTS, Journal(), load_loose)


def _sources() -> str:
    """The digest of every file that decides what a graph becomes: code, rules, evidence."""
    digest, root = sha256(), str(_ROOT)
    for folder, endings in _DECIDE.items():
        # Without Path, which takes as long for a name as to read the file: each process asks this once.
        for where, below, names in os.walk(_ROOT / folder):
            below.sort()
            for name in sorted([name for name in names if name.endswith(endings)]):
                with open(f"{where}/{name}", "rb", buffering=0) as file:
                    content = file.read()
                digest.update(f"{where[len(root) :]}/{name} {len(content)}\n".encode())
                digest.update(content)
    return digest.hexdigest()


def _kernel_check() -> KernelCheck:
    from proofgrad.verify.kernels.proof import KernelProver

    return KernelProver()


def _value_check() -> ValueCheck:
    from proofgrad.verify.sampled.kernels import ValueChecker

    made = ValueChecker()
    atexit.register(_say_what_was_checked, made)
    return made


def _say_what_was_checked(check: ValueCheck) -> None:
    """One line at the end, with DEBUG=1."""
    if settings.debug_level() >= 1:
        say(f"checked {check.summary()}")
