"""What the caches of this machine are like, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

from proofgrad.core.compile.machine.machine import FirstCache

CPU = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def first_cache(folder: Path = CPU) -> FirstCache | None:
    """The data cache nearest to a core; None where nobody says."""
    try:
        found = _cache(folder, "1")
        ways = int((found / "ways_of_associativity").read_text())
        line_bytes = int((found / "coherency_line_size").read_text())
        cache = FirstCache(_bytes(found), ways, line_bytes)
    except (OSError, ValueError, KeyError, IndexError):
        return None
    return cache if 0 < line_bytes <= cache.nbytes and 0 < ways <= cache.nbytes else None


def second_cache_bytes(folder: Path = CPU) -> int | None:
    """Bytes of the second cache that one thread has to itself; None where nobody says."""
    try:
        found = _cache(folder, "2")
        return _bytes(found) // _count((found / "shared_cpu_list").read_text().strip())
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _cache(folder: Path, level: str) -> Path:
    """The folder about the cache of a level that holds data. Raises: KeyError."""
    for cache in sorted(folder.glob("index*")):
        here, kind = [(cache / name).read_text().strip() for name in ("level", "type")]
        if here == level and kind != "Instruction":
            return cache
    raise KeyError(level)


def _bytes(cache: Path) -> int:
    size = (cache / "size").read_text().strip()
    return int(size[:-1]) * _UNITS[size[-1]]


def _count(cpus: str) -> int:
    """How many a list such as 0-3,8 names."""
    ends = [[int(end) for end in part.split("-")] for part in cpus.split(",")]
    return sum(part[-1] - part[0] + 1 for part in ends)
