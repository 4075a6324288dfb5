"""What docs/reliability.md promises, each with a count: files, caches and processes that go wrong."""

from __future__ import annotations

import io
import os
import pickle
import random
import resource
import signal
import struct
import subprocess
import sys
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from proofgrad import DtypeError, Tensor
from proofgrad.core.disk_cache import DiskCache
from proofgrad.nn.state import (
    FormatError,
    gguf_load,
    npz_load,
    npz_save,
    safe_load,
    safe_save,
    tar_extract,
    torch_load,
    zip_extract,
)
from proofgrad.nn.state.files import replacing
from proofgrad.verify.dsl.errors import RuleError
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.prove.ledger import write_whole

posix = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")

# -- the cache -------------------------------------------------------------------------------------

KEYS = [sha256(str(k).encode()).hexdigest() for k in range(40)]


def content(key: str) -> bytes:
    return key.encode() * 40


def damaged(data: bytes, source: random.Random) -> bytes:
    """Bytes with one of the damages that files come to."""
    where = source.randrange(len(data))
    match source.randrange(6):
        case 0:
            return (
                data[:where] + bytes([data[where] ^ 1 << source.randrange(8)]) + data[where + 1 :]
            )
        case 1:
            return data[:where]
        case 2:
            return data + source.randbytes(1 + source.randrange(50))
        case 3:
            return bytes(len(data))
        case 4:
            return source.randbytes(len(data))
        case _:
            return data[where:] + data[:where] if where else b""


def test_no_damage_of_a_kept_file_gives_other_bytes(tmp_path: Path) -> None:
    source, cache = random.Random(11), DiskCache(tmp_path)
    counts = {"made again": 0, "as before": 0}
    for round_ in range(600):
        key = KEYS[round_ % len(KEYS)]
        cache.put(key, content(key))
        file = tmp_path / key[:2] / key
        file.write_bytes(damaged(file.read_bytes(), source))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = cache.get(key)
        assert found in (None, content(key))
        counts["made again" if found is None else "as before"] += 1
    assert counts["made again"] == 600, counts


@posix
@pytest.mark.long
def test_of_sixteen_writers_half_of_whom_are_killed_no_reader_sees_a_part(tmp_path: Path) -> None:
    source, children = random.Random(7), []
    for number in range(16):
        child = os.fork()
        if not child:
            cache, order = DiskCache(tmp_path), random.Random(number)
            while True:
                key = order.choice(KEYS)
                cache.put(key, content(key))
                if cache.get(key) not in (None, content(key)):
                    os._exit(1)
        children.append(child)
    cache, read = DiskCache(tmp_path), 0
    end = time.monotonic() + 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a part of a file would be a warning
        while time.monotonic() < end:
            key = source.choice(KEYS)
            found = cache.get(key)
            assert found in (None, content(key))
            read += found is not None
    for child in children:
        os.kill(child, signal.SIGKILL)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert ends == [signal.SIGKILL] * 16  # none had seen a part of a file
    assert read > 100


PROGRAM = "from proofgrad import Tensor\nprint((Tensor([1.0, 2.0]).exp().sum() * 3).item())"


def run(cache: Path, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PLANS": "1", "PROOFGRAD_CACHE": str(cache)},
        capture_output=True, text=True, check=False, preexec_fn=before,
    )  # fmt: skip


