"""The contract between the compiler and a machine: target, source, binary, backend.

Owns: the types that every backend gives and takes, the errors that it raises, and all that the core asks of it. Does not own:
which backends exist (entry points, core/tensor/runtime/device.py) and how they work (backends/).
"""

from __future__ import annotations

import functools
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import Any, Protocol

from proofgrad.core.compile.machine.machine import PAGE_BYTES, SECOND_CACHE_BYTES, Core, FirstCache
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

COMPUTED_TYPES = frozenset(dtypes.all)
ALL_TYPES = COMPUTED_TYPES | frozenset(dtypes.fp8s)
WIDE_TYPES = COMPUTED_TYPES - {dtypes.float16, dtypes.bfloat16}

# What a machine may say that it does not keep of IEEE 754.
UNPROMISED = ("denormal numbers", "infinities", "NaN", "the sign of zero")


class DeviceError(RuntimeError):
    """A machine cannot be used: says which, why, and what to install or set."""


class CompileError(RuntimeError):
    """The machine's own compiler refused a source: carries its log. A mistake of a backend."""


class Borrowed:
    """A handle to memory that belongs to somebody else: it is read, and no result is put there."""

    __slots__ = ()


# An item of warps that multiply holds so many times as much as one whose group is as large as may be: such groups are smaller.
PARTS_OF_SCORES = 2
# Of the rate at which units take vectors of their own length, where whole ones run in halves, so much is reached (measured: a step of 16 rows takes
# 12 cycles of 8 lanes, 19 of 16).
PART_OF_HALVES = 0.8


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """Warps multiply matrices of 8 * `halves` x 4 * `steps` and 4 * `steps` x 8 elements at once (core/ir/fragments.py)."""

    factor: DType
    total: DType
    halves: int
    steps: int
    word: int = 0  # of a factor, elements side by side that a warp hands its items of rows of 16 bytes, all at once; 0: items read by themselves
    reads_across: bool = False  # and of rows that lie across the steps, not along them, too
    rounds: bool = False  # it takes factors that were rounded to TF32


@dataclass(frozen=True, slots=True)
class TileUnit:
    """A core multiplies matrices of `side` x `groups` * `group` and `groups` * `group` x `side` elements at once, in `cycles`."""

    rows: DType
    columns: DType
    total: DType
    side: int
    groups: int
    group: int
    cycles: int
    sums: int  # matrices of results that it keeps
    flushes: bool = (
        False  # denormal numbers count as 0: it is used where that is asked for, or there are none
    )


