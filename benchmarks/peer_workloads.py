"""The workloads that frameworks are compared on: sizes, work, and what is asked of ours.

Owns: the list, and the arrays that all frameworks are given. Does not own: how each framework does it
(peer_*.py), timing (side_by_side.py), the table (peers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Limit(Enum):
    """Which part of the machine a workload cannot be faster than."""

    MULTIPLIERS = auto()
    COPY = auto()  # memory read and written
    READ = auto()
    FRESH = auto()  # memory written that was not used before
    LAUNCH = auto()  # a call of one kernel
    NONE = auto()  # not asked


@dataclass(frozen=True, slots=True)
class Workload:
    """One line of the table. `sizes` are what the kind needs, in its order."""

    name: str
    kind: str
    sizes: tuple[int, ...]
    limit: Limit
    bar: float  # asked ratio of the best peer's time to ours; 0: none
    note: str  # what limits it
    is_fresh: bool = False  # each result in memory that was not used before
    most_ms: float = 0.0  # asked time; 0: none

    @property
    def operations(self) -> int:
        """Floating-point operations of products, a multiplication and an addition each."""
        match self.kind, self.sizes:
            case "product", (rows, depth, columns):
                return 2 * rows * depth * columns
            case "turned_a" | "turned_b", (size,):
                return 2 * size**3
            case "batch", (batch, rows, depth, columns):
                return 2 * batch * rows * depth * columns
            case "attention", (heads, tokens, width):
                return 4 * heads * tokens * tokens * width
            case "causal", (heads, tokens, width):
                return 2 * heads * tokens * (tokens + 1) * width
            case "convolution", (batch, inputs, outputs, pixels, window, stride):
                out = (pixels + 2 * (window // 2) - window) // stride + 1
                return 2 * batch * outputs * out * out * inputs * window * window
            case "block", (tokens,):
                return 2 * tokens * (_BLOCK_WEIGHTS + 768 * (tokens + 1))
            case "train_mlp", (batch,):  # forward, gradients of weights, gradients of hidden values
                return 2 * batch * (3 * _MLP_WEIGHTS - 784 * 512)
            case "train_cnn", (batch,):
                return 2 * batch * (3 * _CNN_PRODUCTS - 24 * 24 * 32 * 25)
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory that must be read and written."""
        match self.kind, self.sizes:
            case "product", (rows, depth, columns):
                return 4 * (rows * depth + depth * columns + rows * columns)
            case "embedding", (_, width, positions):
                return 4 * 2 * width * positions
            case "embedding_gradient", (rows, width, positions):
                return 4 * (rows * width + 3 * width * positions)
            case "sum" | "sum_axis0", (rows, columns):
                return 4 * rows * columns
            case "block", (tokens,):
                return 4 * (_BLOCK_WEIGHTS + 2 * tokens * 768)
            case "elementwise" | "gelu" | "softmax" | "layernorm" | "transpose", (rows, columns):
                return 8 * rows * columns
        return 0


# Elements of the weights of a block of GPT-2 (projections, two layers), and of three layers from 784 to 10 values.
_BLOCK_WEIGHTS = 4 * 768 * 768 + 2 * 768 * 3072
_MLP_WEIGHTS = 784 * 512 + 512 * 512 + 512 * 10
# Multiply-adds of four convolutions and a layer on one image of 28 x 28.
_CNN_PRODUCTS = (
    24**2 * 32 * 25 + 20**2 * 32 * 32 * 25 + 8**2 * 64 * 32 * 9 + 6**2 * 64 * 64 * 9 + 576 * 10
)

_TABLES = (
    "the clock that the cores keep under vector multiply-adds; then copying operands into tables"
)
_MEMORY = "memory: each element is read and written once"
_PAGES = "the system, which clears each new page before it is written"
_LAUNCH = "the call from Python"

