"""Division by a constant as a product: the certificates, and the values."""

from __future__ import annotations

import pytest
from kernel_interpreter import element
from rules_from_text import unproven_library

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.extractor_check import check_of
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.searches import SEARCHES, reciprocal


def rewritten(term: UOp) -> UOp:
    facts = Facts(unproven_library()["bounds"])
    return Rewriter([unproven_library()["fast_division"]], facts).rewrite(term)


def loaded(dtype: DType) -> UOp:
    memory = UOp(Ops.PARAM, dtype, (), (1, 1))
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))


def divisors(term: UOp) -> set[int]:
    return {n.src[1].arg for n in term.toposort() if n.op is Ops.FLOORDIV}


def test_every_quotient_of_uint8_is_right() -> None:
    for c in range(3, 256):
        result = rewritten(loaded(dtypes.uint8) // c)
        assert all(d & (d - 1) == 0 for d in divisors(result))
        wrong = [x for x in range(256) if element(result, {}, {1: [x]}) != x // c]
        assert wrong == []


@pytest.mark.parametrize("dtype", [dtypes.uint16, dtypes.uint32, dtypes.int16, dtypes.int32])
@pytest.mark.parametrize("c", [3, 5, 7, 10, 641, 1000, 32767])
def test_quotients_of_wider_types_are_right(dtype: DType, c: int) -> None:
    top = dtype.hi
    assert top is not None
    x = loaded(dtype).alu(Ops.MAX, UOp.const(dtype, 0)) if dtype.lo else loaded(dtype)
    result = rewritten(x // c)
    factor, _, _ = reciprocal(c, top, None) or (0, 0, 0)  # type: ignore[arg-type]
    fits = factor * top < 2**64
    assert divisors(result) == {c} or fits
    assert not fits or all(d & (d - 1) == 0 for d in divisors(result))
    for near in (0, c, top // c * c, top // 2):
        for value in (near - 1, near, near + 1, top):
            if 0 <= value <= top:
                assert element(result, {}, {1: [value]}) == value // c


def test_no_product_where_the_dividend_may_be_negative_or_no_type_is_wide_enough() -> None:
    for x in (loaded(dtypes.int32), loaded(dtypes.uint64)):
        assert rewritten(x // 7) is x // 7


def test_a_certificate_is_the_least_that_holds() -> None:
    assert reciprocal(3, 255, None) == (171, 512, 1)  # type: ignore[arg-type]
    assert reciprocal(7, 2**32 - 1, None) == (4908534053, 2**35, 3)  # type: ignore[arg-type]


def test_a_wrong_certificate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of("reciprocal")
    assert check(None, 3, 255, 171, 512, 1)
    assert not check(None, 3, 255, 170, 512, 1)
    x = loaded(dtypes.uint8)
    # one that is consistent, and too coarse for 255
    for wrong in ((43, 128, 1), (171, 512, 2), (171, 512, -1)):
        monkeypatch.setitem(SEARCHES, "reciprocal", lambda c, h, forms, wrong=wrong: wrong)
        assert rewritten(x // 3) is x // 3
