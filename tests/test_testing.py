"""The tools of proofgrad.testing: what they let pass, what they refuse, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Device, Tensor, dtypes, nn
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.testing import GradientError, assert_close, backend, gradcheck, ulp_distance

# -- assert_close ---------------------------------------------------------------------------------


def test_close_values_pass() -> None:
    assert_close(Tensor([1.0, 2.0]), [1.0, 2.000001])
    assert_close(Tensor([1.0]).half(), np.array([1.001], np.float16))
    assert_close(Tensor([float("nan"), float("inf")]), [float("nan"), float("inf")])
    assert_close(Tensor([2**63 - 1], dtype=dtypes.int64), np.array([2**63 - 1]))
    assert_close(Tensor([True, False]), [True, False])
    assert_close(Tensor.zeros(0, 3), np.zeros((0, 3), np.float32))
    assert_close(Tensor([1.0], dtype=dtypes.bfloat16), Tensor([1.01], dtype=dtypes.bfloat16))
    assert_close(Tensor([1.0]), np.array([1.0]), check_dtype=False)
    assert_close(np.float32(1.0), np.nextafter(np.float32(1), np.float32(2)), ulp=1)


REFUSED: dict[str, tuple[Callable[[], None], str]] = {
    "far": (lambda: assert_close(Tensor([1.0]), [1.1]), r"1 of 1 elements differ \(100.0%\)"),
    "shape": (lambda: assert_close(Tensor([1.0]), [[1.0]]), r"shape is \(1,\), and not \(1, 1\)"),
    "type": (
        lambda: assert_close(Tensor([1.0]), np.array([1.0])),
        "type is dtypes.float, and not dtypes.float64",
    ),
    "integers near": (lambda: assert_close(Tensor([10**6]), [10**6 + 1]), "a difference of 1"),
    "wide integers near": (
        lambda: assert_close(Tensor([2**63 - 1], dtype=dtypes.int64), np.array([2**63 - 2])),
        "a difference of 1",
    ),
    "unsigned wrap": (
        lambda: assert_close(Tensor([0], dtype=dtypes.uint64), np.array([1], np.uint64)),
        "a difference of 1",
    ),
    "NaN": (lambda: assert_close(Tensor([float("nan")]), [1.0]), "nan instead of 1.0"),
    "NaN for an infinite": (
        lambda: assert_close(Tensor([float("nan")]), [float("inf")]),
        "nan instead of inf",
    ),
    "infinite": (lambda: assert_close(Tensor([1e30]), [float("inf")]), "instead of inf"),
    "equal NaN": (
        lambda: assert_close(Tensor([float("nan")]), [float("nan")], equal_nan=False),
        "nan instead of nan",
    ),
    "units": (
        lambda: assert_close(Tensor([1.0]), np.float32([1 + 2**-22]), ulp=1),
        "allowed is 1 ULP(.|\n)* 2 ULP",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_values_are_refused_with_what_differs(name: str) -> None:
    check, message = REFUSED[name]
    with pytest.raises(AssertionError, match=message):
        check()


def test_message_names_the_worst_place() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_close(Tensor([[1.0, 2.0], [3.5, 4.0]]), [[1.0, 2.1], [3.0, 4.0]], rtol=0, atol=0.05)
    assert str(caught.value) == (
        "2 of 4 elements differ (50.0%); allowed is 0.05 + 0 of the expected\n"
        "  the worst is at (1, 0): 3.5 instead of 3.0\n"
        "  a difference of 0.5, 0.167 of the expected"
    )


def test_units_between_floats_count_the_floats_between() -> None:
    tiny = np.float32(1e-45)  # the smallest above 0
    first = np.array([1, -1, 0, tiny, tiny, np.nan, np.nan, np.inf], np.float32)
    second = np.array([1, 1, -0.0, -tiny, 0, np.nan, 1, -np.inf], np.float32)
    found = ulp_distance(first, second).tolist()
    assert found == [0, 2 * 0x3F800000, 0, 2, 1, 0, 2**63 - 1, 2 * 0x7F800000]
    halves = Tensor([1.0, 2.0]).half(), Tensor([1.0009765625, -2.0]).half()
    assert ulp_distance(*halves).tolist() == [1, 2 * 0x4000]
    brains = [Tensor([1.0, x], dtype=dtypes.bfloat16) for x in (1.0, 1.0078125)]
    assert ulp_distance(*brains).tolist() == [0, 1]
    wide = np.array([-np.inf]), np.array([np.inf])
    assert ulp_distance(*wide).tolist() == [2**63 - 1]
    with pytest.raises(TypeError, match="no units in the last place of dtypes.int"):
        ulp_distance(Tensor([1]), Tensor([1]))


# -- gradcheck ------------------------------------------------------------------------------------


def test_gradcheck_leaves_indices_and_labels_alone() -> None:
    scores, labels = Tensor([[0.1, 0.7], [-0.3, 0.2]]), Tensor([1, 0])
    assert gradcheck(lambda s, y: s.sparse_categorical_crossentropy(y), [scores, labels])
    assert gradcheck(lambda y, s: s[y].sin(), [labels, scores])
    with pytest.raises(ValueError, match="needs an input of floats"):
        gradcheck(lambda y: y, labels)


def test_gradcheck_finds_a_missing_gradient() -> None:
    with pytest.raises(GradientError, match=r"input 1 at \(0,\): the derivative is"):
        gradcheck(lambda x, y: x * y.detach() + y, [Tensor([2.0]), Tensor([3.0])])


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(2, 2, 2), (1, 2, 4)),
    "BatchNorm": (lambda: nn.BatchNorm(2), (3, 2)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (1, 4, 2)),
    "InstanceNorm": (lambda: nn.InstanceNorm(2), (1, 2, 3)),
    "LayerNorm": (lambda: nn.LayerNorm(3), (2, 3)),
    "RMSNorm": (lambda: nn.RMSNorm(3), (2, 3)),
    "GRUCell": (lambda: nn.GRUCell(2, 2), (2, 2)),
    "LSTMCell": (lambda: nn.LSTMCell(2, 2), (2, 2)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(2, 1), (1, 2, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_derivatives_of_layers_are_those_of_differences(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    x = Tensor(np.random.default_rng(0).normal(size=shape))

    def value(x: Tensor) -> Tensor:
        result = layer(x)
        return result[0] if isinstance(result, tuple) else result

    with Tensor.train(name == "BatchNorm"):
        assert gradcheck(value, x, tolerance=1e-5)


# -- conformance of machines ----------------------------------------------------------------------


def test_the_cpu_holds_the_checks_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [c for c in backend.CHECKS if c.name in ("memory", "movement", "many", "training")]
    monkeypatch.setattr(backend, "CHECKS", some)
    assert dict(backend.run("CPU")) == {check.name: "" for check in some}


class Forgetful(ReferenceBackend):
    """Loses the last byte of every large buffer that is read."""

    def copyout(self, data: memoryview, handle: Any) -> None:
        super().copyout(data, handle)
        if data.nbytes > 4096:
            data.cast("B")[-1] ^= 1


def test_a_broken_machine_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    Device.register("FORGETFUL", Forgetful)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "CHECKS", backend.CHECKS[:1])
        assert backend.main(["FORGETFUL"]) == 1
    printed = capsys.readouterr().out
    assert "memory       result 4 of dtypes.uint8: 1 of 4097 elements differ" in printed
    assert "0 of 1 checks hold" in printed


def test_a_machine_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert backend.main(["NONESUCH"]) == 2
    assert "NONESUCH" in capsys.readouterr().err
    assert backend.main([]) == 2
