"""Tensors beside numpy and torch: shared memory, addresses, files, notebooks."""

from __future__ import annotations

import gc
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import JitError, Tensor, TinyJit, dtypes
from proofgrad.core.tensor.data import dlpack

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64"]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_shares_the_memory_of_a_tensor_and_back(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    t = Tensor.from_dlpack(x)
    assert t.dtype.name == dtype and t.shape == (2, 3)
    again = np.from_dlpack(t)
    assert again.ctypes.data == x.ctypes.data
    np.testing.assert_array_equal(again, x)
    computed = t.flip(0).contiguous().realize()
    assert np.from_dlpack(computed).ctypes.data == np.from_dlpack(computed).ctypes.data
    np.testing.assert_array_equal(np.from_dlpack(computed), x[::-1])


def test_torch_shares_the_memory_of_a_tensor_and_back() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.arange(6.0).reshape(2, 3)
    ours = Tensor.from_dlpack(theirs)
    assert torch.from_dlpack(ours).data_ptr() == theirs.data_ptr()
    small = torch.arange(4).to(torch.bfloat16)
    assert Tensor.from_dlpack(small).tolist() == [0, 1, 2, 3]
    assert torch.from_dlpack(Tensor.from_dlpack(small)).data_ptr() == small.data_ptr()


def test_shared_memory_is_given_back_when_nobody_uses_it() -> None:
    gc.collect()
    before = len(dlpack._SHARED)
    array = np.from_dlpack(Tensor([1, 2, 3]).realize())
    Tensor([4, 5]).realize().__dlpack__()  # never consumed
    gc.collect()
    assert len(dlpack._SHARED) == before + 1
    assert array.tolist() == [1, 2, 3]
    del array
    gc.collect()
    assert len(dlpack._SHARED) == before


def test_writes_leave_memory_alone_that_others_read() -> None:
    ours = (Tensor([1.0, 2.0]) + 0.5).realize()
    theirs = np.from_dlpack(ours)
    ours[0] = 7.0
    assert (ours.tolist(), theirs.tolist()) == ([7.0, 2.5], [1.5, 2.5])
    source = np.arange(2.0)
    borrowed = Tensor.from_dlpack(source)
    borrowed += 1
    assert (borrowed.tolist(), source.tolist()) == ([1.0, 2.0], [0.0, 1.0])


def test_memory_stays_while_a_tensor_uses_it() -> None:
    t = Tensor.from_dlpack(np.arange(1000.0))
    gc.collect()
    np.zeros(1000)
    assert (t + 1).sum().item() == 500500


def test_what_cannot_be_shared_is_copied_or_refused() -> None:
    view = Tensor([[1, 2], [3, 4]]).realize().T
    assert np.from_dlpack(view).tolist() == [[1, 3], [2, 4]]
    with pytest.raises(BufferError, match="cannot be shared without a copy"):
        view.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="memory of the CPU, not of DLPack device"):
        view.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="row-major"):
        Tensor.from_dlpack(np.arange(6).reshape(2, 3).T, copy=False)
    assert Tensor.from_dlpack(np.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    source = np.zeros(3, np.float32)
    copied = Tensor.from_dlpack(source, copy=True)
    source[0] = 1
    assert copied.tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match="an array with __dlpack__, not 3"):
        Tensor.from_dlpack(3)
    with pytest.raises(BufferError, match="used before"):
        capsule = np.zeros(3).__dlpack__()
        dlpack.consume(capsule)
        dlpack.consume(capsule)
    assert Tensor.zeros(0, 3).realize().__dlpack_device__() == (1, 0)
    assert np.from_dlpack(Tensor.zeros(0, 3)).shape == (0, 3)


def test_numpy_arrays_and_scalars_stand_beside_tensors() -> None:
    t = Tensor([1.0, 2.0, 3.0])
    assert isinstance(np.ones(3, np.float32) * t, Tensor)
    assert (np.float32(2) * t).tolist() == [2, 4, 6]
    assert (t + np.int64(1)).tolist() == [2, 3, 4]
    assert np.asarray(t).dtype == np.float32
    assert np.stack([t, t]).shape == (2, 3)
    assert Tensor([Tensor(1), Tensor(2)]).tolist() == [1, 2]
    assert Tensor([np.float32(1.5), np.float32(2)]).tolist() == [1.5, 2]
    with pytest.raises(ValueError, match="cannot be shared with numpy"):
        t.__array__(copy=False)


