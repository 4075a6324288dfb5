"""GGUF files: every type of blocks beside ggml's loops in plain Python; settings; files that lie."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import DtypeError, Tensor, TinyJit, dtypes
from proofgrad.nn.state import FormatError, ggml_data_to_tensor, gguf_load
from proofgrad.nn.state.ggml import QUANTISED

RNG = np.random.default_rng(3)
IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def half(block: bytes, position: int) -> float:
    return float(np.frombuffer(block[position : position + 2], np.float16)[0])


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def nibble(qs: bytes, k: int, run: int) -> int:
    """Code k of runs of `run` bytes, each with its low bits first."""
    group, within = divmod(k, 2 * run)
    byte = qs[group * run + within % run]
    return byte & 15 if within < run else byte >> 4


def bit(data: bytes, k: int) -> int:
    return data[k // 8] >> (k % 8) & 1


def six_bits(s: bytes, j: int) -> tuple[int, int]:
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return s[j + 4] & 15 | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4


def q3_scale(s: bytes, j: int) -> int:
    low = s[j] & 15 if j < 8 else s[j - 8] >> 4
    return (low | (s[8 + j % 4] >> 2 * (j // 4) & 3) << 4) - 32


def iq4_scale(b: bytes, k: int) -> int:
    low, high = b[4 + k // 2] >> 4 * (k % 2) & 15, b[2] | b[3] << 8
    return (low | (high >> 2 * k & 3) << 4) - 32


def two_bits(qs: bytes, e: int) -> int:
    """Of 64 bytes: 32 of them for each half, four codes of each byte 32 elements apart."""
    return qs[e // 128 * 32 + e % 32] >> 2 * (e % 128 // 32) & 3


def q6(b: bytes, e: int) -> float:
    n, j, k = e // 128, e % 128 // 32, e % 32
    low = b[64 * n + 32 * (j % 2) + k] >> 4 * (j // 2) & 15
    high = b[128 + 32 * n + k] >> 2 * j & 3
    return half(b, 208) * signed(b[192 + e // 16]) * ((low | high << 4) - 32)


def q2(b: bytes, e: int) -> float:
    scale = b[e // 16]
    return half(b, 80) * (scale & 15) * two_bits(b[16:80], e) - half(b, 82) * (scale >> 4)


def q3(b: bytes, e: int) -> float:
    third = b[e % 32] >> (e // 32) & 1
    return half(b, 108) * q3_scale(b[96:108], e // 16) * (two_bits(b[32:96], e) - 4 + 4 * third)


def q45(b: bytes, e: int, five: bool) -> float:
    scale, low = six_bits(b[4:16], e // 32)
    code = nibble(b[48:] if five else b[16:], e, 32)
    code |= (b[16 + e % 32] >> e // 32 & 1) << 4 if five else 0
    return half(b, 0) * scale * code - half(b, 2) * low


# By name: the element of a block, and where its halves are, which must be finite in a test.
ELEMENT: dict[str, tuple[Callable[[bytes, int], float], tuple[int, ...]]] = {
    "Q4_0": (lambda b, e: half(b, 0) * (nibble(b[2:], e, 16) - 8), (0,)),
    "Q4_1": (lambda b, e: half(b, 0) * nibble(b[4:], e, 16) + half(b, 2), (0, 2)),
    "Q5_0": (lambda b, e: half(b, 0) * ((nibble(b[6:], e, 16) | bit(b[2:6], e) << 4) - 16), (0,)),
    "Q5_1": (
        lambda b, e: half(b, 0) * (nibble(b[8:], e, 16) | bit(b[4:8], e) << 4) + half(b, 2),
        (0, 2),
    ),
    "Q8_0": (lambda b, e: half(b, 0) * signed(b[2 + e]), (0,)),
    "Q2_K": (q2, (80, 82)),
    "Q3_K": (q3, (108,)),
    "Q4_K": (lambda b, e: q45(b, e, False), (0, 2)),
    "Q5_K": (lambda b, e: q45(b, e, True), (0, 2)),
    "Q6_K": (q6, (208,)),
    "IQ4_NL": (lambda b, e: half(b, 0) * IQ4[nibble(b[2:], e, 16)], (0,)),
    "IQ4_XS": (lambda b, e: half(b, 0) * iq4_scale(b, e // 32) * IQ4[nibble(b[8:], e, 16)], (0,)),
    "MXFP4": (
        lambda b, e: math.ldexp(
            math.copysign(FP4[nibble(b[1:], e, 16) & 7], 7.5 - nibble(b[1:], e, 16)), b[0] - 127
        ),
        (),
    ),
    "Q1_0": (lambda b, e: half(b, 0) * (2 * bit(b[2:], e) - 1), (0,)),
}
IDS = {kind.name: number for number, kind in QUANTISED.items()}


def blocks_of(name: str, count: int) -> bytes:
    kind = QUANTISED[IDS[name]]
    raw = RNG.integers(0, 256, (count, kind.nbytes), dtype=np.uint8)
    for position in ELEMENT[name][1]:
        numbers = RNG.standard_normal((count, 1)).astype(np.float16)
        raw[:, position : position + 2] = numbers.view(np.uint8)
    if name == "MXFP4":
        raw[:, 0] = RNG.permutation([0, 1, 2, 127, 128, 200])[:count]
    return raw.tobytes()


def expected(name: str, raw: bytes) -> list[float]:
    kind, element = QUANTISED[IDS[name]], ELEMENT[name][0]
    blocks = [raw[k : k + kind.nbytes] for k in range(0, len(raw), kind.nbytes)]
    return [element(block, e) for block in blocks for e in range(kind.elements)]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def file_of(
    settings: dict[str, tuple[int, bytes]],
    tensors: dict[str, tuple[tuple[int, ...], int, bytes]],
    alignment: int = 32,
    version: int = 3,
) -> bytes:
    """A GGUF file; a shape is in our order, a setting its type and its bytes."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(settings))
    for name, (kind, value) in settings.items():
        head += text(name) + struct.pack("<I", kind) + value
    body = b""
    for name, (shape, kind, raw) in tensors.items():
        body += bytes(-len(body) % alignment)
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += raw
    return head + bytes(-len(head) % alignment) + body


