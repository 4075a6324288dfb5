"""The steps that there are. Asks no solver."""

from __future__ import annotations

import importlib
from typing import Any

from proofgrad.core.compile.steps import evidence, loop_nest, tensor_program


def all_steps() -> dict[str, Any]:
    """Every step of core/compile/steps, on nests and on programs, in order of their names."""
    package = loop_nest.__name__.rpartition(".")[0]
    for path in sorted(evidence.STEPS_FOLDER.glob("*.py")):
        importlib.import_module(f"{package}.{path.stem}" if path.stem != "__init__" else package)
    return dict(sorted({**loop_nest.STEPS, **tensor_program.GRAPH_STEPS}.items()))


def problems() -> list[str]:
    """Why steps may not be taken, one line for each; none: all have fresh evidence."""
    try:
        entries = evidence.read_entries(evidence.EVIDENCE)
    except evidence.EvidenceError as error:
        return [str(error)]
    found, sources = [], evidence.read_sources()
    for name, step in all_steps().items():
        module = step.function.__module__
        reason = evidence.problem(entries.get(name), name, step.law, module, sources)
        if reason is not None:
            found.append(evidence.refusal(name, reason))
    return found