def fill_the_disk() -> None:
    """Every write to a file fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@posix
def test_where_nothing_can_be_kept_a_program_gives_its_result_and_a_warning_a_cache(
    tmp_path: Path,
) -> None:
    right = run(tmp_path / "good")
    assert (right.returncode, right.stderr) == (0, "")
    (tmp_path / "file").write_text("in the way")
    for folder, before in ((tmp_path / "full", fill_the_disk), (tmp_path / "file", None)):
        done = run(folder, before)
        assert (done.returncode, done.stdout) == (0, right.stdout), done.stderr
        assert 1 <= done.stderr.count("continuing without it") <= 3
        assert "Traceback" not in done.stderr


@posix
def test_a_ledger_is_written_whole_or_not_at_all_whenever_its_writer_is_killed(
    tmp_path: Path,
) -> None:
    file, texts = tmp_path / "ledger.json", ["a" * 300_000, "b" * 300_000]
    write_whole(file, texts[0])
    seen = set()
    for round_ in range(30):
        child = os.fork()
        if not child:
            while True:
                write_whole(file, texts[1])
                write_whole(file, texts[0])
        time.sleep(0.002 * (round_ % 10))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seen.add(file.read_text())
    assert seen <= set(texts)


@posix
def test_a_saved_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    file, contents = tmp_path / "x.safetensors", [b"a" * 300_000, b"b" * 300_000]
    file.write_bytes(contents[0])
    for round_ in range(20):
        child = os.fork()
        if not child:
            for content_ in contents * 1000:
                with replacing(file) as aside:
                    aside.write_bytes(content_)
        time.sleep(0.002 * (round_ % 10))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert file.read_bytes() in contents


# -- processes -------------------------------------------------------------------------------------

PARENT = """
import os, sys, time
from proofgrad.verify.prove.workers import Workers
def work(number):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(600)
with Workers(2) as workers:
    list(workers.each(work, range(4), str))
