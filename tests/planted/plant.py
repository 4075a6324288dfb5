"""Faults planted in the running code: a text of a module changed, in a process of its own.

Owns: putting a changed text in place of a module's functions and constants, the process that it runs in.
Does not own: which faults there are, what is run to find them.

The process is a fork, so that what it starts with (modules, rules with their evidence) is loaded once, and nothing
of the fault is left behind. Functions get the code of the changed text, wherever they are held.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import proofgrad.core
from proofgrad.core.compile.steps.loop_nest import Fission, Step

ROOT = Path(str(proofgrad.core.__file__)).resolve().parents[1]  # of the folders that faults are in


@dataclass(frozen=True, slots=True)
class Fault:
    """`before` in a file, which has it once, becomes `after`."""

    name: str
    file: str
    before: str
    after: str

    @property
    def module(self) -> str:
        return module_of(self.file)

    def text(self) -> str:
        """The changed text. Raises: ValueError if the file has no such position, or several."""
        text = (ROOT / self.file).read_text("utf-8")
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {text.count(self.before)} positions in {self.file}; one is needed"
            )
        return text.replace(self.before, self.after)


def module_of(file: str) -> str:
    """The name by which a file is imported."""
    return "proofgrad." + file.removesuffix(".py").replace("/", ".")


def forget(module: str) -> None:
    """Let the functions of a module find again what they keep."""
    for value in list(vars(importlib.import_module(module)).values()):
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def plant(module: str, text: str) -> None:
    """Let a module that is loaded behave as if its text were this one."""
    old = importlib.import_module(module)
    new = ModuleType(module)
    new.__file__, new.__package__ = old.__file__, old.__package__
    sys.modules[module] = new  # dataclasses look their module up
    try:
        exec(compile(text, str(old.__file__), "exec"), new.__dict__)
    finally:
        sys.modules[module] = old
    for name, value in vars(new).items():
        if not name.startswith("__"):
            _replace(old, name, value, module)
    forget(module)


def _replace(holder: Any, name: str, new: Any, module: str) -> None:
    """Let what `holder` has under a name be the new one."""
    old = vars(holder).get(name)
    was, becomes = _function(old), _function(new)
    if was is not None and becomes is not None:
        if _is_from(was, module) and was.__code__.co_freevars == becomes.__code__.co_freevars:
            was.__code__, was.__defaults__ = becomes.__code__, becomes.__defaults__
            was.__kwdefaults__ = becomes.__kwdefaults__
    elif isinstance(old, type) and isinstance(new, type):
        if old.__module__ == module:
            for attribute, value in list(vars(new).items()):
                if attribute not in ("__dict__", "__weakref__", "__doc__", "__module__"):
                    _replace(old, attribute, value, module)
    elif isinstance(old, dict) and isinstance(new, dict):
        for key, value in new.items():
            one, other = _function(old.get(key)), _function(value)
            if one is not None and other is not None and _is_from(one, module):
                one.__code__ = other.__code__
            elif not callable(value) and key in old and old[key] != value:
                old[key] = value
    elif isinstance(new, (int, float, str, tuple, frozenset)) and isinstance(holder, ModuleType):
        if old != new:
            setattr(holder, name, new)


def _is_from(function: FunctionType, module: str) -> bool:
    """Whether a function is written in a module; methods of Tensor say that they are of Tensor's."""
    return bool(function.__globals__["__name__"] == module)


def _function(value: Any) -> FunctionType | None:
    """The function below what decorators make of it."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, (staticmethod, classmethod, functools.partial)):
        value = getattr(value, "__func__", None) or getattr(value, "func", None)
    elif isinstance(value, (Step, Fission)):
        value = value.function
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value if isinstance(value, FunctionType) else None


def in_a_fork(work: Callable[[Callable[[Any], None]], None], seconds: int) -> list[Any]:
    """What `work` tells, each value that JSON can hold; at the end "died" or "hangs" if the process was killed.

    `seconds`: of its own time; a fault may let a loop run for ever.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _in_child(work, reader, writer, seconds)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as lines:
        told = [json.loads(line) for line in lines if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    if status == 0:
        return told
    is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM)
    return [*told, "hangs" if is_late else "died"]


def _in_child(
    work: Callable[[Callable[[Any], None]], None], reader: int, writer: int, seconds: int
) -> None:
    os.close(reader)
    faulthandler.disable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    signal.alarm(20 * seconds)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)

    def tell(value: Any) -> None:
        os.write(writer, (json.dumps(value) + "\n").encode())

    code = 1
    try:
        work(tell)
        code = 0
    finally:
        os._exit(code)
