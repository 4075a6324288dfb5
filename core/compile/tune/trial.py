"""Kernels run over memory of their own, to be timed and compared: what a search measures with.

Owns: that memory, what is in it, times, the comparison of results. Does not own: what is tried
(search.py, search_space.py).

Memory is filled with small whole numbers, whose products and sums are exact in floats, so that
kernels that sum in another order agree to the bit as long as nothing but sums and products is taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from proofgrad.core.compile.machine.target import Backend
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.evaluate import cast, from_bits, to_bits
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import Kernel

# A sample of so many seconds is long against a tick of the clock and short against other work.
SAMPLE_SECONDS = 1e-3
# A sample in which the caller, who works or spins all the time, ran for less than its length was disturbed.
DISTURBED = 1.1
MOST_TRIES = 4
_PATTERN = 4099  # values before they repeat: a prime, so that rows of a matrix differ


class Trial:
    """The kernels of one body with one set of choices, ready to run."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        memory: dict[int, Any],
        variables: dict[str, Any],
        backend: Backend,
    ) -> None:
        """`memory` of the parameters of the body, and of its `variables` by their names."""
        own = dict(memory)
        for kernel in kernels:
            own.update({slot: variables[name] for slot, name in kernel.variables.items()})
            if kernel.slots[0] not in own:  # a table
                nbytes = kernel.size * kernel.source.params[0].itemsize
                own[kernel.slots[0]] = backend.alloc(max(1, nbytes))
        self._launches = [(k.ready(), [own[slot] for slot in k.slots]) for k in kernels]
        self._backend = backend

    def run(self) -> None:
        """Launch the kernels once, in order, and wait until they have run."""
        for launch, buffers in self._launches:
            launch(buffers)
        self._backend.synchronize()

    def seconds(self, times: int = 1) -> float:
        """Seconds a run, the mean of `times` of them; again where others had the processor."""
        least = float("inf")
        for _ in range(MOST_TRIES):
            start, own = time.perf_counter(), time.thread_time()
            for _ in range(times):
                self.run()
            taken, own = time.perf_counter() - start, time.thread_time() - own
            least = min(least, taken)
            if taken <= own * DISTURBED:
                break
        return least / times


class Bench:
    """Memory for the parameters of a body, and what its kernels write there."""

    def __init__(self, body: UOp, backend: Backend) -> None:
        self._backend = backend
        value = body.src[0]
        self._dtype, self._size = value.dtype, prod(value.shape)
        self._tolerance = _tolerance(body)
        self._memory = {0: backend.alloc(max(1, self._size * value.dtype.itemsize))}
        for node in toposort((body,)):
            if node.op is Ops.PARAM and node.arg[0] not in self._memory:
                self._memory[node.arg[0]] = _filled(node.dtype, node.arg[1], node.arg[0], backend)
        named = [one for node in toposort((body,)) for one in _variables_of(node.arg)]
        self._variables = {  # each another value, as positions that are written to and read are
            name: _number(least + k % (most - least + 1), backend)
            for k, (name, least, most) in enumerate(dict.fromkeys(named))
        }

    def trial(self, kernels: Sequence[Kernel]) -> Trial:
        """`kernels`, compiled from this body, over the memory of this bench."""
        return Trial(kernels, self._memory, self._variables, self._backend)

    def result(self) -> bytes:
        """What the last run wrote."""
        data = bytearray(self._size * self._dtype.itemsize)
        self._backend.copyout(memoryview(data), self._memory[0])
        return bytes(data)

    def agree(self, one: bytes, other: bytes) -> bool:
        """Equal to the bit (any NaN equals any NaN); sums of floats within the bound of their order."""
        if one == other:
            return True
        if not self._dtype.is_float:
            return False
        import numpy

        a, b = (_as_numbers(data, self._dtype) for data in (one, other))
        with numpy.errstate(all="ignore"):
            same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
            finite = numpy.abs(a[numpy.isfinite(a)])
            largest = float(finite.max()) if finite.size else 0.0
            return bool((same | (numpy.abs(a - b) <= self._tolerance * largest)).all())


def _variables_of(arg: Any) -> Iterator[tuple[str, int, int]]:
    """The variables that the argument of a node names, with the least and the greatest value of each."""
    if type(arg) is tuple:
        for part in arg:
            yield from _variables_of(part)
    elif isinstance(arg, UOp):
        yield from [node.arg for node in arg.toposort() if node.op is Ops.VARIABLE]


def _number(value: int, backend: Backend) -> Any:
    """Memory that holds the value of a variable, as a kernel reads it."""
    handle = backend.alloc(8)
    backend.copyin(handle, memoryview(value.to_bytes(8, "little", signed=True)))
    return handle


def _tolerance(body: UOp) -> float:
    """How far two orders of a sum may be apart, as a part of the largest result.

    n additions round n times, each by half a unit in the last place, and then the result is rounded
    to its type; 0 where no floats are summed.
    """
    sums = [n for n in toposort((body,)) if n.op is Ops.REDUCE_AXIS and n.dtype.is_float]
    sums = [n for n in sums if n.arg[0] in (Ops.ADD, Ops.MUL)]
    if not sums:
        return 0.0
    errors: list[float] = [
        prod(n.src[0].shape[a] for a in n.arg[1]) * _half_unit(n.dtype) for n in sums
    ]
    return 2 * (max(errors) + _half_unit(body.src[0].dtype))


def _half_unit(dtype: DType) -> float:
    """Half of the distance between 1 and the next value; for integers nothing."""
    if not dtype.is_float:
        return 0.0
    one = to_bits(1.0, dtype)
    return (float(from_bits(one + 1, dtype)) - 1.0) / 2


def _filled(dtype: DType, size: int, seed: int, backend: Backend) -> Any:
    """Memory of `size` elements: floats from -4 to 4, integers from 0 to 4, whole numbers all."""
    import numpy

    handle = backend.alloc(max(1, size * dtype.itemsize))
    if size:
        numbers = range(-4 if dtype.is_float else 0, 5)
        bits = [to_bits(cast(number, dtype), dtype) for number in numbers]
        codes = numpy.array(bits, f"u{dtype.itemsize}")
        pattern = numpy.random.default_rng(seed).choice(codes, _PATTERN)
        backend.copyin(handle, numpy.resize(pattern, size).data.cast("B"))
    return handle


def _as_numbers(data: bytes, dtype: DType) -> Any:
    """The values of a buffer of floats, as float64."""
    import numpy

    codes, positions = numpy.unique(
        numpy.frombuffer(data, f"u{dtype.itemsize}"), return_inverse=True
    )
    return numpy.array([from_bits(code, dtype) for code in codes.tolist()], float)[positions]