def test_tensors_from_addresses_files_and_urls(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    assert Tensor.from_blob(x.ctypes.data, (2, 2)).tolist() == [[0, 1], [2, 3]]
    assert Tensor.from_blob(x.ctypes.data, (4,), dtype="int32")[0].item() == 0
    path = tmp_path / "numbers.bin"
    path.write_bytes(x.tobytes())
    assert Tensor(path).shape == (16,)
    assert Tensor(path, dtype=dtypes.float32).tolist() == x.tolist()
    packed = tmp_path / "numbers.gz"
    packed.write_bytes(gzip.compress(x.tobytes()))
    assert Tensor.from_url(packed.as_uri(), gunzip=True, dtype="float32").tolist() == x.tolist()
    with pytest.raises(OSError, match=r"cannot read file:.*missing"):
        Tensor.from_url((tmp_path / "missing").as_uri())
    assert Tensor(b"\x01\x02").tolist() == [1, 2]


def test_memoryviews_have_the_shape_of_the_tensor() -> None:
    t = Tensor([[1, 2], [3, 4]])
    assert t.data()[1, 0] == 3
    assert t.__buffer__(0).tolist() == [[1, 2], [3, 4]]


def test_text_for_notebooks_computes_nothing() -> None:
    lazy = Tensor([1, 2]) + 1
    assert lazy._repr_html_().startswith("<code>&lt;Tensor")
    assert "<pre>" not in lazy._repr_html_()
    assert "<pre>[2 3]</pre>" in lazy.realize()._repr_html_()


def test_factories_take_types_devices_and_likenesses() -> None:
    t = Tensor([[1, 2]], dtype="int16")
    likes: list[Any] = [t.empty_like(), t.full_like(3), t.const_like(1), t.zeros_like()]
    assert {(like.dtype, like.shape) for like in likes} == {(dtypes.int16, (1, 2))}
    assert t.empty_like(dtype="float32").dtype is dtypes.float32
    assert Tensor.full((2,), 1, dtypes.uint8).tolist() == [1, 1]
    assert Tensor.const(2.5).item() == 2.5
    assert Tensor.invalids(2, dtype="int8").shape == (2,)
    assert Tensor.eye(2, 3, dtype="int32").tolist() == [[1, 0, 0], [0, 1, 0]]
    assert Tensor.linspace(0, 1, 3, "float64").tolist() == [0, 0.5, 1]
    assert Tensor.arange(2**31, 2**31 + 2).dtype is dtypes.int64
    with pytest.raises(OverflowError, match="arange from 0 to 299 does not fit uint8"):
        Tensor.arange(300, dtype="uint8")
    with pytest.raises(ValueError, match="0 classes or more"):
        t.one_hot(-1)


# -- random -----------------------------------------------------------------------------------------


def test_random_bits_are_those_of_tinygrad() -> None:
    """Written out from tinygrad 0.14: Tensor.random_bits and UOp.threefry."""
    key, counter = Tensor([1, 2], dtype="uint32"), Tensor([5, 0], dtype="uint32")
    expected = [1031849886, 860212176, 1407182684, 1166257442, 3343204590]
    assert Tensor.random_bits(key, counter, 5).tolist() == expected
    counters = Tensor([0, 1, 2**40 + 5], dtype="uint64")
    bits = counters.threefry(Tensor([7, 2**63 + 1, 3], dtype="uint64"))
    assert bits.tolist() == [13563526760692328810, 14376710216461098251, 9488139135056494288]


def test_draws_without_replacement_differ_and_follow_the_weights() -> None:
    Tensor.manual_seed(3)
    assert sorted(Tensor.randperm(50).tolist()) == list(range(50))
    rows = Tensor([[1.0, 0.0, 3.0, 5.0]] * 200).multinomial(3).numpy()
    assert all(sorted(row) == [0, 2, 3] for row in rows)
    drawn = Tensor([1.0, 0.0, 3.0]).multinomial(4000, replacement=True).numpy()
    shares = np.bincount(drawn, minlength=3) / 4000
    np.testing.assert_allclose(shares, [0.25, 0, 0.75], atol=0.03)
    with pytest.raises(ValueError, match="cannot draw 3 of 2 without replacement"):
        Tensor([1.0, 1.0]).multinomial(3)


def test_wrong_random_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="low < high, not 1 and 1"):
        Tensor.uniform(3, low=1, high=1)
    with pytest.raises(ValueError, match="a deviation of 0 or more, not -1"):
        Tensor.normal(3, std=-1)
    with pytest.raises(TypeError, match="integers as bounds"):
        Tensor.randint(3, low=0.5)


