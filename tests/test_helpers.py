"""`proofgrad.helpers`: what scripts use beside Tensors."""

from __future__ import annotations

import ctypes
import gc
import gzip
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Device, Tensor, dtypes, helpers, nn
from proofgrad.core import settings
from proofgrad.nn.datasets import DownloadError

# -- sequences ------------------------------------------------------------------------------------


def test_sequences() -> None:
    assert helpers.prod([]) == 1 and helpers.prod((2, 3, 4)) == 24
    assert helpers.dedup([3, 1, 3, 2, 1]) == [3, 1, 2]
    assert helpers.argfix(1, 2) == helpers.argfix((1, 2)) == helpers.argfix([1, 2]) == (1, 2)
    assert helpers.argfix() == ()
    assert helpers.argsort((5, 1, 3)) == (1, 2, 0) and helpers.argsort([2, 2, 1]) == [2, 0, 1]
    assert helpers.all_same([]) and helpers.all_same([1, 1]) and not helpers.all_same((1, 2))
    assert helpers.all_int([1, True]) and not helpers.all_int([1, 2.0])
    assert helpers.make_tuple(3, 2) == (3, 3) and helpers.make_tuple([1, 2], 2) == (1, 2)
    assert helpers.flatten([[1], [], [2, 3]]) == [1, 2, 3]
    assert helpers.fully_flatten([1, (2, [3, []]), "ab"]) == [1, 2, 3, "ab"]
    assert helpers.fully_flatten(np.arange(4).reshape(2, 2)) == [0, 1, 2, 3]
    assert helpers.fully_flatten(np.array(5)) == [5]
    assert helpers.merge_dicts([{1: 2}, {}, {3: 4, 1: 2}]) == {1: 2, 3: 4}
    assert helpers.partition(range(5), lambda n: n % 2) == ([1, 3], [0, 2, 4])
    assert helpers.unwrap(0) == 0 and helpers.get_single_element([7]) == 7


def test_numbers_and_text() -> None:
    assert [helpers.floordiv(*p) for p in ((7, 2), (-7, 2), (7, -2), (3, 0))] == [3, -4, -4, 0]
    assert [helpers.floormod(*p) for p in ((7, 2), (-7, 2), (7, -2), (3, 0))] == [1, 1, -1, 3]
    assert (
        helpers.to_tuple(3) == (3,)
        and helpers.to_tuple((1, 2)) == (1, 2)
        and helpers.to_tuple("ab") == ("ab",)
    )
    assert (
        helpers.ansipad("\x1b[31mab\x1b[0m", 4) == "\x1b[31mab\x1b[0m  "
        and helpers.ansipad("abc", 2) == "abc"
    )


def test_memory_and_its_address() -> None:
    data = bytearray(b"\x01\x02\x03\x04")
    view = memoryview(data)
    helpers.to_mv(helpers.mv_address(view), 2)[1] = 9
    assert data == b"\x01\x09\x03\x04"
    assert helpers.from_mv(view, ctypes.c_uint16)[1] == 0x0403
    assert helpers.flat_mv(memoryview(np.arange(6).reshape(2, 3))).shape == (48,)
    with pytest.raises(TypeError):
        helpers.mv_address(memoryview(b"read"))


def test_commands_and_the_process() -> None:
    assert helpers.system(f"{sys.executable} -c 'print(5)'") == "5"
    with pytest.raises(RuntimeError, match="ended with 3: no"):
        helpers.system(
            f"{sys.executable} -c 'import sys; print(\"no\", file=sys.stderr); sys.exit(3)'"
        )
    now = time.perf_counter_ns
    before, found, after = now(), helpers.perf_counter_us() * 1000, now()
    assert before <= found <= after
    assert gc.isenabled()
    with helpers.disable_gc(), helpers.disable_gc():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_default_float_is_what_a_context_says() -> None:
    assert helpers.DEFAULT_FLOAT == "float32"
    with Context(DEFAULT_FLOAT="half"):
        assert helpers.DEFAULT_FLOAT == "float16"


