"""Names and arguments that tinygrad's examples import and give: types, buffers, settings, downloads, optimizers."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import (
    Context,
    Device,
    GlobalCounters,
    Tensor,
    dtypes,
    helpers,
    nn,
    settings_elsewhere,
)
from proofgrad import dtype as types
from proofgrad.device import Buffer, DeviceError, canonicalize_device, is_dtype_supported
from proofgrad.nn.datasets import DownloadError
from proofgrad.nn.state import accept_filename, inverse_safe_dtypes, safe_dtypes

EVERY = (*dtypes.all, *dtypes.fp8s)

# -- types ----------------------------------------------------------------------------------------


def test_types_are_found_by_both_their_names() -> None:
    assert types.DTYPES_DICT["half"] is types.DTYPES_DICT["float16"] is dtypes.float16
    assert {dtype.name for dtype in types.DTYPES_DICT.values()} == {dtype.name for dtype in EVERY}
    assert "default_float" not in types.DTYPES_DICT and "index" not in types.DTYPES_DICT


def test_integers_are_found_by_their_width() -> None:
    for name, bits in (("int8s", 8), ("int16s", 16), ("int32s", 32), ("int64s", 64)):
        assert {kind.name for kind in getattr(dtypes, name)} == {f"int{bits}", f"uint{bits}"}


def test_the_default_device_is_found_by_name_and_as_a_backend() -> None:
    assert Device.default is Device[Device.DEFAULT]


@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_a_lossless_cast_keeps_every_number_that_may_be_lost(kind: Any) -> None:
    """The ends of ints, every code of 8-bit floats, of others the largest odd number and the smallest number."""
    if kind.is_code:
        every = [types.fp8_to_float(code, kind) for code in range(256)]
        values = [value for value in every if value == value]
    elif kind.is_float:
        exponent, fraction = dtypes.finfo(kind)
        values = [2.0 ** (fraction + 1) - 1, 2.0 ** (2 - 2 ** (exponent - 1) - fraction)]
    else:
        values = [False, True] if kind.is_bool else [dtypes.min(kind), dtypes.max(kind)]
    for to in EVERY:
        wrong_kind = kind.is_int and to.is_bool or dtypes.is_float(kind) and not dtypes.is_float(to)
        kept = not wrong_kind and all([types.truncate[to](v) == v for v in values])
        assert types.can_lossless_cast(kind, to) == kept, to


@pytest.mark.parametrize("kind, kinds", [(dtypes.bool, "int32"), (dtypes.int8, "int32"), (dtypes.uint8, "uint32"), (dtypes.uint64, "uint64"), (dtypes.half, "float32"), (dtypes.float64, "float64")])  # fmt: skip
def test_the_type_of_a_sum_has_32_bits_or_more(kind: Any, kinds: str) -> None:
    assert types.sum_acc_dtype(kind).name == kinds


def test_numbers_are_cut_to_their_type() -> None:
    found = [
        types.truncate[d](v) for d, v in ((dtypes.int8, 200), (dtypes.uint8, -1), (dtypes.bool, 3))
    ]
    assert found == [-56, 255, True]
    assert types.truncate[dtypes.float16](1e6) == float("inf") == types.float_to_fp16(1e6)
    assert types.float_to_bf16(1.00390625) == 1.0 and types.float_to_bf16(3.0) == 3.0
    assert types.fp8_to_float(types.float_to_fp8(0.3, dtypes.fp8e4m3), dtypes.fp8e4m3) == 0.3125
    with pytest.raises(ValueError, match="no 8-bit float"):
        types.float_to_fp8(1.0, dtypes.half)


def test_types_of_numpy_and_torch_and_back() -> None:
    torch = pytest.importorskip("torch")
    for dtype in dtypes.all:
        if dtype is not dtypes.bfloat16:
            assert types._from_np_dtype(types._to_np_dtype(dtype)) is dtype
        assert types._from_torch_dtype(types._to_torch_dtype(dtype)) is dtype
    assert types._to_np_dtype(dtypes.bfloat16) is np.float32
    assert types._from_torch_dtype(torch.float8_e4m3fn) is dtypes.fp8e4m3
    with pytest.raises(ValueError, match="complex64"):
        types._from_torch_dtype(torch.complex64)


def test_types_of_safetensors_by_their_codes() -> None:
    assert safe_dtypes["BF16"] is dtypes.bfloat16 and inverse_safe_dtypes[dtypes.int64] == "I64"


def test_a_reader_of_tensors_takes_paths(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\1\2\3")
    total = accept_filename(lambda t: sum(t.tolist()))
    assert total(tmp_path / "a") == total(str(tmp_path / "a")) == total(Tensor([1, 2, 3])) == 6


# -- devices and memory ------------------------------------------------------------------------------


def test_devices_have_one_name_each() -> None:
    assert Device.canonicalize("cpu:0") == canonicalize_device("LLVM") == "CPU"
    assert canonicalize_device(None) == Device.DEFAULT
    assert all(is_dtype_supported(dtype) for dtype in EVERY)
    assert is_dtype_supported(dtypes.half, "REFERENCE")
    with pytest.raises(DeviceError, match="CUDDA"):
        is_dtype_supported(dtypes.half, "CUDDA")


@pytest.mark.parametrize("device", ("CPU", "REFERENCE"))
def test_a_buffer_holds_bytes(device: str) -> None:
    buffer = Buffer(device, 3, dtypes.int32)
    assert (buffer.nbytes, buffer.is_allocated()) == (12, False)
    buffer.allocate().copyin(memoryview(np.array([1, 2, 3], np.int32)))
    assert buffer.numpy().tolist() == [1, 2, 3] and buffer.as_buffer().cast("i").tolist() == [
        1,
        2,
        3,
    ]
    part = buffer.view(2, dtypes.int16, 4)
    part.copyin(bytes([7, 0, 8, 0]))
    assert part.numpy().tolist() == [7, 8] and buffer.numpy().tolist() == [1, 7 + (8 << 16), 3]
    other = Buffer("CPU", 3, "int32", preallocate=True).copy_from(buffer)
    found = bytearray(12)
    assert other.copyout(found) is found and bytes(found) == bytes(buffer.as_memoryview())
    assert Buffer(device, 2, dtypes.uint8, initial_value=b"ab").as_memoryview() == b"ab"
    assert Buffer(device, 0, dtypes.half).ensure_allocated().numpy().tolist() == []
    buffer.deallocate()
    assert not buffer.is_allocated()


def test_a_buffer_refuses_what_does_not_fit() -> None:
    buffer = Buffer("CPU", 2, dtypes.int32)
    with pytest.raises(RuntimeError, match=r"call allocate\(\) first"):
        buffer.as_memoryview()
    with pytest.raises(ValueError, match="3 bytes for"):
        buffer.allocate().copyin(b"abc")
    with pytest.raises(ValueError, match="3 bytes from"):
        buffer.copyout(bytearray(3))
    with pytest.raises(RuntimeError, match="ensure_allocated"):
        buffer.allocate()
    for size, offset in ((3, 0), (1, 5), (1, -4)):
        with pytest.raises(ValueError, match="not within"):
            buffer.view(size, dtypes.int32, offset)
    with pytest.raises(ValueError, match="not -1"):
        Buffer("CPU", -1, dtypes.int32)
    with pytest.raises(ValueError, match="numpy has no"):
        Buffer("CPU", 1, dtypes.bfloat16).allocate().numpy()


def test_what_is_not_to_be_counted_is_not() -> None:
    GlobalCounters.reset()
    x = (Tensor([1.0, 2.0]) + 1).realize(do_update_stats=False)
    assert (GlobalCounters.kernel_count, GlobalCounters.global_ops, x.tolist()) == (
        0,
        0,
        [2.0, 3.0],
    )
    (x + 1).realize()
    assert GlobalCounters.kernel_count == 1


# -- settings -----------------------------------------------------------------------------------------


def test_a_setting_that_does_nothing_here_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_elsewhere, "_warned", set())
    with pytest.warns(UserWarning, match="SPLIT_REDUCEOP=2 .*does nothing here") as told:
        with Context(SPLIT_REDUCEOP=2, BEAM=0):
            assert Tensor([1, 2]).sum().item() == 3
        with Context(SPLIT_REDUCEOP=2):
            pass
    assert len(told) == 1 and told[0].filename == __file__


def test_the_value_that_a_setting_has_there_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Context(
            IMAGE=0, VIZ=0, JIT_BATCH_SIZE=32, CACHELEVEL=2, EMULATED_DTYPES="", FUSE_ARANGE=0
        ):
            pass


def test_settings_of_tinygrad_are_read_by_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_elsewhere, "_warned", set())
    assert helpers.JIT_BATCH_SIZE.value == 32 and not helpers.VIZ and helpers.PROFILE == 0
    with pytest.warns(UserWarning, match="VIZ=1"), Context(VIZ=1):
        assert helpers.VIZ == 1
    with pytest.warns(UserWarning, match="PROFILE=2"):
        helpers.PROFILE.value = 2
    del os.environ["PROFILE"]
    with pytest.raises(ImportError, match="NO_SUCH"):
        from proofgrad.helpers import NO_SUCH  # noqa: F401


def test_settings_that_are_read_here_too_may_be_imported() -> None:
    assert helpers.ALLOW_TF32 == 0 and helpers.TRANSCENDENTAL == 1
    with Context(ALLOW_TF32=1, TRANSCENDENTAL=0, PARALLEL=0):
        assert helpers.ALLOW_TF32 and not helpers.TRANSCENDENTAL and not helpers.PARALLEL


def test_no_setting_is_both_read_and_not_read() -> None:
    from proofgrad.core.settings import MEANING

    assert not settings_elsewhere.ELSEWHERE.keys() & MEANING.keys()


def test_the_default_type_of_ints_is_a_setting() -> None:
    with Context(DEFAULT_INT="int64"):
        assert (
            Tensor([1, 2]).dtype
            is Tensor.arange(3).dtype
            is Tensor.full((2,), 3).dtype
            is dtypes.int64
        )
        assert (helpers.DEFAULT_INT == "int64", Tensor([1, 2**40]).tolist()) == (True, [1, 2**40])
    assert Tensor([1, 2]).dtype is dtypes.int32
    with (
        pytest.raises(ValueError, match="DEFAULT_INT='half' is no type of ints"),
        Context(DEFAULT_INT="half"),
    ):
        pass


def test_the_default_type_of_ints_is_read_from_the_environment() -> None:
    code = "from proofgrad import Tensor; print(Tensor([1]).dtype.name)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DEFAULT_INT": "INT64"},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "int64\n", run.stderr


def test_a_file_for_temporary_data_has_the_user_behind_its_name() -> None:
    import getpass

    assert helpers.temp("a", append_user=True) == f"{helpers.temp('a')}.{getpass.getuser()}"


def test_times_of_a_profile_are_divided(capsys: pytest.CaptureFixture[str]) -> None:
    with helpers.Profiling(sort="time", frac=1.0, ts=1000):
        sum([k * k for k in range(100_000)])
    assert "function calls" in capsys.readouterr().out


# -- downloads ------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """An address, and what the header X-Key of each request was."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("in/a.txt")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"hello"))
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as archive:
        info = tarfile.TarInfo("../../evil")
        archive.addfile(info, io.BytesIO(b""))
    content = {"/a": b"hello", "/a.tar.gz": packed.getvalue(), "/evil.tar": evil.getvalue()}
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("X-Key", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content[self.path])

        def log_message(self, *args: Any) -> None:
            return

    monkeypatch.setenv("PROOFGRAD_DATA", str(tmp_path / "data"))
    running = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}", keys
    running.shutdown()
    running.server_close()


