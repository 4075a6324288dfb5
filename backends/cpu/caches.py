"""How large the caches of this machine are, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

CPU = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def second_cache_bytes(folder: Path = CPU) -> int | None:
    """Bytes of the second cache that one thread has to itself; None where nobody says."""
    for cache in sorted(folder.glob("index*")):
        try:
            level, kind, size, shared = [
                (cache / name).read_text().strip()
                for name in ("level", "type", "size", "shared_cpu_list")
            ]
            if level == "2" and kind != "Instruction":
                return int(size[:-1]) * _UNITS[size[-1]] // _count(shared)
        except (OSError, ValueError, KeyError, IndexError):
            return None
    return None


def _count(cpus: str) -> int:
    """How many a list such as 0-3,8 names."""
    ends = [[int(end) for end in part.split("-")] for part in cpus.split(",")]
    return sum(part[-1] - part[0] + 1 for part in ends)
