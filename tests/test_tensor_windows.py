"""Pools, transposed convolutions, interpolation, einsum, losses, attention, against torch and numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, assert_same, machine, numbers

from proofgrad import ShapeError, Tensor
from proofgrad.core.ir.ops import Ops

__all__ = ["machine"]
X = numbers(2, 3, 6, 7)
POOLS: list[dict[str, Any]] = [
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": (2, 3), "stride": (3, 2), "ceil_mode": True},
    {"kernel_size": 2},
]


@pytest.mark.parametrize("options", POOLS, ids=str)
def test_pools_agree_with_torch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    values, positions = Tensor(X).max_pool2d(**options, return_indices=True)
    expected = functional.max_pool2d(torch.tensor(X), **options, return_indices=True)
    assert_same(values, expected[0].numpy())
    assert_same(positions, expected[1].numpy().astype(np.int32))
    for counts in (True, False):
        found = Tensor(X).avg_pool2d(**options, count_include_pad=counts)
        mean = functional.avg_pool2d(torch.tensor(X), **options, count_include_pad=counts)
        assert_close(found, mean.numpy())


def test_pool_up_to_the_ceiling_takes_the_last_elements(machine: str) -> None:
    line = Tensor([[[1.0, 5.0, 2.0, 4.0, 3.0]]])
    values, positions = line.max_pool2d((2,), ceil_mode=True, return_indices=True)
    assert values.tolist() == [[[5, 4, 3]]]
    assert positions.tolist() == [[[1, 3, 4]]]
    assert line.avg_pool2d((2,), ceil_mode=True).tolist() == [[[3, 3, 3]]]
    unpooled = values.max_unpool2d(positions, (2,), output_size=(5,))
    assert unpooled.tolist() == [[[0, 5, 0, 4, 3]]]


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2},
     {"stride": (1, 2), "padding": (0, 1)}],
    ids=str,
)  # fmt: skip
def test_transposed_convolution_agrees_with_torch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    x, w = numbers(2, 4, 5, 4), numbers(4, 2, 3, 2, seed=1)
    expected = torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), **options)
    assert_close(Tensor(x).conv_transpose2d(Tensor(w), **options), expected.numpy(), atol=1e-5)


def test_transposed_convolution_is_the_gradient_of_the_convolution() -> None:
    x, w = Tensor(numbers(1, 3, 5, 5), requires_grad=True), Tensor(numbers(4, 3, 3, 3, seed=1))
    y = x.conv2d(w, stride=2)
    cotangent = Tensor(numbers(*y.shape, seed=2))
    (expected,) = y.gradient(x, gradient=cotangent)
    assert_close(cotangent.conv_transpose2d(w, stride=2), expected.numpy())


@pytest.mark.parametrize("size", [(9, 4), (3, 14)])
def test_interpolation_agrees_with_torch(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    interpolate = torch.nn.functional.interpolate
    for align in (True, False):
        expected = interpolate(torch.tensor(X), size, mode="bilinear", align_corners=align)
        assert_close(Tensor(X).interpolate(size, align_corners=align), expected.numpy(), atol=1e-5)
    for mode in ("nearest", "nearest-exact"):
        assert_same(
            Tensor(X).interpolate(size, mode), interpolate(torch.tensor(X), size, mode=mode).numpy()
        )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("size", [(12, 10), (18, 5), (6, 1), (2, 5), (3, 15), (1, 1)])
def test_whole_multiples_and_parts_are_no_gather_and_agree_with_torch(
    mode: str, size: tuple[int, int]
) -> None:
    torch = pytest.importorskip("torch")
    x = numbers(2, 3, 6, 5)
    mine = Tensor(x, requires_grad=True)
    theirs = torch.tensor(x, requires_grad=True)
    weights = numbers(2, 3, *size)
    y = mine.interpolate(size, mode)
    expected = torch.nn.functional.interpolate(theirs, size, mode=mode)
    assert_same(y, expected.detach().numpy())
    (expected * torch.tensor(weights)).sum().backward()
    (gradient,) = y.gradient(mine, gradient=Tensor(weights))
    assert_close(gradient, theirs.grad.numpy())
    graph = mine.interpolate(size, mode).gradient(mine, gradient=Tensor(weights))[0].uop
    assert not any([node.op is Ops.IOTA for node in graph.toposort()])  # no position is computed


def test_interpolation_of_a_line(machine: str) -> None:
    line = Tensor([0.0, 4.0])
    assert line.interpolate((4,)).tolist() == [0, 1, 3, 4]
    assert line.interpolate((5,), align_corners=True).tolist() == [0, 1, 2, 3, 4]
    assert line.interpolate((3,), "nearest").tolist() == [0, 0, 4]
    with pytest.raises(
        ValueError, match="mode is 'linear' .*'nearest' or 'nearest-exact', not 'cubic'"
    ):
        line.interpolate((3,), "cubic")


FORMULAS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 2, 3), (2, 3, 4)), ("ii->i", (3, 3)),
    ("ii", (3, 3)), ("...ij,...jk->...ik", (5, 1, 2, 3), (4, 3, 2)), ("i,j->ji", (2,), (3,)),
    ("ijk,k,jl->il", (2, 3, 4), (4,), (3, 5)), ("ij->", (2, 3)), ("ab,cd", (2, 3), (1, 2)),
    ("ijij->j", (2, 3, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("case", FORMULAS, ids=lambda case: case[0])
def test_einsum_agrees_with_numpy(machine: str, case: Any) -> None:
    formula, *shapes = case
    parts = [numbers(*shape, seed=k).astype(np.float64) for k, shape in enumerate(shapes)]
    assert_close(Tensor.einsum(formula, *map(Tensor, parts)), np.einsum(formula, *parts))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("ij,jk->ik", "is for 2 operands, not 1"),
        ("ijk->i", "gives 3 axes to an operand of"),
        ("ij->k", "each letter on the right"),
        ("ii->i", "differ in size"),
    ],
)
def test_wrong_einsum_is_refused(formula: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tensor.einsum(formula, Tensor.ones(2, 3))


# -- losses and attention ---------------------------------------------------------------------------

SCORES, LABELS = numbers(6, 4), np.array([0, 1, 2, 3, 1, 1])
WEIGHTS = np.array([1, 2, 0.5, 3], np.float32)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_agree_with_torch(reduction: str) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    scores, labels = torch.tensor(SCORES), torch.tensor(LABELS)
    ours, names = Tensor(SCORES), Tensor(LABELS)
    targets = (SCORES > 0.3).astype(np.float32)
    chances = 1 / (1 + np.exp(-SCORES))
    pairs = [
        (
            ours.log_softmax().nll_loss(names, Tensor(WEIGHTS), 1, reduction),
            functional.nll_loss(
                scores.log_softmax(-1),
                labels,
                torch.tensor(WEIGHTS),
                ignore_index=1,
                reduction=reduction,
            ),
        ),
        (
            ours.cross_entropy(names, reduction, 0.1),
            functional.cross_entropy(scores, labels, label_smoothing=0.1, reduction=reduction),
        ),
        (
            ours.binary_crossentropy_logits(Tensor(targets), reduction, Tensor(WEIGHTS)),
            functional.binary_cross_entropy_with_logits(
                scores, torch.tensor(targets), pos_weight=torch.tensor(WEIGHTS), reduction=reduction
            ),
        ),
        (
            Tensor(chances).binary_crossentropy(Tensor(targets), reduction),
            functional.binary_cross_entropy(
                torch.tensor(chances), torch.tensor(targets), reduction=reduction
            ),
        ),
    ]
    for found, expected in pairs:
        assert_close(found, expected.numpy())


def test_certain_predictions_cost_nothing_or_a_hundred() -> None:
    certain = Tensor([0.0, 1.0, 1.0]).binary_crossentropy(Tensor([0.0, 1.0, 0.0]), "none")
    assert certain.tolist() == [0, 0, 100]


def test_nll_loss_takes_classes_on_axis_1_of_images() -> None:
    scores = Tensor(numbers(2, 3, 4, 5)).log_softmax(1)
    labels = np.random.default_rng(0).integers(0, 3, (2, 4, 5))
    picked = np.take_along_axis(scores.numpy(), labels[:, None], 1)
    assert_close(scores.nll_loss(Tensor(labels)), -picked.mean())
    with pytest.raises(ValueError, match="label_smoothing is 0 to 1, not 2"):
        scores.cross_entropy(Tensor(labels), label_smoothing=2)


@pytest.mark.parametrize(
    "options", [{"is_causal": True}, {"attn_mask": "bool"}, {"attn_mask": "float"}], ids=str
)
def test_attention_with_grouped_heads_agrees_with_torch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    q, k, v = [numbers(2, heads, 5, 8, seed=heads) for heads in (4, 2, 2)]
    masks = {"bool": np.tri(5, dtype=bool), "float": numbers(5, 5)}
    given = {name: masks.get(value, value) for name, value in options.items()}
    ours = {n: Tensor(m) if isinstance(m, np.ndarray) else m for n, m in given.items()}
    theirs = {n: torch.tensor(m) if isinstance(m, np.ndarray) else m for n, m in given.items()}
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = attend(*map(torch.tensor, (q, k, v)), enable_gqa=True, **theirs)
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), enable_gqa=True, **ours)
    assert_close(found, expected.numpy(), atol=1e-5)


def test_wrong_attention_is_refused() -> None:
    q = Tensor(numbers(3, 5, 8))
    with pytest.raises(ValueError, match="attn_mask cannot be given"):
        q.scaled_dot_product_attention(q, q, attn_mask=q, is_causal=True)
    with pytest.raises(ShapeError, match="a multiple of those of key"):
        q.scaled_dot_product_attention(q[:2], q[:2], enable_gqa=True)


# -- factorisations ---------------------------------------------------------------------------------


def test_qr_gives_an_orthogonal_and_a_triangular_factor() -> None:
    for shape in ((4, 3), (2, 3, 3), (2, 4)):
        a = numbers(*shape)
        q, r = Tensor(a).qr()
        assert_close(q @ r, a, atol=2e-6)
        assert_close(
            q.transpose(-2, -1) @ q, np.broadcast_to(np.eye(shape[-2]), q.shape), atol=2e-6
        )
        assert (np.tril(r.numpy(), -1) == 0).all()


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_svd_has_the_singular_values_of_numpy(shape: tuple[int, int]) -> None:
    a = numbers(*shape)
    u, s, v = Tensor(a).svd(full_matrices=False)
    assert_close(s, np.linalg.svd(a)[1])
    assert_close(u * s @ v, a, atol=3e-6)
    full = Tensor(a).svd()
    assert [part.shape for part in full] == [(shape[0],) * 2, (3,), (shape[1],) * 2]


def test_newton_schulz_brings_singular_values_near_1() -> None:
    x = Tensor(numbers(3, 5)).newton_schulz(12, (2, -1.5, 0.5))
    np.testing.assert_allclose(np.linalg.svd(x.numpy())[1], 1, atol=1e-3)


def test_normalize_and_moments_agree_with_numpy(machine: str) -> None:
    x = numbers(3, 4)
    for p in (1, 2, 3, np.inf):
        assert_close(Tensor(x).normalize(p), x / np.linalg.norm(x, p, 1, keepdims=True))
    assert_close(Tensor(x).softmin(), np.exp(-x) / np.exp(-x).sum(-1, keepdims=True))
    deviation, mean = Tensor(x).std_mean(0)
    assert_close(deviation, x.std(0, ddof=1))
    assert_close(mean, x.mean(0))


def test_an_element_at_its_own_position_is_taken_alone() -> None:
    """Torch multiplies its neighbour by 0.0, which passes NaN and infinities on."""
    line = Tensor([0.0, math.nan, 2.0, 3.0])
    assert line.interpolate((4,)).isnan().tolist() == [False, True, False, False]
    assert line.interpolate((7,), align_corners=True).isnan().tolist() == [0, 1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("align_corners", [False, True])
def test_interpolated_integers_are_the_nearest(align_corners: bool) -> None:
    """At most one beside torch's, which rounds after each axis."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    for sizes, wanted in [((1, 4), (1, 3)), ((5, 3), (4, 8)), ((2, 7), (9, 2)), ((1, 1), (3, 5))]:
        x = random.integers(0, 256, (1, 2, *sizes)).astype(np.uint8)
        found = Tensor(x).interpolate(wanted, align_corners=align_corners).numpy()
        real = Tensor(x).double().interpolate(wanted, align_corners=align_corners).numpy()
        theirs = torch.nn.functional.interpolate(
            torch.tensor(x), wanted, mode="bilinear", align_corners=align_corners
        ).numpy()
        assert np.abs(found - real).max() <= 0.5 + 1e-4
        assert np.abs(found.astype(int) - theirs).max() <= 1
    line = Tensor([[[0, 5, 5, 0]]], dtype="uint8").interpolate((3,))
    assert line.tolist() == [[[1, 5, 1]]] and Tensor([-3, 0]).interpolate((4,)).tolist() == [
        -3,
        -2,
        -1,
        0,
    ]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_bias_of_sixteen_bits_is_added_before_the_result_is_rounded(kind: str) -> None:
    """x * w + bias is rounded once, whichever function adds the bias."""
    x = Tensor([8.75, 0.3, 2.7], dtype=kind).reshape(3, 1, 1)
    w = Tensor([1.0, 6.0, 11.0, 16.0, 26.0], dtype=kind).reshape(5, 1, 1)
    bias = Tensor([1.0, 0.3, -0.7, 100.0, 1.0], dtype=kind)
    wide = [t.cast("float32") for t in (x, w, bias)]
    wanted = (wide[0] * wide[1].reshape(1, 5, 1) + wide[2].reshape(1, 5, 1)).cast(kind)
    assert x.conv2d(w, bias).tolist() == wanted.tolist()
    flat = x.reshape(3, 1).linear(w.reshape(1, 5), bias)
    assert flat.tolist() == wanted.reshape(3, 5).tolist() and flat.dtype is x.dtype
    scaled = x.reshape(3, 1).expand(3, 5).linear(w.reshape(5), bias)
    assert scaled.tolist() == wanted.reshape(3, 5).tolist()
    assert x.conv2d(w, bias.cast("float32")).dtype.name == "float32"


def test_operand_that_is_masked_in_a_table_may_hold_numbers_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Positions of a table beyond its loop are masked, whatever the operand is made of."""
    monkeypatch.setenv("CHOICES", "tiled=on tile=3x3x2 blocks=2x3 staged=rows+columns depth=4")
    w = Tensor([1.0] * 18, dtype="bfloat16").reshape(3, 2, 3)
    x = Tensor([1.0] * 6, dtype="bfloat16").reshape(1, 3, 2)
    assert x.conv_transpose2d(w).tolist() == [[[3.0, 6.0, 6.0, 3.0]] * 2]
