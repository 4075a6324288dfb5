"""PROVE=1 of a reduction that became several over parts of its iterations: each is taken in, and once."""

from __future__ import annotations

import pytest

from proofgrad.core.compile.text.reader import read_nest
from proofgrad.core.ir.op_names import STORE
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.kernels.match import Matcher
from proofgrad.verify.kernels.questions import Questions

WHOLE = "sum[r1 < 7](where(r0 < r1, 0.0, a[r1]))"
BLOCKS = "sum[r2 < 2](where({blocks}, sum[r3 < 3](a[{place}]), 0.0))"
REST = "sum[r4 < 3](where(r4 < r0 % 3 + 1, a[min(r0 // 3 * 3 + r4, 6)], 0.0))"


def value(text: str, kind: str = "f32") -> UOp:
    """The value that a kernel of 7 results stores."""
    nest = read_nest(
        f"kernel\n  out: {kind}[7] = param 0\n  a: {kind}[7] = param 1\n  for r0 < 7\n    out[r0] = {text}\n"
    )
    (store,) = [node for node in nest.toposort() if node.op is STORE]
    return store.src[1]


def is_same(after: str, before: str = WHOLE) -> bool:
    """What PROVE=1 says of two values, the second made of the first."""
    return Matcher(Questions()).value(value(before), value(after)) is None


def in_blocks(blocks: str = "r2 < r0 // 3", place: str = "r2 * 3 + r3", rest: str = REST) -> str:
    return f"{BLOCKS.format(blocks=blocks, place=place)} + {rest}"


def test_whole_blocks_and_the_rest_of_one_are_the_sum() -> None:
    assert is_same(in_blocks())


@pytest.mark.parametrize(
    "wrong",
    [
        in_blocks(blocks="r2 < r0 // 3 + 1"),  # the block of the end is taken in twice
        in_blocks(blocks="r2 + 1 < r0 // 3"),  # one block is left out
        in_blocks(place="r2 * 2 + r3"),  # blocks overlap
        in_blocks(rest=REST.replace("+ 1", "+ 0")),  # the last iteration is left out
        in_blocks(rest=REST.replace("+ 1", "+ 2")),  # one too many
        in_blocks(rest=REST.replace("+ r4, 6", "+ r4, 5")),  # the bound stops one too early
        in_blocks(rest=f"{REST} + a[r0]"),  # one element twice
        BLOCKS.format(blocks="r2 < r0 // 3", place="r2 * 3 + r3"),  # no rest
    ],
)
def test_what_is_left_out_or_taken_in_twice_is_seen(wrong: str) -> None:
    assert not is_same(wrong)


def test_parts_that_are_not_masked_are_joined() -> None:
    whole = "sum[r1 < 7](a[r1])"
    halves = "sum[r2 < 4](a[r2]) + sum[r3 < 3](a[r3 + 4])"
    assert is_same(halves, whole)
    assert not is_same(halves.replace("+ 4", "+ 3"), whole)
    assert not is_same(halves.replace("r3 < 3", "r3 < 2"), whole)


def test_another_operation_is_not_the_same() -> None:
    assert not is_same("max[r2 < 4](a[r2]) + sum[r3 < 3](a[r3 + 4])", "sum[r1 < 7](a[r1])")
    assert not is_same("sum[r2 < 4](a[r2]) + sum[r3 < 3](a[r3 + 4])", "max[r1 < 7](a[r1])")
