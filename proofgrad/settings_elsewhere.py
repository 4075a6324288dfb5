"""Settings of tinygrad that programs set or import and that nothing here reads, with what does the same.

Owns: their names, their defaults there, the warning. Does not own: settings that are read (core/settings.py). None of
them changes what is computed: they choose how kernels are made, kept, shown, and checked, or how devices share work.
"""

from __future__ import annotations

import os

from proofgrad.core.messages import warn

_MADE = "how kernels run is chosen here; BEAM=2 searches, `with schedule(...)` says it by hand"
_KEPT = "PLANS=0 keeps no plans on the disk"
_SHOWN = "DEBUG=2, `profile()` and `python -m proofgrad explain` show what ran"
_SHARED = "a program runs on one device"
_ORDER = "what is fused and where memory is used again is chosen here"
_INSIDE = "it belongs to the inside of tinygrad"

# By name: the default there, and what to use here.
ELSEWHERE: dict[str, tuple[int | str, str]] = {
    "ALL2ALL": (0, _SHARED),
    "ALLOW_DEVICE_USAGE": (1, _INSIDE),
    "ALLREDUCE_CAST": (1, _SHARED),
    "CACHELEVEL": (2, _KEPT),
    "CAPTURE_PROCESS_REPLAY": (0, _INSIDE),
    "CAPTURING": (1, "JIT=0 records nothing"),
    "CCACHE": (1, _KEPT),
    "CHECK_OOB": (0, "PROVE=1 shows that each access is in bounds"),
    "CPU_COUNT": (os.cpu_count() or 1, "NUM_THREADS says how many threads run"),
    "DEBUG_RANGEIFY": (0, "DEBUG=4 shows each stage"),
    "DISABLE_FAST_IDIV": (1, _MADE),
    "DISALLOW_BROADCAST": (0, _INSIDE),
    "EMULATED_DTYPES": ("", "types that a machine lacks are computed in wider ones"),
    "FLOAT16": (0, "DEFAULT_FLOAT=half makes Tensors of float16"),
    "FUSE_ARANGE": (0, _ORDER),
    "FUSE_CONV_BW": (0, _ORDER),
    "FUSE_OPTIM": (0, "optimizers take fused=True"),
    "GRAPH": (0, _SHOWN),
    "IGNORE_BEAM_CACHE": (0, "PROOFGRAD_CACHE names another folder for what was found"),
    "IMAGE": (0, _MADE),
    "JIT_BATCH_SIZE": (32, "a recorded function is replayed as a whole"),
    "LRU": (1, _ORDER),
    "MAX_BUFFER_SIZE": (0, _INSIDE),
    "MAX_KERNEL_BUFFERS": (0, _MADE),
    "MULTIOUTPUT": (1, _ORDER),
    "NOLOCALS": (0, _MADE),
    "NO_MEMORY_PLANNER": (0, _ORDER),
    "NULL_ALLOW_COPYOUT": (0, _INSIDE),
    "NUM_CPU_THREADS": (os.cpu_count() or 1, "NUM_THREADS says how many threads run"),
    "OPENPILOT_HACKS": (0, _INSIDE),
    "PCONTIG": (0, _ORDER),
    "PROFILE": (0, _SHOWN),
    "RING": (1, _SHARED),
    "SCACHE": (1, _KEPT),
    "SPLIT_REDUCEOP": (1, _MADE),
    "TC": (1, _MADE),
    "TC_OPT": (0, _MADE),
    "TC_SELECT": (-1, _MADE),
    "THREEFRY": (1, "random numbers are threefry's"),
    "TRACEMETA": (1, _SHOWN),
    "TRACK_MATCH_STATS": (0, "DEBUG=5 shows the rules that fired"),
    "TUPLE_ORDER": (1, _INSIDE),
    "USE_ATOMICS": (0, _MADE),
    "USE_TC": (1, _MADE),
    "VALIDATE_WITH_CPU": (0, "CHECK=1 compares each kernel with its graph"),
    "VIZ": (0, _SHOWN),
}
_warned: set[str] = set()


def warn_of(name: str, value: object) -> None:
    """Say once that a setting does nothing here, where another value than its default there is asked for."""
    default, instead = ELSEWHERE[name]
    if str(value) in ("", "0", str(default)) or name in _warned:
        return
    _warned.add(name)
    warn(f"{name}={value} is a setting of tinygrad that does nothing here: {instead}")
