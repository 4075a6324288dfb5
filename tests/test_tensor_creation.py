"""Making Tensors, and reading them out."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from tensors import assert_same, machine

from proofgrad import Device, DeviceError, DtypeError, ShapeError, Tensor, dtypes

__all__ = ["machine"]


@pytest.mark.parametrize(
    ("data", "shape", "dtype"),
    [
        ([1, 2, 3, 4], (4,), dtypes.int32),
        ([[1.0, 2], [3, 4]], (2, 2), dtypes.float32),
        ([True, False], (2,), dtypes.bool),
        ([True, 2], (2,), dtypes.int32),
        (3, (), dtypes.int32),
        (2.5, (), dtypes.float32),
        (range(5), (5,), dtypes.int32),
        ([], (0,), dtypes.float32),
        ([[], []], (2, 0), dtypes.float32),
        (b"\x01\xff", (2,), dtypes.uint8),
    ],
)
def test_tensor_of_python_data_has_its_shape_and_type(machine, data, shape, dtype) -> None:
    t = Tensor(data)
    assert (t.shape, t.dtype) == (shape, dtype)
    listed = list(data) if isinstance(data, (range, bytes)) else data
    assert t.tolist() == listed


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if d is not dtypes.bfloat16])
def test_tensor_of_a_numpy_array_gives_it_back(machine: str, dtype) -> None:
    array = np.array([[0, 1, 2], [3, 4, 1]]).astype(dtype.name)
    t = Tensor(array)
    assert t.dtype is dtype
    assert_same(t, array)


def test_tensor_of_strided_big_endian_array_is_read_in_order(machine: str) -> None:
    array = np.arange(12, dtype=">i4").reshape(3, 4).T[::2]
    assert Tensor(array).tolist() == array.tolist()


def test_tensor_copies_numpy_in_both_directions(machine: str) -> None:
    array = np.array([1, 2, 3], np.int32)
    t = Tensor(array)
    array[0] = 9
    out = t.numpy()
    out[1] = 9
    assert t.tolist() == [1, 2, 3]


def test_bfloat16_holds_rounded_values(machine: str) -> None:
    t = Tensor([1.0, 1.00390625, 3.14159], dtype="bfloat16")
    assert t.tolist() == [1.0, 1.0, 3.140625]
    assert t.numpy().dtype == np.float32


def test_tensor_of_tensors_stacks_them(machine: str) -> None:
    assert Tensor([Tensor(1), Tensor(2)]).tolist() == [1, 2]
    assert Tensor([Tensor([1, 2]), Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]


def test_constants_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OverflowError, match="300 does not fit int8, which holds -128 to 127"):
        Tensor([300], dtype="int8")
    with pytest.raises(OverflowError, match="2147483648 does not fit int32"):
        Tensor([2**31])
    with pytest.raises(OverflowError, match="-1 does not fit uint8"):
        Tensor.full((2,), -1, dtype="uint8")


def test_ragged_lists_are_refused_with_both_lengths() -> None:
    with pytest.raises(ShapeError, match="axis 1 one part has 2 elements and another 1"):
        Tensor([[1, 2], [3]])
    with pytest.raises(ShapeError, match="ragged"):
        Tensor([1, [2, 3]])


def test_unknown_dtype_names_near_ones() -> None:
    with pytest.raises(DtypeError, match="did you mean float32"):
        Tensor([1], dtype="float31")
    with pytest.raises(DtypeError, match="str elements"):
        Tensor(["a"])


def test_unknown_device_names_near_ones() -> None:
    with pytest.raises(DeviceError, match="did you mean CUDA"):
        Tensor([1], device="CUDDA")
    with pytest.raises(DeviceError):
        Device.DEFAULT = "QCOM"


def test_mixed_devices_are_refused_with_both_names() -> None:
    with pytest.raises(DeviceError, match="CPU and REFERENCE"):
        Tensor([1], device="CPU") + Tensor([1], device="REFERENCE")


def test_factories_agree_with_numpy(machine: str) -> None:
    assert_same(Tensor.zeros(2, 3), np.zeros((2, 3), "f"))
    assert_same(Tensor.ones((2, 3)), np.ones((2, 3), "f"))
    assert_same(Tensor.full((2,), 7), np.full((2,), 7, "int32"))
    assert_same(Tensor.eye(3), np.eye(3, dtype="f"))
    assert_same(Tensor.eye(2, 3, dtype="int32"), np.eye(2, 3, dtype="int32"))
    assert_same(Tensor.zeros(0, 3), np.zeros((0, 3), "f"))
    assert_same(Tensor.ones(3, dtype="int8").zeros_like(), np.zeros(3, "int8"))


@pytest.mark.parametrize(
    "bounds", [(5,), (2, 7), (0, 10, 2), (10, 0, -3), (5, 5), (0, 10, 3), (-4, 4)]
)
def test_arange_of_integers_agrees_with_numpy(machine: str, bounds: tuple[int, ...]) -> None:
    assert_same(Tensor.arange(*bounds), np.arange(*bounds, dtype="int32"))


@pytest.mark.parametrize("bounds", [(0.0, 1.0, 0.25), (5.0,), (1.0, -1.0, -0.5), (0, 1, 0.3)])
def test_arange_of_floats_agrees_with_numpy(machine: str, bounds: tuple[float, ...]) -> None:
    expected = np.arange(*bounds)
    t = Tensor.arange(*bounds)
    assert t.shape == expected.shape
    np.testing.assert_allclose(t.numpy(), expected, rtol=1e-6)


def test_linspace_includes_both_ends(machine: str) -> None:
    assert Tensor.linspace(0, 1, 5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert Tensor.linspace(3, 9, 1).tolist() == [3.0]


def test_tril_and_triu_agree_with_numpy(machine: str) -> None:
    x = np.arange(12, dtype="int32").reshape(3, 4)
    for k in (-1, 0, 2):
        assert_same(Tensor(x).tril(k), np.tril(x, k))
        assert_same(Tensor(x).triu(k), np.triu(x, k))


def test_one_hot_marks_the_named_class(machine: str) -> None:
    assert Tensor([2, 0]).one_hot(3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_item_of_one_element_is_a_python_number(machine: str) -> None:
    assert Tensor([[3]]).item() == 3
    assert (float(Tensor([2.5])), int(Tensor(7)), bool(Tensor([0.0]))) == (2.5, 7, False)
    assert [1, 2, 3][Tensor(1)] == 2
    with pytest.raises(ShapeError, match="3 elements"):
        Tensor([1, 2, 3]).item()


def test_data_is_a_memoryview_of_the_shape(machine: str) -> None:
    view = Tensor([[1, 2], [3, 4]]).data()
    assert (view.shape, view.format, view[1, 0]) == ((2, 2), "i", 3)


def test_numpy_takes_tensors_as_arrays(machine: str) -> None:
    t = Tensor([1.0, 2.0])
    assert np.asarray(t).dtype == np.float32
    product = np.ones(2, "f") * t
    assert isinstance(product, Tensor)
    assert (t * np.array([2.0, 3.0], "f")).tolist() == [2.0, 6.0]
    assert (t + np.float32(1)).tolist() == [2.0, 3.0]


def test_iteration_and_length_go_over_the_first_axis(machine: str) -> None:
    t = Tensor([[1, 2], [3, 4]])
    assert len(t) == 2
    assert [row.tolist() for row in t] == [[1, 2], [3, 4]]
    with pytest.raises(TypeError):
        iter(Tensor(1))


def test_properties_describe_the_tensor() -> None:
    t = Tensor([[1, 2, 3]], dtype="int16")
    assert (t.ndim, t.numel(), t.nbytes(), t.element_size(), t.size(), t.size(1)) == (
        2, 3, 6, 2, (1, 3), 3,
    )  # fmt: skip
    assert not t.is_floating_point()


def test_repr_shows_what_there_is_to_compute_and_computes_nothing() -> None:
    t = Tensor([1, 2, 3, 4]) * 2
    assert repr(t) == "<Tensor <UOp CPU (4,) int (Ops.MUL, None)> on CPU with grad None>"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_pickled_and_copied_tensors_keep_values_and_settings(machine: str, dtype: str) -> None:
    t = Tensor([[0, 1], [1, 1]], dtype=dtype, requires_grad=False) + 0
    for other in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert (other.tolist(), other.dtype, other.device) == (t.tolist(), t.dtype, t.device)
    assert copy.deepcopy(Tensor([1.0], requires_grad=True)).requires_grad is True


def test_comparison_with_none_is_false_as_for_other_objects() -> None:
    t = Tensor([1])
    assert (t == None) is False  # noqa: E711
    assert (t != None) is True  # noqa: E711


# -- numbers -------------------------------------------------------------------------------------


def test_a_number_has_no_say_in_the_type_of_a_result() -> None:
    for dtype in (dtypes.uint8, dtypes.int8, dtypes.int64, dtypes.half, dtypes.float64):
        x = Tensor([1], dtype=dtype)
        assert (x + Tensor(2)).dtype is (Tensor(2) * x).dtype is (x + 2).dtype is dtype
        assert (x + Tensor(2.5)).dtype is (x + 2.5).dtype
        assert (x + Tensor(True)).dtype is dtype
    assert (Tensor([True]) + Tensor(1)).dtype is dtypes.default_int
    assert (Tensor(2) + Tensor(2.5)).dtype is dtypes.default_float
    assert (Tensor(2, dtype="int64") + Tensor([1], dtype="int8")).dtype is dtypes.int64
    assert (Tensor([2]) + Tensor([1], dtype="int8")).dtype is dtypes.int32


def test_the_gradient_of_a_number_has_its_type() -> None:
    x = Tensor([1.0, 2.0], dtype="half", requires_grad=True)
    scale = Tensor(0.5, requires_grad=True)
    (x * scale).sum().backward()
    assert scale.grad is not None and (scale.grad.item(), scale.grad.dtype) == (3.0, dtypes.float32)


def test_nothing_is_a_tensor_of_no_elements() -> None:
    assert Tensor(None).shape == (0,) and Tensor(None).tolist() == []


@pytest.mark.parametrize(
    "name", ("zeros", "ones", "randperm", "zeros_like", "ones_like", "empty_like")
)
def test_a_keyword_that_there_is_not_is_told_of_the_method_that_was_asked(name: str) -> None:
    owner = Tensor([1]) if name.endswith("like") else Tensor
    sizes = () if name.endswith("like") else (2,)
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'dtyp'"):
        getattr(owner, name)(*sizes, dtyp=1)


def test_lists_of_numbers_of_numpy_beside_those_of_python_are_numbers() -> None:
    assert Tensor([np.float32(1.5), 2]).tolist() == [1.5, 2.0]
    whole = Tensor([[np.int64(3), 4], [5, np.uint8(6)]])
    assert whole.tolist() == [[3, 4], [5, 6]] and whole.dtype is dtypes.int32
    assert Tensor([np.float32(1.5), 2], dtype="float64").dtype is dtypes.float64
    assert Tensor([np.True_, False]).dtype is dtypes.bool
    assert Tensor([[np.True_], [2.5]]).tolist() == [[1.0], [2.5]]
