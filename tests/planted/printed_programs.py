"""Programs whose kernels have much of what the printer of the CPU prints.

Owns: the programs, of memory that is drawn. Does not own: the faults planted in their texts (printed_text.py, printed_faults.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy

from proofgrad import Tensor


def _of(kind: str, *shape: int, low: int = -9) -> Tensor:
    drawn = numpy.random.default_rng(sum(shape)).integers(0 if kind[0] == "u" else low, 9, shape)
    return Tensor(drawn.astype(kind), device="CPU").realize()


def _floats(*shape: int) -> Tensor:
    return _of("float32", *shape)


def _attention() -> Tensor:
    q, k, v = [_floats(2, 2, n, 16) for n in (33, 33, 33)]
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def _gradient_by_position() -> Tensor:
    table, at = _floats(50, 12), _of("int32", 70, low=0)
    return (table[at] * _floats(70, 12)).sum().gradient(table)[0]


def _layernorm() -> Tensor:
    x = _floats(9, 50)
    return x.layernorm() * _floats(50) + _floats(50)


# Programs, and the choices under which they run.
PROGRAMS: dict[str, tuple[Callable[[], Tensor], str]] = {
    "product": (lambda: _floats(20, 40) @ _floats(40, 36), ""),
    "long product": (lambda: _floats(33, 600) @ _floats(600, 70), ""),
    "tall product": (lambda: _floats(130, 128) @ _floats(128, 160), ""),
    "odd tiles": (lambda: _floats(20, 40) @ _floats(40, 36), "tile=3x2x8 staged=rows+columns"),
    "packed": (lambda: _floats(64, 40) @ _floats(40, 64), "tile=8x2x8 packed=on staged=none"),
    "vector by matrix": (lambda: _floats(1, 300) @ _floats(300, 90), ""),
    "half product": (lambda: _of("float16", 17, 48) @ _of("float16", 48, 40), ""),
    "product of bytes": (lambda: _of("uint8", 24, 64).dot(_of("uint8", 64, 32), dtype="int32"), ""),
    "convolution": (lambda: _floats(2, 4, 9, 9).conv2d(_floats(5, 4, 3, 3), padding=1), ""),
    "wide convolution": (lambda: _floats(1, 16, 20, 20).conv2d(_floats(32, 16, 3, 3), stride=2), ""),
    "depthwise": (lambda: _floats(2, 8, 15, 15).conv2d(_floats(8, 1, 3, 3), groups=8, padding=1), ""),
    "softmax": (lambda: _floats(6, 37).softmax(), ""),
    "softmax of columns": (lambda: _floats(37, 21).softmax(0), ""),
    "layernorm": (_layernorm, ""),
    "attention": (_attention, ""),
    "largest": (lambda: _floats(7, 33).max(1), ""),
    "place of the largest": (lambda: _floats(7, 45).argmax(1), ""),
    "sum of columns": (lambda: _floats(300, 70).sum(0), ""),
    "long sum": (lambda: _floats(60000).sum(), ""),
    "map": (lambda: _floats(41, 23) * 2 + 1, ""),
    "large map": (lambda: _floats(300, 1001).relu() + 1, ""),
    "turned": (lambda: _floats(37, 50).permute(1, 0) + 1, ""),
    "turned bytes": (lambda: _of("uint8", 67, 50).permute(1, 0).contiguous(), ""),
    "backwards": (lambda: _floats(24, 41)[:, ::3].flip(1) + 0, ""),
    "interleaved": (lambda: Tensor.stack(_floats(9, 40) + 1, _floats(9, 40) * 2, dim=-1).reshape(9, 80), ""),
    "interleaved threes": (lambda: Tensor.stack(*[_floats(9, 40) + k for k in range(3)], dim=-1).contiguous(), ""),
    "every second": (lambda: (_floats(30, 64)[:, ::2] - _floats(30, 64)[:, 1::2]).contiguous(), ""),
    "padded": (lambda: _floats(11, 10).pad(((1, 2), (3, 4))).exp(), ""),
    "joined": (lambda: _floats(5, 20).cat(_floats(5, 13), dim=1) * 2, ""),
    "gathered": (lambda: _floats(50, 33)[_of("int32", 25, low=0)], ""),
    "gathered lanes": (lambda: _floats(6, 60).gather(1, _of("int32", 6, 31, low=0)), ""),
    "gradient by position": (_gradient_by_position, ""),
    "sort": (lambda: _floats(5, 32).sort(1)[0], ""),
    "running sum": (lambda: _floats(6, 50).cumsum(1), ""),
    "running maximum": (lambda: _floats(70, 9).cummax(0)[0], ""),
    "narrow": (lambda: (_of("int8", 9, 50) * 3 >> 2).maximum(_of("int8", 9, 50)), ""),
    "quotients": (lambda: _of("int32", 9, 21) // _of("int32", 9, 21) + _of("int32", 9, 21) % 7, ""),
    "halves": (lambda: _of("float16", 9, 37) * 3 + 1, ""),
    "brain floats": (lambda: (_floats(9, 37).cast("bfloat16") * 3 + 1), ""),
    "small floats": (lambda: _floats(9, 37).cast("fp8e4m3"), ""),
    "casts": (lambda: _floats(9, 37).cast("int8") + _floats(9, 37).cast("uint16").cast("int8"), ""),
    "doubles": (lambda: (_of("float64", 9, 21) * 0.3).sin() + _of("float64", 9, 21).exp(), ""),
    "waves": (lambda: _floats(9, 37).sin() + (_floats(9, 37) + 10).log2(), ""),
    "truths": (lambda: ((_floats(9, 37) > 1) & (_floats(9, 37) < 5)).sum(1), ""),
    "choices": (lambda: (_floats(9, 37) > 0).where(_floats(9, 37) * 2, _floats(9, 37) - 1), ""),
    "pooled": (lambda: _floats(2, 3, 17, 17).max_pool2d(3, stride=2), ""),
    "bits": (lambda: (_of("uint32", 9, 21) << 3 ^ _of("uint32", 9, 21) >> 2).bitcast("int32"), ""),
}  # fmt: skip
