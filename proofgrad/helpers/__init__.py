"""Small tools that training scripts use beside Tensors, by tinygrad's names.

Owns: the names. Does not own: what they do (the files of this folder, proofgrad/context.py, the counters).
"""

from __future__ import annotations

from typing import Any

from proofgrad.context import Context, schedule
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.helpers.bits import (
    cdiv,
    cmod,
    data64,
    data64_le,
    floordiv,
    floormod,
    getbits,
    hi32,
    i2u,
    lo32,
    next_power2,
    polyN,
    round_down,
    strides_for_shape,
)
from proofgrad.helpers.download import fetch
from proofgrad.helpers.memory import flat_mv, from_mv, mv_address, to_mv
from proofgrad.helpers.process import disable_gc, perf_counter_us, system
from proofgrad.helpers.sequences import (
    all_int,
    all_same,
    argfix,
    argsort,
    ceildiv,
    dedup,
    flatten,
    fully_flatten,
    get_child,
    get_shape,
    get_single_element,
    is_numpy_ndarray,
    make_tuple,
    merge_dicts,
    partition,
    prod,
    round_up,
    to_tuple,
    unwrap,
)
from proofgrad.helpers.terminal import (
    Profiling,
    Timing,
    ansilen,
    ansipad,
    ansistrip,
    colored,
    tqdm,
    trange,
)
from proofgrad.helpers.text import (
    colorize_float,
    fromimport,
    pad_bytes,
    pluralize,
    size_to_str,
    stderr_log,
    strip_parens,
    time_to_str,
    to_function_name,
    word_wrap,
)
from proofgrad.helpers.variables import (
    BEAM,
    CI,
    DEBUG,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    DEV,
    JIT,
    NOOPT,
    OSX,
    TRAINING,
    WIN,
    WINO,
    ContextVar,
    getenv,
    setting_elsewhere,
    temp,
)

__all__ = [
    "BEAM",
    "CI",
    "Context",
    "ContextVar",
    "DEBUG",
    "DEFAULT_FLOAT",
    "DEFAULT_INT",
    "DEV",
    "GlobalCounters",
    "JIT",
    "NOOPT",
    "OSX",
    "Profiling",
    "TRAINING",
    "Timing",
    "WIN",
    "WINO",
    "all_int",
    "all_same",
    "ansilen",
    "ansipad",
    "ansistrip",
    "argfix",
    "argsort",
    "cdiv",
    "ceildiv",
    "cmod",
    "colored",
    "colorize_float",
    "data64",
    "data64_le",
    "dedup",
    "disable_gc",
    "fetch",
    "flat_mv",
    "flatten",
    "floordiv",
    "floormod",
    "from_mv",
    "fromimport",
    "fully_flatten",
    "get_shape",
    "is_numpy_ndarray",
    "get_child",
    "get_single_element",
    "getbits",
    "getenv",
    "hi32",
    "i2u",
    "lo32",
    "make_tuple",
    "merge_dicts",
    "mv_address",
    "next_power2",
    "pad_bytes",
    "partition",
    "perf_counter_us",
    "pluralize",
    "polyN",
    "prod",
    "round_down",
    "round_up",
    "schedule",
    "size_to_str",
    "stderr_log",
    "strides_for_shape",
    "strip_parens",
    "system",
    "temp",
    "time_to_str",
    "to_function_name",
    "to_mv",
    "to_tuple",
    "tqdm",
    "trange",
    "unwrap",
    "word_wrap",
]


def __getattr__(name: str) -> Any:
    """A setting of tinygrad that does nothing here: programs import it to read it. Raises: AttributeError."""
    found = setting_elsewhere(name)
    if found is None:
        raise AttributeError(f"module 'proofgrad.helpers' has no attribute {name!r}")
    return found