SIDE, ODD_SIDE = (4096, 4096), (3001, 5003)
WORKLOADS: tuple[Workload, ...] = (
    Workload("matmul 512", "product", (512, 512, 512), Limit.MULTIPLIERS, 0.95, _TABLES),
    Workload("matmul 1024", "product", (1024, 1024, 1024), Limit.MULTIPLIERS, 0.95, _TABLES),
    Workload("matmul 2048", "product", (2048, 2048, 2048), Limit.MULTIPLIERS, 0.95, _TABLES),
    Workload("matmul 1000x700x900", "product", (1000, 700, 900), Limit.MULTIPLIERS, 0.95,
             "as 1024, and tiles that reach over the edge"),
    Workload("matmul 1024, A.T", "turned_a", (1024,), Limit.MULTIPLIERS, 0.95, _TABLES),
    Workload("matmul 1024, B.T", "turned_b", (1024,), Limit.MULTIPLIERS, 0.95, _TABLES),
    Workload("bmm 32x128", "batch", (32, 128, 128, 128), Limit.MULTIPLIERS, 0.95,
             "small matrices are read where they lie, and a tile of them is soon done"),
    Workload("gemv 4096", "product", (4096, 4096, 1), Limit.READ, 1.0, "reading the matrix once"),
    Workload("32x4096 @ 4096x4096", "product", (32, 4096, 4096), Limit.READ, 1.4,
             "multiply-adds; then sums that go through the second cache at each block"),
    Workload("elementwise 16M", "elementwise", SIDE, Limit.COPY, 2.0, _MEMORY),
    Workload("gelu 16M", "gelu", SIDE, Limit.COPY, 2.0, "memory, and exp2 of each element"),
    Workload("softmax 4096", "softmax", SIDE, Limit.COPY, 2.0, "exp2 of each element, a division, and memory"),
    Workload("layernorm 4096", "layernorm", SIDE, Limit.COPY, 2.0,
             "memory, and three loops over a row that stays in the cache"),
    Workload("transpose 4096", "transpose", SIDE, Limit.COPY, 2.0, _MEMORY),
    Workload("elementwise 16M, fresh", "elementwise", SIDE, Limit.FRESH, 1.1, _PAGES, True),
    Workload("gelu 16M, fresh", "gelu", SIDE, Limit.FRESH, 1.1, _PAGES, True),
    Workload("softmax 4096, fresh", "softmax", SIDE, Limit.FRESH, 1.1, _PAGES, True),
    Workload("layernorm 4096, fresh", "layernorm", SIDE, Limit.FRESH, 1.1, _PAGES, True),
    Workload("transpose 4096, fresh", "transpose", SIDE, Limit.FRESH, 1.1, _PAGES, True),
    Workload("sum 16M", "sum", SIDE, Limit.READ, 1.0, "reading memory once"),
    Workload("sum axis 0", "sum_axis0", SIDE, Limit.READ, 1.3, "reading memory once"),
    Workload("embedding 8x256", "embedding", (50257, 768, 2048), Limit.COPY, 1.0,
             "rows that lie apart in memory"),
    Workload("embedding 8x256, gradient", "embedding_gradient", (50257, 768, 2048), Limit.COPY, 1.0,
             "zeros for the rows that no token names"),
    Workload("conv 3x3, 8x64x56x56", "convolution", (8, 64, 64, 56, 3, 1), Limit.MULTIPLIERS, 1.0,
             "as a matmul, and pixels that are stored apart"),
    Workload("conv 7x7/2, 4x3x224x224", "convolution", (4, 3, 64, 224, 7, 2), Limit.MULTIPLIERS,
             1.0, "loads, which windows of stride 2 share less; the image, which is padded in memory first"),
    Workload("conv 1x1, 8x256x14x14", "convolution", (8, 256, 1024, 14, 1, 1), Limit.MULTIPLIERS,
             1.0, "as a matmul: tables"),
    Workload("attention 12x1024x64", "attention", (12, 1024, 64), Limit.MULTIPLIERS, 1.0,
             "multiply-adds of tiles of six rows, and exp2 of each score"),
    Workload("attention 12x1024x64, causal", "causal", (12, 1024, 64), Limit.MULTIPLIERS, 1.0,
             "as above, of five eighths of the scores; torch leaves out nearly all that the mask hides"),
    Workload("MLP step, batch 128", "train_mlp", (128,), Limit.MULTIPLIERS, 0.9,
             "products of few rows, and Adam, which reads and writes memory"),
    Workload("CNN step, batch 64", "train_cnn", (64,), Limit.MULTIPLIERS, 0.9,
             "gradients by images: a load for each row of a tile, and products beside the image, which masks turn off; pools"),
    Workload("GPT-2 block, 256 tokens", "block", (256,), Limit.MULTIPLIERS, 0.9,
             "products as above, exp2 of gelu, and weights that are copied into tables at each call"),
    Workload("GPT-2 block, 1 token", "block", (1,), Limit.READ, 1.0, "reading the weights once"),
    Workload("matmul 96", "product", (96, 96, 96), Limit.MULTIPLIERS, 1.0, "the call from Python, and edges of tiles"),
    Workload("gemv 2048x8192", "product", (2048, 8192, 1), Limit.READ, 1.0, "reading the matrix once"),
    Workload("sum 3001x5003", "sum", ODD_SIDE, Limit.READ, 1.0, "reading memory once"),
    Workload("sum axis 0, 3001x5003", "sum_axis0", ODD_SIDE, Limit.READ, 1.0, "reading memory once; rows of odd length"),
    Workload("elementwise 3001x5003", "elementwise", ODD_SIDE, Limit.COPY, 1.0, _MEMORY),
    Workload("transpose 3001x5003", "transpose", ODD_SIDE, Limit.COPY, 1.0, "memory; rows that begin inside of lines"),
    Workload("embedding of width 640", "embedding", (50257, 640, 2048), Limit.COPY, 1.0, "rows that lie apart in memory"),
    Workload("conv 5x5/2, 8x32x57x57", "convolution", (8, 32, 64, 57, 5, 2), Limit.MULTIPLIERS, 1.0,
             "loads, which windows of stride 2 share less"),
    Workload("conv 1x1, 8x512x7x7", "convolution", (8, 512, 2048, 7, 1, 1), Limit.MULTIPLIERS, 1.0,
             "weights, which are read for few pixels"),
    Workload("eager 16x16 add", "eager", (16,), Limit.LAUNCH, 0.0, _LAUNCH, most_ms=0.15),
    Workload("jitted 16x16 kernel", "jitted", (16,), Limit.LAUNCH, 0.0, _LAUNCH, most_ms=0.015),
    Workload("ten dependent 16x16 matmuls", "ten", (16,), Limit.LAUNCH, 0.0, _LAUNCH, most_ms=0.04),
)  # fmt: skip


