"""Hashes of Tensors of bytes beside those of hashlib."""

from __future__ import annotations

import hashlib
import random

import pytest

from proofgrad import DtypeError, ShapeError, Tensor, TinyJit, dtypes
from proofgrad.core.tensor.methods.indexing import hashing

OF_ABC = "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"
RATES = {
    "sha3_224": 144, "sha3_256": 136, "sha3_384": 104, "sha3_512": 72, "shake_128": 168,
    "shake_256": 136,
}  # fmt: skip


def expected(name: str, data: bytes) -> bytes:
    made = hashlib.new(name, data)
    if name.startswith("shake"):
        return made.digest({"shake_128": 16, "shake_256": 32}[name])  # type: ignore[call-arg]
    return made.digest()


def test_hash_of_abc_is_that_of_the_standard() -> None:
    assert Tensor(b"abc").keccak().data().hex() == OF_ABC


@pytest.mark.parametrize("name", RATES)
def test_hashes_at_the_ends_of_blocks_are_those_of_hashlib(name: str) -> None:
    drawn = random.Random(7)
    for size in (0, RATES[name] - 1, RATES[name]):
        data = drawn.randbytes(size)
        assert bytes(Tensor(data).keccak(name).tolist()) == expected(name, data), size


def test_each_row_is_hashed_and_the_other_axes_stay() -> None:
    rows = [[random.Random(k).randbytes(5) for k in range(j, j + 3)] for j in range(2)]
    t = Tensor([[list(row) for row in part] for part in rows], dtype=dtypes.uint8)
    found = t.keccak("sha3_224")
    assert found.shape == (2, 3, 28)
    assert found.tolist() == [
        [list(hashlib.sha3_224(row).digest()) for row in part] for part in rows
    ]
    assert Tensor.zeros(0, 4, dtype=dtypes.uint8).keccak().shape == (0, 32)


def test_replay_hashes_what_it_is_given() -> None:
    jitted = TinyJit(lambda x: x.keccak().realize())
    for word in (b"abc", b"abd", b"xyz", b"\0\0\0"):
        assert bytes(jitted(Tensor(word).realize()).tolist()) == hashlib.sha3_256(word).digest()


def test_sponge_by_numbers_is_that_by_name() -> None:
    assert Tensor(b"abc").keccak((136, 0x06)).data().hex() == OF_ABC
    for wrong in ((135, 6), (200, 6), (0, 6), (136, 0), (136, 256)):
        with pytest.raises(ValueError, match="multiple of 8"):
            Tensor(b"abc").keccak(wrong)


def test_what_is_no_row_of_bytes_is_refused() -> None:
    with pytest.raises(DtypeError, match="uint8"):
        Tensor([1, 2]).keccak()
    with pytest.raises(ShapeError, match="0-d"):
        Tensor(5, dtype=dtypes.uint8).keccak()
    with pytest.raises(ValueError, match="no 'md5'; there are sha3_224"):
        Tensor(b"a").keccak("md5")


@pytest.mark.parametrize("size", [0, 3, 64, 65, 700])
def test_hash_is_the_tree_of_shake_128(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With chunks of 64 bytes instead of a MiB, of blocks of 32 instead of 4096: deep trees, soon computed."""
    monkeypatch.setattr(hashing, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(hashing, "_BLOCK_BYTES", 32)
    data = random.Random(size).randbytes(size)

    def of_chunk(chunk: bytes) -> bytes:
        ended = chunk + bytes(64 - len(chunk))
        inner = b"".join([expected("shake_128", ended[k : k + 32]) for k in (0, 32)])
        return expected("shake_128", inner)

    level = data
    while len(level) > 64:
        level = b"".join([of_chunk(level[k : k + 64]) for k in range(0, len(level), 64)])
    found = Tensor(data).hash()
    assert (found.shape, bytes(found.tolist())) == ((16,), of_chunk(level))