def written(tmp_path: Path, content: bytes, name: str = "m.gguf") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


# -- values ---------------------------------------------------------------------------------------


def test_every_type_of_blocks_has_its_loop() -> None:
    assert set(ELEMENT) == set(IDS)


@pytest.mark.parametrize("name", ELEMENT)
@pytest.mark.parametrize("count", (1, 3))
def test_blocks_are_what_ggml_makes_of_them(name: str, count: int) -> None:
    raw = blocks_of(name, count)
    n = count * QUANTISED[IDS[name]].elements
    found = ggml_data_to_tensor(Tensor(raw + b"more"), n, IDS[name])
    assert (found.shape, found.dtype) == (
        (n,),
        dtypes.float16 if name == "Q1_0" else dtypes.float32,
    )
    np.testing.assert_allclose(found.numpy(), np.array(expected(name, raw), np.float32), rtol=3e-7)


def test_an_exponent_of_255_is_a_power_of_two_as_in_ggml() -> None:
    found = ggml_data_to_tensor(Tensor(bytes([255, 0x21] + [0] * 15)), 32, 39)
    assert found[:1].tolist() == [2.0**127] and found[16:18].tolist() == [math.inf, 0.0]


def test_numbers_that_are_not_quantised_are_bits() -> None:
    for number, (name, code) in {
        0: ("float32", "f"), 1: ("float16", "e"), 24: ("int8", "b"), 25: ("int16", "h"),
        26: ("int32", "i"), 27: ("int64", "q"), 28: ("float64", "d"),
    }.items():  # fmt: skip
        found = ggml_data_to_tensor(Tensor(struct.pack(f"<3{code}", 1, -2, 3)), 3, number)
        assert found.dtype.name == name and found.tolist() == [1, -2, 3]
    assert ggml_data_to_tensor(Tensor(b"\x80\x3f\x20\xc0"), 2, 30).tolist() == [1.0, -2.5]
    assert ggml_data_to_tensor(Tensor(b"\0"), 0, 12).shape == (0,)


