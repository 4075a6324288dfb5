"""Seed lines F01 to F12: gradients."""

from __future__ import annotations

import numpy as np
import pytest
from seed_lines import run_snippet

from proofgrad import Tensor, commands, custom_vjp, gradcheck


def test_F01_gradient_of_a_polynomial() -> None:
    """`grad, = loss.gradient(x)` is 7.0"""
    ran = run_snippet(
        """\
x = Tensor([2.0], requires_grad=True)
y = x**2 + 3*x + 1
loss = y.sum()

print(x.item()) # 2.0
print(y.item()) # 4 + 6 + 1 = 11
grad, = loss.gradient(x)
print(grad.item()) # 7.0
""",
        Tensor=Tensor,
    )
    assert ran.printed == ["2.0", "11.0", "7.0"]


def test_F02_gradient_by_the_chain_rule() -> None:
    """d log(x² + 1) at 2 is 0.8; log(5) is 1.6094379"""
    ran = run_snippet(
        """\
x = Tensor([2.0], requires_grad=True)
z = (x**2 + 1).log()
loss = z.sum()

print(x.item()) # 2.0
print(z.item()) # log(2^2 + 1) = log(5)
grad, = loss.gradient(x)
print(grad.item()) # 0.8
""",
        Tensor=Tensor,
    )
    assert ran.printed[0] == "2.0"
    assert float(ran.printed[1]) == pytest.approx(1.6094379, rel=1e-7)
    assert float(ran.printed[2]) == pytest.approx(0.8, rel=1e-6)


def test_F03_requires_grad_is_an_argument() -> None:
    """`Tensor([2.0], requires_grad=True)`; None is implicit (D-6)"""
    ran = run_snippet("""\
from tinygrad import Tensor

# Gradient tracking is enabled with requires_grad=True
# (or automatically when a leaf tensor needs grad)
x = Tensor([2.0, 3.0], requires_grad=True)
y = (x * x).sum()          # y = sum(x^2)

y.backward()               # computes dy/dx = 2x

print(x.grad.numpy())      # [4. 6.]  - correct: d(sum(x^2))/dx = 2x
""")
    assert ran.printed == ["[4. 6.]"]
    a, b = Tensor([2.0], requires_grad=False), Tensor([3.0])
    (a * b).sum().backward()
    assert a.grad is None and b.grad is not None and b.grad.item() == 2.0


def test_F04_leaves_get_gradients_without_asking() -> None:
    """`Tensor([1., 2., 3.])` has `.grad` after `(x * y).sum().backward()`"""
    ran = run_snippet("""\
from tinygrad.tensor import Tensor

# Create tensors
x = Tensor([1.0, 2.0, 3.0])
y = Tensor([4.0, 5.0, 6.0])

# Operations build a computation graph
z = (x * y).sum()

# Backward computes gradients
z.backward()
print(x.grad)  # Gradient of z w.r.t. x
""")
    assert ran["x"].grad.tolist() == [4.0, 5.0, 6.0] and ran["y"].grad.tolist() == [1.0, 2.0, 3.0]


def test_F05_backward_of_one_element_of_any_shape() -> None:
    """`y.backward()` where y has the shape (1,)"""
    cube = run_snippet(
        """\
# Forward pass
x = Tensor([2.0], requires_grad=True)
y = x * x * x  # y = x^3

# Backward pass
y.backward()

# Gradient computation:
# dy/dx = 3x^2 = 3 * 4 = 12
print(x.grad.numpy())  # [12.0]
""",
        Tensor=Tensor,
    )
    assert cube.printed == ["[12.]"]
    line = run_snippet(
        """\
x = Tensor([1.0], requires_grad=True)

# Step 1: x + 2
temp1 = x + 2
# Step 2: temp1 * 3
y = temp1 * 3

# Backward pass
y.backward()
print(x.grad)  # [3.0]
""",
        Tensor=Tensor,
    )
    assert line["x"].grad.tolist() == [3.0]


def test_F06_gradients_accumulate() -> None:
    """`.grad.numpy()`; two backward calls add up"""
    x = Tensor([1.0, 2.0], requires_grad=True)
    for times in (1, 2):
        (x * x).sum().backward()
        assert x.grad is not None
        assert np.array_equal(x.grad.numpy(), [2.0 * times, 4.0 * times])
    assert "grad <UOp" in repr(x)


def test_F07_zero_grad_forgets() -> None:
    """zero_grad sets `.grad = None`"""
    from proofgrad.nn.optim import SGD

    x = Tensor([1.0], requires_grad=True)
    (x * 3).backward()
    SGD([x], lr=0.1).zero_grad()
    assert x.grad is None


def test_F08_gradients_of_gradients() -> None:
    """reverse order of the graph, ones to start with; also a second time"""
    x = Tensor([2.0], requires_grad=True)
    (first,) = (x**4).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    (third,) = second.sum().gradient(x)
    assert [first.item(), second.item(), third.item()] == pytest.approx(
        [32.0, 48.0, 48.0], rel=1e-6
    )


def test_F09_gradients_by_hand() -> None:
    """2x; x for w; sigmoid (1 - sigmoid)"""
    x = Tensor([0.5, -1.0, 2.0], requires_grad=True)
    w = Tensor([3.0, 4.0, 5.0], requires_grad=True)
    assert x.pow(2).sum().gradient(x)[0].tolist() == pytest.approx([1.0, -2.0, 4.0], rel=1e-6)
    assert (x * w).sum().gradient(w)[0].tolist() == [0.5, -1.0, 2.0]
    s = 1 / (1 + np.exp(-x.numpy()))
    found = x.sigmoid().sum().gradient(x)[0].numpy()
    np.testing.assert_allclose(found, s * (1 - s), rtol=1e-5)


def test_F10_gradients_are_checked_by_differences() -> None:
    """(f(x + ε) - f(x - ε)) / 2ε"""
    x = Tensor(np.array([0.3, -1.7, 2.2]))

    def huber(t: Tensor) -> Tensor:
        return (t.abs() < 1).where(t * t * 0.5, t.abs() - 0.5)

    assert gradcheck(huber, x) is True
    assert gradcheck(lambda t: t * ((t * t).mean() + 1e-6).rsqrt(), x) is True


def test_F11_operation_of_ones_own_with_a_backward_function() -> None:
    """an operation with a backward function: `Context([x], backward)`, here `@custom_vjp`"""

    @custom_vjp
    def my_custom_op(x: Tensor) -> Tensor:
        return x.zeros_like()

    @my_custom_op.backward
    def _(grad_output: Tensor, *_: Tensor) -> Tensor:
        return grad_output * 2  # example gradient, as in the document

    x = Tensor([1.0, 5.0], requires_grad=True)
    y = my_custom_op(x)
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0]
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]


def test_F12_rules_of_gradients_can_be_read() -> None:
    """read the backward functions of Mul, Add, Sum"""
    text = commands.rules("gradient")
    for op in ("mul", "add", "exp2", "where"):
        assert op in text
