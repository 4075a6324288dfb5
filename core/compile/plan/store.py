"""Plans kept on disk between processes, so that a second one rewrites and compiles nothing.

Owns: what a plan depends on (its key), its form in a file, the check of what is read. Does not own:
files (core/disk_cache.py), object code, which a backend keeps by the text of its kernels.

A file holds the texts of a plan's kernels and the order in which they run on which buffers. Its key
is made of the graph, what is asked for by the environment, the machine, and every file that decides
what becomes of a graph: the code, the rules and their evidence. So rules that would be refused, or
are others now, are in no plan that is found.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Any

from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Backend, CompileError
from proofgrad.core.compile.plan.plan import BufferInfo, Kernel, Plan, Step
from proofgrad.core.compile.plan.written_kernel import read_count, read_kernel, written_kernel
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.dtypes import dtype_named
from proofgrad.core.ir.shapes import Shape, elements
from proofgrad.core.ir.uop import UOp


class PlanStore:
    """Plans by key. `sources` gives the digest of all files that decide what plans are."""

    def __init__(self, sources: Callable[[], str]) -> None:
        self._sources = sources
        self._digest: str | None = None
        self._cache: DiskCache | None = None

    def serves(self, backend: Backend) -> bool:
        """Whether a machine says by what the texts of its kernels differ from those of others."""
        return backend.identity != ""

    def key(
        self, root: UOp, unneeded: frozenset[int], environment: object, backend: Backend
    ) -> str:
        """Of everything that the plan of a numbered graph depends on."""
        if self._digest is None:
            self._digest = self._sources()
        target = [f"{f.name}={_stable(getattr(backend.target, f.name))}"
                  for f in fields(backend.target)]  # fmt: skip
        machine = (backend.name, backend.identity, target)
        parts = (self._digest, sorted(unneeded), environment, machine)
        return sha256(f"{parts!r}\n{graph_text(root)}".encode()).hexdigest()

    def get(self, key: str, backend: Backend) -> Plan | None:
        """The plan of an earlier process; None if there is none, or the file makes no sense."""
        data = self._files().get(key)
        if data is None:
            return None
        try:
            return _read(json.loads(zlib.decompress(data)), backend)
        except (CompileError, ValueError, TypeError, KeyError, AttributeError, zlib.error):
            return None  # whole, but nothing that `put` writes: it is made again

    def put(self, key: str, plan: Plan, backend: Backend) -> None:
        """Keep a plan, if its kernels are all of one machine whose texts say everything."""
        if _may_be_kept(plan, backend):
            self._files().put(key, zlib.compress(json.dumps(_written(plan)).encode(), 1))

    def _files(self) -> DiskCache:
        """The files where the environment wants them now."""
        folder = settings.cache_folder() / "plans"
        if self._cache is None or self._cache.folder != folder:
            self._cache = DiskCache(folder)
        return self._cache


def graph_text(root: UOp) -> str:
    """A line a node, sources first: different for different graphs."""
    number: dict[UOp, int] = {}
    lines: list[str] = []
    for node in root.toposort():
        sources = [number[source] for source in node.src]
        number[node] = len(lines)
        lines.append(f"{node.op.name} {node.dtype.name} {_arg_text(node.arg)} {sources}")
    return "\n".join(lines)


def _arg_text(arg: object) -> str:
    """As text; sizes made of variables with all that they are made of, as people see only their names."""
    if isinstance(arg, UOp):
        return f"({graph_text(arg)})"
    if type(arg) is tuple:
        return f"({', '.join([_arg_text(part) for part in arg])})"
    return repr(arg)


def _stable(value: object) -> str:
    """As text, the same in every process: sets in order."""
    return repr(sorted(map(str, value))) if isinstance(value, frozenset) else repr(value)


def _may_be_kept(plan: Plan, backend: Backend) -> bool:
    kernels = [step.kernel for step in plan.steps if step.kernel is not None]
    return all(kernel.backend is backend for kernel in kernels) and all(
        not step.origin for step in plan.steps
    )


# -- writing ------------------------------------------------------------------------------------


def _written(plan: Plan) -> dict[str, Any]:
    kernels = list(dict.fromkeys([id(s.kernel) for s in plan.steps if s.kernel is not None]))
    by_id = {id(step.kernel): step.kernel for step in plan.steps if step.kernel is not None}
    return {
        "inputs": plan.inputs,
        "made": [_info(info) for info in plan.made],
        "results": plan.results,
        "kernels": [written_kernel(by_id[key]) for key in kernels],
        "steps": [
            [
                None if step.kernel is None else kernels.index(id(step.kernel)),
                step.slots, step.free_after, step.nbytes, _greatest(step.shape), step.offsets,
            ]
            for step in plan.steps
        ],
        "reused": [[slot, _info(info)] for slot, info in plan.reused.items()],
        "peak_bytes": plan.peak_bytes,
        "variables": plan.variables,
    }  # fmt: skip


def _greatest(shape: Shape) -> list[int]:
    """A shape as it is shown, with the greatest value of each size that varies."""
    return [elements((size,)) for size in shape]


def _info(info: BufferInfo) -> list[Any]:
    return [info.dtype.name, info.size, info.device]


# -- reading ------------------------------------------------------------------------------------


def _read(data: dict[str, Any], backend: Backend) -> Plan:
    """The plan. Raises: ValueError, TypeError, KeyError, IndexError for what is no plan."""
    kernels = [read_kernel(parts, backend, backend.compile) for parts in data["kernels"]]
    made = tuple([_read_info(parts) for parts in data["made"]])
    variables = tuple([(str(name), str(device)) for name, device in data["variables"]])
    inputs = read_count(data["inputs"])
    slots = inputs + len(made) + len(variables)
    steps = tuple([_read_step(parts, kernels, slots) for parts in data["steps"]])
    return Plan(
        inputs,
        made,
        _below(data["results"], slots),
        steps,
        {_below([slot], inputs)[0]: _read_info(info) for slot, info in data["reused"]},
        read_count(data["peak_bytes"]),
        variables,
    )


def _read_step(parts: Sequence[Any], kernels: Sequence[Kernel], slots: int) -> Step:
    number, used, free_after, nbytes, shape, begins = parts
    kernel = None if number is None else kernels[_below([number], len(kernels))[0]]
    known = _below(used, slots)
    if len(known) != (2 if kernel is None else len(kernel.source.params)):
        raise ValueError(f"{len(known)} buffers for a step")
    sizes = tuple([read_count(size) for size in shape])
    offsets = tuple([read_count(offset) for offset in begins])
    if len(offsets) not in (0, len(known)):
        raise ValueError(f"{len(offsets)} offsets for {len(known)} buffers")
    return Step(kernel, known, _below(free_after, slots), read_count(nbytes), sizes, (), offsets)


def _read_info(parts: Sequence[Any]) -> BufferInfo:
    name, size, device = parts
    return BufferInfo(dtype_named(name), read_count(size), str(device))


def _below(values: Sequence[Any], limit: int) -> tuple[int, ...]:
    """Numbers of slots. Raises: ValueError for one that there is not."""
    numbers = tuple([read_count(value) for value in values])
    if any(number >= limit for number in numbers):
        raise ValueError(f"{max(numbers)} is not below {limit}")
    return numbers