@pytest.mark.parametrize("form", ("path", "text", "Tensor", "Tensor of the path"))
def test_a_file_gives_its_settings_and_its_tensors(tmp_path: Path, form: str) -> None:
    raw = blocks_of("Q4_K", 6)
    content = file_of(
        {
            "general.architecture": (8, text("llama")),
            "n": (4, struct.pack("<I", 7)),
            "small": (1, b"\xff"),
            "x": (6, struct.pack("<f", 0.5)),
            "big": (10, struct.pack("<Q", 1 << 63)),
            "yes": (7, b"\1"),
            "tokens": (9, struct.pack("<IQ", 8, 2) + text("a") + text("é")),
            "lists": (9, struct.pack("<IQ", 9, 2) + 2 * struct.pack("<IQ2h", 3, 2, 1, -1)),
        },
        {
            "odd": ((3,), 0, struct.pack("<3f", 1, 2, 3)),
            "quantised": ((2, 3, 256), 12, raw),
            "none": ((0, 4), 1, b""),
            "one": ((), 26, struct.pack("<i", -5)),
        },
    )
    path = written(tmp_path, content)
    source = {"path": path, "text": str(path), "Tensor": Tensor(content), "Tensor of the path": Tensor(path)}  # fmt: skip
    settings, tensors = gguf_load(source[form])
    assert settings == {
        "general.architecture": "llama", "n": 7, "small": -1, "x": 0.5, "big": 1 << 63, "yes": True,
        "tokens": ["a", "é"], "lists": [[1, -1], [1, -1]],
    }  # fmt: skip
    assert {name: t.shape for name, t in tensors.items()} == {
        "odd": (3,), "quantised": (2, 3, 256), "none": (0, 4), "one": (),
    }  # fmt: skip
    assert tensors["odd"].tolist() == [1.0, 2.0, 3.0] and tensors["one"].item() == -5
    wanted = np.array(expected("Q4_K", raw), np.float32).reshape(2, 3, 256)
    np.testing.assert_allclose(tensors["quantised"].numpy(), wanted, rtol=3e-7, atol=1e-6)


