"""PROVE=1 of kernels that have vectors of two lengths, as sums of few and of many numbers in one."""

from __future__ import annotations

import numpy as np
import pytest
from proven import fully_proved
from test_cpu_target import cpu

from proofgrad import Context, Tensor
from proofgrad.core.compile.steps import lanes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.match_stores import StoreMatcher
from proofgrad.verify.kernels.proof import ProofError
from proofgrad.verify.kernels.readback import Written


def numbers(*shape: int) -> Tensor:
    values = np.random.default_rng(3).integers(-99, 99, shape)
    return Tensor(values.astype(np.float32)).realize()


def lengths_of(value: Tensor, capfd: pytest.CaptureFixture[str]) -> set[int]:
    """Of the vectors in the kernels of a value, each of which the solver shows whole; as lanes of stores and reductions."""
    found: set[int] = set()
    whole = StoreMatcher.stores

    def note(self: StoreMatcher, before: list[Written], after: list[Written], strict: bool) -> object:  # fmt: skip
        nodes = toposort(tuple([w.store for w in after]))
        found.update([n.src[0].arg for n in nodes if n.op is Ops.RANGE and n.arg[0] >= 1 << 30])
        return whole(self, before, after, strict)

    with pytest.MonkeyPatch.context() as patch, cpu("haswell"), compile_only():
        patch.setattr(StoreMatcher, "stores", note)
        with fully_proved(capfd):
            value.realize()
    return found


@pytest.mark.parametrize("long", [8, 24, 33])
def test_kernels_with_vectors_of_two_lengths_are_proved_whole(
    long: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert lengths_of(numbers(4).sum() + numbers(long).max(), capfd) == {4, 8}


@pytest.mark.parametrize("length", [4, 8])
def test_a_fault_in_vectors_of_either_length_is_found(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load starts one element too far."""
    right = lanes._in_first_lane

    def wrong(term: UOp, terms: dict[UOp, UOp]) -> UOp:
        loops = [n for n in toposort((term,)) if n.op is Ops.RANGE and terms.get(n) is not n]
        return right(term, terms) + int(any([x.src[0].arg == length for x in loops]))

    value = numbers(4).sum() + numbers(24).max()
    monkeypatch.setattr(lanes, "_in_first_lane", wrong)
    with cpu("haswell"), Context(PROVE=1), compile_only(), pytest.raises(ProofError, match="vec"):
        value.realize()


def test_positions_that_are_computed_in_fewer_bits_are_the_same_numbers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Where each element of a row goes when it is sorted is a sum of truths, kept in 64 bits and read in 32."""
    with cpu("haswell"), fully_proved(capfd):
        found = numbers(3, 37).sort()[0].tolist()
    assert found == np.sort(numbers(3, 37).numpy()).tolist()