def arrays(workload: Workload) -> list[Any]:
    """The inputs, the same for every framework: float32, and positions as int32."""
    import numpy

    rng = numpy.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.standard_normal(shape, numpy.float32)

    match workload.kind, workload.sizes:
        case "product", (rows, depth, columns):
            return [floats(rows, depth), floats(depth, columns)]
        case "turned_a" | "turned_b", (size,):
            return [floats(size, size), floats(size, size)]
        case "batch", (batch, rows, depth, columns):
            return [floats(batch, rows, depth), floats(batch, depth, columns)]
        case "convolution", (batch, inputs, outputs, pixels, window, _):
            return [floats(batch, inputs, pixels, pixels), floats(outputs, inputs, window, window)]
        case "embedding", (rows, width, positions):
            return [
                floats(rows, width),
                rng.integers(0, rows, (8, positions // 8)).astype(numpy.int32),
            ]
        case "embedding_gradient", (rows, width, positions):
            shape = (8, positions // 8)
            return [
                floats(rows, width),
                rng.integers(0, rows, shape).astype(numpy.int32),
                floats(*shape, width),
            ]
        case "attention" | "causal", (heads, tokens, width):
            return [floats(1, heads, tokens, width) for _ in range(3)]
        case "train_mlp", (batch,):
            return [floats(batch, 784), rng.integers(0, 10, batch).astype(numpy.int32)]
        case "train_cnn", (batch,):
            return [floats(batch, 1, 28, 28), rng.integers(0, 10, batch).astype(numpy.int32)]
        case "block", (tokens,):
            return [floats(1, tokens, 768)]
        case "eager" | "jitted", (size,):
            return [floats(size, size)]
        case "ten", (size,):  # powers of a rotation neither grow nor vanish
            return [numpy.linalg.qr(floats(size, size))[0]]
    return [floats(*workload.sizes)]


def named(name: str) -> Workload:
    """Raises: ValueError, listing what there is."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise ValueError(f"no workload {name!r}; there are {', '.join([w.name for w in WORKLOADS])}")
