"""Random Tensors from a counter: the same bits on every device and in every order of realising.

Owns: the generator (Threefry-2x32 with 20 rounds: Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", 2011, built from uint32 ops), the seed, distributions. Element i of call n is a function
of (seed, n, i) alone.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from typing import Any, ClassVar, Self

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, elements, is_plain, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Real,
    Whole,
    as_sizes,
    checked_shape,
    passes_on,
    refuses,
    takes_numbers,
)
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError, RangeError
from proofgrad.core.tensor.data.nodes import broadcast_node, constant_node
from proofgrad.core.tensor.data.promotion import as_dtype
from proofgrad.core.tensor.methods.base import describe
from proofgrad.core.tensor.methods.creation import permutation
from proofgrad.core.tensor.methods.creation.factories import Factories
from proofgrad.core.tensor.methods.indexing import Indexing
from proofgrad.core.tensor.methods.indexing.search import count_up_to
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime.device import canonical_device
from proofgrad.core.tensor.runtime.memory import host_buffer
from proofgrad.core.tensor.runtime.once import draw_once, mark_key
from proofgrad.core.tensor.runtime.recording import note_random

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
OPTIONS = frozenset({"device", "dtype", "contiguous", "requires_grad"})  # of rand, by name

# So many numbers get memory where they are first read; fewer are drawn again in each kernel that reads them.
DRAWN_ONCE = 64
# So many comparisons take one kernel less time than those of a search take to be made and run.
LOOKED_AT = 1 << 22
MOST_SORTED = 256  # numbers that are put in a random order by sorting others
_ONE_SEED = "there is one generator: Tensor.manual_seed(n) says where it begins"
MOST_CHECKED = 1 << 16  # weights that are looked at before positions are drawn by them


class _Seed:
    """The seed of the process and the number of the next call."""

    def __init__(self) -> None:
        self.value = time.time_ns() & 0xFFFFFFFFFFFFFFFF
        self.calls = 0
        self.lock = threading.Lock()

    def start(self, value: Whole, calls: Whole) -> None:
        with self.lock:
            self.value, self.calls = value, calls

    def next_call(self) -> tuple[Whole, Whole]:
        """The seed, and the number of a call that is begun."""
        with self.lock:
            call, self.calls = self.calls, self.calls + 1
            return self.value, call


class Creation(Factories, Indexing):
    """Random factories. Every call draws other numbers; `manual_seed` starts over."""

    __slots__ = ()
    _seed: ClassVar[_Seed] = _Seed()

    @classmethod
    @takes_numbers
    def manual_seed(cls, seed: Whole = 0) -> None:
        """Start the sequence of random calls that belongs to `seed`."""
        if not isinstance(seed, int):
            raise TypeError(f"a seed is an integer, not {describe(seed)}")
        Creation._seed.start(seed & 0xFFFFFFFFFFFFFFFF, 0)

    @classmethod
    def get_rng_state(cls) -> Self:
        """Where the random numbers of this process are: the seed and the number of calls, as uint64.

        For a checkpoint: what is drawn after `set_rng_state` of it is what was drawn after it.

        Example:
            state = Tensor.get_rng_state()
            Tensor.set_rng_state(state)
        """
        state = (Creation._seed.value, Creation._seed.calls)
        return cls._of_numbers(state)

    @classmethod
    def set_rng_state(cls, state: Self) -> None:
        """Go on where `get_rng_state` was asked. Raises: DtypeError for anything else."""
        if state.shape != (2,) or state.dtype is not dtypes.uint64:
            raise DtypeError(f"a state of random numbers is two uint64, not {describe(state)}")
        seed, calls = struct.unpack("<2Q", bytes(reading.read(state._uop, state.device)))
        Creation._seed.start(seed, calls)

    @classmethod
    def _of_numbers(cls, numbers: tuple[Whole, Whole]) -> Self:
        device = canonical_device("CPU")
        node = host_buffer(struct.pack("<2Q", *numbers), dtypes.uint64, device)
        return cls._leaf(node, device, False)

    @classmethod
    def _random_key(cls, device: str) -> Self:
        """The key of the random numbers of one call, as data, so that plans are reused."""
        key = host_buffer(cls._next_key(), dtypes.uint32, device)
        buffer = key.src[0] if key.op is Ops.COPY else key
        mark_key(buffer)
        note_random(buffer, cls._next_key)
        return cls._new(key, device)

    def _random_words(self, count: Whole) -> tuple[Self, Self]:
        """Two flat uint32 Tensors of random bits, of this key."""
        low, high, number = [
            broadcast_node(self._cut(0, k, k + 1)._uop, (count,)) for k in range(3)
        ]
        counter = UOp(Ops.IOTA, dtypes.uint32, (), count)
        first, second = threefry(counter, number, low, high)
        return self._with(first), self._with(second)

    @staticmethod
    def _next_key() -> bytes:
        seed, call = Creation._seed.next_call()
        return struct.pack("<3I", seed & 0xFFFFFFFF, seed >> 32, call & 0xFFFFFFFF)

    @classmethod
    @refuses(generator=_ONE_SEED)
    def rand(
        cls,
        *shape: Any,
        device: str | None = None,
        dtype: DType | str | None = None,
        contiguous: Flag = True,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Uniform in [0, 1): multiples of 2**-24 (float64: 2**-53), fewer bits for small floats.

        `contiguous` has no effect: a call gives the same numbers, whoever reads them.
        """
        kind = dtypes.default_float if dtype is None else as_dtype(dtype)
        if kind.is_code:
            raise DtypeError(f"rand gives no {kind}, which is only stored; draw and then cast")
        if not kind.is_float:
            raise DtypeError(f"rand gives floats, not {kind}; see randint")
        sizes, where = _sizes_of(shape), canonical_device(device)
        if not is_plain(sizes):  # of the numbers for the largest shape the first ones
            largest = [elements((size,)) for size in sizes]
            whole = cls.rand(largest, device=device, dtype=kind, requires_grad=False)
            return cls._drawn(whole.shrink_to(sizes), requires_grad)
        return cls._drawn(cls._random_key(where)._uniform(sizes, kind), requires_grad)

    @made_once
    def _uniform(self, sizes: Shape, kind: DType) -> Self:
        """The numbers of `rand`, of this key."""
        first, second = self._random_words(math.prod(sizes))
        if kind is dtypes.float64:
            high = (first >> 5).cast(kind) * 2.0**26
            line = (high + (second >> 6).cast(kind)) * 2.0**-53
        else:
            bits = {dtypes.float16: 11, dtypes.bfloat16: 8}.get(kind, 24)
            line = ((first >> (32 - bits)).cast(dtypes.float32) * 2.0**-bits).cast(kind)
        return line.reshape(sizes)

    @classmethod
    def _drawn(cls, values: Self, requires_grad: Flag | None) -> Self:
        drawn = cls._leaf(values._uop, values.device, requires_grad, own=False)
        if elements(drawn.shape) >= DRAWN_ONCE:
            draw_once(drawn)
        return drawn

    @classmethod
    @refuses(generator=_ONE_SEED)
    @passes_on(OPTIONS)
    def randn(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        requires_grad: Flag | None = None,
        **kwargs: Any,
    ) -> Self:
        """Normal with mean 0 and deviation 1 (Box and Muller, 1958)."""
        kind = as_dtype(dtypes.default_float if dtype is None else dtype)
        wide = kind if kind is dtypes.float64 else dtypes.float32
        sizes = _sizes_of(shape)
        if is_plain(sizes):
            where = canonical_device(kwargs.get("device"))
            turn_key, chance_key = cls._random_key(where), cls._random_key(where)
            return cls._drawn(turn_key._normal_of(chance_key, sizes, wide, kind), requires_grad)
        turn, chance = [cls.rand(*shape, dtype=wide, **kwargs) for _ in range(2)]
        return cls._drawn(turn._normal(chance, kind), requires_grad)

    @made_once
    def _normal_of(self, chance_key: Self, sizes: Shape, wide: DType, kind: DType) -> Self:
        """The numbers of `randn`, of these two keys."""
        return self._uniform(sizes, wide)._normal(chance_key._uniform(sizes, wide), kind)

    @made_once
    def _normal(self, chance: Self, kind: DType) -> Self:
        """Normal numbers, of two uniform ones each."""
        radius = ((1 - chance).log() * -2).sqrt()
        return ((self * (2 * math.pi)).cos() * radius).cast(kind)

    @classmethod
    @refuses(generator=_ONE_SEED)
    @passes_on(OPTIONS)
    def normal(
        cls,
        *shape: Any,
        mean: Real = 0.0,
        std: Real = 1.0,
        requires_grad: Flag | None = None,
        **kwargs: Any,
    ) -> Self:
        """Normal with the given mean and deviation."""
        if std < 0:
            raise ArgumentError(f"normal needs a deviation of 0 or more, not {std}")
        return cls._drawn(cls.randn(*shape, **kwargs) * std + mean, requires_grad)

    @classmethod
    @passes_on(OPTIONS)
    def uniform(
        cls,
        *shape: Any,
        low: Real = 0.0,
        high: Real = 1.0,
        dtype: DType | str | None = None,
        requires_grad: Flag | None = None,
        **kwargs: Any,
    ) -> Self:
        """Uniform in [low, high)."""
        if not low < high:
            raise ArgumentError(f"uniform needs low < high, not {low} and {high}")
        kind = as_dtype(dtypes.default_float if dtype is None else dtype)
        if not dtypes.is_float(kind):
            kwargs.pop("contiguous", None)
            return cls.randint(*shape, low=int(low), high=int(high), dtype=kind, **kwargs)
        line = cls.rand(*shape, dtype=kind, **kwargs) * (high - low) + low
        return cls._drawn(line, requires_grad)

    @classmethod
    @refuses(generator=_ONE_SEED)
    @takes_numbers
    def randint(
        cls,
        *shape: Any,
        low: Whole = 0,
        high: Whole = 10,
        dtype: DType | str = dtypes.int32,
        device: str | None = None,
        requires_grad: Flag | None = None,
    ) -> Self:
        """Whole numbers low <= n < high (at most 2**32 of them)."""
        kind = as_dtype(dtype)
        if not kind.is_int:
            raise DtypeError(f"randint gives integers, not {kind}")
        if not all(isinstance(bound, int) for bound in (low, high)):
            raise TypeError(f"randint takes integers as bounds, not {low!r} and {high!r}")
        if not 0 < high - low <= 2**32:
            raise ArgumentError(f"randint needs low < high and at most 2**32 values: {low}, {high}")
        if not dtypes.min(kind) <= low < high <= dtypes.max(kind) + 1:
            raise RangeError(
                f"randint from {low} to {high - 1}: {kind} holds {dtypes.min(kind)} to {dtypes.max(kind)}"
            )
        if len(shape) > 1 and any(isinstance(part, (tuple, list)) for part in shape):
            raise ShapeError(
                f"randint takes the sizes alone, not {shape}: Tensor.randint(2, 3, low=0, high=10)"
            )
        sizes, where = _sizes_of(shape), canonical_device(device)
        numbers = cls._random_key(where)._whole_numbers(sizes, low, high, kind)
        return cls._drawn(numbers, requires_grad)

    @made_once
    def _whole_numbers(self, sizes: Shape, low: Whole, high: Whole, kind: DType) -> Self:
        """The numbers of `randint`, of this key."""
        first, second = self._random_words(math.prod(sizes))
        wide = first.cast(dtypes.uint64) << 32 | second.cast(dtypes.uint64)
        line = (wide % (high - low)).cast(dtypes.int64) + low
        return line.cast(kind).reshape(sizes)

    @classmethod
    @passes_on(OPTIONS)
    def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Uniform in [-1, 1) over the square root of the number of elements."""
        bound = max(1, math.prod(_sizes_of(shape))) ** -0.5
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    @passes_on(OPTIONS)
    def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Uniform within sqrt(6 / (fan in + fan out)) (Glorot and Bengio, 2010)."""
        sizes = _sizes_of(shape)
        bound = math.sqrt(6 / max(1, math.prod(sizes[:1]) + math.prod(sizes[1:])))
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    @passes_on(OPTIONS)
    def kaiming_uniform(cls, *shape: Any, a: Real = 0.01, **kwargs: Any) -> Self:
        """Uniform within sqrt(6 / (1 + a^2) / fan in) (He et al., 2015)."""
        bound = math.sqrt(6 / (1 + a * a) / _fan_in(_sizes_of(shape)))
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    @passes_on(OPTIONS)
    def kaiming_normal(cls, *shape: Any, a: Real = 0.01, **kwargs: Any) -> Self:
        """Normal with deviation sqrt(2 / (1 + a^2) / fan in) (He et al., 2015)."""
        deviation = math.sqrt(2 / (1 + a * a) / _fan_in(_sizes_of(shape)))
        return cls.normal(*shape, mean=0.0, std=deviation, **kwargs)

    @passes_on(OPTIONS)
    def rand_like(self, **kwargs: Any) -> Self:
        """As rand; shape, type and device of this Tensor."""
        return type(self).rand(self.shape, **self._alike(kwargs))

    @passes_on(OPTIONS)
    def randn_like(self, dtype: DType | str | None = None, **kwargs: Any) -> Self:
        """As randn; shape, type and device of this Tensor."""
        return type(self).randn(self.shape, **self._alike({"dtype": dtype, **kwargs}))

    @classmethod
    @refuses(generator=_ONE_SEED)
    @takes_numbers
    def randperm(
        cls,
        n: Whole,
        device: str | None = None,
        dtype: DType | str = dtypes.int32,
        requires_grad: Flag | None = None,
    ) -> Self:
        """The numbers 0 .. n-1 in a random order. Raises: RangeError if the type does not hold them."""
        kind = as_dtype(dtype)
        if not at_least(n, 0):
            raise ShapeError(f"randperm takes a number of 0 or more, not {n}")
        if kind.is_int and not at_least(dtypes.max(kind), n - 1):
            raise RangeError(f"randperm of {n} numbers: {kind} holds up to {dtypes.max(kind)}")
        order = cls._random_key(canonical_device(device))._in_random_order(n)
        return cls._drawn(order.cast(kind), requires_grad)

    @made_once
    def _in_random_order(self, count: Whole) -> Self:
        """The numbers of `randperm`, of this key."""
        if not is_plain((count,)) or not MOST_SORTED < count <= permutation.MOST:
            words, _ = self._random_words(count)
            return words.argsort() if count else words
        keys, _ = self._random_words(permutation.ROUNDS)
        return permutation.in_random_order(keys.contiguous(), count)

    @refuses(generator=_ONE_SEED)
    @takes_numbers
    def multinomial(self, num_samples: Whole = 1, replacement: Flag = False) -> Self:
        """Positions drawn with chances in proportion to these weights, a line for each row.

        Without replacement by the order of exponential clocks (Efraimidis and Spirakis, 2006).
        """
        if not 1 <= self.ndim <= 2 or not at_least(num_samples, 1):
            raise ShapeError(
                f"multinomial draws 1 or more of a line or of rows, not {num_samples} of"
                f" {show(self.shape)}"
            )
        if not replacement and not at_least(self.shape[-1], num_samples):
            raise ShapeError(
                f"multinomial cannot draw {num_samples} of {self.shape[-1]} without replacement"
            )
        _check_weights(self)
        weights = self.detach().cast(dtypes.float32)
        if replacement or num_samples == 1:
            drawn = type(self).rand((*self.shape[:-1], num_samples), device=self.device)
            return self._drawn(weights._positions_by_weight(drawn), None)
        clocks = weights.rand_like(dtype=dtypes.float32)
        late = (1 - clocks).log() / weights  # minus the time at which each is drawn
        late = weights.eq(0).where(-math.inf, late)
        return self._drawn(late.topk(num_samples, -1)[1], None)

    @made_once
    def _positions_by_weight(self, drawn: Self) -> Self:
        """Where numbers from 0 to 1 fall among the shares that weights, a line for each row, have of their sum."""
        size = self.shape[-1]
        ends = self.cumsum(-1)
        wanted = drawn * ends._cut(ends.ndim - 1, size - 1, size)
        if not is_plain((*ends.shape, *wanted.shape)) or at_least(LOOKED_AT, drawn.numel() * size):
            passed = (wanted.unsqueeze(-1) >= ends.unsqueeze(-2)).sum(-1)
        else:
            rows = [part.contiguous().reshape((-1, part.shape[-1])) for part in (ends, wanted)]
            passed = count_up_to(*rows).reshape(drawn.shape)
        return passed.minimum(size - 1).cast(dtypes.int32)

    def threefry(self, seed: Self) -> Self:
        """The random bits (Threefry-2x32) of these uint64 counters under uint64 keys."""
        if self.dtype is not dtypes.uint64 or seed.dtype is not dtypes.uint64:
            raise DtypeError(f"threefry takes uint64, not {self.dtype} and {seed.dtype}")
        a, b = self._pair("threefry", seed)
        words = [self._with(node)._halves() for node in (a, b)]
        first, second = threefry(*[word._uop for pair in words for word in pair])
        low, high = self._with(first).cast(dtypes.uint64), self._with(second).cast(dtypes.uint64)
        return high << 32 | low

    def _halves(self) -> tuple[Self, Self]:
        """The low and the high words of uint64."""
        return self.cast(dtypes.uint32), (self >> 32).cast(dtypes.uint32)

    @classmethod
    def random_bits(cls, key: Self, counter: Self, num: Whole) -> Self:
        """`num` random uint32 of a key and a counter of two uint32 each: a function of these alone."""
        for name, pair in (("key", key), ("counter", counter)):
            if pair.shape != (2,) or pair.dtype is not dtypes.uint32:
                raise DtypeError(f"random_bits: the {name} is two uint32, not {describe(pair)}")

        def word(pair: Self, position: Whole, count: Whole) -> UOp:
            return broadcast_node(pair._cut(0, position, position + 1)._uop, (count,))

        own = threefry(*[word(pair, position, 1) for pair in (counter, key) for position in (0, 1)])
        half = -(-num // 2)
        line = UOp(Ops.IOTA, dtypes.uint32, (), half)
        shifted = line + constant_node(half, dtypes.uint32, (half,))
        keys = [broadcast_node(part, (half,)) for part in own]
        first, second = threefry(line, shifted, keys[0], keys[1])
        return key._with(first).cat(key._with(second))._cut(0, 0, num)


def _sizes_of(shape: tuple[Any, ...]) -> Shape:
    """A shape as it is given to a factory. Raises: ShapeError."""
    return checked_shape(as_sizes(shape))


def _fan_in(sizes: Shape) -> Whole:
    return max(1, math.prod(sizes[1:]))


def threefry(first: UOp, second: UOp, key_low: UOp, key_high: UOp) -> tuple[UOp, UOp]:
    """Threefry-2x32, 20 rounds, of the counter (first, second): two words of random bits.

    Nodes of uint32 and one shape. Made of nodes, not Tensors, as there are over a hundred.
    """

    def number(value: Whole) -> UOp:
        return constant_node(value, dtypes.uint32, first.shape)

    keys = (key_low, key_high, (key_low ^ key_high) ^ number(_PARITY))
    x, y = first + keys[0], second + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << number(rotation)) | (y >> number(32 - rotation))) ^ x
        x = x + keys[(group + 1) % 3]
        y = (y + keys[(group + 2) % 3]) + number(group + 1)
    return x, y


def _check_weights(weights: Any) -> None:
    """Raises: ArgumentError if there is a weight below 0, or none above, among numbers that are at hand."""
    few = weights.dtype is dtypes.float32 and weights.max_numel() <= MOST_CHECKED
    data = reading.at_hand(weights._uop) if few else None
    if data is None:
        return
    if data[3::4].tobytes().isascii() and data.tobytes().strip(b"\0"):
        return  # no sign, and not all 0
    values = data.cast("f").tolist()
    if min(values) < 0 or max(values) <= 0:
        raise ArgumentError(
            f"multinomial takes weights of 0 or more, not all of them 0: there are {min(values):g} to {max(values):g}"
        )
