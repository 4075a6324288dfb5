"""Metal: kernels as text in Apple's shading language, to be compiled on a Mac. None is run: there is no runtime.

emit.py: Linear -> text, with the printer of OpenCL C.
"""

from __future__ import annotations

from proofgrad.backends.metal.emit import NATIVE, emit
from proofgrad.backends.printed import PrintedBackend
from proofgrad.core.compile.machine.target import ALL_TYPES, WIDE_TYPES, Source, Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp

MISSING = (
    "proofgrad has no runtime for Metal: use WebGPU, which runs on it (device WEBGPU), or compile the text on a Mac with"
    " xcrun metal -fno-fast-math"
)


class MetalBackend(PrintedBackend):
    """The printer of Metal."""

    name, missing = "METAL", MISSING
    target = Target(
        "METAL",
        work_items=True,
        storage=ALL_TYPES - {dtypes.float64},
        arithmetic=WIDE_TYPES - {dtypes.float64},
        index_dtype=dtypes.int32,
        native=frozenset(NATIVE),
        most_buffers=31,  # Apple, Metal Feature Set Tables: of a buffer argument table
        unpromised=("denormal numbers",),
        runs=False,
    )

    def emit(self, linear: UOp, name: str) -> Source:
        return emit(linear, name)


def backend() -> MetalBackend:
    """The printer of Metal, which runs nothing."""
    return MetalBackend()
