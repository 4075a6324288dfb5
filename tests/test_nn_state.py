"""The state of models and its files: round trips, files of other programs, files that lie."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import warnings
import zipfile
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensors import numbers

from proofgrad import DtypeError, ShapeError, Tensor, dtypes, nn
from proofgrad.nn import state
from proofgrad.nn.state import FormatError, get_state_dict, load_state_dict

NUMPY_TYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
    "float32", "float64",
]  # fmt: skip


def of_every_type() -> dict[str, Tensor]:
    """A Tensor of every type that there is, and shapes that are easily wrong."""
    made = {name: Tensor(np.array([[0, 1, 1], [1, 0, 100]]).astype(name)) for name in NUMPY_TYPES}
    made["bfloat16"] = Tensor([[1.5, -2.0], [3.0, 65536.0]], dtype=dtypes.bfloat16)
    for name in ("fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz"):
        made[name] = Tensor([1.0, -0.5, 2.0]).cast(name)
    made["no axes"] = Tensor(2.5)
    made["no elements"] = Tensor.zeros(0, 3)
    made["a view"] = Tensor(numbers(3, 4)).transpose(0, 1)
    made["not computed"] = Tensor.ones(2, 2) + 1
    return made


def same(found: Tensor, expected: Tensor) -> bool:
    alike = found.dtype is expected.dtype and found.shape == expected.shape
    return alike and found.tolist() == expected.tolist()


# -- models ---------------------------------------------------------------------------------------


def test_state_of_named_tuples_slots_and_shared_parts_is_found() -> None:
    pair = namedtuple("pair", ["left", "right"])
    t = Tensor([1.0])

    class Slotted:
        __slots__ = ("empty", "weight")

        def __init__(self) -> None:
            self.weight = t

    class Model:
        def __init__(self) -> None:
            self.pair = pair(t, [t])
            self.slotted = Slotted()
            self.ordered = OrderedDict(a=t)
            self.module, self.kind = nn, nn.Linear
            self.again = self.slotted
            self.me = self

    assert list(get_state_dict(Model())) == [
        "pair.left", "pair.right.0", "slotted.weight", "ordered.a", "again.weight",
    ]  # fmt: skip


def test_loading_takes_the_type_and_keeps_the_device_and_the_object() -> None:
    layer = nn.Linear(2, 1)
    weight = layer.weight
    given = {"weight": Tensor([[1.0, 2.0]]).half(), "bias": Tensor(3.0)}
    loaded = load_state_dict(layer, given, consume=True)
    assert loaded[0] is weight is layer.weight and given == {}
    assert (weight.dtype, weight.tolist()) == (dtypes.float16, [[1.0, 2.0]])
    assert layer.bias is not None and layer.bias.tolist() == [3.0]


def test_loaded_weights_are_not_those_they_came_from() -> None:
    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    load_state_dict(second, get_state_dict(first))
    before = first.weight.tolist()
    optimizer = nn.optim.SGD([second.weight], 1.0)
    second.weight.sum().backward()
    optimizer.step()
    assert first.weight.tolist() == before
    np.testing.assert_allclose(second.weight.numpy(), np.array(before) - 1, rtol=1e-6)


@pytest.mark.parametrize("is_computed", [False, True])
def test_models_with_the_weights_of_one_another_have_gradients_of_their_own(
    is_computed: bool,
) -> None:
    layers = [nn.Linear(2, 1, bias=False) for _ in range(3)]
    first, *others = [layer.weight for layer in layers]
    first.realize() if is_computed else None
    for layer in layers[1:]:
        load_state_dict(layer, get_state_dict(layers[0]))
    value = (first * 2 + others[0] * 3 + others[1] * 5).sum()
    assert [one.tolist()[0][0] for one in value.gradient(first, *others)] == [2.0, 3.0, 5.0]


def test_names_that_do_not_fit_are_said() -> None:
    layer = nn.Linear(2, 1)
    with pytest.warns(UserWarning, match=r"not loaded: \['other'\]"):
        load_state_dict(layer, {**get_state_dict(layer), "other": Tensor([1.0])})
    with pytest.raises(KeyError, match=r"missing \['bias'\], unknown \[\]; strict=False"):
        load_state_dict(layer, {"weight": layer.weight})
    assert len(load_state_dict(layer, {"weight": layer.weight}, strict=False)) == 1
    before = layer.weight.tolist()
    bad = {"weight": Tensor([[9.0, 9.0]]), "bias": Tensor([1.0, 2.0])}
    with pytest.raises(ShapeError, match="cannot load bias"):
        load_state_dict(layer, bad)
    assert layer.weight.tolist() == before


def test_verbose_loading_says_what_was_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    layer = nn.Linear(2, 1)
    load_state_dict(layer, get_state_dict(layer), verbose=True)
    assert "2 tensors, 0.0 MB" in capsys.readouterr().err


# -- safetensors ----------------------------------------------------------------------------------


def test_safetensors_keep_every_type_shape_and_bit(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path, tensors = tmp_path / "all.safetensors", of_every_type()
    state.safe_save(tensors, path, metadata={"made by": "a test"})
    found = state.safe_load(path)
    assert found.keys() == tensors.keys()
    assert all(same(found[name], tensors[name]) for name in tensors)
    whole = state.safe_load(Tensor(path.read_bytes()))
    assert all(same(whole[name], tensors[name]) for name in tensors)
    raw, start, header = state.safe_load_metadata(path)
    assert header["__metadata__"] == {"made by": "a test"}
    assert raw.shape == (path.stat().st_size,) and start % 8 == 0
    assert header["float32"]["shape"] == [2, 3]


def test_safetensors_are_those_of_other_programs_and_back(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    path, tensors = tmp_path / "ours.safetensors", of_every_type()
    state.safe_save(tensors, path)
    theirs = load_file(path)
    for name, tensor in tensors.items():
        assert tuple(theirs[name].shape) == tensor.shape, name
        assert theirs[name].double().tolist() == tensor.cast(dtypes.float64).tolist(), name
    save_file(theirs, tmp_path / "theirs.safetensors")
    found = state.safe_load(tmp_path / "theirs.safetensors")
    assert all(same(found[name], tensors[name]) for name in tensors)
    twin = torch.nn.Linear(3, 2)
    save_file(twin.state_dict(), tmp_path / "linear.safetensors")
    layer = nn.Linear(3, 2)
    load_state_dict(layer, state.safe_load(tmp_path / "linear.safetensors"))
    np.testing.assert_array_equal(layer.weight.numpy(), twin.weight.detach().numpy())


def test_safetensors_are_read_when_used(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "two.safetensors"
    state.safe_save({"a": Tensor([1.0, 2.0]), "b": Tensor([3.0, 4.0])}, path)
    found = state.safe_load(path)
    with open(path, "r+b") as file:  # in place: what is mapped sees it, what was read does not
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 9.0))
    assert found["b"].tolist() == [3.0, 9.0]


def test_saving_replaces_a_file_whole_or_not_at_all(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "model.safetensors"
    state.safe_save({"a": Tensor([1.0])}, path)
    mapped = state.safe_load(path)["a"]
    state.safe_save({"a": Tensor([2.0])}, path)
    assert (mapped.tolist(), state.safe_load(path)["a"].tolist()) == ([1.0], [2.0])
    state.safe_save(state.safe_load(path), path)  # onto itself
    assert state.safe_load(path)["a"].tolist() == [2.0]
    with pytest.raises(TypeError, match="metadata is text by text"):
        state.safe_save({"a": Tensor([3.0])}, path, metadata={"a": 1})  # type: ignore[dict-item]
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_state_of_other_libraries_is_named_by_its_type() -> None:
    """Of a Tensor of torch it said that it is a Tensor, and that a state is made of Tensors."""
    layer = nn.Linear(2, 1, bias=False)
    with pytest.raises(TypeError, match=r"weight is a numpy\.ndarray; a state is made of Tensors"):
        load_state_dict(layer, {"weight": np.zeros((1, 2), np.float32)})  # type: ignore[dict-item]


def test_names_that_a_file_could_not_be_read_with_are_refused(tmp_path: Path) -> None:
    """A Tensor named as the place of metadata is made a file that nothing loads."""
    pytest.importorskip("safetensors")
    for name, error in (("__metadata__", ValueError), (1, TypeError)):
        with pytest.raises(error, match="name"):
            state.safe_save({name: Tensor([1.0])}, tmp_path / "model.safetensors")  # type: ignore[dict-item]
    assert not list(tmp_path.iterdir())


def test_what_keeps_a_file_from_being_written_is_an_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an error of the package that writes, which no script catches."""
    safetensors = pytest.importorskip("safetensors")
    with pytest.raises(FileNotFoundError):
        state.safe_save({"a": Tensor([1.0])}, tmp_path / "absent" / "model.safetensors")
    path = tmp_path / "model.safetensors"
    state.safe_save({"a": Tensor([1.0])}, path)

    def fill_the_disk(*given: object, **named: object) -> None:
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors, "serialize_file", fill_the_disk)
    with pytest.raises(OSError, match=r"model.safetensors could not be written: No space left"):
        state.safe_save({"a": Tensor([2.0])}, path)
    assert state.safe_load(path)["a"].tolist() == [1.0]
    assert list(tmp_path.iterdir()) == [path]


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def as_text(value: Any) -> bytes:
    return json.dumps(value).encode()


