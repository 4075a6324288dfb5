"""The caches of a machine, from what Linux writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofgrad.backends.cpu.caches import first_cache, second_cache_bytes
from proofgrad.core.compile.machine.machine import FirstCache


def written(folder: Path, *caches: tuple[str, str, str, str]) -> Path:
    """Files as under /sys/devices/system/cpu/cpu0/cache."""
    for number, texts in enumerate(caches):
        position = folder / f"index{number}"
        position.mkdir()
        for name, text in zip(("level", "type", "size", "shared_cpu_list"), texts):
            (position / name).write_text(f"{text}\n")
    return folder


FIRST = (("1", "Data", "48K", "0"), ("1", "Instruction", "32K", "0"))


@pytest.mark.parametrize(
    ("size", "cpus", "nbytes"),
    [("2048K", "0", 2 << 20), ("1M", "0", 1 << 20), ("512K", "0-1", 1 << 18), ("2048K", "0,4-6", 1 << 19)],
)  # fmt: skip
def test_it_is_shared_by_the_threads_of_a_core(
    tmp_path: Path, size: str, cpus: str, nbytes: int
) -> None:
    folder = written(tmp_path, *FIRST, ("2", "Unified", size, cpus), ("3", "Unified", "32M", "0-7"))
    assert second_cache_bytes(folder) == nbytes


@pytest.mark.parametrize(
    "cache", [("2", "Unified", "", "0"), ("2", "Unified", "many", "0"), ("2", "Unified", "1M", "")]
)
def test_what_is_not_a_number_is_not_read(tmp_path: Path, cache: tuple[str, str, str, str]) -> None:
    assert second_cache_bytes(written(tmp_path, cache)) is None


def test_nobody_says(tmp_path: Path) -> None:
    assert second_cache_bytes(tmp_path) is None
    assert second_cache_bytes(written(tmp_path, *FIRST)) is None
    (tmp_path / "index2").mkdir()
    assert second_cache_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("size", "ways", "line", "cache"),
    [
        ("48K", "12", "64", FirstCache(48 << 10, 12, 64)),
        ("32K", "8", "64", FirstCache(32 << 10, 8, 64)),
        ("128K", "8", "128", FirstCache(128 << 10, 8, 128)),
        ("32K", "0", "64", None),
        ("32K", "8", "", None),
        ("", "8", "64", None),
    ],
)
def test_the_first_cache_has_ways_and_lines(
    tmp_path: Path, size: str, ways: str, line: str, cache: FirstCache | None
) -> None:
    folder = written(tmp_path, ("1", "Data", size, "0"))
    (folder / "index0/ways_of_associativity").write_text(f"{ways}\n")
    (folder / "index0/coherency_line_size").write_text(f"{line}\n")
    assert first_cache(folder) == cache


def test_nobody_says_how_many_ways_the_first_cache_has(tmp_path: Path) -> None:
    assert first_cache(tmp_path) is None
    assert first_cache(written(tmp_path, *FIRST)) is None