def test_headers_are_sent_and_tell_files_apart(server: tuple[str, list[str]]) -> None:
    address, keys = server
    one = helpers.fetch(f"{address}/a", headers={"X-Key": "1"})
    two = helpers.fetch(f"{address}/a", headers={"X-Key": "2"})
    assert keys == ["1", "2"] and one != two != helpers.fetch(f"{address}/a")


def test_a_file_of_another_sum_is_refused_and_one_of_that_sum_kept(
    server: tuple[str, list[str]],
) -> None:
    address, keys = server
    right = hashlib.sha256(b"hello").hexdigest()
    with pytest.raises(DownloadError, match=f"its SHA-256 is {right}, not 00"):
        helpers.fetch(f"{address}/a", sha256="00")
    path = helpers.fetch(f"{address}/a", sha256=right)
    assert helpers.fetch(f"{address}/a", sha256=right) == path and len(keys) == 2
    path.write_bytes(b"other")
    assert helpers.fetch(f"{address}/a", sha256=right).read_bytes() == b"hello" and len(keys) == 3


def test_a_path_is_where_the_file_lies(server: tuple[str, list[str]], tmp_path: Path) -> None:
    path = helpers.fetch(f"{server[0]}/a", name=tmp_path / "w" / "a.bin")
    assert path == tmp_path / "w" / "a.bin" and path.read_bytes() == b"hello"