EMPTY = as_text(entry("U8", [0], 0, 0))
HOSTILE = {
    "empty": b"",
    "short": b"\1\0\0",
    "header longer than the file": struct.pack("<Q", 1 << 40) + b"{}",
    "largest header": b"\xff" * 8 + b"{}",
    "no JSON": file_of(b"hello"),
    "no object": file_of(b"[]"),
    "no text": file_of(b'{"\xff": 1}'),
    "overlap": file_of({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, b"123456"),
    "same position": file_of({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 0, 4)}, b"1234"),
    "hole": file_of({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 4, 6)}, b"123456"),
    "beyond the end": file_of({"a": entry("U8", [9], 0, 9)}, b"1234"),
    "end before begin": file_of({"a": entry("U8", [4], 4, 0)}, b"1234"),
    "negative": file_of({"a": entry("U8", [-4], -4, 0)}, b"1234"),
    "bytes left over": file_of({"a": entry("U8", [2], 0, 2)}, b"1234"),
    "size of another type": file_of({"a": entry("F32", [4], 0, 4)}, b"1234"),
    "size past 64 bits": file_of({"a": entry("U8", [1 << 40, 1 << 40], 0, 4)}, b"1234"),
    "unknown type": file_of({"a": entry("Q4", [4], 0, 4)}, b"1234"),
    "numbers as text": file_of({"a": {**entry("U8", [4], 0, 4), "shape": ["4"]}}, b"1234"),
    "no offsets": file_of({"a": {"dtype": "U8", "shape": [4]}}, b"1234"),
    "metadata of numbers": file_of({"__metadata__": {"a": 1}}),
    "a name twice": file_of(b'{"a":%s,"a":%s}' % ((as_text(entry("U8", [4], 0, 4)),) * 2), b"1234"),
    "a name twice with two positions": file_of(
        b'{"a":%s,"a":%s}' % (as_text(entry("U8", [4], 0, 4)), as_text(entry("U8", [4], 4, 8))),
        b"12345678",
    ),
    "thousands of names twice": file_of(
        b"{%s}" % b",".join([b'"%d":%s' % (k // 2, EMPTY) for k in range(10_000)])
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors_are_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(HOSTILE[name])
    for source in (path, Tensor(HOSTILE[name]) if HOSTILE[name] else path):
        with pytest.raises(FormatError) as refusal:
            state.safe_load(source)
        assert len(str(refusal.value)) < 1000  # a file does not fill the screen


def test_types_that_are_not_ours_are_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "complex.safetensors"
    path.write_bytes(file_of({"z": entry("C64", [1], 0, 8)}, b"12345678"))
    with pytest.raises(DtypeError, match="'z' has the type C64, which proofgrad lacks"):
        state.safe_load(path)


def mutants(data: bytes, count: int, positions: int) -> list[bytes]:
    """Copies with some of the first bytes changed, left out or doubled."""
    rng, made = np.random.default_rng(5), []
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            position, byte = int(rng.integers(min(positions, len(copy)))), int(rng.integers(256))
            match int(rng.integers(4)):
                case 0 | 1:
                    copy[position] = byte
                case 2:
                    del copy[position : position + byte % 9]
                case _:
                    copy[position:position] = copy[position : position + byte % 9]
        made.append(bytes(copy))
    return made


def readable(read: Callable[[Any], Any], source: Any, *allowed: type[Exception]) -> bool:
    """Whether a mutant was read; no other errors than those allowed, and no wrong sizes."""
    try:
        found = read(source)
    except allowed:
        return False
    for value in found.values() if isinstance(found, dict) else []:
        if isinstance(value, Tensor) and value.numel() < 1000:
            assert len(value._bytes()) == value.nbytes()
    return True


def test_no_change_of_a_safetensors_header_breaks_out(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "fuzz.safetensors"
    state.safe_save({"a": Tensor([1, 2]), "b": Tensor([[3.0]])}, path, metadata={"k": "v"})
    good = path.read_bytes()
    results = []
    for mutant in mutants(good, 400, len(good)):
        path.write_bytes(mutant)
        results.append(readable(state.safe_load, path, FormatError, DtypeError))
    assert 0 < sum(results) < len(results)


# -- checkpoints of torch -------------------------------------------------------------------------


def checkpoint(value: Any = None, data: bytes | None = None, **parts: bytes) -> Tensor:
    """A zip as torch writes it, with a pickle of `value` or these very bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2) if data is None else data)
        for name, part in parts.items():
            archive.writestr(f"archive/{name.replace('__', '/')}", part)
    return Tensor(file.getvalue())


class Global:
    """Pickles as a call of any name."""

    def __init__(self, module: str, name: str, *arguments: Any) -> None:
        self.module, self.name, self.arguments = module, name, arguments


class Storage:
    """Pickles as the id of a storage."""

    def __init__(self, kind: str, key: str, count: int) -> None:
        self.kind, self.key, self.count = kind, key, count


class Pickler(pickle._Pickler):
    """Writes the names of torch without torch."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Storage):
            return ("storage", Global("torch", value.kind), value.key, "cpu", value.count)
        return None

    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        if not isinstance(value, Global):
            super().save(value, save_persistent_id)
            return
        self.write(f"c{value.module}\n{value.name}\n".encode())
        if value.arguments:
            super().save(value.arguments)
            self.write(pickle.REDUCE)


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    Pickler(file, 2).dump(value)
    return file.getvalue()


def rebuilt(key: str, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Global:
    storage = Storage("FloatStorage", key, 6)
    return Global(
        "torch._utils", "_rebuild_tensor_v2", storage, offset, size, stride, False,
        Global("collections", "OrderedDict", ()),
    )  # fmt: skip


SIX = np.arange(6, dtype=np.float32).tobytes()


def test_checkpoint_without_torch_gives_its_tensors() -> None:
    value = {
        "rows": rebuilt("0", 0, (2, 3), (3, 1)),
        "columns": rebuilt("0", 0, (3, 2), (1, 3)),
        "part": rebuilt("0", 2, (2, 1, 2), (2, 7, 1)),
        "repeated": rebuilt("0", 1, (2, 3, 2), (0, 2, 0)),
        "none": rebuilt("0", 0, (0, 5), (5, 1)),
        "one": rebuilt("0", 5, (), ()),
        "epoch": 3,
        "list": [1.5, None, "text", (True, b"raw")],
    }
    found = state.torch_load(checkpoint(data=pickled(value), data__0=SIX))
    rows = np.arange(6, dtype=np.float32)
    assert found["rows"].tolist() == rows.reshape(2, 3).tolist()
    assert found["columns"].tolist() == rows.reshape(2, 3).T.tolist()
    assert found["part"].tolist() == rows[2:6].reshape(2, 1, 2).tolist()
    assert found["repeated"].tolist() == [[[1, 1], [3, 3], [5, 5]]] * 2
    assert (found["none"].shape, found["one"].item()) == ((0, 5), 5.0)
    assert found["epoch"] == 3 and found["list"] == [1.5, None, "text", (True, b"raw")]


def test_checkpoint_of_torch_keeps_every_type_stride_and_shared_storage(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.arange(24.0).reshape(4, 6)
    names = [*NUMPY_TYPES, "bfloat16", "float8_e4m3fn", "float8_e5m2"]
    value = {
        **{name: torch.tensor([[0, 1], [1, 1]]).to(getattr(torch, name)) for name in names},
        "transposed": whole.T,
        "part": whole[1:, 2:5],
        "steps": whole[::2, ::3],
        "expanded": whole[:1].expand(3, 6),
        "bf16 transposed": whole.to(torch.bfloat16).T,
        "parameter": torch.nn.Parameter(whole[0]),
        "none": torch.zeros(0, 2),
        "number": torch.tensor(7),
        "type": torch.float32,
        "size": torch.Size((1, 2)),
        "plain": [1, 2.5, "x", None, {"y": (True,)}, {1, 2}, b"bytes"],
    }
    path = tmp_path / "all.pt"
    torch.save(value, path)
    found = state.torch_load(path)
    assert found.keys() == value.keys()
    for name, expected in value.items():
        if isinstance(expected, torch.Tensor):
            assert found[name].shape == tuple(expected.shape), name
            wide = found[name].cast(dtypes.float64)
            assert wide.tolist() == expected.detach().double().tolist(), name
    assert found["bfloat16"].dtype is dtypes.bfloat16 and found["uint16"].dtype is dtypes.uint16
    assert found["type"] is dtypes.float32 and found["size"] == (1, 2)
    assert found["plain"] == value["plain"]


def test_state_of_a_torch_model_loads_into_ours(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)

    class Ours:
        def __init__(self) -> None:
            self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)

    theirs, ours = Net(), Ours()
    torch.save(theirs.state_dict(), tmp_path / "net.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_state_dict(ours, state.torch_load(tmp_path / "net.pt"))
    x = numbers(2, 1, 4, 4)
    expected = theirs.eval().norm(theirs.conv(torch.tensor(x))).detach().numpy()
    np.testing.assert_allclose(ours.norm(ours.conv(Tensor(x))).numpy(), expected, atol=1e-5)


RAN: list[str] = []


class Evil:
    """Runs code when a careless reader loads it."""

    def __reduce__(self) -> Any:
        return (RAN.append, ("ran",))


HOSTILE_PICKLES: dict[str, tuple[bytes, str]] = {
    "a call": (pickle.dumps(Evil(), 2), "asks for"),
    "os.system": (b"cos\nsystem\n(S'true'\ntR.", "asks for os.system"),
    "builtins": (b"cbuiltins\neval\n(S'1'\ntR.", "asks for builtins.eval"),
    "getattr of torch": (b"ctorch\n__builtins__\n.", "asks for torch.__builtins__"),
    "dotted name": (
        b"\x80\x04\x8c\x0ctorch._utils\x8c\x19_rebuild_tensor.__class__\x93.",
        "asks for torch._utils",
    ),
    "instance": (b"(ctorch\nSize\no.", "111"),  # the byte of OBJ
    "old instance": (b"(S'x'\nios\nsystem\n.", "105"),
    "new object": (b"ctorch\nSize\n)\x81.", "129"),
    "extension": (b"\x82\x01.", "130"),
    "calls a dict": (b"}(tR.", "calls what is not a function"),
    "calls a type": (b"ctorch\nFloatStorage\n(tR.", "calls what is not a function"),
    "arguments that are no tuple": (b"ctorch\nSize\n]R.", "calls what is not a function"),
    "attributes of a function": (b"ctorch\nSize\n}b.", "sets attributes of what is no dict"),
    "attributes of a type": (b"ctorch\nfloat32\n}b.", "sets attributes of what is no dict"),
    "items of a function": (b"ctorch\nSize\nI1\nI2\ns.", "sets the items of what is no dict"),
    "nothing": (b"", "cannot be read"),
    "no end": (b"}", "cannot be read"),
    "stack that is empty": (b"R.", "cannot be read"),
    "far memo": (b"j\xff\xff\xff\x7f.", "cannot be read"),
    "long text": (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "cannot be read"),
    "encoding": (b"c_codecs\nencode\n(S'a'\nS'zip'\ntR.", "encodes text as 'zip'"),
    "storage that is not there": (pickled(rebuilt("7", 0, (1,), (1,))), "is not there"),
    "past its storage": (pickled(rebuilt("0", 0, (7,), (1,))), "does not fit its storage of 6"),
    "offset past its storage": (pickled(rebuilt("0", 9, (1,), (1,))), "does not fit its storage"),
    "negative offset": (pickled(rebuilt("0", -1, (1,), (1,))), "of 0 or more"),
    "negative stride": (pickled(rebuilt("0", 5, (2,), (-1,))), "of 0 or more"),
    "sizes and strides": (pickled(rebuilt("0", 0, (2, 2), (1,))), "of 0 or more"),
    "more elements than there are": (
        pickled(rebuilt("0", 0, (5, 2), (1, 1))),
        "does not fit its storage",
    ),
    "one list copied many times": (
        b"\x80\x02ctorch\nSize\nq\0](" + b"N" * 10**4 + b"eq\1(" + b"h\0h\1\x85R" * 10**4 + b"t.",
        "copied over and over",
    ),
    "one text copied many times": (
        b"\x80\x02c_codecs\nencode\nq\0X"
        + (10**4).to_bytes(4, "little")
        + b"a" * 10**4
        + b"q\1X\6\0\0\0latin1q\2("
        + b"h\0h\1h\2\x86R" * 10**4
        + b"t.",
        "copied over and over",
    ),
    "a device of many names": (
        b"\x80\x02ctorch\ndevice\nX\1\0\0\0aq\0010(h\1h\1t\x85R.",
        "names the device",
    ),
    "no storage": (
        pickled(Global("torch._utils", "_rebuild_tensor", 1, 0, (1,), (1,))),
        "cannot be read",
    ),
    "types of complex numbers": (pickled(Global("torch", "complex64")), "asks for torch.complex64"),
}


@pytest.mark.parametrize("name", HOSTILE_PICKLES)
def test_hostile_pickle_is_refused_and_nothing_runs(name: str) -> None:
    data, message = HOSTILE_PICKLES[name]
    before = (repr(dtypes.float32), dtypes.float32.bits)
    with pytest.raises(FormatError, match=message):
        state.torch_load(checkpoint(data=data, data__0=SIX))
    assert RAN == [] and (repr(dtypes.float32), dtypes.float32.bits) == before


def test_no_change_of_a_checkpoint_breaks_out() -> None:
    value = {
        "a": rebuilt("0", 1, (2, 2), (2, 1)),
        "b": [1, 2.5, "x", {"y": rebuilt("0", 0, (6,), (1,))}],
    }
    data = pickled(value)
    results = [
        readable(state.torch_load, checkpoint(data=mutant, data__0=SIX), FormatError)
        for mutant in mutants(data, 400, len(data))
    ]
    assert 0 < sum(results) < len(results)
    whole = bytes(checkpoint(data=data, data__0=SIX)._bytes())
    results = [
        readable(state.torch_load, Tensor(mutant), FormatError)
        for mutant in mutants(whole, 300, len(whole))
    ]
    assert 0 < sum(results) < len(results)


def test_files_that_are_no_checkpoints_say_so(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C))
    with pytest.raises(FormatError, match=r"old.pt is no zip archive"):
        state.torch_load(path)
    with pytest.raises(FormatError, match="no data.pkl"):
        state.torch_load(archive_of({"a.txt": b"x"}))
    with pytest.raises(FormatError, match="big-endian"):
        state.torch_load(checkpoint({}, byteorder=b"big"))


# -- archives -------------------------------------------------------------------------------------


def archive_of(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Tensor:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return Tensor(file.getvalue())


def tar_of(files: dict[str, bytes], mode: str = "w", link: str = "") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        if link:
            member = tarfile.TarInfo("link")
            member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member)
    return file.getvalue()


FILES = {"a.bin": b"\1\2\3", "folder/b.bin": b"", "folder/c.bin": bytes(2000)}


def contents(found: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: bytes(tensor.tolist()) for name, tensor in found.items()}


def test_archives_give_their_files_as_bytes(tmp_path: Path) -> None:
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert contents(state.zip_extract(archive_of(FILES, compression))) == FILES
    path = tmp_path / "a.zip"
    path.write_bytes(bytes(archive_of(FILES).data()))
    assert contents(state.zip_extract(path)) == FILES
    for mode in ("w", "w:gz", "w:xz"):
        path.write_bytes(tar_of(FILES, mode, link="/etc/passwd"))
        assert contents(state.tar_extract(path)) == FILES


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "C:\\a", "..\\a", "\\a", "a/.."])
def test_names_that_leave_the_archive_are_refused(name: str) -> None:
    with pytest.raises(FormatError, match="leaves the archive"):
        state.zip_extract(archive_of({name: b"x"}))
    with pytest.raises(FormatError, match="leaves the archive"):
        state.tar_extract(Tensor(tar_of({name: b"x"})))


def test_archives_that_unpack_to_too_much_are_refused() -> None:
    bomb = {"zeros": bytes(1 << 20)}
    packed = archive_of(bomb, zipfile.ZIP_DEFLATED)
    assert packed.numel() < 2000
    with pytest.raises(FormatError, match=r"unpacks to 1,048,576 bytes or more, and the limit is"):
        state.zip_extract(packed, limit_bytes=1 << 19)
    with pytest.raises(FormatError, match="limit_bytes="):
        state.tar_extract(Tensor(tar_of(bomb, "w:gz")), limit_bytes=1 << 19)
    assert state.zip_extract(packed, limit_bytes=1 << 20)["zeros"].shape == (1 << 20,)


def test_broken_archives_are_refused() -> None:
    whole = bytes(archive_of(FILES, zipfile.ZIP_DEFLATED).data())
    wrong_sum = whole.replace(b"\1\2\3", b"\1\2\4")
    for data in (b"", b"hello", whole[:-30], whole[30:]):
        with pytest.raises(FormatError):
            state.zip_extract(Tensor(data) if data else Tensor([], dtype=dtypes.uint8))
    for mutant in [wrong_sum, *mutants(whole, 100, len(whole))]:
        readable(state.zip_extract, Tensor(mutant), FormatError)
    packed = tar_of(FILES, "w:gz")
    for data in (b"hello" * 200, packed[:40]):
        with pytest.raises(FormatError):
            state.tar_extract(Tensor(data))
    for mutant in mutants(packed, 100, len(packed)):
        readable(state.tar_extract, Tensor(mutant), FormatError)
    with pytest.raises(ValueError, match="a Tensor of uint8 and 1 axis"):
        state.zip_extract(Tensor([1.0]))
    with pytest.raises(FileNotFoundError):
        state.zip_extract("no such file.zip")


# -- npz ------------------------------------------------------------------------------------------


def test_npz_keeps_the_types_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    tensors = {name: t for name, t in of_every_type().items() if name in NUMPY_TYPES}
    tensors["no axes"] = Tensor(2.5)
    state.npz_save(tensors, path)
    found = state.npz_load(path)
    assert found.keys() == tensors.keys()
    assert all(same(found[name], tensors[name]) for name in tensors)
    assert np.load(path)["float32"].tolist() == tensors["float32"].tolist()


def test_npz_saves_no_8_bit_floats_as_float32(tmp_path: Path) -> None:
    with pytest.raises(DtypeError, match=r"cannot save 'a': npz has no dtypes.fp8e5m2; use safe_s"):
        state.npz_save({"a": Tensor([1.0]).cast("fp8e5m2")}, tmp_path / "a.npz")


def test_npz_says_which_array_is_of_a_type_that_tensors_lack(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", fine=np.ones(2), odd=np.array([1j]))
    with pytest.raises(DtypeError, match=r"'odd' of .*a\.npz: cannot make a Tensor"):
        state.npz_load(tmp_path / "a.npz")


def test_npz_of_pickles_of_too_much_or_of_other_types_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, evil=np.array([Evil()], object))
    with pytest.raises(FormatError, match="no npz file of numbers"):
        state.npz_load(path)
    assert RAN == []
    whole = io.BytesIO()
    np.savez(whole, numbers=np.arange(3))
    flipped = bytearray(whole.getvalue())
    flipped[flipped.index(np.arange(3).tobytes())] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(FormatError, match="is damaged"):
        state.npz_load(path)
    np.savez_compressed(path, zeros=np.zeros(1 << 17))
    with pytest.raises(FormatError, match="the limit is 1,000"):
        state.npz_load(path, limit_bytes=1000)
    path.write_bytes(b"PK nothing")
    with pytest.raises(FormatError):
        state.npz_load(path)
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        for value in range(2):
            np.save(data := io.BytesIO(), np.full(1, value))
            archive.writestr("a.npy", data.getvalue())
    with pytest.raises(FormatError, match="two files"):
        state.npz_load(path)
    with pytest.raises(DtypeError, match=r"npz has no dtypes.bfloat16; use safe_save"):
        state.npz_save({"a": Tensor([1.0], dtype=dtypes.bfloat16)}, path)


def test_a_checkpoint_from_before_torch_1_6_says_how_to_convert_it(tmp_path: Path) -> None:
    file = tmp_path / "old.pt"
    with file.open("wb") as out:  # as torch's _legacy_save begins
        pickle.dump(0x1950A86A20F9469CFC6C, out, protocol=2)
        pickle.dump(1001, out, protocol=2)
    with pytest.raises(FormatError, match=r"before 1.6, .*torch.save\(torch.load\(path\), path\)"):
        state.torch_load(file)


def test_a_whole_model_as_checkpoint_says_what_to_save(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 3), tmp_path / "model.pt")
    with pytest.raises(FormatError, match=r"Linear, .*those of model.state_dict\(\)"):
        state.torch_load(tmp_path / "model.pt")


def test_a_prefix_stands_before_names_as_it_is() -> None:
    """As in tinygrad."""
    held = {"w": Tensor([1]), "l": [Tensor([2])]}
    assert [*nn.state.get_state_dict(held, "model.")] == ["model.w", "model.l.0"]
    assert [*nn.state.get_state_dict(held, "p")] == ["pw", "pl.0"]
    assert [*nn.state.get_state_dict(held["w"], "w.")] == ["w"]