"""


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended, but that nobody waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL", "SIGHUP", "SIGINT"])
def test_workers_end_when_their_parent_ends(ending: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    workers = [int(parent.stdout.readline()) for _ in range(2)]
    assert all(lives(pid) for pid in workers)
    parent.send_signal(getattr(signal, ending))
    parent.wait(30)
    end = time.monotonic() + 120
    while any(lives(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [pid for pid in workers if lives(pid)]
    parent.stdout.close()


# -- files of numbers --------------------------------------------------------------------------------

SECONDS = 10  # of processor time; none takes one
MEGABYTES = 400


def refused(load: Callable[[], Any], *also: type[Exception]) -> bool:
    """Whether a file is refused, in time and memory that are bounded; else it was read."""
    start = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        load()
    except (FormatError, *also) as error:
        assert len(str(error)) < 2000
        return True
    finally:
        assert time.process_time() - start < SECONDS
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES << 10
    return False


def zip_of(file: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file


SHARED = (
    b"K\x01" + b"2\x86" * 60
)  # a tuple whose parts are one tuple, 60 deep: 2**60 parts to look at
STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
AXES = b"(" + b"K\x01" * 100_000 + b"t"
TRANSPOSED = REBUILD + b"(" + STORAGE + b"K\0M\0\x04M\0\x04\x86K\x01M\0\x04\x86\x89NtR"
PICKLES = {
    "an id of shared tuples": SHARED + b"Q.",
    "a key of shared tuples": b"}" + SHARED + b"K\x01s.",
    "keys of shared tuples": b"}(" + SHARED + b"K\x01u.",
    "a dict of shared tuples": b"(" + SHARED + b"K\x01d.",
    "a set of shared tuples": b"\x8f(" + SHARED + b"\x90.",
    "a frozen set of shared tuples": b"(" + SHARED + b"\x91.",
    "an ordered dict of shared tuples": b"ccollections\nOrderedDict\n("
    + SHARED
    + b"K\x01t\x85\x85R.",
    "a device of shared tuples": b"ctorch\ndevice\n" + SHARED + b"\x85R.",
    "an encoding of shared tuples": b"c_codecs\nencode\nX\x01\0\0\0a" + SHARED + b"\x86R.",
    "a size of shared tuples": REBUILD
    + b"("
    + STORAGE
    + b"K\0"
    + SHARED
    + b"\x85K\x01\x85\x89NtR.",
    "a hundred thousand axes": REBUILD + b"(" + STORAGE + b"K\0" + AXES + AXES + b"\x89NtR.",
    "many copies of one storage": b"](" + TRANSPOSED * 300 + b"e.",
    "a call of what is not allowed": b"cos\nsystem\nX\x02\0\0\0ls\x85R.",
    "an endless number": b"\x8b\xff\xff\xff\x7f" + b"\1" * 20 + b".",
    "nothing": b"",
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles_that_ask_for_time_or_memory_are_refused(name: str, tmp_path: Path) -> None:
    members = {"a/data.pkl": b"\x80\x04" + PICKLES[name], "a/data/0": bytes(1 << 22)}
    assert refused(lambda: torch_load(zip_of(tmp_path / "bomb.pt", members)))


def header(text: str, data: bytes = bytes(64)) -> bytes:
    encoded = text.encode("latin1")
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(encoded)) + encoded + data


def array(descr: str, shape: str) -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n")


ARRAYS = {
    "of terabytes": array("'<f4'", f"({2**40},)"),
    "of gigabytes": array("'<f4'", f"({2**31},)"),
    "beyond memory": array("'<f4'", f"({2**62},)"),
    "beyond 64 bits": array("'<f4'", f"({2**70},)"),
    "negative": array("'<f4'", "(-1,)"),
    "of objects": array("'|O'", "(1,)"),
    "of objects in a struct": array("[('a','|O')]", "(1,)"),
    "of huge items": array("'|V2000000000'", "(1,)"),
    "of no type": array("3", "(1,)"),
    "of bools for sizes": array("'<f4'", "(True,)"),
    "of a hundred axes": array("'<f4'", str((1,) * 100)),
    "of a deep header": header("(" * 4000 + ")" * 4000 + "\n"),
    "of a deep sum": header("-" * 8000 + "1\n"),
    "of a call": header("__import__('os').system('ls')\n"),
    "of text": b"hello",
    "of nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_none_are_refused(name: str, tmp_path: Path) -> None:
    file = zip_of(tmp_path / "bomb.npz", {"a.npy": ARRAYS[name]})
    assert refused(lambda: npz_load(file), DtypeError)


def test_archives_that_unpack_to_more_than_the_limit_are_refused(tmp_path: Path) -> None:
    limit = 1 << 20
    bomb = zip_of(
        tmp_path / "bomb.zip", {"a/data.pkl": b"\x80\x02K\x01.", "a/data/0": bytes(1 << 24)}
    )
    assert refused(lambda: torch_load(bomb, limit_bytes=limit))
    assert refused(lambda: zip_extract(bomb, limit_bytes=limit))
    assert refused(lambda: npz_load(bomb, limit_bytes=limit))
    for mode in ("gz", "bz2", "xz"):
        file = tmp_path / f"bomb.tar.{mode}"
        with tarfile.open(file, f"w:{mode}") as archive:  # type: ignore[call-overload]
            info = tarfile.TarInfo("a")
            info.size = 1 << 24
            archive.addfile(info, io.BytesIO(bytes(info.size)))
        assert refused(lambda file=file: tar_extract(file, limit_bytes=limit))
        with tarfile.open(file, f"w:{mode}", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            archive.addfile(tarfile.TarInfo("b"))
            info = tarfile.TarInfo("a")
            info.pax_headers = {"comment": "x" * (1 << 24)}
            archive.addfile(info)
        assert refused(lambda file=file: tar_extract(file, limit_bytes=limit))


def test_an_archive_of_many_files_takes_time_in_step_with_them(tmp_path: Path) -> None:
    file = zip_of(tmp_path / "many.zip", {f"f{k}": b"" for k in range(20_000)})
    start = time.process_time()
    assert len(zip_extract(file)) == 20_000
    assert time.process_time() - start < SECONDS


def samples(folder: Path) -> Iterator[tuple[Path, Callable[[Path], Any]]]:
    """A good file of each format, and what reads it."""
    tensors = {"a": Tensor([[1.0, 2.0], [3.0, 4.0]]), "b": Tensor([1, 2, 3], dtype="int64")}
    safe_save(tensors, folder / "x.safetensors")
    yield folder / "x.safetensors", safe_load
    npz_save(tensors, folder / "x.npz")
    yield folder / "x.npz", npz_load
    value = {"w": [1, 2.5, "three", (4, None), True]}
    torch = {"a/data.pkl": pickle.dumps(value, 2), "a/data/0": bytes(64), "a/version": b"3"}
    yield zip_of(folder / "x.pt", torch), torch_load
    yield zip_of(folder / "x.zip", {"a": bytes(range(200)), "b/c": b"text"}), zip_extract
    with tarfile.open(folder / "x.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("a")
        info.size = 200
        archive.addfile(info, io.BytesIO(bytes(range(200))))
    yield folder / "x.tar.gz", tar_extract
    (folder / "x.gguf").write_bytes(
        b"GGUF"
        + struct.pack("<IQQ", 3, 1, 2)
        + struct.pack("<Q5sIQ3s", 5, b"model", 8, 3, b"abc")
        + struct.pack("<Q4sIIQ3H", 4, b"list", 9, 2, 3, 1, 2, 3)
        + struct.pack("<Q1sI2QIQ", 1, b"w", 2, 32, 2, 8, 0)
        + bytes(20 + 68)
    )
    yield folder / "x.gguf", gguf_load


def test_damaged_files_of_numbers_are_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    source, counts = random.Random(3), {"refused": 0, "read": 0}
    for file, load in samples(tmp_path):
        good = file.read_bytes()
        load(file)
        for _ in range(150):
            file.write_bytes(damaged(good, source))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                is_refused = refused(lambda file=file, load=load: load(file), DtypeError)
            counts["refused" if is_refused else "read"] += 1
    assert sum(counts.values()) == 900
    assert counts["refused"] > 400, counts


# -- rule files --------------------------------------------------------------------------------------


def balanced(depth: int, leaf: str, op: str) -> str:
    return leaf if not depth else "(" + op.join([balanced(depth - 1, leaf, op)] * 2) + ")"


INT, INDEX = "ruleset a over int\n", "ruleset a over index\n"
RULES = {
    "a product of many sums": INDEX + f"rule r: {balanced(8, '(x+y)', '*')} => x",
    "a sum of many names": INT
    + f"rule r: {'+'.join(f'x{i}' for i in range(50))} => {'+'.join(f'x{i}' for i in range(49, -1, -1))}",
    "a large sum": INT + f"rule r: {balanced(14, 'x', '+')} => x",
    "many conditions": INT + f"rule r(const c): x + c => x where {balanced(12, 'c > 1', ' or ')}",
    "a long name": INT + "rule " + "a" * 1000 + ": x => x",
    "a long number": INT + "rule r: x + " + "9" * 100_000 + " => x",
    "many brackets": INT + "rule r: " + "(" * 100_000 + "x + 1" + ")" * 90_000 + " => x",
    "many signs": INT + "rule r: " + "-" * 100_000 + "x => x",
    "a large file": INT + "#" * 1_000_000,
    "many rules": INT + "\n".join(f"rule r{i}: x + {i} => x" for i in range(40_000)),
    "a large power": INT + "rule r(const c): x + c => x + {1 << 999999999999}",
    "no text": "\x00\x01\x02",
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rule_files_that_ask_for_time_or_memory_are_refused(name: str) -> None:
    start = time.process_time()
    with pytest.raises(RuleError):
        parse_rules(RULES[name], "bomb.rules")
    assert time.process_time() - start < SECONDS


def test_damaged_rule_files_are_refused_with_their_position_or_read() -> None:
    source, counts = random.Random(5), {"refused": 0, "read": 0}
    good = (
        b"ruleset a over int, index\nrule one: x*1 => x\n"
        b"rule two(const c): (x + c) - c => x   where 0 <= c\n"
    )
    for _ in range(300):
        text = damaged(good, source).decode("utf-8", "replace")
        try:
            parse_rules(text, "damaged.rules")
            counts["read"] += 1
        except RuleError as error:
            assert str(error).startswith("damaged.rules:")
            counts["refused"] += 1
    assert counts["refused"] > 200, counts
