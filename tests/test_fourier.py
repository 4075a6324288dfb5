"""Fourier transforms of pairs beside torch: values, gradients, lengths, axes, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import GlobalCounters, Ops, ShapeError, Tensor, TinyJit

torch = pytest.importorskip("torch")

# 1, primes, powers, products, a prime that is done as a convolution
SIZES = (1, 2, 3, 12, 13, 34, 60, 131)
# several kernels, and primes that are matrices beside others
LONG = (210, 629)
NORMS = ("backward", "ortho", "forward")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def joined(pairs: np.ndarray) -> Any:
    return torch.view_as_complex(torch.tensor(pairs))


def pairs(found: Any) -> np.ndarray:
    array: np.ndarray = torch.view_as_real(found).numpy()
    return array


@pytest.mark.parametrize("size", SIZES)
def test_transforms_are_torch_s(size: int) -> None:
    x, z = numbers(3, size), numbers(3, size, 2, seed=1)
    close = {"rtol": 1e-9, "atol": 1e-9}
    for norm in NORMS if size == 12 else NORMS[:1]:
        wanted = pairs(torch.fft.fft(joined(z), norm=norm))
        np.testing.assert_allclose(Tensor(z).fft(norm=norm).numpy(), wanted, **close)
        wanted = pairs(torch.fft.ifft(joined(z), norm=norm))
        np.testing.assert_allclose(Tensor(z).ifft(norm=norm).numpy(), wanted, **close)
    half = Tensor(x).rfft()
    np.testing.assert_allclose(half.numpy(), pairs(torch.fft.rfft(torch.tensor(x))), **close)
    np.testing.assert_allclose(half.irfft(size).numpy(), x, **close)
    wanted = torch.fft.irfft(joined(z), n=size).numpy()  # imaginary parts that must be 0 are not
    np.testing.assert_allclose(Tensor(z).irfft(size).numpy(), wanted, **close)


@pytest.mark.parametrize("size", LONG)
def test_long_transforms_are_torch_s_along_any_axis(size: int) -> None:
    x, z = numbers(2, size, 3), numbers(size, 2, seed=1)
    close = {"rtol": 1e-9, "atol": 1e-9}
    half = Tensor(x).rfft(axis=1)
    wanted = pairs(torch.fft.rfft(torch.tensor(x), dim=1))
    np.testing.assert_allclose(half.numpy(), wanted, **close)
    np.testing.assert_allclose(half.irfft(size, axis=1).numpy(), x, **close)
    np.testing.assert_allclose(Tensor(z).fft().numpy(), pairs(torch.fft.fft(joined(z))), **close)


def test_work_grows_as_n_log_n() -> None:
    """Each kernel reads and writes all numbers once, and there is one for three digits of the length."""
    work = []
    for size in (256, 2048):
        x = Tensor(numbers(4, size, 2).astype(np.float32)).realize()
        x.fft().realize()
        GlobalCounters.reset()
        x.fft().realize()
        work.append((GlobalCounters.global_ops / size, GlobalCounters.kernel_count))
    (short, few), (long, many) = work
    assert long < 1.7 * short and few <= 6 and many <= 7


def test_tables_are_made_once() -> None:
    x = Tensor(numbers(4, 270).astype(np.float32)).realize()
    counts = []
    for _ in range(3):
        GlobalCounters.reset()
        found = x.rfft().realize()
        counts.append(GlobalCounters.kernel_count)
        assert found.shape == (4, 136, 2)
    assert counts[1:] == [5, 5]
    assert not [node for node in x.rfft().uop.toposort() if node.op is Ops.COPY]


def test_what_is_no_number_reaches_its_own_transform_only() -> None:
    x = numbers(3, 48)
    x[1, 5], x[2, 7] = np.inf, np.nan
    found = Tensor(x).rfft().numpy()
    np.testing.assert_allclose(found[0], pairs(torch.fft.rfft(torch.tensor(x[0]))), atol=1e-10)
    assert not np.isfinite(found[1:]).any()
    z = numbers(25, 2)
    z[0, 1] = z[24, 1] = np.nan  # imaginary parts that must be 0 are not read
    wanted = torch.fft.irfft(joined(np.nan_to_num(z)), n=48).numpy()
    np.testing.assert_allclose(Tensor(z).irfft(48).numpy(), wanted, atol=1e-10)


@pytest.mark.parametrize("size", (5, 64, 131))
def test_float32_is_as_near_as_it_can_be(size: int) -> None:
    z = numbers(2, size, 2).astype(np.float32)
    wanted = np.fft.fft(z[..., 0].astype(np.float64) + 1j * z[..., 1])
    found = Tensor(z).fft().numpy()
    error = np.abs(found[..., 0] + 1j * found[..., 1] - wanted).max()
    assert found.dtype == np.float32 and error < 1e-6 * np.abs(wanted).max()


@pytest.mark.parametrize(("axis", "n"), [(0, None), (1, 3), (-1, 8), (-2, 11)])
def test_axes_and_lengths(axis: int, n: int | None) -> None:
    x, z = numbers(8, 6, 5), numbers(8, 6, 5, 2)
    wanted = pairs(torch.fft.rfft(torch.tensor(x), n, axis))
    np.testing.assert_allclose(Tensor(x).rfft(n, axis).numpy(), wanted, atol=1e-10)
    wanted = pairs(torch.fft.fft(joined(z), n, axis))
    np.testing.assert_allclose(Tensor(z).fft(n, axis).numpy(), wanted, atol=1e-10)
    wanted = torch.fft.irfft(joined(z), n, axis).numpy()
    np.testing.assert_allclose(Tensor(z).irfft(n, axis).numpy(), wanted, atol=1e-10)


@pytest.mark.parametrize("size", (6, 35, 36))
def test_gradients_are_torch_s(size: int) -> None:
    a = numbers(2, size)
    x, y = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    spectrum, other = x.rfft(), torch.fft.rfft(y)
    weight = numbers(*spectrum.shape, seed=3)
    back = (spectrum * Tensor(weight)).irfft(size)
    theirs = torch.fft.irfft(
        torch.view_as_complex(torch.view_as_real(other) * torch.tensor(weight)), size
    )
    (back.sin().sum() + spectrum.square().sum()).backward()
    (theirs.sin().sum() + torch.view_as_real(other).square().sum()).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_a_convolution_by_transforms_recorded_too() -> None:
    @TinyJit
    def around(a: Tensor, b: Tensor) -> Tensor:
        p, q = a.rfft(), b.rfft()
        real = p[..., 0] * q[..., 0] - p[..., 1] * q[..., 1]
        imaginary = p[..., 0] * q[..., 1] + p[..., 1] * q[..., 0]
        return real.stack(imaginary, dim=-1).irfft(24).realize()

    for seed in range(4):
        a, b = numbers(24, seed=seed), numbers(24, seed=seed + 9)
        wanted = [sum(a[j] * b[(k - j) % 24] for j in range(24)) for k in range(24)]
        found = around(Tensor(a).realize(), Tensor(b).realize())
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-10)


def test_types_are_float32_unless_they_are_float64() -> None:
    assert Tensor([1, 2, 3, 4]).rfft().tolist() == [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]
    kinds = [Tensor([1.0, 2.0], dtype=t).rfft().dtype.name for t in ("half", "float", "double")]
    assert kinds == ["float32", "float32", "float64"]
    assert Tensor.ones(0, 4).rfft().shape == (0, 3, 2)


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no pairs": (lambda: Tensor.ones(4).fft(), ShapeError, "complex numbers as pairs"),
    "no axis": (lambda: Tensor(1.0).rfft(), ShapeError, "1 axis or more"),
    "nothing": (lambda: Tensor.ones(3, 0).rfft(), ShapeError, "of 1 number or more, not of 0"),
    "no length": (lambda: Tensor.ones(1, 2).irfft(), ShapeError, "of 1 number or more, not of 0"),
    "norm": (lambda: Tensor.ones(4).rfft(norm="both"), ValueError, "'backward', 'ortho'"),
    "axis": (lambda: Tensor.ones(4, 2).fft(axis=1), IndexError, "axis"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_transform_is_refused(case: str) -> None:
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()
