"""Seed lines C01 to C12: making Tensors, their properties, their values."""

from __future__ import annotations

import re

import numpy as np
import pytest
from seed_lines import ROOT, Count, run_snippet

from proofgrad import Device, Ops, ShapeError, Tensor, dtypes


def test_C01_list_of_ints() -> None:
    """`Tensor([1, 2, 3, 4])`: shape (4,), int"""
    run_snippet(
        """\
from tinygrad import Tensor, dtypes

t = Tensor([1, 2, 3, 4])

# Examine the tensor properties
assert t.device == Device.DEFAULT
assert t.dtype == dtypes.int
assert t.shape == (4,)
""",
        Device=Device,
    )


def test_C02_nested_lists_and_arrays() -> None:
    """lists of floats, nested lists, numpy arrays"""
    ran = run_snippet("""\
from tinygrad import Tensor
import numpy as np

# From Python lists
t = Tensor([1, 2, 3, 4])
n = Tensor([[1, 2], [3, 4]])
f = Tensor([1.0, 2.0, 3.0])

# From numpy
t = Tensor(np.array([[1.0, 2.0], [3.0, 4.0]]))
""")
    assert ran["n"].shape == (2, 2) and ran["n"].tolist() == [[1, 2], [3, 4]]
    assert ran["f"].dtype is dtypes.float32
    assert ran["t"].dtype is dtypes.float64  # as the array
    assert np.array_equal(ran["t"].numpy(), [[1.0, 2.0], [3.0, 4.0]])


def test_C03_factories() -> None:
    """zeros, ones, randn, rand, arange, eye"""
    ran = run_snippet(
        """\
z = Tensor.zeros(3, 4)
o = Tensor.ones(3, 4)
n = Tensor.randn(3, 4)         # normal distribution
r = Tensor.rand(3, 4)          # uniform [0, 1)
a = Tensor.arange(0, 10, 2)    # [0, 2, 4, 6, 8]
e = Tensor.eye(4)              # identity matrix
""",
        Tensor=Tensor,
    )
    assert [ran[name].shape for name in "zonr"] == [(3, 4)] * 4
    assert ran["z"].sum().item() == 0 and ran["o"].sum().item() == 12
    assert ran["a"].tolist() == [0, 2, 4, 6, 8] and ran["a"].dtype is dtypes.int
    assert np.array_equal(ran["e"].numpy(), np.eye(4))
    Tensor.manual_seed(1)
    normal, uniform = Tensor.randn(20_000).numpy(), Tensor.rand(20_000).numpy()
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01


def test_C04_glorot_uniform_and_zeros_like() -> None:
    """`Tensor.glorot_uniform(out, in[, k, k])`, `zeros_like`, `Tensor.rand(100, 200)`"""
    weight = Tensor.glorot_uniform(30, 20, 3, 3)
    bound = (6 / (30 + 20 * 9)) ** 0.5
    values = np.abs(weight.numpy())
    assert weight.shape == (30, 20, 3, 3)
    assert 0.95 * bound < values.max() <= bound
    zeros = Tensor.zeros_like(Tensor.rand(100, 200))
    assert zeros.shape == (100, 200) and not zeros.numpy().any()


def test_C05_properties() -> None:
    """`.shape .dtype .device .grad .requires_grad .uop .T`; `.lazydata` is an alias (D-4)"""
    t = Tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    assert (t.shape, t.dtype, t.device) == ((1, 3), dtypes.float, Device.DEFAULT)
    assert t.grad is None and t.requires_grad is True
    assert t.T.shape == (3, 1)
    assert t.lazydata is t.uop


def test_C06_print_shows_the_specification() -> None:
    """`print(t)` shows device, shape, type, operation, gradient and runs nothing"""
    with Count() as kernels:
        ran = run_snippet("""\
from tinygrad import Tensor

t = Tensor([1, 2, 3, 4])
print(t)
# <Tensor <UOp CPU (4,) int (<Ops.COPY: 7>, None)> on CPU with grad None>
""")
    assert re.fullmatch(
        r"<Tensor <UOp CPU \(4,\) int \(.*Ops\.COPY.*\)> on CPU with grad None>", ran.printed[0]
    )
    assert kernels.count == 0 and ran["t"].uop.op is Ops.COPY


def test_C07_values_come_out() -> None:
    """`.tolist()`, `.item()`, `.numpy()`; `.item()` of many elements is an error"""
    ran = run_snippet("""\
from tinygrad import Tensor

t = Tensor([1, 2, 3, 4])
print(t)

# Basic operations work as expected
doubled = t * 2
print(doubled.tolist())  # [2, 4, 6, 8]
""")
    assert ran.printed[1] == "[2, 4, 6, 8]"
    assert ran["t"].sum().item() == 10
    assert ran["t"].numpy().tolist() == [1, 2, 3, 4]
    with pytest.raises(ShapeError, match="4 elements"):
        ran["t"].item()


def test_C08_realize_returns_the_same_tensor() -> None:
    """`t.realize() is t`; a second call runs nothing"""
    t = Tensor([3, 1, 2]) + 1
    with Count() as first:
        assert t.realize() is t
    with Count() as second:
        t.realize()
    assert (first.count, second.count) == (1, 0)


def test_C09_numpy_is_a_copy() -> None:
    """`.numpy()` realises and copies"""
    t = Tensor([1, 2, 3]).realize()
    array = t.numpy()
    array[:] = 0
    assert t.tolist() == [1, 2, 3]


def test_C10_realized_tensor_is_a_new_buffer() -> None:
    """after `realize` the node is a BUFFER with a fresh UNIQUE"""
    t = Tensor([1, 2, 3, 4])
    before = t.uop.src[0].src[0].arg
    run_snippet("t.realize()\nprint(t.uop)", t=t)
    assert t.uop.op is Ops.BUFFER
    assert t.uop.src[0].op is Ops.UNIQUE and t.uop.src[0].arg != before
    assert t.uop.src[1].arg == "CPU"


def test_C11_values_format() -> None:
    """`f"{loss.numpy()}"`, `f"{loss.item():.4f}"`"""
    ran = run_snippet(
        """\
print(f"Epoch {epoch}, Loss: {loss.numpy()}")
print(f"step {epoch}, loss={loss.item():.4f}")
""",
        epoch=3,
        loss=Tensor([0.5, 1.0]).mean(),
    )
    assert ran.printed == ["Epoch 3, Loss: 0.75", "step 3, loss=0.7500"]


def test_C12_documents_are_utf8() -> None:
    """documents are UTF-8, without letters that were decoded wrongly"""
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_bytes().decode("utf-8")
        assert not re.search(
            "[\u00c3\u00e2\u00fc][\u0080-\u00bf\u2020\u201a-\u201e\u02c6\u2030]", text
        )
