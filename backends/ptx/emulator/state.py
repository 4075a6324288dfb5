"""What the emulated driver remembers: devices with their memory, streams, events, modules, graphs, and how it answers.

Owns: these values, the context of each thread, errors as the driver gives them. Does not own: the functions themselves
(driver.py, memory_calls.py, kernel_calls.py).
"""

from __future__ import annotations

import bisect
import ctypes
import enum
import mmap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from proofgrad.backends.ptx.emulator.grid import KernelFault, Launch
from proofgrad.backends.ptx.emulator.module import Compiled

MEMORY_BYTES = 8 << 30
MAX_GRID, MAX_GRID_YZ, MAX_BLOCK, MAX_SHARED = 2**31 - 1, 65535, 1024, 48 << 10
# KB of shared memory that a block may ask for, and that a multiprocessor has, from each compute capability on. Source: CUDA C++
# Programming Guide, "Compute Capabilities".
ASKED_SHARED = {
    70: (96, 96),
    75: (64, 64),
    80: (163, 164),
    86: (99, 100),
    87: (163, 164),
    89: (99, 100),
    90: (227, 228),
    120: (99, 100),
}
LARGE = 1 << 16  # from here on memory comes in pages
VECTOR_BYTES = 16  # of the longest load, which may end behind its memory


class CUresult(enum.IntEnum):
    """Numbers of errors. Source: CUDA Driver API, "CUresult"."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_LAUNCH_TIMEOUT = 702
    CUDA_ERROR_MISALIGNED_ADDRESS = 716
    CUDA_ERROR_LAUNCH_FAILED = 719


class Failed(Exception):
    """A call that gives an error."""

    def __init__(self, code: CUresult) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(eq=False, slots=True)
class Block:
    """Memory of a device, and the object that holds it."""

    address: int
    nbytes: int
    holder: object


@dataclass(eq=False, slots=True)
class Context:
    """A device with all that is on it. `fault`: what ended it."""

    ordinal: int
    memory_bytes: int
    blocks: dict[int, Block] = field(default_factory=dict)
    addresses: list[int] = field(default_factory=list)  # of the blocks, in order
    pool: dict[int, list[Block]] = field(default_factory=dict)  # freed, by their bytes
    used_bytes: int = 0
    pooled_bytes: int = 0
    modules: set[Module] = field(default_factory=set)
    streams: list[Stream] = field(default_factory=list)
    fault: CUresult | None = None

    def bounds(self, address: int) -> tuple[int, int]:
        """First byte and one behind the last of the block that an address lies in; (0, 0) outside of all."""
        k = bisect.bisect_right(self.addresses, address) - 1
        if k >= 0:
            block = self.blocks[self.addresses[k]]
            if address < block.address + block.nbytes:
                return block.address, block.address + block.nbytes
        return 0, 0


@dataclass(eq=False, slots=True)
class Stream:
    """What was asked for and has not run."""

    context: Context
    waiting: list[Callable[[], None]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Event:
    """A position in a stream. `seconds`: when it was reached; None: not yet."""

    context: Context
    stream: Stream | None = None
    seconds: float | None = None


@dataclass(eq=False, slots=True)
class Module:
    """Loaded PTX."""

    context: Context
    kernels: dict[str, Compiled]


@dataclass(eq=False, slots=True)
class Function:
    """A kernel of a module."""

    module: Module
    kernel: Compiled
    allowed_shared: int = MAX_SHARED  # with what a launch gives


@dataclass(eq=False, slots=True)
class Node:
    """A launch in a graph: its function, shape and parameters, and those that it waits for."""

    launch: Launch
    function: Function
    before: tuple[Node, ...] = ()


@dataclass(eq=False, slots=True)
class Graph:
    """Nodes, each behind those that it waits for."""

    context: Context
    nodes: list[Node] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class GraphExec:
    """A graph that can be launched: the launch of each node."""

    context: Context
    launches: dict[Node, tuple[Launch, Function]]


class CUDA_KERNEL_NODE_PARAMS(SimpleNamespace):
    """The attributes that cuda.bindings.driver gives a node's parameters."""


def names(*pairs: tuple[str, int]) -> Any:
    """An object with these attributes, as an enumeration of the driver."""
    return SimpleNamespace(**dict(pairs))


def fresh_memory(nbytes: int) -> tuple[int, int, object]:
    """Address, size and holder of fresh memory at a multiple of 256, whose content nobody knows, nor what is behind it."""
    if nbytes >= LARGE:
        pages = mmap.mmap(-1, nbytes)
        return ctypes.addressof((ctypes.c_char * nbytes).from_buffer(pages)), nbytes, pages
    holder = ctypes.create_string_buffer(nbytes + 256 + VECTOR_BYTES)
    address = -(-ctypes.addressof(holder) // 256) * 256
    ctypes.memset(address, 0xA5, nbytes + VECTOR_BYTES)
    return address, nbytes, holder


class Calls:
    """What all functions of the driver need: the context of the thread that calls, streams that are made to run."""

    def __init__(self, devices: int, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.contexts = [Context(k, memory_bytes) for k in range(devices)]
        self.fault_text = ""
        self._current = threading.local()
        self._lock = threading.RLock()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return _Call(self, found) if name.startswith("cu") and name[2:3].isupper() else found

    def context(self) -> Context:
        """That of the calling thread, if it is in order."""
        found: Context | None = getattr(self._current, "context", None)
        if found is None:
            raise Failed(CUresult.CUDA_ERROR_INVALID_CONTEXT)
        if found.fault is not None:
            raise Failed(found.fault)
        return found

    def require(self, truth: bool, code: CUresult = CUresult.CUDA_ERROR_INVALID_VALUE) -> None:
        """Raises: Failed, unless it is so."""
        if not truth:
            raise Failed(code)

    def own(self, thing: Any) -> Context:
        """The current context, if `thing` belongs to it."""
        context = self.context()
        self.require(thing.context is context, CUresult.CUDA_ERROR_INVALID_HANDLE)
        return context

    def drain(self, context: Context, stream: Stream) -> None:
        """Run what waits. A fault ends the context, and what waits behind it never runs."""
        waiting, stream.waiting = stream.waiting, []
        for work in waiting:
            try:
                work()
            except KernelFault as fault:
                context.fault, self.fault_text = CUresult[fault.code], str(fault)
                raise Failed(context.fault) from None


class _Call:
    """A function with the driver's manners: a tuple of its code and its results, one caller at a time."""

    def __init__(self, driver: Calls, function: Callable[..., Any]) -> None:
        self._driver, self._function = driver, function

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        try:
            with self._driver._lock:
                result = self._function(*arguments)
        except Failed as error:
            return (error.code, None)
        if result is None:
            return (CUresult.CUDA_SUCCESS,)
        return (CUresult.CUDA_SUCCESS, *(result if isinstance(result, tuple) else (result,)))