@dataclass(frozen=True, slots=True)
class Target:
    """What the compiler must know about a machine to make Linear for it. docs/schedules.md says where each is used."""

    name: str
    vector_bytes: int = 0  # width of a vector register; 0: the backend takes scalars only
    most_lanes: int = 64  # of a vector
    vector_registers: int = 16
    first_cache: FirstCache = FirstCache()
    cache_bytes: int = SECOND_CACHE_BYTES  # of the second cache, which a core has to itself
    page_bytes: int = PAGE_BYTES  # of memory that a processor foresees the reading of
    core: Core = Core()
    past_caches_bytes: int = 0  # of results that are stored past the caches, at least; 0: none are
    past_caches_crossed_bytes: int = 0  # of those that are not written in order; 0: no less
    scratch_bytes: int = 0  # of memory that a kernel may have to itself while it runs
    threads: int = 1  # more than 1: an outermost THREAD range is welcome
    work_items: bool = False  # an outermost GLOBAL range is expected
    group_items: int = 0  # work items of a group that may wait for each other; 0: they cannot
    local_bytes: int = 0  # of memory that a group may have to itself while it runs
    unit_local_bytes: int = 0  # of such memory of a unit, for all groups on it; 0: not known
    lost_local_bytes: int = 0  # of it, that each group costs beside what it asks for
    row_items: int = 0  # of a group whose items hold a row in registers, at most; 0: they do not
    row_part_bytes: int = 0  # of registers of such an item, for its part of a row
    unit_items: int = 0  # of all groups that run on a unit at once; 0: not known
    unit_registers: int = 0  # of 4 bytes, for all of them; 0: not known
    unit_groups: int = 2  # that there shall be room for on a unit, so that one computes while another waits; twice as many that only move what they read
    units: int = (
        0  # that groups run on, all at once; 0: there are no groups that items read side by side in
    )
    lockstep: int = (
        1  # work items that run in step: what neighbours read side by side is one access
    )
    warp_items: int = 0  # of a group, that exchange what they hold without memory; 0: none do
    matrix_units: tuple[MatrixUnit | TileUnit, ...] = ()  # of warps, or of cores
    # Those for which denormal numbers are 0, where that is not asked for: for products of which none is denormal.
    units_of_normals: tuple[TileUnit, ...] = ()
    copies_ahead: bool = (
        False  # items go on while what they copy into memory of a group is on its way
    )
    storage: frozenset[DType] = ALL_TYPES  # types of buffers, casts and bitcasts
    arithmetic: frozenset[DType] = WIDE_TYPES  # types of ALU ops; other floats go through float32
    index_dtype: DType = dtypes.int64  # preferred; int32 is taken only where the bounds fit it
    native: frozenset[Ops] = (
        frozenset()
    )  # of EXP2, EXP, LOG2, SIN, COS, POW, FMOD, TF32: those the backend prints itself
    approximate: frozenset[Ops] = (
        frozenset()
    )  # of these, of float32: instructions with errors of their own, where they are asked for
    has_fma: bool = True  # MULACC and FMA on floats cost no more than a MUL
    # FMA of floats is a function, one lane at a time: where two roundings do, a product and a sum are taken.
    calls_fma: bool = False
    has_dot: bool = False  # DOT of vectors of int32 is an instruction
    most_buffers: int = 128  # that a kernel may name: OpenCL promises room for so many pointers
    has_parts: bool = False  # a kernel may be given memory that begins inside of other memory
    unpromised: tuple[str, ...] = ()  # of IEEE 754, what the machine does not keep: UNPROMISED
    is_tuned: bool = False  # its schedules were measured on such a machine: it may be the default
    runs: bool = True  # False: kernels can be printed and compiled here; reading a value raises

    @property
    def score_bytes(self) -> int:
        """Of registers of an item of warps that multiply, for its part of a block of scores."""
        return PARTS_OF_SCORES * self.row_part_bytes

    def lanes(self, dtype: DType) -> int:
        """How many values of `dtype` fill a vector register; 1 where there are no vectors."""
        return max(1, min(self.most_lanes, self.vector_bytes // dtype.itemsize))

    def as_asked(self, flushes: bool, approximates: bool) -> Target:
        """The machine as it may be used: without units for which denormal numbers are 0, but for numbers of which none is, and
        without functions that are approximate, unless that is asked for.
        """
        units = [x for x in self.matrix_units if not (isinstance(x, TileUnit) and x.flushes)]
        kept = self.matrix_units if flushes else tuple(units)
        functions = self.approximate if approximates else frozenset[Ops]()
        if (kept, functions) == (self.matrix_units, self.approximate):
            return self
        others = [x for x in self.matrix_units if isinstance(x, TileUnit) and x not in kept]
        return _with(self, kept, tuple(others), functions)

    def for_normals(self) -> Target:
        """The machine as it may be used for products of which none is denormal, nor a sum of them."""
        return _with(self, (*self.matrix_units, *self.units_of_normals), (), self.approximate)

    def local_bytes_of(self, groups: int) -> int:
        """Of memory of a group, as much as leaves room for so many groups on a unit at once.

        A unit of which nothing is known is taken to have twice what one group may have.
        """
        whole = self.unit_local_bytes or 2 * self.local_bytes
        return max(0, min(self.local_bytes, whole // groups - self.lost_local_bytes))

    @property
    def has_scalar_items(self) -> bool:
        """Whether work items take one value at a time, and so have neither tiles nor wide loads."""
        return self.work_items and not self.vector_bytes

    @property
    def item_bytes(self) -> int:
        """What one item may have to itself: memory, or as much as its registers hold."""
        registers = self.vector_bytes * self.vector_registers if self.work_items else 0
        return max(self.scratch_bytes, registers)

    @property
    def least_past_caches_bytes(self) -> int:
        """Of results that are stored past the caches, in whatever order; 0: none are."""
        return min(self.past_caches_bytes, self.past_caches_crossed_bytes or self.past_caches_bytes)

    @property
    def near_bytes(self) -> int:
        """Of the first cache that a kernel may count on: half, for in the other half something else streams by."""
        return self.first_cache.nbytes // 2

    @property
    def room_bytes(self) -> int:
        """Of the second cache that a kernel may count on: half, for the same reason."""
        return self.cache_bytes // 2

    def of_a_whole_vector(self, nbytes: int) -> float:
        """So many instructions on vectors of so many bytes take as long as one on a whole vector, which runs in halves."""
        parts = self.vector_bytes / max(nbytes, self.core.unit_bytes)
        return max(1.0, PART_OF_HALVES * parts)

    def multiply_adds(self, dtype: DType) -> int:
        """Of values of `dtype`, in a cycle."""
        return self.core.multiply_adds_a_cycle * self.lanes(dtype)


@functools.lru_cache(maxsize=16)  # the compiler asks for each kernel
def _with(
    target: Target,
    units: tuple[MatrixUnit | TileUnit, ...],
    of_normals: tuple[TileUnit, ...],
    functions: frozenset[Ops],
) -> Target:
    return replace(target, matrix_units=units, units_of_normals=of_normals, approximate=functions)


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel as text of the backend's language."""

    language: str  # "llvm", "ptx", "opencl", "linear"
    entry: str  # name of the function to call
    text: str
    params: tuple[DType, ...]  # element type of the buffer in each slot
    global_size: int | None = (
        None  # work items to start: as many as the GLOBAL range has values, or whole groups
    )
    thread_size: int | None = None  # size of the THREAD range: items to share out
    group_size: int | None = None  # items of a group that wait for each other; None: no item waits
    cost_flops: int = 0  # operations of one run, an estimate
    group_bytes: int = 0  # of memory of a group, which the text leaves to the launch
    cost_instructions: int = 0  # the operations counted by register, an estimate
    own_bytes: tuple[
        int, ...
    ] = ()  # of each slot: of its memory, what an item of the THREAD range has to itself; 0: nothing
    program: UOp | None = field(default=None, compare=False, repr=False)  # the Linear it is of


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel: what a backend can load, and keep on disk."""

    entry: str
    data: bytes
    source: Source


class Launch(Protocol):
    """A loaded kernel. Called with one buffer handle per slot; may return before it has run.

    It may have `bound(written)`: the same launch for one buffer that it writes, as a function of those that it reads; and, where
    threads share the items of a loop out, `piece(buffers, first, end)`: those from `first` on and before `end` alone.
    """

    def __call__(self, buffers: Sequence[Any]) -> None: ...


class LaunchSequence(Protocol):
    """Loaded kernels that run one after the other in a single call (`Backend.sequence`)."""

    def run(self) -> None:
        """Launch all, in order."""
        ...

    def point(self, slot: int, handle: Any) -> None:
        """From now on the buffer of a slot is another one."""
        ...

    def listed(self) -> list[tuple[Launch | None, list[Any]]]:
        """Each launch with the addresses that it will be given: for checks. None: a launch that nobody asked for."""
        ...


class Backend(Protocol):
    """A machine. Each module named by an entry point has `backend() -> Backend`.

    Required: `name`, `target` and the methods from `emit` to `synchronize`. All else is optional. A class that
    inherits from Backend has what is written here in place of what it leaves out; an object that does not is given
    the same when its device is opened (`completed`).
    """

    name: str
    """As in `Device[name]`, in capitals."""

    target: Target
    """What the compiler may print for this machine."""

    @abstractmethod
    def emit(self, linear: UOp, name: str) -> Source:
        """Print Linear; `name` becomes the entry (a C identifier)."""

    @abstractmethod
    def compile(self, source: Source) -> Binary:
        """Raises: CompileError, with the log of the machine's compiler."""

    @abstractmethod
    def load(self, binary: Binary) -> Launch:
        """Raises: DeviceError where the machine is missing."""

    @abstractmethod
    def alloc(self, nbytes: int) -> Any:
        """A handle to fresh memory, contents unspecified; freed when the handle is dropped."""

    @abstractmethod
    def copyin(self, handle: Any, data: memoryview) -> None:
        """Write `data` (bytes) to the start of the buffer."""

    @abstractmethod
    def copyout(self, data: memoryview, handle: Any) -> None:
        """Read the first `data.nbytes` bytes of the buffer into `data` (writable bytes)."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything launched has run."""

    # -- optional: what is lost without each is in LOST_WITHOUT as well ---------------------------

    identity: str = ""
    """What besides the text of a kernel decides what it becomes and how fast it is: processor, driver, compiler, with
    their versions. Only for a machine whose `compile` needs nothing of a Source but its text.

    Without it, plans are not kept between processes: each process rewrites and prints every kernel again.
    """

    compiles_in_background: bool = False
    """`compile` may be called by another thread, and holds no lock of Python while the compiler works.

    Without it, kernels are compiled one after the other while nothing else is done, so first calls take longer.
    """

    compiles_in_copies: bool = False
    """`emit` and `compile` may be called in a copy of this process that was forked off, and a binary is of use in another one.

    Without it, the kernels of a large graph are made by one process, so first calls take longer.
    """

    def compile_together(self, sources: Sequence[Source]) -> Iterator[Binary]:
        """What `compile` gives for each of several texts that wait, in order, and raises for one that is refused.

        Of use only where a compiler takes long for any text, and hardly longer for several in one.
        """
        return map(self.compile, sources)

    def part(self, handle: Any, offset_bytes: int) -> Any:
        """A handle to the same memory from `offset_bytes` on, with `whole`, the other handle, as an attribute. Asked where
        the target `has_parts`.

        Without it, kernels are compiled for each position that a slice of memory begins at.
        """
        raise DeviceError(f"{self.name} has no handles to parts of memory")

    def sequence(
        self, launches: Sequence[tuple[Launch, Sequence[int], Sequence[int]]], memory: Sequence[Any]
    ) -> LaunchSequence | None:
        """Launches, each with the slots of its buffers in `memory`, of the one that it writes first, and the bytes that each
        begins behind them, as one call; None: not these.

        Without it, a function under TinyJit launches its kernels one by one from Python, some microseconds each.
        """
        return None

    def timed(self, work: Callable[[], None]) -> float:
        """Do some work and wait for it: the seconds that it took, by a clock of the machine.

        Without it, times of DEBUG=2 and profile() hold the launch and the wait as well.
        """
        start = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - start

    def assembly(self, source: Source) -> str | None:
        """The machine's instructions of a kernel, for people.

        Without it, DEBUG=6 has no machine code to show.
        """
        return None

    def adopt(self, address: int, nbytes: int, keep: object) -> Any:
        """A handle to memory of somebody else, a subclass of Borrowed; `keep` is held as long as the handle is.

        Without it, memory of other libraries cannot be used in place (from_blob, from_dlpack): it must be copied.

        Raises: DeviceError where the machine cannot.
        """
        raise DeviceError(
            f"{self.name} cannot use the memory of another library in place; copy it: Tensor(array)"
        )


REQUIRED = ("name", "target", *sorted(Backend.__abstractmethods__))
LOST_WITHOUT = {
    "identity": "plans are not kept between processes: each process rewrites and prints every kernel again",
    "compiles_in_background": "kernels are compiled one after the other while nothing else is done, so first calls take longer",
    "compiles_in_copies": "the kernels of a large graph are made by one process, so first calls take longer",
    "sequence": "a function under TinyJit launches its kernels one by one from Python, some microseconds each",
    "part": "kernels are compiled for each position that a slice of memory begins at",
    "timed": "times of DEBUG=2 and profile() hold the launch and the wait as well",
    "assembly": "DEBUG=6 has no machine code to show",
    "adopt": "memory of other libraries cannot be used in place (from_blob, from_dlpack): it must be copied",
}

OF_SOME = ("compile_together",)  # optional as well; most machines lose nothing without


def completed(made: Any, device: str) -> Backend:
    """What the maker of a device gave, with the optional members of Backend that it lacks.

    Raises: DeviceError, with the required members that it lacks.
    """
    missing = [member for member in REQUIRED if not hasattr(made, member)]
    if missing:
        raise DeviceError(
            f"the backend of {device}, {type(made).__name__}, lacks {', '.join(missing)};"
            " let its class inherit from proofgrad.device.Backend, which says what each must do"
        )
    for member in (*LOST_WITHOUT, *OF_SOME):
        if not hasattr(made, member):
            default = vars(Backend)[member]
            try:
                setattr(made, member, MethodType(default, made) if callable(default) else default)
            except AttributeError:  # slots, or frozen
                raise DeviceError(
                    f"the backend of {device}, {type(made).__name__}, has no {member} and takes none;"
                    " let its class inherit from proofgrad.device.Backend"
                ) from None
    backend: Backend = made
    return backend


def left_out(backend: Backend) -> list[str]:
    """The optional members that are still as in Backend."""
    is_given = {
        "identity": backend.identity != "",
        "compiles_in_background": backend.compiles_in_background,
        "compiles_in_copies": backend.compiles_in_copies,
        "sequence": not _is_default(backend.sequence),
        "part": not _is_default(backend.part),
        "timed": not _is_default(backend.timed),
        "assembly": not _is_default(backend.assembly),
        "adopt": not _is_default(backend.adopt),
    }
    return [member for member in LOST_WITHOUT if not is_given[member]]


def _is_default(method: object) -> bool:
    return isinstance(method, MethodType) and method.__func__ in vars(Backend).values()
