"""float16 and bfloat16 are rounded once: what has several steps takes them in float32.

Each method that is made of sums is compared with itself in float64 on the same elements. The inputs are those
on which a step in 16 bits is lost: deviations whose squares overflow, means that are far from 0, counts
that the type does not hold.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from proofgrad import Tensor, dtypes, nn
from proofgrad.core.ir.dtypes import DType

RANDOM = np.random.default_rng(0)
INPUTS = {
    "squares overflow": RANDOM.uniform(-900, 900, (6, 10)),
    "far from zero": RANDOM.normal(20, 1, (6, 10)),
    "small": RANDOM.normal(0, 1e-3, (6, 10)),
    "one value": np.full((6, 10), 3.0),
}
# Half a unit in the last place, relative; and half of the smallest number.
ULP = {dtypes.float16: 2.0**-11, dtypes.bfloat16: 2.0**-8}
LARGEST = {dtypes.float16: 65504.0, dtypes.bfloat16: 255 * 2.0**120}
SMALLEST = {dtypes.float16: 2.0**-25, dtypes.bfloat16: 2.0**-134}
LABELS = Tensor([0, 3, 9, 1, 1, 2])
CHANCES = Tensor(RANDOM.uniform(0, 1, (6, 10)))
POSITIONS = Tensor(np.array([[0] * 10, [1] * 10] + [[0] * 10] * 4, dtype=np.int32))


def halved(layer: object, kind: DType) -> object:
    for parameter in nn.state.get_parameters(layer):
        if parameter.is_floating_point():
            parameter.replace(parameter.cast(kind))
    return layer


METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "var of a column": lambda x: x.var(0, correction=0),
    "std": lambda x: x.std(-1),
    "var_mean": lambda x: x.var_mean(1)[0],
    "std_mean": lambda x: x.std_mean(1)[0],
    "layernorm": lambda x: x.layernorm(),
    "normalize": lambda x: x.normalize(dim=-1),
    "normalize by a power": lambda x: x.normalize(3.0, dim=-1),
    "softmax": lambda x: x.softmax(),
    "log_softmax": lambda x: x.log_softmax(),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cross_entropy": lambda x: x.cross_entropy(LABELS),
    "smoothed cross_entropy": lambda x: x.cross_entropy(LABELS, label_smoothing=0.1),
    "categorical": lambda x: x.sparse_categorical_crossentropy(LABELS),
    "nll_loss": lambda x: x.nll_loss(LABELS),
    "newton_schulz": lambda x: x.newton_schulz(0, (1.0,)),
    "mse_loss": lambda x: x.mse_loss(-x),
    "binary_crossentropy_logits": lambda x: x.binary_crossentropy_logits(CHANCES.cast(x.dtype)),
    "scatter_reduce": lambda x: x.scatter_reduce(0, POSITIONS, x, "sum"),
    "mean of scatter_reduce": lambda x: x.scatter_reduce(0, POSITIONS, x, "mean"),
    "LayerNorm": lambda x: halved(nn.LayerNorm(10), x.dtype)(x),
    "GroupNorm": lambda x: halved(nn.GroupNorm(2, 10), x.dtype)(x),
    "RMSNorm": lambda x: halved(nn.RMSNorm(10), x.dtype)(x),
    "BatchNorm": lambda x: halved(nn.BatchNorm(10, track_running_stats=False), x.dtype)(x),
}


@pytest.mark.parametrize("kind", ULP, ids=lambda kind: kind.name)
@pytest.mark.parametrize("data", INPUTS)
@pytest.mark.parametrize("name", METHODS)
def test_method_of_a_narrow_float_rounds_once(name: str, data: str, kind: DType) -> None:
    x = Tensor(INPUTS[data]).cast(kind)
    got = METHODS[name](x)
    exact = METHODS[name](x.double()).numpy()
    assert got.dtype is kind
    found = got.double().numpy()
    inside = np.abs(exact) <= LARGEST[kind]
    assert np.all(
        np.isinf(found[~inside])
    )  # it is the result that overflows, and no step before it
    error, size = np.abs(found - exact)[inside], np.abs(exact)[inside]
    from_float32 = 2.0**-20 * size.max(initial=0)  # as of means that cancel
    assert np.all(error <= ULP[kind] * size + from_float32 + SMALLEST[kind])


@pytest.mark.parametrize("count", [65520, 70001])
def test_count_beyond_the_type_divides_as_it_is(count: int) -> None:
    x = Tensor((np.arange(count) % 2).astype(np.float16))
    assert (
        x.var().item() == 0.25
        and x.std().item() == 0.5
        and x.mean().item() == pytest.approx(0.5, rel=1e-3)
    )
    assert x.reshape(1, -1).layernorm()[0, :2].tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("name, total", [("half", 3000.0), ("bfloat16", 3008.0)])
def test_scatter_adds_thousands_of_ones_without_losing_any(name: str, total: float) -> None:
    ones, positions = Tensor.ones(3000, 2).cast(name), Tensor.zeros(3000, 2, dtype=dtypes.int32)
    found = Tensor.zeros(4, 2).cast(name).scatter_reduce(0, positions, ones, "sum")
    assert found.tolist() == [[total] * 2] + [[0.0] * 2] * 3
    product = Tensor.ones(4, 2).cast(name).scatter_reduce(0, positions[:5], ones[:5] * 3, "prod")
    assert product.tolist()[0] == [243.0] * 2


def test_running_statistics_of_a_half_model_are_taken_in_float32() -> None:
    layer = nn.BatchNorm(1, momentum=1.0)
    x = Tensor(np.array([[300.0], [-300.0]], dtype=np.float16))
    with Tensor.train():
        assert layer(x).dtype is dtypes.float32  # the weights are float32
    assert layer.running_var.tolist() == [180000.0] and layer.running_mean.tolist() == [0.0]
