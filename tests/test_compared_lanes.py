"""Comparisons of lanes in fewer bits, inside of others: each register is updated once."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import Context, Tensor, dtypes
from proofgrad.core.compile.passes.forms import Form, FormError, check_form
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def test_rows_chosen_by_the_first_of_a_line_are_added_to_its_values() -> None:
    """A step of a beam search: positions are sums of lanes, which lanes compare once more."""
    x = np.random.default_rng(11).standard_normal((2, 6, 6)).astype(np.float32)
    order = np.argsort(-x[0, 0], kind="stable")[:3]
    with Context(CHECK=0, SPEC=1):
        table = Tensor(x)
        values, positions = table[0, 0].topk(3)
        found = (values.unsqueeze(1) + table[1][positions]).numpy()
    np.testing.assert_array_equal(found, x[0, 0][order][:, None] + x[1][order])


def test_a_register_with_two_updates_is_no_program() -> None:
    loop = UOp(Ops.RANGE, dtypes.int64, (UOp.const(dtypes.int64, 3),), (0, None))
    register = UOp(Ops.ACCUMULATOR, dtypes.int32, (UOp.const(dtypes.int32, 0), loop), 0)
    totals = [
        UOp(Ops.RESULT, dtypes.int32, (UOp(Ops.UPDATE, dtypes.int32, (register, register + k)),))
        for k in (1, 2)
    ]
    memory = UOp(Ops.PARAM, dtypes.int32, (), (0, 1))
    at = UOp(Ops.INDEX, dtypes.int32, (memory, UOp.const(dtypes.int64, 0)))
    for value, is_one in ((totals[0] + totals[0], True), (totals[0] + totals[1], False)):
        root = UOp(Ops.SINK, dtypes.void, (UOp(Ops.STORE, dtypes.void, (at, value)),))
        if is_one:
            check_form(Form.PROGRAM, root)
        else:
            with pytest.raises(FormError, match="another UPDATE changes the same register"):
                check_form(Form.PROGRAM, root)
