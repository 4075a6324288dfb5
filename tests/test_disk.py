"""Tensors of the elements of files: which bytes are read and written, and what is refused."""

from __future__ import annotations

import copy
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from proofgrad import (
    Device,
    DeviceError,
    DtypeError,
    GradientError,
    JitError,
    ShapeError,
    Tensor,
    TinyJit,
    dtypes,
    nn,
)
from proofgrad.core.tensor.methods import disk
from proofgrad.nn.state import (
    TensorIO,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_save,
    tar_extract,
)

TYPES = [d for d in dtypes.all if not d.is_bool]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of the bytes 0 to 255."""
    path = tmp_path / "Some File.bin"  # upper case and a blank: names are kept as they are
    path.write_bytes(bytes(range(256)))
    return path


def test_path_is_a_tensor_on_disk_that_reads_nothing(file: Path) -> None:
    t = Tensor(file)
    assert (t.shape, t.dtype, t.device) == ((256,), dtypes.uint8, f"DISK:{file}")
    file.write_bytes(bytes(256))
    assert t.tolist() == [0] * 256


def test_path_with_a_device_is_read_when_computed(file: Path) -> None:
    t = Tensor(file, device="CPU")
    assert t.device == "CPU"
    file.write_bytes(bytes([7]) * 256)
    assert (t + 1).tolist() == [8] * 256


def test_path_with_a_type_has_that_many_elements(file: Path) -> None:
    expected = np.arange(256, dtype=np.uint8).view(np.int64)
    assert Tensor(file, dtype=dtypes.int64).numpy().tolist() == expected.tolist()
    file.write_bytes(bytes(7))
    with pytest.raises(ShapeError, match="7 bytes of .* no whole number of dtypes.int"):
        Tensor(file, dtype="int32")


def test_relative_path_is_that_of_the_folder_it_was_named_in(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    t = Tensor(Path("Some File.bin"))
    monkeypatch.chdir("/")
    assert t[3].item() == 3


@pytest.mark.parametrize("name", ["disk", "DISK", "Disk"])
def test_name_of_the_device_is_that_in_any_case(name: str, file: Path) -> None:
    t = Tensor.empty(16, 16, device=f"{name}:{file}", dtype=dtypes.uint8)
    assert t[1].to(Device.DEFAULT).tolist() == list(range(16, 32))


VIEWS = {
    "row": lambda t: t[1],
    "element": lambda t: t[3, 5],
    "rows": lambda t: t[2:5],
    "columns": lambda t: t[:, 3:5],
    "one column": lambda t: t[:, 7],
    "every third": lambda t: t[:, ::3],
    "backwards": lambda t: t[::-1, ::-2],
    "none": lambda t: t[3:3],
    "transposed": lambda t: t.T,
    "transposed, flat": lambda t: t.T.reshape(256),
    "other shape": lambda t: t.reshape(4, 8, 8)[1:3, 2:4],
    "repeated": lambda t: t[2:3].expand(5, 16),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_on_disk_is_the_view_of_the_values(name: str, file: Path) -> None:
    view = VIEWS[name]
    values = Tensor(list(range(256)), dtype=dtypes.uint8).reshape(16, 16)
    t = Tensor(file).reshape(16, 16)
    expected = view(values)
    assert view(t).tolist() == expected.tolist()
    assert view(t).numpy().tolist() == expected.tolist()
    moved = view(t).to("CPU")
    assert moved.shape == expected.shape
    assert (moved.cast("int32") * 2).tolist() == (expected.cast("int32") * 2).tolist()


def test_padding_is_read_too(file: Path) -> None:
    assert Tensor(file)[:2].pad((1, 2)).tolist() == [0, 0, 1, 0, 0]


def test_slice_reads_that_slice_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # which no memory holds; the file has holes
        file.seek((1 << 39) + 4)
        file.write(b"\5\0\0\0")
    t = Tensor(path, dtype=dtypes.int32)
    middle = 1 << 37
    assert t.shape == (1 << 38,)
    assert t[middle : middle + 3].tolist() == [0, 5, 0]
    assert (t[middle : middle + 3].to("CPU") + 1).tolist() == [1, 6, 1]
    assert t.reshape(-1, 4)[middle // 4 - 1 : middle // 4 + 1, 1].tolist() == [0, 5]


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_every_type_is_written_and_read(dtype: object, tmp_path: Path) -> None:
    values = Tensor([[1, 0, 1], [1, 1, 0]]).cast(dtype)  # type: ignore[arg-type]
    there = values.to(f"disk:{tmp_path / 'f'}")
    assert (there.dtype, there.shape) == (values.dtype, (2, 3))
    assert os.path.getsize(tmp_path / "f") == values.nbytes()
    assert there.tolist() == values.tolist()
    assert there[1, 1:].to("CPU").tolist() == values[1, 1:].tolist()
    assert there.numpy().tolist() == values.numpy().tolist()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (7, 1, 3)])
def test_every_shape_is_written_and_read(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = Tensor.rand(*shape).realize()
    there = values.to(f"disk:{tmp_path / 'f'}")
    assert there.tolist() == values.tolist() == there.to("CPU").tolist()
    assert (tmp_path / "f").read_bytes() == values.numpy().tobytes()


def test_ones_are_in_the_file(tmp_path: Path) -> None:
    out = Tensor.ones(10, 10, device="CPU").to(f"disk:{tmp_path / 'f'}")
    assert out.realize() is out
    assert (tmp_path / "f").read_bytes() == b"\x00\x00\x80\x3f" * 100
    assert Tensor.empty(10, 10, device=f"disk:{tmp_path / 'f'}").tolist() == [[1.0] * 10] * 10


def test_what_stands_behind_in_the_file_stays(file: Path) -> None:
    Tensor([9, 9], dtype=dtypes.uint8).to(f"disk:{file}")
    assert file.read_bytes() == bytes([9, 9, *range(2, 256)])


def test_constructor_writes_no_file(tmp_path: Path) -> None:
    for data in ([1, 2], 3.0, np.zeros(3), Tensor([1, 2])):
        with pytest.raises(DeviceError, match=r"written to a file by \.to\('disk:"):
            Tensor(data, device=f"disk:{tmp_path / 'f'}")
    assert not (tmp_path / "f").exists()
    t = Tensor([1, 2]).to(f"disk:{tmp_path / 'f'}")
    assert Tensor(t, device="CPU").tolist() == Tensor(t).tolist() == [1, 2]
    assert Tensor(t, device=f"disk:{tmp_path / 'f'}").tolist() == [1, 2]


def test_empty_makes_a_file_of_zeros_where_there_is_none(tmp_path: Path) -> None:
    t = Tensor.empty(3, 5, device=f"disk:{tmp_path / 'f'}")
    assert os.path.getsize(tmp_path / "f") == 60
    assert t.tolist() == [[0.0] * 5] * 3


WRITES = {
    "slice": (slice(0, 2), [[13, 12, 11, 10, 9]]),
    "row": (1, [5, 4, 3, 2, 1]),
    "element": ((2, 3), 99),
    "column": ((slice(None), 2), [7, 8, 9, 10]),
    "every other": ((slice(None, None, 2), slice(None, None, 2)), 0),
    "backwards": ((slice(None, None, -1), slice(0, 2)), [[1, 2], [3, 4], [5, 6], [7, 8]]),
    "all": (..., 3),
    "nothing": (slice(2, 2), 4),
    "array": ((0, slice(1, 4)), np.array([1, 2, 3])),
}


@pytest.mark.parametrize("name", WRITES)
def test_write_to_a_part_is_that_of_numpy(name: str, tmp_path: Path) -> None:
    index, value = WRITES[name]
    expected = np.arange(20).reshape(4, 5)
    t = Tensor(expected).to(f"disk:{tmp_path / 'f'}")
    t[index] = value
    expected[index] = value
    assert t.tolist() == expected.tolist()
    assert Tensor(tmp_path / "f", dtype="int64").tolist() == expected.flatten().tolist()


def test_assign_writes_computed_values_now(tmp_path: Path) -> None:
    t = Tensor.empty(10, dtype=dtypes.int64, device=f"disk:{tmp_path / 'f'}")
    for k in range(0, 10, 2):
        assert t[k : k + 2].assign(np.array([3, k])) is not None
    t[4:6].assign(Tensor([1, 2], dtype=dtypes.int64) * 100)
    assert t.tolist() == [3, 0, 3, 2, 100, 200, 3, 6, 3, 8]
    t[0:2] = t[4:6]
    assert t[:3].tolist() == [100, 200, 3]


@pytest.mark.parametrize(
    "value, error",
    [([1, 2], ShapeError), (np.array([1.5] * 3), DtypeError), ([1 << 70] * 3, OverflowError)],
)
def test_write_that_does_not_fit_changes_nothing(
    value: object, error: type[Exception], tmp_path: Path
) -> None:
    t = Tensor([1, 2, 3]).to(f"disk:{tmp_path / 'f'}")
    with pytest.raises(error):
        t.assign(value)
    assert t.tolist() == [1, 2, 3]


def test_write_to_repeated_elements_is_refused(tmp_path: Path) -> None:
    t = Tensor([1, 2, 3]).to(f"disk:{tmp_path / 'f'}")
    with pytest.raises(ValueError, match="several times"):
        t.reshape(3, 1).expand(3, 2).assign(Tensor.ones(3, 2, dtype=dtypes.int32))
    for index in ([0, 1], Tensor([0, 1]), Tensor([True, False, True])):
        with pytest.raises(DeviceError, match=r"move|\.to\('disk"):
            t[index] = 5
        with pytest.raises(DeviceError, match=r"move|\.to\('disk"):
            t[index].tolist()
    assert t.tolist() == [1, 2, 3]


def test_bitcast_changes_the_last_size(file: Path) -> None:
    t = Tensor.empty(8, 32, dtype=dtypes.uint8, device=f"disk:{file}")
    expected = np.arange(256, dtype=np.uint8).reshape(8, 32)
    for name in ("uint16", "int32", "uint64"):
        assert t.bitcast(name).tolist() == expected.view(name).tolist()
        assert t[1].bitcast(name).to("CPU").tolist() == expected[1].view(name).tolist()
        assert t.bitcast(name)[1].tolist() == expected.view(name)[1].tolist()
    assert t.bitcast("uint32").bitcast("uint8").tolist() == expected.tolist()
    t.bitcast("uint16").assign(Tensor.full((8, 16), 0x4248, dtype=dtypes.uint16))
    assert t.bitcast("float16").tolist() == [[3.140625] * 16] * 8
    assert t[0, :2].tolist() == [0x48, 0x42]
    with pytest.raises(DtypeError, match="3 elements of dtypes.int8"):
        Tensor.empty(3, dtype=dtypes.int8, device=f"disk:{file}").bitcast(dtypes.float16)
    with pytest.raises(ShapeError, match="do not follow each other"):
        t.T.bitcast("uint16")


def test_computing_on_disk_is_refused_where_it_is_asked_for(file: Path) -> None:
    t = Tensor(file)
    for compute in (lambda: t + 1, lambda: t.sum(), lambda: t.cast("half"), lambda: t.contiguous()):
        with pytest.raises(DeviceError, match=r"nothing is computed on DISK:.*\.to\('CPU'\)"):
            compute()
    with pytest.raises(RuntimeError):  # as others catch it
        t.cast(dtypes.float16)
    with pytest.raises(DeviceError, match=r"\.to\('CPU'\)"):
        Tensor([1]) + t
    with pytest.raises(DeviceError, match="nothing is computed on"):
        Tensor.rand(3, device=f"disk:{file}").tolist()
    assert file.read_bytes() == bytes(range(256))


@pytest.mark.parametrize("name", ["disk", "disk:", "DISK:a\0b"])
def test_device_without_a_file_is_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="names no file"):
        Tensor.empty(3, device=name)


def test_disk_is_no_default_device(file: Path) -> None:
    before = Device.DEFAULT
    with pytest.raises(DeviceError, match="cannot be the default"):
        Device.DEFAULT = f"disk:{file}"
    assert before == Device.DEFAULT


def test_file_that_is_too_short_or_gone_is_an_error(file: Path, tmp_path: Path) -> None:
    t = Tensor.empty(100, dtype=dtypes.int32, device=f"disk:{file}")
    assert t[63].item() == int.from_bytes(bytes([252, 253, 254, 255]), "little", signed=True)
    for read in (t.tolist, t[64].item, t[::2].tolist, lambda: t.to("CPU")):
        with pytest.raises(ValueError, match=r"has 256 bytes, and .* end at byte"):
            read()
    assert os.path.getsize(file) == 256
    file.unlink()
    with pytest.raises(FileNotFoundError):
        t[0].item()
    with pytest.raises(FileNotFoundError):
        Tensor(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        Tensor([1]).to(f"disk:{tmp_path / 'no folder' / 'f'}")


def test_file_that_ends_while_it_is_read_is_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = Tensor(file)
    file.write_bytes(b"abc")
    monkeypatch.setattr(disk.os.path, "getsize", lambda path: 256)
    with pytest.raises(ValueError, match="ended after 3 of 256 bytes"):
        t.tolist()


def test_copies_and_pickles_are_of_the_values(file: Path) -> None:
    part = Tensor(file)[250:]
    for again in (copy.deepcopy(part), pickle.loads(pickle.dumps(part))):
        assert (again.device, again.tolist()) == (Device.DEFAULT, [250, 251, 252, 253, 254, 255])
    assert file.read_bytes() == bytes(range(256))


def test_dlpack_copies(file: Path) -> None:
    assert np.from_dlpack(Tensor(file)[4:8].to("CPU")).tolist() == [4, 5, 6, 7]
    assert np.from_dlpack(Tensor(file)[4:8]).tolist() == [4, 5, 6, 7]


def test_replay_reads_what_it_is_given(file: Path) -> None:
    @TinyJit
    def double(x: Tensor) -> Tensor:
        return (x * 2).realize()

    t = Tensor(file)
    found = [double(t[k : k + 2].to("CPU").realize()).tolist() for k in (0, 10, 20, 30)]
    assert found == [[0, 2], [20, 22], [40, 42], [60, 62]]


def test_recording_does_not_touch_files(file: Path) -> None:
    t = Tensor(file)[:2]
    functions = [
        lambda x: x + t.to("CPU"),
        lambda x: x.to(f"disk:{file}"),
        lambda x: t.assign(x.cast("uint8")),
        lambda x: x + t[0].item(),
    ]
    for function in functions:
        jitted = TinyJit(function)
        x = Tensor([0, 1], dtype=dtypes.uint8).realize()
        jitted(x)
        with pytest.raises(JitError, match="a file is (read|written) while"):
            jitted(x)


def test_gradient_of_a_file_is_refused(file: Path) -> None:
    with pytest.raises(GradientError, match="move it first"):
        Tensor.empty(4, device=f"disk:{file}", requires_grad=True)
    with pytest.raises(GradientError, match="move it first"):
        Tensor(file, dtype="float32").requires_grad_()
    weight = Tensor(file, dtype="float32")[:3].to("CPU").requires_grad_()
    (weight * 2).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [2.0, 2.0, 2.0]


def test_model_is_loaded_from_tensors_on_disk(tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    there = {name: t.to(f"disk:{tmp_path / name}") for name, t in get_state_dict(model).items()}
    load_state_dict(other, there, verbose=False)
    x = Tensor.rand(4, 3).realize()
    assert other(x).tolist() == model(x).tolist()


def test_files_hold_no_memory(file: Path) -> None:
    from proofgrad import GlobalCounters

    before = GlobalCounters.mem_used
    t = Tensor(file)
    assert GlobalCounters.mem_used == before, t


# -- readers of formats -----------------------------------------------------------------------------


def test_tensor_as_a_file_reads_as_files_do(file: Path) -> None:
    for t in (Tensor(file), Tensor(file, device="CPU"), Tensor(bytes(range(256)))):
        io_ = TensorIO(t)
        assert isinstance(io_, io.RawIOBase)
        assert (io_.readable(), io_.seekable(), io_.writable()) == (True, True, False)
        assert io_.read(3) == b"\0\1\2"
        assert io_.tell() == 3
        assert io_.seek(-2, io.SEEK_END) == 254
        assert io_.read() == b"\xfe\xff"
        assert io_.read(5) == b""
        assert io_.seek(300) == 300
        assert io_.read(1) == b""
        assert io_.seek(1) == 1
        assert io_.seek(1, io.SEEK_CUR) == 2
        assert io_.read(0) == b""
        assert io_.readline() == bytes(range(2, 11))
        for wrong in ((-1, 0), (-300, 2), (0, 7)):
            with pytest.raises(ValueError):
                io_.seek(*wrong)
        with pytest.raises(io.UnsupportedOperation):
            io_.write(b"x")
        assert io.BufferedReader(TensorIO(t)).read(10) == bytes(range(10))


def test_tensor_as_a_file_is_of_bytes() -> None:
    for wrong in (Tensor([1, 2]), Tensor([[1]], dtype=dtypes.uint8)):
        with pytest.raises(ValueError, match="uint8 and 1 axis"):
            TensorIO(wrong)
    assert TensorIO(Tensor(b"")).read() == b""


def test_tar_is_extracted_from_a_path_and_from_its_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in (("x/one", b"1" * 700), ("two", b""), ("three", b"\0\1")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    for source in (path, Tensor(path), Tensor(path.read_bytes())):
        found = tar_extract(source)
        assert {name: bytes(t.tolist()) for name, t in found.items()} == {
            "x/one": b"1" * 700, "two": b"", "three": b"\0\1",
        }  # fmt: skip
    with tarfile.open(fileobj=TensorIO(Tensor(path))) as archive:  # type: ignore[arg-type]
        assert archive.extractfile("three").read() == b"\0\1"  # type: ignore[union-attr]


def test_weights_are_loaded_from_a_path_and_from_its_tensor(tmp_path: Path) -> None:
    weights = {"a": Tensor.rand(3, 5).realize(), "b": Tensor([1, 2, 3])}
    path = tmp_path / "w.safetensors"
    safe_save(weights, path)
    for source in (path, Tensor(path), Tensor(path, device="CPU"), str(path)):
        found = safe_load(source)
        assert {k: v.tolist() for k, v in found.items()} == {
            k: v.tolist() for k, v in weights.items()
        }
    on_disk = {name: t.to(f"disk:{tmp_path / name}") for name, t in weights.items()}
    safe_save(on_disk, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