def test_numpy_reads_the_memory_of_a_tensor_without_a_copy() -> None:
    for dtype in set(dtypes.all) - {dtypes.bfloat16}:
        t = Tensor([[0, 1], [1, 0]], dtype=dtype)
        array = np.asarray(t)
        assert array.dtype.name == dtype.name and array.tolist() == t.tolist()
        assert array.ctypes.data == np.asarray(t).ctypes.data and not array.flags.writeable


def test_array_that_shares_memory_keeps_its_values() -> None:
    t = Tensor(np.arange(8, dtype=np.float32)).realize()
    array = np.asarray(t)
    t += 1
    t[0] = 9
    t.realize()
    del t
    others = [Tensor.full((8,), 5.0).contiguous().realize() for _ in range(20)]
    assert array.tolist() == list(range(8)) and len(others) == 20


def test_numpy_copies_what_cannot_be_shared() -> None:
    t = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    for copied in (t.T, Tensor([1.0], dtype="bfloat16"), Tensor([1.0], device="REFERENCE")):
        assert not hasattr(copied, "__array_interface__")
        assert np.asarray(copied).tolist() == copied.tolist() and np.asarray(copied).flags.writeable
    with pytest.raises(ValueError, match="only copied"):
        np.asarray(t.T, copy=False)


def test_memory_shared_while_a_function_is_recorded_is_refused() -> None:
    x = Tensor([1.0]).realize()
    for share in (np.asarray, np.from_dlpack):
        recorded = TinyJit(lambda t, share=share: t + float(share(t)[0]))
        recorded(x)
        with pytest.raises(JitError):
            recorded(x)


def test_data_of_every_type_is_a_memoryview_of_the_shape() -> None:
    for dtype in set(dtypes.all) - {dtypes.bfloat16}:
        view = Tensor([[0, 1, 1]], dtype=dtype).data()
        assert view.shape == (1, 3) and np.asarray(view).tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("address", (0, -8, 1 << 64))
def test_from_blob_where_there_is_no_memory_is_refused(address: int) -> None:
    with pytest.raises(ValueError, match=rf"no memory at address {address} .*data_ptr\(\)"):
        Tensor.from_blob(address, (3,))
    assert Tensor.from_blob(address, (0, 3)).shape == (
        0,
        3,
    )  # of no elements, as an array of none has


def test_from_blob_of_what_is_no_address_is_refused() -> None:
    with pytest.raises(TypeError, match="an address is an int, not None"):
        Tensor.from_blob(None, (3,))  # type: ignore[arg-type]


def test_lists_of_narrow_types_hold_each_of_their_values() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    singles = (halves.astype(np.uint32) << 16).view(np.float32)
    x = Tensor(halves).bitcast("bfloat16").realize()
    np.testing.assert_array_equal(np.array(x.tolist(), np.float32), singles)
    finite = singles[np.isfinite(singles)].tolist()
    back = Tensor(finite, dtype="bfloat16").bitcast("uint16").numpy()
    np.testing.assert_array_equal(back, halves[np.isfinite(singles)])
    truths = (halves % 3 == 0).tolist()
    assert Tensor(truths).tolist() == truths and type(Tensor(truths).tolist()[0]) is bool
    codes = Tensor(np.arange(1 << 10, dtype=np.uint8)).bitcast("fp8e4m3").realize()
    np.testing.assert_array_equal(codes.tolist(), codes.float().tolist())


def test_bytes_that_were_read_are_no_memory_of_the_tensor() -> None:
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    seen = x.data()
    x.assign(x + 1).realize()
    assert seen.tolist() == [0, 1, 2, 3, 4, 5]
    seen[0] = 9
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
