"""The contract between the compiler and a machine: target, source, binary, backend.

Owns: the types that every backend gives and takes, and the errors that it raises. Does not own:
which backends exist (entry points, core/tensor/runtime/device.py) and how they work (backends/).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from proofgrad.core.compile.machine.machine import PAGE_BYTES, SECOND_CACHE_BYTES, Core, FirstCache
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

COMPUTED_TYPES = frozenset(dtypes.all)
ALL_TYPES = COMPUTED_TYPES | frozenset(dtypes.fp8s)
WIDE_TYPES = COMPUTED_TYPES - {dtypes.float16, dtypes.bfloat16}


class DeviceError(RuntimeError):
    """A machine cannot be used: says which, why, and what to install or set."""


class CompileError(RuntimeError):
    """The machine's own compiler refused a source: carries its log. A mistake of a backend."""


class Borrowed:
    """A handle to memory that belongs to somebody else: it is read, and no result is put there."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What the compiler must know about a machine to make Linear for it. docs/machine.md says where each is used."""

    name: str
    vector_bytes: int = 0  # width of a vector register; 0: the backend takes scalars only
    vector_registers: int = 16
    first_cache: FirstCache = FirstCache()
    cache_bytes: int = SECOND_CACHE_BYTES  # of the second cache, which a core has to itself
    page_bytes: int = PAGE_BYTES  # of memory that a processor foresees the reading of
    core: Core = Core()
    scratch_bytes: int = 0  # of memory that a kernel may have to itself while it runs
    threads: int = 1  # more than 1: an outermost THREAD range is welcome
    work_items: bool = False  # an outermost GLOBAL range is expected
    storage: frozenset[DType] = ALL_TYPES  # types of buffers, casts and bitcasts
    arithmetic: frozenset[DType] = WIDE_TYPES  # types of ALU ops; other floats go through float32
    index_dtype: DType = dtypes.int64  # preferred; int32 is taken only where the bounds fit it
    native: frozenset[Ops] = (
        frozenset()
    )  # of EXP2, LOG2, SIN, COS, POW, FMOD: those the backend prints itself
    has_fma: bool = True  # MULACC and FMA on floats cost no more than a MUL
    runs: bool = True  # False: kernels can be printed and compiled here; reading a value raises

    def lanes(self, dtype: DType) -> int:
        """How many values of `dtype` fill a vector register; 1 where there are no vectors."""
        return max(1, self.vector_bytes // dtype.itemsize)

    @property
    def near_bytes(self) -> int:
        """Of the first cache that a kernel may count on: half, for in the other half something else streams by."""
        return self.first_cache.nbytes // 2

    @property
    def room_bytes(self) -> int:
        """Of the second cache that a kernel may count on: half, for the same reason."""
        return self.cache_bytes // 2

    def multiply_adds(self, dtype: DType) -> int:
        """Of values of `dtype`, in a cycle."""
        return self.core.multiply_adds_a_cycle * self.lanes(dtype)


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel as text of the backend's language."""

    language: str  # "llvm", "ptx", "opencl", "linear"
    entry: str  # name of the function to call
    text: str
    params: tuple[DType, ...]  # element type of the buffer in each slot
    global_size: int | None = None  # size of the GLOBAL range: work items to start
    thread_size: int | None = None  # size of the THREAD range: items to share out
    cost_flops: int = 0  # operations of one run, an estimate
    program: UOp | None = field(default=None, compare=False, repr=False)  # the Linear it is of


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel: what a backend can load, and keep on disk."""

    entry: str
    data: bytes
    source: Source


class Launch(Protocol):
    """A loaded kernel. Called with one buffer handle per slot; may return before it has run."""

    def __call__(self, buffers: Sequence[Any]) -> None: ...


class Backend(Protocol):
    """A machine. Each module named by an entry point has `backend() -> Backend`."""

    name: str
    target: Target

    def emit(self, linear: UOp, name: str) -> Source:
        """Print Linear; `name` becomes the entry (a C identifier)."""
        ...

    def compile(self, source: Source) -> Binary:
        """Raises: CompileError, with the log of the machine's compiler."""
        ...

    def load(self, binary: Binary) -> Launch:
        """Raises: DeviceError where the machine is missing."""
        ...

    def alloc(self, nbytes: int) -> Any:
        """A handle to fresh memory, contents unspecified; freed when the handle is dropped."""
        ...

    def copyin(self, handle: Any, data: memoryview) -> None:
        """Write `data` (bytes) to the start of the buffer."""
        ...

    def copyout(self, data: memoryview, handle: Any) -> None:
        """Read the first `data.nbytes` bytes of the buffer into `data` (writable bytes)."""
        ...

    def synchronize(self) -> None:
        """Wait until everything launched has run."""
        ...
