"""What the commands of `python -m proofgrad` do: each gives text to print.

Owns: the listings of stages, rules and machines. Does not own: arguments (__main__.py).
"""

from __future__ import annotations

import importlib.util
import os
import platform
import warnings
from collections.abc import Sequence

from proofgrad import Device, __version__
from proofgrad.core import settings

_OPTIONAL = ("sklearn", "pyopencl", "cuda", "z3", "lark", "llvmlite", "numpy", "rich")


def demo(epochs: int | None, device: str | None) -> None:
    """Train the demo. Raises: DeviceError, MissingDataError."""
    from proofgrad import demo as training

    if device is not None:
        Device.DEFAULT = device
    training.run(training.EPOCHS if epochs is None else epochs)


def stages() -> str:
    """Every stage of the compiler, with the form that it makes."""
    from proofgrad.core.compile.stages import show_stages
    from proofgrad.rules.library import load_library
    from proofgrad.rules.pipeline import GRAPH_STAGES, KERNEL_STAGES

    sizes = {name: len(rules.rules) for name, rules in load_library().items()}
    rows = show_stages((*GRAPH_STAGES, *KERNEL_STAGES), sizes)
    return _table([("form", "stage", "kind", "what it is"), *rows])


def rules(ruleset: str | None) -> str:
    """The sets and how many rules each has; or every rule of one set, as written."""
    from proofgrad.rules.library import library_names, load_library

    if ruleset is None:
        rows = [(name, str(len(found.rules))) for name, found in load_library().items()]
        return _table([("set", "rules, all proven"), *rows])
    if ruleset not in library_names():
        raise ValueError(f"no rule set {ruleset!r}; there are {', '.join(library_names())}")
    found = load_library()[ruleset]
    return "\n".join([rule.text.strip() for rule in found.rules])


def doctor() -> str:
    """Versions, devices, optional packages, settings."""
    rows = [
        ("proofgrad", __version__),
        ("python", platform.python_version()),
        ("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"),
        ("cache", str(settings.cache_folder())),
        ("default device", Device.DEFAULT),
        *[(f"device {name}", _state(name)) for name in Device.names()],
        *[(f"package {name}", _found(name)) for name in _OPTIONAL],
        *[(name, os.environ[name]) for name in settings.MEANING if name in os.environ],
    ]
    return _table(rows)


def _state(device: str) -> str:
    """Does the device open? If not, why; if with a warning, which."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            Device[device]
        except (RuntimeError, ImportError, ValueError) as error:
            return f"not available: {str(error).splitlines()[0]}"
    return "; ".join(["available", *[str(warning.message) for warning in caught]])


def _found(package: str) -> str:
    return "found" if importlib.util.find_spec(package) else "not installed"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest entry; the last one free."""
    widths = [max([len(row[k]) for row in rows]) for k in range(len(rows[0]) - 1)]
    return "\n".join(
        ["  ".join([*[f"{cell:<{w}}" for cell, w in zip(row, widths)], row[-1]]) for row in rows]
    )