@pytest.mark.parametrize("n", range(-7, 8))
@pytest.mark.parametrize("d", (1, 2, 3, 7))
def test_divisions_round_up(n: int, d: int) -> None:
    assert helpers.ceildiv(n, d) == -(-n // d) == helpers.round_up(n, d) // d
    assert 0 <= helpers.round_up(n, d) - n < d


def test_children_by_the_names_of_states() -> None:
    class Model:
        def __init__(self) -> None:
            self.layers = [nn.Linear(2, 3), nn.Linear(3, 1)]
            self.more = {"a": {"b": 5}, "7": 6, 8: 9}

    model = Model()
    for name, weight in nn.state.get_state_dict(model.layers).items():
        assert helpers.get_child(model.layers, name) is weight
    assert helpers.get_child(model, "layers.1.bias") is model.layers[1].bias
    assert [helpers.get_child(model, f"more.{k}") for k in ("a.b", "7", "8")] == [5, 6, 9]
    with pytest.raises(AttributeError):
        helpers.get_child(model, "layers.0.wieght")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    (
        (lambda: helpers.argfix((1, 2), 3), ValueError, "one tuple"),
        (lambda: helpers.merge_dicts([{1: 2}, {1: 3}]), RuntimeError, "2 in one dict and 3"),
        (lambda: helpers.unwrap(None), ValueError, "None"),
        (lambda: helpers.get_single_element([1, 2]), ValueError, "there are 2"),
        (lambda: helpers.colored("x", "orange"), ValueError, "orange.*there are black"),
    ),
)
def test_what_does_not_fit_is_an_error(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# -- the terminal ---------------------------------------------------------------------------------


def test_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = helpers.colored("abc", "red")
    assert text == "\x1b[31mabc\x1b[0m" and helpers.colored("abc", None) == "abc"
    assert helpers.colored(1, "CYAN") == "\x1b[96m1\x1b[0m"
    assert helpers.colored(1, "cyan", background=True) == "\x1b[46m1\x1b[0m"
    assert helpers.ansistrip(text + "\x1b[K") == "abc" and helpers.ansilen(text) == 3
    monkeypatch.setenv("NO_COLOR", "1")
    assert helpers.colored("abc", "red") == "abc"


def test_times_and_profiles_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with helpers.Timing("took ", on_exit=lambda ns: f", {ns > 0}"):
        pass

    @helpers.Timing("call ")
    def function() -> int:
        return 3

    assert function() == function() == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("took ") and lines[0].endswith(" ms, True") and len(lines) == 3
    with helpers.Timing(enabled=False), helpers.Profiling(enabled=False):
        pass
    assert capsys.readouterr().out == ""
    with helpers.Profiling(frac=1.0, fn=str(tmp_path / "profile")):
        sorted([3, 1, 2])
    assert "sorted" in capsys.readouterr().out and (tmp_path / "profile").stat().st_size > 0


def test_progress() -> None:
    bar = helpers.trange(3, disable=True)
    assert [bar.set_description(f"step {k}") or k for k in bar] == [0, 1, 2]
    assert list(helpers.tqdm([1, 2], disable=True)) == [1, 2]


# -- the environment ------------------------------------------------------------------------------


def test_getenv_is_of_the_type_of_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPS", raising=False)
    assert [helpers.getenv("STEPS"), helpers.getenv("STEPS", 7), helpers.getenv("STEPS", "a")] == [0, 7, "a"]  # fmt: skip
    monkeypatch.setenv("STEPS", "12")
    assert [helpers.getenv("STEPS", 7), helpers.getenv("STEPS", 0.5)] == [12, 12.0]
    assert helpers.getenv("STEPS", "") == "12" and helpers.getenv("STEPS", False) is True
    monkeypatch.setenv("STEPS", "0")
    assert helpers.getenv("STEPS", True) is False
    monkeypatch.setenv("STEPS", "many")
    with pytest.raises(ValueError, match="STEPS='many' .* int"):
        helpers.getenv("STEPS", 7)


def test_variables_compare_as_their_values() -> None:
    with Context(DEBUG=0):
        assert not helpers.DEBUG and helpers.DEBUG < 1 and helpers.DEBUG == 0
    with Context(BEAM=2):
        assert helpers.BEAM >= 2 and helpers.BEAM > helpers.NOOPT and int(helpers.BEAM) == 2
        assert str(helpers.BEAM) == "2" and repr(helpers.BEAM) == "ContextVar('BEAM', 2)"
    assert helpers.DEV == Device.DEFAULT


def test_variables_of_a_script() -> None:
    width = helpers.ContextVar("MY_WIDTH", 64)
    try:
        assert width == 64
        with Context(MY_WIDTH=32):
            assert width == 32
        assert width.value == 64
        width.value = 16
        assert os.environ["MY_WIDTH"] == "16" and width <= 16
    finally:
        os.environ.pop("MY_WIDTH", None)
    with pytest.raises(KeyError, match="is MY_WIDTH meant"), Context(MY_WIDHT=1):
        pass


def test_training_by_context() -> None:
    assert not Tensor.training
    x = Tensor.ones(512)
    with Context(TRAINING=1):
        assert Tensor.training and helpers.TRAINING
        assert 0 < (x.dropout(0.5) == 0).sum().item() < 512
        with Context(TRAINING=0):
            assert not helpers.TRAINING and x.dropout(0.5).min().item() == 1
        assert Tensor.training
    assert not Tensor.training
    with Tensor.train():
        assert helpers.TRAINING == 1
    helpers.TRAINING.value = 1
    assert Tensor.training is True
    helpers.TRAINING.value = 0


@pytest.mark.parametrize("name", ("half", "HALF", "float16", "dtypes.float16"))
def test_default_float_by_context(name: str) -> None:
    with Context(DEFAULT_FLOAT=name):
        assert Tensor.rand(3).dtype == Tensor([1.0]).dtype == nn.Linear(2, 2).weight.dtype == dtypes.float16  # fmt: skip
    assert Tensor([1.0]).dtype == dtypes.float32


def test_nothing_is_set_where_one_is_wrong() -> None:
    before = dict(os.environ)
    for wrong in ({"DEFAULT_FLOAT": "int32"}, {"DEFAULT_FLOAT": "all"}, {"DEFAULT_FLOAT": "flaot"}):
        words = "no type of floats; there are float16"
        with pytest.raises(ValueError, match=words), Context(DEBUG=2, **wrong):
            pass
    assert dict(os.environ) == before and dtypes.default_float == dtypes.float32


def test_training_and_default_float_of_a_process() -> None:
    script = "from proofgrad import dtypes, Tensor; print(Tensor([1.0]).dtype, Tensor.training)"

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)

    assert run(DEFAULT_FLOAT="HALF", TRAINING="1").stdout.split() == ["dtypes.float16", "True"]
    assert "DEFAULT_FLOAT='x' is no type of floats" in run(DEFAULT_FLOAT="x").stderr


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    monkeypatch.setenv("PROOFGRAD_DATA", str(tmp_path))
    asked: list[str] = []
    packed = gzip.compress(b"hello" * 1000)
    answers = {
        "/a": (b"hello", 5),
        "/a.gz": (packed, len(packed)),
        "/broken.gz": (packed[:30], 30),
        "/short": (b"hel", 5),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path not in answers:
                self.send_error(404)
                return
            content, length = answers[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()


def test_files_are_fetched_once(server: tuple[str, list[str]]) -> None:
    address, asked = server
    path = helpers.fetch(f"{address}/a")
    assert path.read_bytes() == b"hello" and path.is_relative_to(settings.data_folder())
    assert helpers.fetch(f"{address}/a") == path and asked == ["/a"]
    assert helpers.fetch(f"{address}/a", allow_caching=False) == path and asked == ["/a", "/a"]
    named = helpers.fetch(f"{address}/a", "weights.bin", "models")
    assert named.parts[-2:] == ("models", "weights.bin")
    unpacked = helpers.fetch(f"{address}/a.gz", gunzip=True)
    assert unpacked.read_bytes() == b"hello" * 1000 != helpers.fetch(f"{address}/a.gz").read_bytes()
    assert helpers.fetch("/etc/hosts") == Path("/etc/hosts")


@pytest.mark.parametrize("name", ("missing", "short"))
def test_what_does_not_arrive_whole_is_not_there(server: tuple[str, list[str]], name: str) -> None:
    with pytest.raises(DownloadError, match=f"cannot get {server[0]}/{name}"):
        helpers.fetch(f"{server[0]}/{name}")
    assert [file for file in settings.data_folder().rglob("*") if file.is_file()] == []


def test_what_cannot_be_unpacked_is_not_there(server: tuple[str, list[str]]) -> None:
    for name in ("broken.gz", "a"):
        with pytest.raises(DownloadError, match="cannot get"):
            helpers.fetch(f"{server[0]}/{name}", gunzip=True)
    assert [file for file in settings.data_folder().rglob("*") if file.is_file()] == []


def test_files_stay_in_their_folder(server: tuple[str, list[str]]) -> None:
    for names in (("../../x", None), ("x", "../.."), ("/tmp/x", None), (".", None)):
        with pytest.raises(ValueError, match="outside of"):
            helpers.fetch(f"{server[0]}/a", *names)
    with pytest.raises(ValueError, match="only http"):
        helpers.fetch("ftp://127.0.0.1/a")
    assert server[1] == []


def test_the_shape_of_nested_lists() -> None:
    assert helpers.get_shape(2) == () and helpers.get_shape([[], []]) == (2, 0)
    assert helpers.get_shape([[1, 2, 3], (4, 5, 6)]) == (2, 3)
    assert helpers.get_shape([np.zeros((3, 1)), np.ones((3, 1))]) == (2, 3, 1)
    assert helpers.is_numpy_ndarray(np.zeros(2)) and not helpers.is_numpy_ndarray([0.0])
    with pytest.raises(ValueError, match="ragged"):
        helpers.get_shape([[1, [2]], [1]])
