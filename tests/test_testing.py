"""The tools of proofgrad.testing: what they let pass, what they refuse, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proofgrad import Device, Tensor, dtypes, nn
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.testing import GradientError, assert_close, backend, gradcheck, ulp_distance
from proofgrad.testing.conformance.check import Options

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


def test_message_names_the_worst_position() -> None:
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

QUICK = Options(is_quick=True)


def reports(device: str, *names: str, options: Options = QUICK) -> dict[str, tuple[int, list[str]]]:
    """Of each check how many results passed, and those that did not."""
    return {r.name: (r.passed, r.failed) for r in backend.run(device, options, names)}


def test_the_cpu_holds_the_checks_of_a_machine() -> None:
    names = (
        "memory",
        "movement",
        "many",
        "selection",
        "order",
        "random",
        "training",
        "handles",
        "replay",
    )
    found = reports("CPU", *names)
    assert list(found) == [check.name for check in backend.CHECKS if check.name in names]
    assert all(passed > 0 and not failed for passed, failed in found.values()), found  # fmt: skip


class Forgetful(ReferenceBackend):
    """Loses the last byte of every large buffer that is read."""

    def copyout(self, data: memoryview, handle: Any) -> None:
        super().copyout(data, handle)
        if data.nbytes > 4096:
            data.cast("B")[-1] ^= 1


def test_a_broken_machine_is_found_with_every_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Device.register("FORGETFUL", Forgetful)
    assert backend.main(["FORGETFUL", "--only", "memory"]) == 1
    printed = capsys.readouterr().out
    assert "memory         5 passed, 3 failed" in printed
    assert "4097 bytes: 1 of 4097 elements differ: at (4096,) 0 instead of 1" in printed
    assert "1048577 bytes there and back: 1 of 1048577 bytes differ" in printed
    assert "FORGETFUL: 5 passed, 3 failed, 0 skipped" in printed


def test_all_differing_elements_are_listed_when_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Inverting(ReferenceBackend):
        def copyout(self, data: memoryview, handle: Any) -> None:
            super().copyout(data, handle)
            data.cast("B")[:] = bytes(255 - n for n in data.cast("B"))

    Device.register("INVERTING", Inverting)
    backend.main(["INVERTING", "--only", "memory"])
    assert "64 of 64 elements differ" in (few := capsys.readouterr().out)
    assert "; and 56 more" in few
    backend.main(["INVERTING", "--only", "memory", "--all"])
    assert (
        "at (63,) " in (every := capsys.readouterr().out)
        and "more" not in every.split("64 of 64")[1].splitlines()[0]
    )


def test_what_raises_is_one_failure_and_the_rest_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    class WithoutLong(ReferenceBackend):
        def emit(self, linear: Any, name: str) -> Any:
            if any(node.dtype is dtypes.int64 and node.op.name == "LOAD" for node in linear.src):
                raise CompileError("no 64 bits here")
            return super().emit(linear, name)

    Device.register("SHORT", WithoutLong)
    assert backend.main(["SHORT", "--only", "bitcasts"]) == 1
    printed = capsys.readouterr().out
    assert "int64 bits as uint64: CompileError: no 64 bits here" in printed
    assert "uint32 bits as" not in printed  # which is right


def test_machine_that_rounds_products_before_it_adds_computes_functions_within_their_bounds() -> (
    None
):
    class Apart(ReferenceBackend):
        target = replace(ReferenceBackend.target, calls_fma=True)

    Device.register("ROUNDED", Apart)
    (report,) = backend.run("ROUNDED", Options(), ["functions"])
    assert (report.passed, report.failed) == (64, [])


def test_types_that_a_machine_does_not_have_are_skipped_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Small(ReferenceBackend):
        target = replace(
            ReferenceBackend.target, storage=ReferenceBackend.target.storage - {dtypes.float64}
        )

    Device.register("NARROW", Small)
    assert backend.main(["NARROW", "--only", "movement"]) == 0
    printed = capsys.readouterr().out
    assert "movement       21 passed, 1 skipped" in printed
    assert "1 skipped: the device has no float64" in printed  # fmt: skip


def test_machines_are_told_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert backend.main(["REFERENCE", "CPU", "--only", "variables"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-4:] == [
        "| machine | passed | failed | skipped |", "|---|---|---|---|", "| REFERENCE | 1 | 0 | 0 |", "| CPU | 1 | 0 | 0 |",
    ]  # fmt: skip


def test_reference_is_not_compared_with_itself() -> None:
    (report,) = backend.run("REFERENCE", Options(), ["fp8"])
    assert (report.passed, report.failed) == (0, [])
    assert report.skipped == {"REFERENCE is what it would be compared with": 16}


def test_a_machine_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert backend.main(["NONESUCH"]) == 2
    assert "NONESUCH" in capsys.readouterr().err
    assert backend.main([]) == 2
    assert backend.main(["CPU", "--only", "nothing"]) == 2
