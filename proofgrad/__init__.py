"""proofgrad: a deep-learning framework and tensor compiler whose every rewrite rule is proven.

Owns: the names that users import, each loaded when first asked for, so that a plain import costs
little. Does not own: anything behind them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proofgrad.moved import tell_new_names

if TYPE_CHECKING:
    from proofgrad import nn
    from proofgrad.context import Context, schedule
    from proofgrad.core.compile.nests.kernel_schedule import Schedule, ScheduleError
    from proofgrad.core.ir.dtypes import dtypes
    from proofgrad.core.ir.ops import Ops
    from proofgrad.core.ir.shapes import ShapeError
    from proofgrad.core.ir.sizes import Variable
    from proofgrad.core.ir.uop import UOp
    from proofgrad.core.tensor.data.errors import DeviceError, DtypeError, GradientError, JitError
    from proofgrad.core.tensor.jit.jit import TinyJit
    from proofgrad.core.tensor.methods.calls import function
    from proofgrad.core.tensor.methods.custom_vjp import custom_vjp
    from proofgrad.core.tensor.runtime.counters import GlobalCounters
    from proofgrad.core.tensor.runtime.device import Device
    from proofgrad.core.tensor.runtime.profile import profile
    from proofgrad.core.tensor.tensor import Tensor
    from proofgrad.explanation import explain
    from proofgrad.helpers import fetch, getenv
    from proofgrad.testing.gradients import gradcheck
    from proofgrad.user_rules import load_rules

__all__ = [
    "Context",
    "Device",
    "DeviceError",
    "DtypeError",
    "GlobalCounters",
    "GradientError",
    "JitError",
    "Ops",
    "Schedule",
    "ScheduleError",
    "ShapeError",
    "Tensor",
    "TinyJit",
    "UOp",
    "Variable",
    "custom_vjp",
    "dtypes",
    "explain",
    "fetch",
    "function",
    "getenv",
    "gradcheck",
    "load_rules",
    "nn",
    "profile",
    "schedule",
]
__version__ = "0.1.0"

_HOME = {
    "Context": "proofgrad.context",
    "Device": "proofgrad.core.tensor.runtime.device",
    "DeviceError": "proofgrad.core.tensor.data.errors",
    "DtypeError": "proofgrad.core.tensor.data.errors",
    "GradientError": "proofgrad.core.tensor.data.errors",
    "JitError": "proofgrad.core.tensor.data.errors",
    "TinyJit": "proofgrad.core.tensor.jit.jit",
    "custom_vjp": "proofgrad.core.tensor.methods.custom_vjp",
    "GlobalCounters": "proofgrad.core.tensor.runtime.counters",
    "Ops": "proofgrad.core.ir.ops",
    "Schedule": "proofgrad.core.compile.nests.kernel_schedule",
    "ScheduleError": "proofgrad.core.compile.nests.kernel_schedule",
    "ShapeError": "proofgrad.core.ir.shapes",
    "Tensor": "proofgrad.core.tensor.tensor",
    "UOp": "proofgrad.core.ir.uop",
    "Variable": "proofgrad.core.ir.sizes",
    "dtypes": "proofgrad.core.ir.dtypes",
    "explain": "proofgrad.explanation",
    "function": "proofgrad.core.tensor.methods.calls",
    "fetch": "proofgrad.helpers",
    "getenv": "proofgrad.helpers",
    "gradcheck": "proofgrad.testing.gradients",
    "load_rules": "proofgrad.user_rules",
    "profile": "proofgrad.core.tensor.runtime.profile",
    "schedule": "proofgrad.context",
}
_NEEDS_MACHINES = frozenset({"Device", "Tensor", "TinyJit", "explain", "gradcheck", "load_rules"})

tell_new_names()


def __getattr__(name: str) -> Any:
    if name == "nn":
        return import_module("proofgrad.nn")
    if name not in _HOME:
        raise AttributeError(f"module 'proofgrad' has no attribute {name!r}")
    if name in _NEEDS_MACHINES:
        import_module("proofgrad.wiring").connect()
    if name == "dtypes" or name in _NEEDS_MACHINES:
        import_module("proofgrad.context").start_defaults()
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
