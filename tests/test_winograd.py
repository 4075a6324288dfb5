"""WINO=1: convolutions by Winograd's law, which is proved, exact in its matrices, and never unasked."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import Array, machine

import proofgrad
from proofgrad import Context, Tensor, TinyJit, Variable, dtypes, gradcheck
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.origin import law_of
from proofgrad.core.rewrite.bilinear import Correlation, correlation_of, polynomial
from proofgrad.core.rewrite.rule import Rule
from proofgrad.core.tensor.methods.nn import winograd
from proofgrad.rules.library import WINOGRAD, load_loose, rule_file
from proofgrad.verify.audit.judge_mutants import judge
from proofgrad.verify.audit.mutants import mutants
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode.types import cases
from proofgrad.verify.prove.rules import prove_rules
from proofgrad.verify.sample.reals import refutes_reals

__all__ = ["machine"]
torch = pytest.importorskip("torch")
TEXT = Path(rule_file(WINOGRAD)).read_text()
UNITS = {dtypes.float32: 2.0**-24, dtypes.float64: 2.0**-53}
BESIDE_CHANNELS = 84  # roundings of one path from an input to a result: docs/numerics.md


def the_rule(text: str = TEXT) -> Rule:
    (rule,) = parse_rules(text, check_order=False).rules
    return rule


LAW = correlation_of(the_rule())


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def by_torch(x: Array, w: Array, **options: Any) -> Array:
    """The convolution in float64."""
    result = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), **options)
    return np.asarray(result.numpy())


def by_law(x: Array, w: Array, groups: int = 1) -> Tensor:
    """The program of the law, whether or not it pays."""
    return winograd.correlated_by_law(Tensor(x), Tensor(w), groups)


def has_law(x: Tensor) -> bool:
    return any(law_of(node) == f"{WINOGRAD}.f4x3" for node in x._uop.toposort())


def error_bound(x: Array, w: Array, groups: int, unit: float) -> Array:
    """How far off each result may be: as many roundings as a path has, of what passes through it.

    docs/numerics.md: (channels + 84) * unit * |R| sum[c](|W| |w| * |X| |x|).
    """
    of_results, of_weights, of_inputs = [
        np.abs(np.array(matrix, dtype=np.float64))
        for matrix in (LAW.of_results, LAW.of_weights, LAW.of_inputs)
    ]
    n, _, *padded = x.shape
    sizes = [size - 2 for size in padded]
    tiles = [-(-size // 4) for size in sizes]
    whole = np.zeros((*x.shape[:2], *[4 * count + 2 for count in tiles]))
    whole[:, :, : padded[0], : padded[1]] = np.abs(x)
    parts = np.lib.stride_tricks.sliding_window_view(whole, (6, 6), axis=(2, 3))[:, :, ::4, ::4]
    inputs = np.einsum("ka,lb,ncijab->nckilj", of_inputs, of_inputs, parts)
    weights = np.einsum("ka,lb,ocab->ockl", of_weights, of_weights, np.abs(w))
    inputs = inputs.reshape(n, groups, -1, *inputs.shape[2:])
    weights = weights.reshape(groups, -1, *weights.shape[1:])
    through = np.einsum("ngckilj,gockl->ngokilj", inputs, weights)
    results = np.einsum("ka,lb,ngokilj->ngoiajb", of_results, of_results, through)
    results = results.reshape(n, w.shape[0], 4 * tiles[0], 4 * tiles[1])
    return (w.shape[1] + BESIDE_CHANNELS) * unit * results[:, :, : sizes[0], : sizes[1]]


# -- the law -------------------------------------------------------------------------------------


def test_the_matrices_are_those_of_lavin_and_gray() -> None:
    sixth, twelfth, fourth = Fraction(1, 6), Fraction(1, 12), Fraction(1, 4)
    assert LAW.of_inputs == (
        (4, 0, -5, 0, 1, 0),
        (0, 4, 4, -1, -1, 0),
        (0, -4, 4, 1, -1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    )
    assert LAW.of_weights == (
        (fourth, 0, 0),
        (sixth, sixth, sixth),
        (sixth, -sixth, sixth),
        (twelfth / 2, twelfth, sixth),
        (twelfth / 2, -twelfth, sixth),
        (0, 0, 1),
    )
    assert LAW.of_results == (
        (1, 0, 0, 0),
        (1, 1, 1, 1),
        (1, -1, 1, -1),
        (1, 2, 4, 8),
        (1, -2, 4, -8),
        (0, 0, 0, 1),
    )
    assert (LAW.products, LAW.results, LAW.taps, LAW.inputs) == (6, 4, 3, 6)


def test_both_sides_of_the_law_are_one_polynomial() -> None:
    rule = the_rule()
    (right,) = rule.right
    assert right is not None
    multiplied_out = polynomial(rule.left, rule)
    assert multiplied_out == polynomial(right, rule)
    assert len(multiplied_out) == 12 and set(multiplied_out.values()) == {24}


def coefficients(law: Correlation, scale: int) -> Array:
    """[i, j, k]: how often result i has weight j times input k, times `scale`; exact integers."""
    weights = [[entry * scale for entry in row] for row in law.of_weights]
    whole = [np.array(m).astype(object) for m in (law.of_results, weights, law.of_inputs)]
    assert all(entry.denominator == 1 for matrix in whole for entry in matrix.flat)
    results, weights_, inputs = [matrix.astype(np.int64) for matrix in whole]
    return np.asarray(np.einsum("ki,kj,kl->ijl", results, weights_, inputs))


def test_the_law_along_two_axes_is_a_correlation_over_both() -> None:
    """For every image and weights: each coefficient of the bilinear form is what it has to be."""
    found = coefficients(LAW.over_two_axes(), 24 * 24).reshape(4, 4, 3, 3, 6, 6)
    expected = np.zeros_like(found)
    for i, j, a, b in np.ndindex(4, 4, 3, 3):
        expected[i, j, a, b, i + a, j + b] = 24 * 24
    assert (found == expected).all()


WRONG = [
    ("x2 * -5.0 + x4)", "x2 * -4.0 + x4)"),
    ("w2 * 24.0", "w2 * 12.0"),
    ("x1 * -2.0 - x2 + x3 * 2.0", "x1 * 2.0 - x2 + x3 * 2.0"),
    ("y0 - y1 + y2 - y3", "y0 + y1 + y2 - y3"),
    ("y3 * 8.0) * (w0 + w1 * 2.0 + w2 * 4.0)", "y3 * 8.0) * (w0 + w1 * 2.0 + w2 * 2.0)"),
    ("  + y3 * (w2", "  + y2 * (w2"),
    ("y2 * 24.0 * (w0 * x2 + w1 * x3", "y2 * 24.0 * (w0 * x2 + w1 * x2"),
]


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_a_wrong_entry_is_refuted(right: str, wrong: str) -> None:
    assert TEXT.count(right) == 1
    (result,) = prove_rules([the_rule(TEXT.replace(right, wrong))], processes=1)
    assert result.verdict == "refuted"


def test_numbers_refute_wrong_entries_and_not_the_law() -> None:
    case, *_ = cases(the_rule())
    assert not refutes_reals(case)
    for right, wrong in WRONG:
        case, *_ = cases(the_rule(TEXT.replace(right, wrong)))
        assert refutes_reals(case)


def test_mutants_of_the_law_are_refuted() -> None:
    every = mutants(the_rule())
    assert len(every) > 200
    assert {judge(mutant).verdict for mutant in every[::60]} == {"refuted"}


def test_the_law_is_proved() -> None:
    (result,) = prove_rules([the_rule()], processes=1)
    assert (result.verdict, result.rule.domains) == ("proved", ("real",))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("y0 * w0 * x0 => y0 * w0 * x0 * 2.0 * x0", "right side is no multiple"),
        ("y0 * w0 * x1 => w0 * y0 * x1", "right side is no multiple"),
        ("y0 * w0 * w1 => w0 * y0 * w1", "no linear form"),
        ("y0 * (w0 + x0) * x0 => y0 * w0 * x0", "no linear form"),
        ("y0 * w0 => w0 * y0", "linear forms in y, w, not y, w, x"),
        ("y0 * w0 * max(x0, x1) => y0 * w0 * x0", "no sum or product"),
    ],
)
def test_what_is_no_correlation_is_refused(line: str, reason: str) -> None:
    (rule,) = parse_rules(f"ruleset other over real\nrule a: {line}", check_order=False).rules
    with pytest.raises(ValueError, match=rf"rule other.a states no correlation.*{reason}"):
        correlation_of(rule)


def test_the_law_that_is_used_has_its_evidence() -> None:
    rules = load_loose("winograd")
    assert rules.proven and correlation_of(rules.rules[0]) == LAW
    assert winograd._rules().proven and winograd._law(winograd._rules()) == LAW


# -- results -------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 2),
    groups=st.integers(1, 2),
    channels=st.integers(1, 5),
    filters=st.integers(1, 4),
    height=st.integers(3, 14),
    width=st.integers(3, 14),
    dtype=st.sampled_from(sorted(UNITS, key=str)),
    seed=st.integers(0, 99),
)
def test_results_are_within_the_bound(
    n: int, groups: int, channels: int, filters: int, height: int, width: int, dtype: DType, seed: int
) -> None:  # fmt: skip
    kind = np.float64 if dtype is dtypes.float64 else np.float32
    x = numbers(n, groups * channels, height, width, seed=seed).astype(kind)
    w = numbers(groups * filters, channels, 3, 3, seed=seed + 1).astype(kind)
    exact = by_torch(x.astype(np.float64), w.astype(np.float64), groups=groups)
    found = by_law(x, w, groups)
    assert found.dtype is dtype and found.shape == exact.shape
    slack = 2.0**-50 * np.abs(exact).max()  # of torch's float64
    bound = error_bound(x.astype(np.float64), w.astype(np.float64), groups, UNITS[dtype])
    assert (np.abs(found.numpy() - exact) <= bound + slack).all()


def test_the_bound_is_one_that_an_error_exceeds() -> None:
    x, w = numbers(1, 4, 9, 9), numbers(4, 4, 3, 3, seed=1)
    bound = error_bound(x, w, 1, UNITS[dtypes.float32])
    assert bound.max() < 2e-2 * np.abs(by_torch(x, w)).max()


X, W, BIAS = numbers(2, 64, 34, 33), numbers(96, 64, 3, 3, seed=1) / 24, numbers(96, seed=2)


@pytest.mark.parametrize("padding", [0, 1, 2, (2, 1), (0, 3, 1, 2)], ids=str)
def test_conv2d_with_padding_and_bias_agrees_with_torch(padding: int | Sequence[int]) -> None:
    pairs = (padding,) * 4 if isinstance(padding, int) else padding
    left, right, top, bottom = pairs if len(pairs) == 4 else (pairs[1],) * 2 + (pairs[0],) * 2
    image = np.pad(X, ((0, 0), (0, 0), (top, bottom), (left, right)))
    exact = by_torch(image, W, bias=torch.tensor(BIAS))
    with Context(WINO=1):
        found = Tensor(X).conv2d(Tensor(W), Tensor(BIAS), padding=padding)
    assert has_law(found)
    np.testing.assert_allclose(found.numpy(), exact, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("dtype", "close"), [(dtypes.float16, 4e-3), (dtypes.bfloat16, 3e-2), (dtypes.float32, 1e-4)]
)
def test_small_types_are_summed_in_float32_and_rounded_once(dtype: DType, close: float) -> None:
    x, w = [Tensor(part.astype(np.float32)).cast(dtype) for part in (X, W)]
    exact = by_torch(*[part.float().numpy().astype(np.float64) for part in (x, w)])
    with Context(WINO=1):
        found = x.conv2d(w)
    assert has_law(found) and found.dtype is dtype
    np.testing.assert_allclose(found.float().numpy(), exact, rtol=0, atol=close)


def test_groups_and_the_type_asked_for() -> None:
    x, w = [
        np.concatenate([part, part], 1 - axis).astype(np.float32)
        for axis, part in enumerate((X, W))
    ]
    exact = by_torch(x.astype(np.float64), w.astype(np.float64), groups=2)
    with Context(WINO=1):
        found = Tensor(x).conv2d(Tensor(w), groups=2, dtype=dtypes.float64)
    assert has_law(found) and found.dtype is dtypes.float64
    np.testing.assert_allclose(found.numpy(), exact, rtol=0, atol=1e-12)
    np.testing.assert_allclose(by_law(x, w, 2).numpy(), exact, rtol=0, atol=1e-4)


def test_transposed_convolution_is_a_convolution() -> None:
    exact = torch.nn.functional.conv_transpose2d(
        torch.tensor(X), torch.tensor(W.transpose(1, 0, 2, 3).copy()), padding=1
    )
    with Context(WINO=1):
        found = Tensor(X).conv_transpose2d(Tensor(W.transpose(1, 0, 2, 3).copy()), padding=1)
    assert has_law(found)
    np.testing.assert_allclose(found.numpy(), exact.numpy(), rtol=0, atol=1e-13)


def test_the_program_is_right_by_numpy(machine: str) -> None:
    x, w = numbers(1, 3, 7, 6), numbers(2, 3, 3, 3, seed=1)
    np.testing.assert_allclose(by_law(x, w).numpy(), by_torch(x, w), rtol=0, atol=1e-12)


def test_an_infinity_spoils_its_tiles_and_no_others() -> None:
    x, w = numbers(1, 2, 14, 14), numbers(2, 2, 3, 3, seed=1)
    x[0, 0, 1, 1] = np.inf
    found = by_law(x, w).numpy()
    assert np.isnan(found[:, :, :4, :4]).any()
    assert np.isfinite(found[:, :, 4:]).all() and np.isfinite(found[:, :, :, 4:]).all()


# -- gradients -----------------------------------------------------------------------------------


def test_gradients_are_those_of_the_convolution() -> None:
    x, w = numbers(1, 2, 6, 7), numbers(3, 2, 3, 3, seed=1)
    assert gradcheck(
        lambda a, b: winograd.correlated_by_law(
            a._pad_zeros([(0, 0), (0, 0), (1, 1), (1, 1)]), b, 1
        ),
        [Tensor(x), Tensor(w)],
    )


def test_gradients_of_conv2d_agree_with_torch() -> None:
    x, w = [torch.tensor(part, requires_grad=True) for part in (X, W)]
    (torch.nn.functional.conv2d(x, w, padding=1) ** 2).sum().backward()
    a, b = Tensor(X), Tensor(W)
    with Context(WINO=1):
        y = a.conv2d(b, padding=1)
    assert has_law(y)
    found = (y * y).sum().gradient(a, b)
    for mine, theirs in zip(found, (x.grad, w.grad)):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=0, atol=1e-10)


# -- where it is used ----------------------------------------------------------------------------


def conv(x: Tensor, w: Tensor, **options: Any) -> Tensor:
    return x.conv2d(w, **options)


@pytest.mark.parametrize("wino", ["", "0"])
def test_it_is_never_used_unasked(monkeypatch: pytest.MonkeyPatch, wino: str) -> None:
    monkeypatch.setenv("WINO", wino)
    monkeypatch.setenv("FASTMATH", "nsz,finite,real")
    assert not has_law(Tensor(X).conv2d(Tensor(W)))


def test_asking_for_it_adds_no_other_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINO", "1")
    assert str((Tensor([-0.0, 1.0]) + 0.0).tolist()) == "[0.0, 1.0]"
    assert proofgrad.core.settings.fastmath() == ()


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 64, 34, 33), (96, 64, 3, 3), {"stride": 2}),
        ((2, 64, 34, 33), (96, 64, 3, 3), {"dilation": 2}),
        ((2, 64, 34, 33), (96, 64, 5, 5), {}),
        ((2, 64, 34, 33), (96, 64, 3, 1), {}),
        ((2, 64, 340), (96, 64, 3), {}),
        ((2, 64, 8, 8, 8), (32, 64, 3, 3, 3), {}),
        ((2, 3, 64, 64), (96, 3, 3, 3), {}),
        ((2, 64, 64, 64), (64, 1, 3, 3), {"groups": 64}),
        ((2, 64, 5, 5), (64, 64, 3, 3), {}),
    ],
)
def test_other_windows_and_few_channels_are_as_without_it(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]
) -> None:
    image, weights = Tensor.empty(*x), Tensor.empty(*w)
    ordinary = image.conv2d(weights, **options)
    with Context(WINO=1):
        assert image.conv2d(weights, **options).uop is ordinary.uop


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.uint64, dtypes.bool])
def test_integers_are_exact(dtype: DType) -> None:
    x, w = [Tensor((part * 4).astype(np.int64)).cast(dtype) for part in (X, W * 24)]
    ordinary = x.conv2d(w, padding=1)
    with Context(WINO=1):
        assert x.conv2d(w, padding=1).uop is ordinary.uop
        if not dtype.is_bool:
            assert x.conv2d(w, padding=1, dtype=dtype).uop is x.conv2d(w, padding=1).uop
    assert ordinary.dtype is dtype


def test_a_size_that_is_a_variable_is_as_without_it() -> None:
    images = Variable("images", 1, 2).bind(2)
    image, weights = Tensor(X)[:images], Tensor(W)
    with Context(WINO=1):
        assert not has_law(image.conv2d(weights))


def test_windows_that_do_not_fit_are_refused_alike() -> None:
    with Context(WINO=1), pytest.raises(proofgrad.ShapeError, match="spans 3"):
        Tensor.empty(1, 64, 2, 20).conv2d(Tensor.empty(64, 64, 3, 3))


def test_a_recorded_function_repeats_it() -> None:
    x, w = [part.astype(np.float32) for part in (X, W)]

    @TinyJit
    def step(image: Tensor) -> Tensor:
        return image.conv2d(weights, padding=1).relu().realize()

    weights = Tensor(w).realize()
    exact = by_torch(X, W, padding=1).clip(min=0)
    with Context(WINO=1):
        for factor in (1.0, 2.0, 3.0, 4.0):
            found = step(Tensor(x * np.float32(factor)).realize())
            np.testing.assert_allclose(found.numpy(), exact * factor, rtol=0, atol=1e-4 * factor)


def test_it_is_counted_and_marked_as_loose() -> None:
    x, w = Tensor(X), Tensor(W)
    assert proofgrad.explain(x.conv2d(w)).splitlines()[0].endswith(" 0 unproven, 0 loose")
    with Context(WINO=1):
        y = x.conv2d(w)
    lines = proofgrad.explain(y.relu()).splitlines()
    assert lines[0].endswith(" 0 unproven, 1 loose")
    assert f"  {WINOGRAD} 1  LOOSE: f4x3 1" in lines


def test_it_is_taken_where_it_saves_half_of_the_multiplications() -> None:
    for n, channels, size, filters, expected in [
        (8, 64, 56, 64, True),
        (1, 256, 28, 256, True),
        (1, 128, 56, 128, True),
        (1, 512, 14, 512, False),  # most of the time goes into its weights
        (16, 32, 32, 32, False),
    ]:
        image, w = Tensor.empty(n, channels, size, size), Tensor.empty(filters, channels, 3, 3)
        with Context(WINO=1):
            assert has_law(image.conv2d(w, padding=1)) == expected, (n, channels, size, filters)
