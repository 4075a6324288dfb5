"""Names that scripts import and call: helpers, patterns, decorators with options."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from proofgrad import Ops, Tensor, TinyJit, UOp, dtypes, helpers
from proofgrad.uop.ops import PatternMatcher, UPat, graph_rewrite


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda: [helpers.next_power2(k) for k in (0, 1, 2, 3, 8, 9)], [1, 1, 2, 4, 8, 16]),
        (lambda: helpers.round_down(-7, 4), -8),
        (lambda: helpers.round_down(7, 4), 4),
        (lambda: [helpers.cdiv(a, b) for a, b in ((7, 2), (-7, 2), (7, -2), (7, 0))], [3, -3, -3, 0]),
        (lambda: [helpers.cmod(a, b) for a, b in ((7, 2), (-7, 2), (7, -2), (7, 0))], [1, -1, 1, 7]),
        (lambda: helpers.data64(0x1_0000_0002), (1, 2)),
        (lambda: helpers.data64_le(0x1_0000_0002), (2, 1)),
        (lambda: helpers.getbits(0b110100, 2, 4), 0b101),
        (lambda: helpers.i2u(8, -1), 255),
        (lambda: helpers.polyN(2.0, [1.0, 0.0, -3.0]), 1.0),
        (lambda: helpers.polyN(2.0, []), 0.0),
        (lambda: helpers.strides_for_shape((2, 1, 3)), (3, 0, 1)),
        (lambda: helpers.strides_for_shape(()), ()),
        (lambda: helpers.time_to_str(12.0), "   12.00s "),
        (lambda: helpers.time_to_str(0.5, w=6), "500.00ms"),
        (lambda: helpers.time_to_str(2e-6), "    2.00us"),
        (lambda: [helpers.size_to_str(n) for n in (5, 2048, 3 << 30)], ["5 B", "2.00 KB", "3.00 GB"]),
        (lambda: [helpers.pluralize("kernel", n) for n in (0, 1, 2)], ["0 kernels", "1 kernel", "2 kernels"]),
        (lambda: helpers.to_function_name("a-b\x1b[31mc\x1b[0m_1"), "a2Dbc_1"),
        (lambda: [helpers.strip_parens(s) for s in ("(a)", "(a)+(b)", "a", "((a))", "")], ["a", "(a)+(b)", "a", "(a)", ""]),
        (lambda: helpers.word_wrap("abcdefgh\nxy", 3), "abc\ndef\ngh\nxy"),
        (lambda: helpers.pad_bytes(b"abc", 4), b"abc\0"),
        (lambda: helpers.pad_bytes(b"abcd", 4), b"abcd"),
        (lambda: helpers.fromimport("math", "inf"), float("inf")),
        (lambda: helpers.ansistrip(helpers.colorize_float(0.5)), "   0.50x"),
    ],
)  # fmt: skip
def test_helper_gives(call: Any, expected: Any) -> None:
    assert call() == expected


def test_helper_refuses_what_has_no_answer() -> None:
    with pytest.raises(ValueError, match="-3"):
        helpers.next_power2(-3)


def test_wrapped_text_is_counted_as_it_is_shown() -> None:
    text = "\x1b[31mabcd\x1b[0mef"
    lines = helpers.word_wrap(text, 4).split("\n")
    assert [helpers.ansistrip(line) for line in lines] == ["abcd", "ef"]
    assert "".join(lines) == text


def test_polynomial_of_a_tensor() -> None:
    assert helpers.polyN(Tensor([1.0, 2.0]), [1, 1, 1]).tolist() == [3.0, 7.0]


# -- methods and decorators ----------------------------------------------------------------------------


@pytest.mark.parametrize("device", [None, "CPU", "REFERENCE"])
def test_clone_is_a_copy_on_that_device(device: str | None) -> None:
    a = Tensor([1, 2, 3], device="CPU").realize()
    b = a.clone(device)
    assert b.device == (device or "CPU")
    b += 1
    assert (a.tolist(), b.tolist()) == ([1, 2, 3], [2, 3, 4])


def test_jit_with_an_option_is_the_decorator() -> None:
    weight = Tensor([2.0]).realize()

    @TinyJit(prune=True)
    def step(x: Tensor) -> Tensor:
        return (x * (weight + 1)).realize()

    assert isinstance(step, TinyJit)
    assert [step(Tensor([float(k)]).realize()).item() for k in range(4)] == [0.0, 3.0, 6.0, 9.0]
    weight.assign(Tensor([4.0])).realize()  # which a pruned replay would not see
    assert step(Tensor([1.0]).realize()).item() == 5.0
    assert TinyJit(lambda x: x + 1, prune=True)(Tensor([1])).item() == 2


def test_jit_with_empty_brackets_is_the_decorator() -> None:
    @TinyJit()
    def step(x: Tensor) -> Tensor:
        return x + 1

    assert [step(Tensor([k])).item() for k in range(4)] == [1, 2, 3, 4]


def test_callify_changes_no_value() -> None:
    a, b = Tensor([1.0, 2, 3]), Tensor([4.0, 5, 6])
    c, d = a + b, a * b
    assert c.callify(d) is c
    c.callify(d)
    assert (c.tolist(), d.tolist()) == ([5.0, 7.0, 9.0], [4.0, 10.0, 18.0])
    e = c + 1
    assert e.callify().tolist() == [6.0, 8.0, 10.0]


# -- patterns ------------------------------------------------------------------------------------------


X, Y = UOp.const(dtypes.int32, 3), UOp.const(dtypes.int32, 5)
SUM = X.alu(Ops.ADD, Y)


def found(pattern: UPat, node: UOp) -> list[dict[str, UOp]]:
    return list(pattern.match(node, {}))


def test_pattern_of_any_of_several_is_tried_in_their_order() -> None:
    one = UOp.const(dtypes.int32, 1)
    pattern = UPat.any(UPat.cvar("c"), UPat.var("v"))
    assert found(pattern, one) == [{"c": one}, {"v": one}]
    assert found(pattern, SUM) == [{"v": SUM}]
    assert found(pattern.named("n"), SUM) == [{"n": SUM, "v": SUM}]
    assert found(UPat.any(), X) == []


def test_pattern_or_a_cast_of_it() -> None:
    one = UOp.const(dtypes.int32, 1)
    cast = one.cast(dtypes.float32)
    pattern = UPat.cvar("c").or_casted()
    assert found(pattern, one) == [{"c": one}]
    assert found(pattern, cast) == [{"c": one}]
    assert found(UPat.cvar().or_casted("n"), cast) == [{"n": cast}]
    assert found(UPat.cvar().or_casted("n"), one) == [{"n": one}]
    assert found(UPat.cvar("c").cast(dtypes.float16), cast) == []
    assert found(UPat.cvar("c").cast(dtypes.float32, name="whole"), cast) == [
        {"c": one, "whole": cast}
    ]
    bits = one.bitcast(dtypes.float32)
    assert found(UPat.cvar("c").bitcast(), bits) == [{"c": one}]


def test_pattern_of_the_first_sources() -> None:
    sink = UOp.sink(X, Y, X)
    first = UPat(Ops.SINK, src=(UPat.var("a"),), allow_any_len=True)
    assert found(first, sink) == [{"a": X}]
    assert found(UPat(Ops.SINK, src=(UPat.var("a"),)), sink) == []
    assert found(UPat.var("a").sink(UPat.var("b"), UPat.var("a")), sink) == [{"a": X, "b": Y}]
    with pytest.raises(ValueError, match="in order"):
        found(UPat(Ops.SINK, src=[UPat.var("a")], allow_any_len=True), sink)


def test_patterns_by_operator_rewrite_a_graph() -> None:
    one = UOp.const(dtypes.int32, 1)
    node = one.cast(dtypes.int64).cast(dtypes.int32)
    twice = UPat.var("x").cast(dtypes.int64).cast(dtypes.int32)
    assert graph_rewrite(node, PatternMatcher([(twice, lambda x: x)])) is one
    assert found(UPat.var("x").f(Ops.CAST, name="c"), one.cast(dtypes.int64))[0]["x"] is one


# -- modules by tinygrad's names -----------------------------------------------------------------------


def test_function_is_found_in_its_module() -> None:
    from proofgrad.function import function

    @function
    def add(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    assert add(Tensor([1, 2]), Tensor([3, 4])).tolist() == [4, 6]


# -- what is not there ----------------------------------------------------------------------------------


def test_onnx_says_what_to_do_instead() -> None:
    with pytest.raises(ImportError, match=r"no ONNX.*no OnnxRunner.*safe_load"):
        from proofgrad.nn.onnx import OnnxRunner  # noqa: F401
    module = importlib.import_module("proofgrad.nn.onnx")
    assert not hasattr(module, "something")
