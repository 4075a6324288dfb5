"""Kernels that users write: those that are Tensor programs are right, the others are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proofgrad import DeviceError, Ops, ShapeError, Tensor, TinyJit, UOp, dtypes
from proofgrad.dtype import AddrSpace
from proofgrad.uop.ops import AxisType, KernelInfo


def add(out: Any, a: Any, b: Any) -> Any:
    out, a, b = out.flatten(), a.flatten(), b.flatten()
    i = UOp.range(out.size, 0)
    return out[i].store(a[i] + b[i]).end(i).sink(arg=KernelInfo(name=f"add_{out.size}"))


def product(out: Any, a: Any, b: Any) -> Any:
    i, j = UOp.range(out.shape[0], 0), UOp.range(out.shape[1], 1)
    k = UOp.range(a.shape[1], 2, axis_type=AxisType.REDUCE)
    out = out[i, j].set(0.0)
    out = out[i, j].set(out.after(k)[i, j] + a[i, k] * b[k, j], end=k)
    return out.end(i, j).sink(arg=KernelInfo(name="product", opts_to_apply=()))


def total(out: Any, a: Any) -> Any:
    i = UOp.range(a.shape[0], 0, AxisType.REDUCE)
    out = out[0].set(0.0)
    return out[0].set(out.after(i)[0] + a[i], end=i).sink(arg=KernelInfo(name="total"))


def greatest_of_rows(out: Any, a: Any) -> Any:
    row = UOp.range(a.shape[0], 0)
    line = a[row, :]
    own = UOp.placeholder((1,), out.dtype.base, 0, addrspace=AddrSpace.REG)
    own = own.after(row)[0].set(-100)
    k = UOp.range(a.shape[1], 1, AxisType.REDUCE)
    own = own[0].set(own.after(k)[0].maximum(line[k]), end=k)
    return out[row].set(own[0], end=row).sink()


def attention(out: Any, q: Any, k: Any, v: Any) -> Any:
    n, d = q.shape
    i, column = UOp.range(n, 0), UOp.range(d, 1)
    j, inner = (
        UOp.range(n, 2, axis_type=AxisType.REDUCE),
        UOp.range(d, 3, axis_type=AxisType.REDUCE),
    )
    score = UOp.placeholder((1,), q.dtype.base, 0, addrspace=AddrSpace.REG)
    score = score.after(i, j)[0].set(0.0)
    score = score[0].set(score.after(inner)[0] + q[i, inner] * k[j, inner], end=inner)
    acc = UOp.placeholder((1,), q.dtype.base, 1, addrspace=AddrSpace.REG)
    acc = acc.after(i, column)[0].set(0.0)
    acc = acc[0].set(acc.after(j)[0] + score[0] / (d**0.5) * v[j, column], end=j)
    return out[i, column].store(acc[0]).end(column).end(i).sink(arg=KernelInfo(name="attention"))


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(4, 4), (1, 1), (3, 7), (0, 5), (5,), ()])
def test_elements_of_every_shape(shape: tuple[int, ...]) -> None:
    a, b = drawn(*shape), drawn(*shape, 1).reshape(shape)
    out = Tensor.empty(*shape).custom_kernel(Tensor(a), Tensor(b), fxn=add)
    assert out[0].shape == shape
    assert out[0].tolist() == (a + b).tolist()
    assert out[1].tolist() == a.tolist()  # as it was


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize(
    "sizes", [(16, 16, 16), (3, 5, 7), (1, 1, 1), (2, 0, 3), (0, 2, 2), (1, 8, 1)]
)
def test_product_is_that_of_tensors(sizes: tuple[int, int, int], device: str) -> None:
    n, k, m = sizes
    a, b = Tensor(drawn(n, k), device=device), Tensor(drawn(k, m), device=device)
    out = Tensor.empty(n, m, device=device).custom_kernel(a, b, fxn=product)[0]
    np.testing.assert_allclose(out.numpy(), a.numpy() @ b.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.int8, dtypes.float16])
def test_sum_has_the_type_of_the_position(dtype: Any) -> None:
    a = Tensor([1, 2, 3, 4, 5], dtype=dtype)
    out = Tensor.custom_kernel(Tensor.empty(1, dtype=dtype), a, fxn=total)[0]
    assert (out.dtype, out.tolist()) == (dtype, [15])


def test_sum_in_int8_wraps_as_the_position_does() -> None:
    out = Tensor.empty(1, dtype="int8").custom_kernel(Tensor([100, 100], dtype="int8"), fxn=total)[
        0
    ]
    assert out.tolist() == [-56]


def test_position_of_its_own_and_a_part_of_an_argument() -> None:
    a = drawn(5, 9)
    out = Tensor.empty(5).custom_kernel(Tensor(a), fxn=greatest_of_rows)[0]
    assert out.tolist() == a.max(1).tolist()


def test_accumulations_within_each_other() -> None:
    q, k, v = drawn(8, 4), drawn(4, 8).T.copy(), drawn(8, 4) + 1
    out = Tensor.empty(8, 4).custom_kernel(Tensor(q), Tensor(k), Tensor(v), fxn=attention)[0]
    np.testing.assert_allclose(out.numpy(), (q @ k.T) / 2.0 @ v, rtol=1e-5, atol=1e-5)


def test_counters_are_values() -> None:
    def eye(out: Any) -> Any:
        i, j = UOp.range(out.shape[0], 0), UOp.range(out.shape[1], 1)
        return out[i, j].store(i.eq(j).cast(out.dtype.base)).end(i, j).sink()

    def count(out: Any) -> Any:
        i = UOp.range(out.size, 0)
        return out[i].store((i * 3 + 1).cast(out.dtype)).end(i).sink()

    assert Tensor.empty(3, 4).custom_kernel(fxn=eye)[0].tolist() == np.eye(3, 4).tolist()
    assert Tensor.empty(4, dtype="int32").custom_kernel(fxn=count)[0].tolist() == [1, 4, 7, 10]


def test_two_results_and_transposed_reading() -> None:
    def both(c: Any, d: Any, a: Any) -> Any:
        i, j = UOp.range(c.shape[0], 0), UOp.range(c.shape[1], 1)
        written = UOp.group(c[i, j].store(a[j, i] * 2), d[i, j].store(a[j, i] - 1.0))
        return written.end(i, j).sink().simplify()

    a = drawn(3, 5)
    c, d, same = Tensor.empty(5, 3).custom_kernel(Tensor.empty(5, 3), Tensor(a), fxn=both)
    assert (c.tolist(), d.tolist()) == ((a.T * 2).tolist(), (a.T - 1).tolist())
    assert same.tolist() == a.tolist()


def test_argument_written_over_reads_what_it_was() -> None:
    def increment(a: Any) -> Any:
        i = UOp.range(a.size, 0)
        return a[i].store(a[i] + 1).end(i).sink()

    a = Tensor([1.0, 2.0])
    assert a.custom_kernel(fxn=increment)[0].tolist() == [2.0, 3.0]
    assert a.tolist() == [1.0, 2.0]


def test_kernel_without_writes_changes_nothing() -> None:
    a = Tensor([5.0])
    assert a.custom_kernel(fxn=lambda _: UOp.sink(arg=KernelInfo()))[0].tolist() == [5.0]


def test_gradient_is_that_of_the_program_or_as_said() -> None:
    a, b = Tensor(drawn(3, 4), requires_grad=True), Tensor(drawn(4, 2), requires_grad=True)
    (Tensor.empty(3, 2).custom_kernel(a, b, fxn=product)[0] * 2).sum().backward()
    assert a.grad is not None and b.grad is not None
    expected = (Tensor.full((3, 2), 2.0) @ b.T).numpy(), (a.T @ Tensor.full((3, 2), 2.0)).numpy()
    np.testing.assert_allclose(a.grad.numpy(), expected[0], rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), expected[1], rtol=1e-5)

    def said(gradient: Any, call: Any) -> Any:
        _, left, right = call.src[1:]
        return None, (Tensor(gradient) @ Tensor(right).T * 10).uop, Tensor(left).T @ gradient

    a.grad = b.grad = None
    out = Tensor.empty(3, 2).custom_kernel(a, b, fxn=product, grad_fxn=said)[0]
    (out * 2).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), expected[0] * 10, rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), expected[1], rtol=1e-5)


def test_gradient_of_several_written_arguments_is_said_once() -> None:
    def sums(out: Any, total: Any, a: Any) -> Any:
        i = UOp.range(3, 0)
        return UOp.group(out[i].store(a[i] * 2), total[i].store(a[i] + 1)).end(i).sink()

    def said(gradients: Any, call: Any) -> Any:
        twice, more = gradients
        return None, None, twice * 10 + more * Tensor(call.src[3])

    a = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    one, other, same = Tensor.empty(3).custom_kernel(Tensor.empty(3), a, fxn=sums, grad_fxn=said)
    assert [t.tolist() for t in (one, other, same)] == [[2.0, 4.0, 6.0], [2.0, 3.0, 4.0], [1, 2, 3]]
    ((one * 3).sum() + (other * Tensor([1.0, 2.0, 3.0])).sum()).backward()
    assert a.grad is not None and a.grad.tolist() == [31.0, 34.0, 39.0]


def test_replay_computes_what_it_is_given() -> None:
    jitted = TinyJit(lambda a, b: Tensor.empty(2, 2).custom_kernel(a, b, fxn=product)[0].realize())
    for k in range(4):
        a = Tensor([[float(k), 1.0], [0.0, 2.0]]).realize()
        assert jitted(a, a).tolist() == (a.numpy() @ a.numpy()).tolist()


# -- what is refused ------------------------------------------------------------------------------------


def carried_over_an_outer_loop(out: Any, a: Any) -> Any:
    i, k = UOp.range(2, 0), UOp.range(3, 1)
    own = UOp.placeholder((1,), out.dtype, 0)[0].set(0.0)  # set once, not in each turn of i
    own = own[0].set(own.after(k)[0] + a[i, k], end=k)
    return out[i].store(own[0]).end(i).sink()


def set_in_the_loop_it_sums_over(out: Any, a: Any) -> Any:
    i, k = UOp.range(2, 0), UOp.range(3, 1)
    own = UOp.placeholder((1,), out.dtype, 0).after(i, k)[0].set(0.0)
    own = own[0].set(own.after(k)[0] + a[i, k], end=k)
    return out[i].store(own[0]).end(i).sink()


def half_of_the_elements(out: Any, a: Any) -> Any:
    i = UOp.range(1, 0)
    return out[i].store(a[i, 0]).end(i).sink()


def diagonal(out: Any, a: Any) -> Any:
    i = UOp.range(2, 0)
    return a[i, i].store(out[i]).end(i).sink()


def last_of_a_loop(out: Any, a: Any) -> Any:
    i, k = UOp.range(2, 0), UOp.range(3, 1)
    return out[i].store(a[i, k]).end(i, k).sink()


def other_elements_of_what_it_writes(out: Any, a: Any) -> Any:
    i, j = UOp.range(2, 0), UOp.range(3, 1)
    flat = a.flatten()
    return a[i, j].store(a[i, j] + flat[0]).end(i, j).sink()


def twice(out: Any, a: Any) -> Any:
    i = UOp.range(2, 0)
    return UOp.group(out[i].store(a[i, 0]), out[i].store(a[i, 1])).end(i).sink()


def beyond(out: Any, a: Any) -> Any:
    i, k = UOp.range(2, 0), UOp.range(9, 1)
    out = out[i].set(0.0)
    return out[i].set(out.after(k)[i] + a[i, k], end=k).end(i).sink()


def by_a_sum_of_counters(out: Any, a: Any) -> Any:
    i = UOp.range(2, 0)
    return out[i].store(a[i, i + 1]).end(i).sink()


def difference(out: Any, a: Any) -> Any:
    i, k = UOp.range(2, 0), UOp.range(3, 1)
    out = out[i].set(0.0)
    return out[i].set(out.after(k)[i].alu(Ops.FDIV, a[i, k]), end=k).end(i).sink()


def squared_sum(out: Any, a: Any) -> Any:
    i, k = UOp.range(2, 0), UOp.range(3, 1)
    out = out[i].set(0.0)
    return out[i].set(out.after(k)[i] + out.after(k)[i] * a[i, k], end=k).end(i).sink()


def unwritten(out: Any, a: Any) -> Any:
    i = UOp.range(2, 0)
    return out[i].store(UOp.placeholder((1,), out.dtype, 0)[0]).end(i).sink()


def of_two_types(out: Any, a: Any) -> Any:
    i = UOp.range(2, 0)
    return out[i].store(a[i, 0] + i).end(i).sink()


@pytest.mark.parametrize(
    "kernel, why",
    [
        (carried_over_an_outer_loop, "not set in"),
        (set_in_the_loop_it_sums_over, "within the loop that it is accumulated over"),
        (half_of_the_elements, "no loop over that axis"),
        (diagonal, "no loop over that axis|some elements are left out"),
        (last_of_a_loop, "only the last is kept"),
        (other_elements_of_what_it_writes, "other elements of an argument that it writes"),
        (twice, "written twice"),
        (beyond, "neither a number nor a loop within it"),
        (by_a_sum_of_counters, "neither a number nor a loop within it"),
        (difference, "accumulated by"),
        (squared_sum, "accumulated by|reads the position"),
        (unwritten, "before it was written"),
        (of_two_types, "cast one of them"),
        (lambda out, a: None, "must give what .sink"),
    ],
)  # fmt: skip
def test_kernel_that_is_more_is_refused(kernel: Any, why: str) -> None:
    with pytest.raises(ValueError, match=f"custom kernel is not taken: .*({why})"):
        Tensor.empty(2).custom_kernel(Tensor(drawn(2, 3)), fxn=kernel)


def test_positions_and_devices_are_checked() -> None:
    with pytest.raises(ShapeError, match="indexed by"):
        Tensor.empty(2).custom_kernel(fxn=lambda out: out[0, 1])
    with pytest.raises(ShapeError, match="cannot become"):
        Tensor.empty(2).custom_kernel(fxn=lambda out: out.reshape(3))
    with pytest.raises(DeviceError):
        Tensor.empty(2).custom_kernel(Tensor([1.0], device="REFERENCE"), fxn=add)
