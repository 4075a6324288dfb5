"""Data sets: fetched from a server of the test's own, checked, resumed, kept; batches."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import ShapeError, Tensor, dtypes
from proofgrad.nn import datasets
from proofgrad.nn.datasets import Batches, DownloadError, images
from proofgrad.nn.datasets.fetch import RemoteFile, fetch
from proofgrad.nn.state import FormatError


@dataclass
class Mirrors:
    """A server: what each path answers, and what it was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    broken_after: dict[str, int] = field(default_factory=dict)  # bytes, then the line breaks
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    """A server that runs during the test; data sets are kept in a folder of the test."""
    state = Mirrors()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.asked.append((self.path, wanted))
            data = state.files.get(self.path)
            if data is None:
                self.send_error(403, "Forbidden")
                return
            begin = 0
            if wanted and state.ranges:
                begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data) - begin))
            self.end_headers()
            self.wfile.write(data[begin : state.broken_after.get(self.path, len(data))])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("PROOFGRAD_DATA", str(tmp_path / "data"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


CONTENT = bytes(range(256)) * 40
FILE = RemoteFile("file.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def test_file_is_fetched_once_and_then_found(mirrors: Mirrors) -> None:
    mirrors.files["/a/file.bin"] = CONTENT
    first = fetch(FILE, [mirrors.url + "/a/"], "set")
    assert first.read_bytes() == CONTENT
    assert fetch(FILE, ["http://127.0.0.1:1/"], "set") == first
    assert mirrors.asked == [("/a/file.bin", None)]
    assert [path.name for path in first.parent.iterdir()] == ["file.bin"]


def test_second_mirror_is_asked_when_the_first_forbids_or_lies(mirrors: Mirrors) -> None:
    mirrors.files |= {"/b/file.bin": b"x" + CONTENT[1:], "/c/file.bin": CONTENT}
    positions = [mirrors.url + f"/{name}/" for name in "abc"]
    assert fetch(FILE, positions, "set").read_bytes() == CONTENT
    assert [path for path, _ in mirrors.asked] == ["/a/file.bin", "/b/file.bin", "/c/file.bin"]


def test_broken_download_goes_on_where_it_broke(mirrors: Mirrors) -> None:
    mirrors.files["/a/file.bin"] = CONTENT
    mirrors.broken_after["/a/file.bin"] = 4000
    with pytest.raises(DownloadError, match=r"ended after 4,000 of 10,240 bytes|4000"):
        fetch(FILE, [mirrors.url + "/a/"], "set")
    del mirrors.broken_after["/a/file.bin"]
    assert fetch(FILE, [mirrors.url + "/a/"], "set").read_bytes() == CONTENT
    assert mirrors.asked[1] == ("/a/file.bin", "bytes=4000-")


def test_download_starts_over_if_the_server_or_the_part_cannot_be_continued(
    mirrors: Mirrors, tmp_path: Path
) -> None:
    mirrors.files["/a/file.bin"] = CONTENT
    part = tmp_path / "data" / "set" / "file.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"wrong")
    assert fetch(FILE, [mirrors.url + "/a/"], "set").read_bytes() == CONTENT
    assert [wanted for _, wanted in mirrors.asked] == ["bytes=5-", None]
    (part.parent / "file.bin").unlink()
    part.write_bytes(CONTENT[:100])
    mirrors.ranges = False
    assert fetch(FILE, [mirrors.url + "/a/"], "set").read_bytes() == CONTENT
    (part.parent / "file.bin").unlink()
    part.write_bytes(CONTENT + b"more")
    assert fetch(FILE, [mirrors.url + "/a/"], "set").read_bytes() == CONTENT


def test_download_that_does_not_end_is_cut(mirrors: Mirrors) -> None:
    mirrors.files["/a/file.bin"] = CONTENT * 3
    with pytest.raises(DownloadError, match="sends more than 10,240 bytes"):
        fetch(FILE, [mirrors.url + "/a/"], "set")


def test_without_a_network_the_error_says_where_to_put_the_file(
    mirrors: Mirrors, tmp_path: Path
) -> None:
    position = tmp_path / "data" / "set" / "file.bin"
    position.parent.mkdir(parents=True)
    position.write_bytes(b"something else")
    with pytest.raises(DownloadError) as caught:
        fetch(FILE, [mirrors.url + "/a/", "http://127.0.0.1:1/", "file:///etc/"], "set")
    text = str(caught.value)
    assert f"{position} is there, but is another file" in text
    assert "/a/file.bin: HTTP Error 403: Forbidden" in text
    assert re.search(r"http://127.0.0.1:1/file.bin: .*refused", text)
    assert "file:///etc/file.bin: only http and https are fetched" in text
    assert f"put the file with SHA-256 {FILE.sha256} at {position} (PROOFGRAD_DATA" in text
    assert isinstance(caught.value, OSError) and isinstance(caught.value, ValueError)
    position.write_bytes(CONTENT)
    assert fetch(FILE, [], "set") == position


# -- formats --------------------------------------------------------------------------------------


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """The IDX format, packed as MNIST is."""
    sizes = b"".join([size.to_bytes(4, "big") for size in array.shape])
    raw = b"\0\0\x08" + bytes([array.ndim]) + sizes + array.astype("uint8").tobytes()
    return gzip.compress(raw, mtime=0)


def served(mirrors: Mirrors, folder: str, files: dict[str, bytes]) -> tuple[RemoteFile, ...]:
    mirrors.files |= {f"/{folder}/{name}": data for name, data in files.items()}
    return tuple(
        [RemoteFile(n, len(data), hashlib.sha256(data).hexdigest()) for n, data in files.items()]
    )


def pictures(count: int, *shape: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.mark.parametrize("fashion", [False, True])
def test_mnist_reads_images_and_labels(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, fashion: bool
) -> None:
    parts = [pictures(7, 28, 28, seed=0), np.arange(7), pictures(3, 28, 28, seed=1), np.arange(3)]
    names = [file.name for file in images.MNIST_FILES]
    files = served(mirrors, "m", dict(zip(names, map(idx, parts), strict=True)))
    kind = "FASHION" if fashion else "MNIST"
    monkeypatch.setattr(images, f"{kind}_FILES", files)
    monkeypatch.setattr(images, f"{kind}_MIRRORS", (mirrors.url + "/none/", mirrors.url + "/m/"))
    found = datasets.mnist(fashion=fashion)
    assert [part.shape for part in found] == [(7, 1, 28, 28), (7,), (3, 1, 28, 28), (3,)]
    for tensor, part in zip(found, parts, strict=True):
        assert tensor.dtype is dtypes.uint8
        np.testing.assert_array_equal(tensor.numpy().reshape(part.shape), part)
    before = len(mirrors.asked)
    datasets.mnist(device="REFERENCE", fashion=fashion)
    assert len(mirrors.asked) == before == 8


def test_cifar_reads_images_and_labels(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, records = io.BytesIO(), []
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for number, name in enumerate([*[f"data_batch_{k}" for k in range(1, 6)], "test_batch"]):
            record = pictures(2, 3073, seed=number)
            records.append(record)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = record.size
            archive.addfile(member, io.BytesIO(record.tobytes()))
    (file,) = served(mirrors, "c", {"cifar-10-binary.tar.gz": packed.getvalue()})
    monkeypatch.setattr(images, "CIFAR_FILE", file)
    monkeypatch.setattr(images, "CIFAR_MIRRORS", (mirrors.url + "/c/",))
    x_train, y_train, x_test, y_test = datasets.cifar()
    whole = np.concatenate(records)
    assert x_train.shape == (10, 3, 32, 32) and y_test.shape == (2,)
    x, y = np.concatenate([x_train.numpy(), x_test.numpy()]), [*y_train.tolist(), *y_test.tolist()]
    np.testing.assert_array_equal(x.reshape(12, -1), whole[:, 1:])
    assert y == whole[:, 0].tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no IDX file"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "no IDX file of bytes"),
        (b"\0\0\x08", "no IDX file"),
        (b"\0\0\x08\3\0\0\0\1", "no IDX file"),
        (b"\0\0\x08\xff" + b"\xff" * 1020, "says it has shape"),
        (b"\0\0\x08\1\0\0\0\5abcd", r"says it has shape \(5,\), and has 4 bytes"),
        (b"\0\0\x08\2\xff\xff\xff\xff\xff\xff\xff\xffabcd", "says it has shape"),
        (idx(np.arange(9))[:-9], "cannot be unpacked"),
        (b"\x1f\x8bnothing", "cannot be unpacked"),
    ],
)
def test_broken_idx_files_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.gz"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        images.read_idx(path)


def test_digits_need_no_network() -> None:
    pytest.importorskip("sklearn")
    x_train, y_train, x_test, y_test = datasets.digits()
    assert [x_train.shape, y_train.shape] == [(1438, 1, 8, 8), (1438,)]
    assert [x_test.shape, y_test.shape] == [(359, 1, 8, 8), (359,)]
    assert x_train.dtype is dtypes.uint8 and x_train.max().item() == 16
    assert sorted(set(y_test.tolist())) == list(range(10))


# -- batches --------------------------------------------------------------------------------------


def test_batches_hold_every_row_once_in_an_order_of_their_seed() -> None:
    rows = Tensor(np.arange(20, dtype=np.float16).reshape(10, 2))
    labels = np.arange(10, dtype=np.int64)
    epochs = []
    loader = Batches(rows, labels, size=5, seed=1)
    assert len(loader) == 2
    for _ in range(2):
        seen = []
        for x, y in loader:
            assert (x.dtype, x.shape, y.dtype) == (dtypes.float16, (5, 2), dtypes.int64)
            assert x[:, 0].tolist() == [2.0 * label for label in y.tolist()]
            seen += y.tolist()
        assert sorted(seen) == list(range(10)) != seen
        epochs.append(seen)
    assert epochs[0] != epochs[1]
    again = [label for _, y in Batches(rows, labels, size=5, seed=1) for label in y.tolist()]
    assert again == epochs[0]


def test_last_rows_are_left_out_or_kept() -> None:
    rows = np.arange(7)
    kept = Batches(rows, size=3, shuffle=False, drop_last=False)
    assert [x.tolist() for (x,) in kept] == [[0, 1, 2], [3, 4, 5], [6]] and len(kept) == 3
    left = Batches(rows, size=3, shuffle=False)
    assert [x.tolist() for (x,) in left] == [[0, 1, 2], [3, 4, 5]] and len(left) == 2


def test_misuse_of_batches_says_what_is_wrong() -> None:
    with pytest.raises(ShapeError, match=r"need one length, and have \[2, 3\]"):
        Batches(np.arange(2), np.arange(3), size=1)
    with pytest.raises(ShapeError, match="2 rows fill no batch of 3"):
        Batches(np.arange(2), size=3)
    with pytest.raises(ValueError, match="a size of 1 or more, not 0"):
        Batches(np.arange(2), size=0)


# -- batches made by threads ----------------------------------------------------------------------


@pytest.mark.parametrize("workers", (0, 1, 3))
def test_workers_give_the_batches_in_order(workers: int) -> None:
    def halved(rows: np.ndarray, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.002 * (rows[0] % 3))
        return rows.astype(np.float32) / 2, np.array([len(name) for name in names])

    names = ["x" * (k % 5) for k in range(20)]
    batches = Batches(np.arange(20), names, size=3, transform=halved, workers=workers, seed=4)
    plain = Batches(np.arange(20), size=3, seed=4)
    for _ in range(2):
        found = [(x.tolist(), n.tolist()) for x, n in batches]
        rows = [x.tolist() for (x,) in plain]
        assert found == [([k / 2 for k in row], [k % 5 for k in row]) for row in rows]


def test_workers_stay_few_batches_ahead_and_stop_with_the_loop() -> None:
    seen: list[int] = []

    def noted(rows: np.ndarray) -> np.ndarray:
        seen.append(int(rows[0]))
        return rows

    before = threading.active_count()
    for (x,) in Batches(np.arange(100), size=1, shuffle=False, transform=noted, workers=2):
        if x.item() == 3:
            break
    assert len(seen) <= 10 and threading.active_count() == before


def test_an_error_of_a_worker_reaches_the_loop() -> None:
    def fails(rows: np.ndarray) -> np.ndarray:
        if rows[0] == 2:
            raise OSError("no such picture")
        return rows

    with pytest.raises(OSError, match="no such picture"):
        list(Batches(np.arange(6), size=1, shuffle=False, transform=fails, workers=2))
    with pytest.raises(ValueError, match="0 or more threads"):
        Batches(np.arange(6), size=1, workers=-1)