def test_an_archive_is_unpacked_beside_it_once(
    server: tuple[str, list[str]], tmp_path: Path
) -> None:
    folder = helpers.fetch(f"{server[0]}/a.tar.gz", extract=True)
    assert (folder / "in" / "a.txt").read_text() == "hello"
    (folder / "mine").touch()
    assert (helpers.fetch(f"{server[0]}/a.tar.gz", extract=True) / "mine").exists()
    again = helpers.fetch(f"{server[0]}/a.tar.gz", extract=True, allow_caching=False)
    assert again == folder and not (again / "mine").exists()
    for name in ("a", "evil.tar"):
        with pytest.raises(DownloadError, match="cannot unpack"):
            helpers.fetch(f"{server[0]}/{name}", extract=True)
    assert not list(tmp_path.rglob("evil"))


# -- optimizers -----------------------------------------------------------------------------------------


def test_optimizers_take_tinygrad_s_arguments_in_its_order() -> None:
    lars = nn.optim.LARS([Tensor([[1.0, 2.0]])], 0.1, 0.9, 1e-4, 0, None, True, False, False, 0.01)
    assert (lars.ns_steps, lars.nesterov, lars.classic) == (0, True, False)
    assert (lars.pre_wd, lars.tcoef) == (False, 0.01)
    nn.optim.LAMB([Tensor([1.0])], fused=False)
    nn.optim.Muon([Tensor([[1.0]])], fused=False)
    for made in (nn.optim.LARS, nn.optim.LAMB, nn.optim.Muon):
        with pytest.raises(ValueError, match="fused=True has no meaning"):
            made([Tensor([[1.0]])], fused=True)


def test_a_step_of_lars_without_trust_may_be_orthogonal() -> None:
    value = np.array([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0]], np.float32)
    steps = []
    for make in (
        lambda p: nn.optim.LARS([p], 0.1, 0.9, 0.0, ns_steps=5, classic=False, tcoef=0.0),
        lambda p: nn.optim.Muon([p], 0.1, 0.9, 0.0, nesterov=False),
    ):
        param = Tensor(value, requires_grad=True)
        optimizer = make(param)
        (param * Tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 0.0]])).sum().backward()
        with Tensor.train():
            optimizer.step()
        steps.append(param.numpy())
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-5)
    assert not np.allclose(steps[0], value)