def test_quantised_weights_are_used_in_a_recorded_function(tmp_path: Path) -> None:
    raw = blocks_of("Q8_0", 4)
    path = written(tmp_path, file_of({}, {"w": ((4, 32), 8, raw)}))
    weight = gguf_load(path)[1]["w"].realize()
    step = TinyJit(lambda x: x.linear(weight.T).realize())
    for _ in range(4):
        x = RNG.standard_normal((2, 32)).astype(np.float32)
        wanted = x @ np.array(expected("Q8_0", raw), np.float32).reshape(4, 32).T
        np.testing.assert_allclose(step(Tensor(x).realize()).numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alignment", (1, 8, 64))
def test_the_alignment_says_where_the_tensors_start(tmp_path: Path, alignment: int) -> None:
    settings = {"general.alignment": (4, struct.pack("<I", alignment))}
    tensors = {
        k: ((2,), 0, struct.pack("<2f", *pair)) for k, pair in {"a": (1, 2), "b": (3, 4)}.items()
    }
    found = gguf_load(written(tmp_path, file_of(settings, tensors, alignment, version=2)))[1]
    assert (found["a"].tolist(), found["b"].tolist()) == ([1.0, 2.0], [3.0, 4.0])


def test_a_split_file_is_read_with_its_other_parts(tmp_path: Path) -> None:
    count = {"split.count": (2, struct.pack("<H", 2))}
    for k, name in enumerate("ab", 1):
        content = file_of(count, {name: ((1,), 0, struct.pack("<f", k))})
        written(tmp_path, content, f"m-0000{k}-of-00002.gguf")
    found = gguf_load(tmp_path / "m-00001-of-00002.gguf")[1]
    assert {name: t.tolist() for name, t in found.items()} == {"a": [1.0], "b": [2.0]}
    with pytest.raises(FormatError, match="the first of 2 files"):
        gguf_load(Tensor((tmp_path / "m-00001-of-00002.gguf").read_bytes()))
    written(tmp_path, (tmp_path / "m-00001-of-00002.gguf").read_bytes(), "other.gguf")
    with pytest.raises(FormatError, match="-00001-of-00002"):
        gguf_load(tmp_path / "other.gguf")


# -- files that lie --------------------------------------------------------------------------------


def header(tensors: int, settings: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, settings) + rest


ONE = file_of({}, {"w": ((2,), 0, struct.pack("<2f", 1, 2))})
SETTING = text("s") + struct.pack("<I", 9)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "no GGUF"),
        (b"GGML" + bytes(40), "no GGUF"),
        (b"GGUF", "no GGUF"),
        (header(0, 0, version=1), "version 1"),
        (header(0, 0, version=3 << 24), "big endian"),
        (header(1 << 62, 0), "follow"),
        (header(0, 1 << 62), "follow"),
        (header(0, 1, struct.pack("<Q", 1 << 62) + bytes(20)), "ends within"),
        (header(0, 1, SETTING + struct.pack("<IQ", 8, 1 << 61)), "follow"),
        (header(0, 1, SETTING + struct.pack("<IQ", 4, 1 << 62)), "ends within"),
        (header(0, 1, SETTING + 10 * struct.pack("<IQ", 9, 1)), "lists deep"),
        (header(0, 1, text("s") + struct.pack("<I", 99) + bytes(8)), "type 99"),
        (header(0, 1, struct.pack("<Q", 1) + b"\xff" + bytes(12)), "no UTF-8"),
        (header(0, 2, 2 * (text("s") + struct.pack("<IB", 0, 1)) + bytes(8)), "twice"),
        (header(1, 0, text("w") + struct.pack("<I", 5) + bytes(60)), "5 axes"),
        (ONE[:-1], "ends before its Tensor 'w'"),
        (ONE.replace(struct.pack("<Q", 2), struct.pack("<Q", 1 << 61)), "ends before"),
        (file_of({"general.alignment": (4, struct.pack("<I", 0))}, {}), "no power of two"),
        (file_of({"general.alignment": (8, text("x"))}, {}), "no power of two"),
        (file_of({"general.alignment": (7, b"\1")}, {}), "no power of two"),
        (header(0, 2, 2 * (text("s" * 9999) + struct.pack("<IB", 0, 1))), r"^.{0,400}$"),
        (file_of({}, {"w": ((2, 16), 2, bytes(18))}), "16 elements of Q4_0"),
        (file_of({}, {"w": ((33,), 2, bytes(40))}), "33 elements of Q4_0"),
    ],
)  # fmt: skip
def test_a_file_that_lies_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        gguf_load(written(tmp_path, content))


@pytest.mark.parametrize("number", (4, 9, 15, 18, 22, 31, 255))
def test_a_type_that_is_not_read_is_named(tmp_path: Path, number: int) -> None:
    with pytest.raises(DtypeError, match=rf"'w'.*the ggml type {number} is not read here"):
        gguf_load(written(tmp_path, file_of({}, {"w": ((256,), number, bytes(256))})))


def test_any_byte_that_is_another_gives_an_error_or_tensors(tmp_path: Path) -> None:
    content = file_of(
        {"n": (9, struct.pack("<IQ2I", 4, 2, 1, 2))}, {"w": ((64,), 8, blocks_of("Q8_0", 2))}
    )
    for position in range(120):
        for value in (0, 1, 127, 255):
            changed = bytearray(content)
            changed[position] = value
            try:
                gguf_load(Tensor(bytes(changed)))
            except (FormatError, DtypeError):
                continue


def test_data_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="a Tensor of uint8"):
        ggml_data_to_tensor(Tensor([1.0]), 1, 0)
    with pytest.raises(ValueError, match="are 18 bytes"):
        ggml_data_to_tensor(Tensor(bytes(17)), 32, 2)
    value: Any = Tensor(bytes(34)).reshape(1, 34)
    with pytest.raises(ValueError, match="1 axis"):
        ggml_data_to_tensor(value, 32, 8)
