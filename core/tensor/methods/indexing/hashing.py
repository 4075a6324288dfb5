"""Hashes of bytes: Keccak, as Tensor programs.

Owns: the sponge and its permutation, after FIPS 202 and https://keccak.team/keccak_specs_summary.html. Does not own: bytes
of other types (bitcast).
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple, Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError
from proofgrad.core.tensor.data.nodes import constant_node, reshape_node
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

_LANES, _STATE_BYTES = 25, 200
_CHUNK_BYTES, _BLOCK_BYTES = (
    1 << 20,
    1 << 12,
)  # of `hash`: 256 blocks, each of which comes to 16 bytes


class _Sponge(NamedTuple):
    """Bytes taken in at a time, the bits that end a message, bytes given out."""

    rate: int
    suffix: int
    out: int


_KINDS = {
    "sha3_224": _Sponge(144, 0x06, 28), "sha3_256": _Sponge(136, 0x06, 32),
    "sha3_384": _Sponge(104, 0x06, 48), "sha3_512": _Sponge(72, 0x06, 64),
    "shake_128": _Sponge(168, 0x1F, 16), "shake_256": _Sponge(136, 0x1F, 32),
}  # fmt: skip


def _round_constants() -> list[int]:
    """The constant of each of the 24 rounds: bits of a shift register of 8 bits, x^8 + x^6 + x^5 + x^4 + 1."""
    found, register = [], 1
    for _ in range(24):
        constant = 0
        for power in range(7):
            if register & 1:
                constant |= 1 << ((1 << power) - 1)
            register <<= 1
            if register >> 8:
                register ^= 0x171
        found.append(constant)
    return found


def _rotations() -> list[int]:
    """By how many bits lane x + 5*y is turned: triangular numbers along the path that (x, y) takes."""
    turns = [0] * _LANES
    x, y = 1, 0
    for t in range(24):
        turns[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return turns


class Hashing(Reduction):
    """Keccak over the last axis."""

    __slots__ = ()

    def keccak(self, cfg: str | tuple[int, int] = "sha3_256") -> Self:
        """The hash of each row of bytes: `sha3_224`, `_256`, `_384`, `_512`, `shake_128` of 16 bytes, `shake_256` of 32.

        Or (rate in bytes, the suffix of messages as a byte). Raises: DtypeError for other types than uint8, ValueError for
        another name.

        Example:
            Tensor(b"abc").keccak().data().hex()  # 3a985da7...
        """
        if self.dtype is not dtypes.uint8:
            raise DtypeError(f"keccak takes bytes, uint8, not {self.dtype}")
        if not self.ndim:
            raise ShapeError("keccak takes rows of bytes, and a 0-d Tensor is none")
        sponge = _sponge(cfg)
        rows = prod(self.shape[:-1])
        blocks: Any = self.reshape((rows, self.shape[-1]))._blocks_to_take_in(sponge)
        rounds = [self._row_of([number, *[0] * 24]) for number in _round_constants()]
        state: Any = self._with(constant_node(0, dtypes.uint64, (rows, _LANES)))
        given = UOp(Ops.PARAM, dtypes.uint64, (), (0, rows * _LANES))
        before = self._with(reshape_node(given, (rows, _LANES)))
        body = _round(before, self._row_of(_rotations()), rounds[0])._uop
        for k in range(blocks.shape[1]):
            state = state ^ blocks[:, k]
            for constant in rounds:  # the same graph each time, which takes long to say in methods
                now = reshape_node(state._uop, (rows * _LANES,))
                state = self._with(body.substitute({given: now, rounds[0]._uop: constant._uop}))
        positions = self._row_of([8 * k for k in range(8)], 8)
        out = ((state.unsqueeze(-1) >> positions) & 255).cast(dtypes.uint8)
        hashes: Self = out.reshape((rows, _STATE_BYTES))[:, : sponge.out]
        return hashes.reshape((*self.shape[:-1], sponge.out))

    def hash(self) -> Self:
        """16 bytes that tell this Tensor's bytes from others: shake_128 of blocks of 4096 bytes, then of what these gave.

        Zeros at the end up to a whole MiB change nothing, and neither does the shape.

        Example:
            Tensor(b"Hello").hash().data().hex()
        """
        data = self.flatten().bitcast(dtypes.uint8)
        while data.shape[0] > _CHUNK_BYTES:
            data = data._hash_of_chunks(-(-data.shape[0] // _CHUNK_BYTES)).flatten()
        return data._hash_of_chunks(1).flatten()

    def _hash_of_chunks(self, count: int) -> Self:
        """One hash for each MiB: (count, 16)."""
        whole = self.pad((0, count * _CHUNK_BYTES - self.shape[0]))
        blocks = whole.reshape((count * _CHUNK_BYTES // _BLOCK_BYTES, _BLOCK_BYTES))
        return blocks.keccak("shake_128").reshape((count, _BLOCK_BYTES)).keccak("shake_128")

    def _blocks_to_take_in(self, sponge: _Sponge) -> Self:
        """Rows of bytes with their end, as lanes of 64 bits: (rows, blocks, 25)."""
        rows, size = self.shape
        count = size // sponge.rate + 1
        total = count * sponge.rate
        position: Any = self._iota(total, dtypes.int64)
        end = (position == size).where(sponge.suffix, 0) ^ (position == total - 1).where(0x80, 0)
        ended = self.pad((0, total - size)) ^ end.cast(dtypes.uint8)
        lanes = ended.reshape((rows, count, sponge.rate // 8, 8)).cast(dtypes.uint64)
        shifts = self._row_of([8 * k for k in range(8)], 8)
        wide: Self = (lanes << shifts).sum(-1).pad((0, _LANES - sponge.rate // 8))
        return wide.contiguous()

    def _row_of(self, numbers: list[int], count: int = _LANES) -> Self:
        row: Self = type(self)(numbers, self.device, dtypes.uint64).reshape((count,))
        return row


def _sponge(cfg: str | tuple[int, int]) -> _Sponge:
    if isinstance(cfg, tuple):
        rate, suffix = cfg
        if not 0 < rate < _STATE_BYTES or rate % 8 or not 0 < suffix < 256:
            raise ArgumentError(
                f"a rate is a multiple of 8 bytes between 8 and 192, and a suffix a byte, not {cfg}"
            )
        return _Sponge(rate, suffix, (_STATE_BYTES - rate) // 2)
    if cfg not in _KINDS:
        raise ArgumentError(f"keccak has no {cfg!r}; there are {', '.join(_KINDS)}")
    return _KINDS[cfg]


def _round(state: Any, turns: Any, constant: Any) -> Any:
    """One round of the permutation: lane x + 5*y of the state is element [y][x]."""
    rows = state.shape[0]
    lanes = state.reshape((rows, 5, 5))
    parity = lanes[:, 0] ^ lanes[:, 1] ^ lanes[:, 2] ^ lanes[:, 3] ^ lanes[:, 4]
    beside = parity.roll(-1, -1)
    mixed = parity.roll(1, -1) ^ (beside << 1) ^ (beside >> 63)
    lanes = lanes ^ mixed.unsqueeze(1)
    flat = lanes.reshape((rows, _LANES))
    turned = ((flat << turns) | (flat >> (64 - turns))).reshape((rows, 5, 1, 5))
    # Element [y][x] comes from [x][x + 3*y]: position 21*x + 3*y where each row of five stands four times.
    repeated = turned.expand((rows, 5, 4, 5)).reshape((rows, 100)).pad((0, 5))
    moved = repeated.reshape((rows, 5, 7, 3))[:, :, :5, 0].transpose(1, 2)
    kept = moved ^ (~moved.roll(-1, -1) & moved.roll(-2, -1))
    return (kept.reshape((rows, _LANES)) ^ constant).contiguous()
