"""Of an axis that a variable bounds as much is computed and stored as the value bound now asks for, not as the largest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import pytest

from proofgrad import Context, Tensor, Variable
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.verify.sampled.kernels import ValueChecker
from proofgrad.verify.sampled.nesting import Nesting

# The largest value, the one that is bound, and elements of a row.
MOST, BOUND, DEPTH = 1 << 14, 3, 64
X = np.random.default_rng(0).integers(-4, 5, (12, DEPTH)).astype(np.float32)


class Kept(ValueChecker):
    """Keeps the Linear forms of all kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[UOp] = []

    def kernels(self, body: UOp, kernels: Sequence[Kernel]) -> None:
        self.made += [k.source.program for k in kernels if k.source.program is not None]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    made = Kept()
    for name, value in (("value_check", made), ("_kernels", KnownKernels(9)), ("_plans", {})):
        monkeypatch.setattr(compiler(), name, value)
    return made


def rows(dtype: str = "float32") -> Tensor:
    return Tensor(X.astype(dtype))[: Variable("n", 1, MOST).bind(BOUND)]


def weights() -> np.ndarray:
    return np.random.default_rng(1).integers(-4, 5, (64, 128)).astype(np.float32)


PROGRAMS: dict[str, tuple[Callable[[], Tensor], Callable[[], np.ndarray]]] = {
    "rows by rows": (lambda: rows() @ rows().T, lambda: X[:3] @ X[:3].T),
    "rows by a matrix": (lambda: rows() @ Tensor(weights()), lambda: X[:3] @ weights()),
    "a matrix by columns": (lambda: Tensor(weights()).T @ rows().T, lambda: weights().T @ X[:3].T),
    "computed rows": (lambda: (rows() * 2 + 1) @ Tensor(weights()), lambda: (X[:3] * 2 + 1) @ weights()),
    "what is computed of all": (
        lambda: (Tensor(X) * 2 + 1)[: Variable("n", 1, MOST).bind(BOUND)] @ Tensor(weights()),
        lambda: (X[:3] * 2 + 1) @ weights(),
    ),
    "bytes": (
        lambda: rows("int8").dot(rows("int8").T, dtype="int32"),
        lambda: (X[:3] @ X[:3].T).astype(np.int32),
    ),
    "brain floats": (
        lambda: (rows().cast("bfloat16") @ Tensor(weights()).cast("bfloat16")).cast("float32"),
        lambda: X[:3] @ weights(),
    ),
    "attention": (
        lambda: rows().reshape(1, Variable("n", 1, MOST).bind(BOUND), 64).scaled_dot_product_attention(
            rows().reshape(1, Variable("n", 1, MOST).bind(BOUND), 64),
            rows().reshape(1, Variable("n", 1, MOST).bind(BOUND), 64),
        ),
        lambda: _attention(X[:3]),
    ),
}  # fmt: skip


def _attention(x: np.ndarray) -> np.ndarray:
    scores = np.exp(x @ x.T / 8.0)
    found: np.ndarray = (scores / scores.sum(1, keepdims=True) @ x)[None]
    return found


def _elements(linear: UOp) -> int:
    """How many a kernel stores, where each loop that a variable ends runs once: those of threads and tiles at the least."""
    nests = Nesting(linear).of_stores()
    sizes = {
        store: [x.src[0].arg for x in nest if x.src[0].op is Ops.CONST]
        for store, nest in nests.items()
    }
    return sum([prod(each) * store.src[1].dtype.lanes for store, each in sizes.items()])


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_stores_as_much_as_the_largest_value_of_a_variable(name: str, kept: Kept) -> None:
    """A table of all rows that there may be is thousands of times what three rows need. Matrix units still take all tiles."""
    program, expected = PROGRAMS[name]
    with Context(CHECK=1, CHOICES="matrices=none"):
        found = program().contiguous().numpy()
    np.testing.assert_allclose(found, expected(), rtol=2e-2 if name == "brain floats" else 1e-5)
    stored = [_elements(linear) for linear in kept.made]
    assert stored and max(stored) < MOST * DEPTH // 4
