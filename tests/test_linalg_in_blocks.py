"""Matrices of several blocks: values beside numpy, gradients beside torch, whatever the last block lacks."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import GlobalCounters, Tensor, TinyJit
from proofgrad.core.tensor.methods.linalg.blocks import (
    BLOCK,
    FEWEST_IN_BLOCKS,
    inverse_of_lower,
    solved_lower,
    solved_upper,
)

# The fewest, one more, and a number of blocks that is no power of two, less one.
SIZES = (FEWEST_IN_BLOCKS, FEWEST_IN_BLOCKS + 1, 3 * BLOCK - 1)
CLOSE = {"rtol": 1e-8, "atol": 1e-9}


def matrices(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def definite(*shape: int) -> np.ndarray:
    x = matrices(*shape)
    return x @ np.swapaxes(x, -1, -2) / shape[-1] + np.eye(shape[-1])


@pytest.mark.parametrize("size", SIZES)
def test_systems_are_solved_as_numpy_solves_them(size: int) -> None:
    a, b = matrices(size, size), matrices(size, 3, seed=1)
    x = Tensor(a)
    np.testing.assert_allclose(x.solve(Tensor(b)).numpy(), np.linalg.solve(a, b), **CLOSE)
    np.testing.assert_allclose(x.inverse().numpy(), np.linalg.inv(a), **CLOSE)
    for found, wanted in zip(x.slogdet(), np.linalg.slogdet(a), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, **CLOSE)


@pytest.mark.parametrize("size", SIZES)
def test_the_factor_is_numpy_s_and_reads_no_upper_part(size: int) -> None:
    a = definite(size, size)
    lower = np.tril(a) + np.triu(np.full_like(a, np.nan), 1)
    np.testing.assert_allclose(Tensor(lower).cholesky().numpy(), np.linalg.cholesky(a), **CLOSE)


def test_each_matrix_of_several_has_its_own_order_of_rows() -> None:
    a, b = matrices(2, 65, 65), matrices(2, 65, 2, seed=1)
    np.testing.assert_allclose(Tensor(a).solve(Tensor(b)).numpy(), np.linalg.solve(a, b), **CLOSE)
    np.testing.assert_allclose(Tensor(a).det().numpy(), np.linalg.det(a), rtol=1e-8)
    spd = definite(2, 65, 65)
    np.testing.assert_allclose(Tensor(spd).cholesky().numpy(), np.linalg.cholesky(spd), **CLOSE)


def test_rows_come_from_behind_their_block() -> None:
    a = np.eye(70)[np.random.default_rng(3).permutation(70)]
    assert Tensor(a).det().item() == pytest.approx(np.linalg.det(a))
    np.testing.assert_array_equal(Tensor(a).inverse().numpy(), a.T)


def test_without_an_inverse_there_are_no_numbers_and_the_determinant_is_zero() -> None:
    a = np.ones((70, 70))
    assert not np.isfinite(Tensor(a).inverse().numpy()).all()
    assert Tensor(a).det().item() == 0
    assert np.isnan(Tensor(-np.eye(70)).cholesky().numpy()).any()


@pytest.mark.parametrize("least", [1.0, 1e-4])
def test_single_precision_is_as_exact_as_lapack_s(least: float) -> None:
    torch = pytest.importorskip("torch")
    a = (matrices(90, 90) * np.geomspace(least, 1, 90)[:, None]).astype(np.float32)
    b = matrices(90, 2, seed=1).astype(np.float32)
    whole = np.linalg.solve(a.astype(np.float64), b.astype(np.float64))
    theirs = torch.linalg.solve(torch.tensor(a), torch.tensor(b)).numpy()
    error = [np.abs(x - whole).max() for x in (Tensor(a).solve(Tensor(b)).numpy(), theirs)]
    assert error[0] < 4 * error[1]


@pytest.mark.parametrize("size", [5, 40, 70])
def test_the_gradient_of_the_factor_is_torch_s(size: int) -> None:
    torch = pytest.importorskip("torch")
    a, weights = matrices(size, size), matrices(size, size, seed=2)
    x, y = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    one = np.eye(size) * size
    ((x @ x.transpose() + Tensor(one)).cholesky() * Tensor(weights)).sum().backward()
    found = torch.linalg.cholesky(y @ y.T + torch.tensor(one))
    (found * torch.tensor(weights)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("size", [4, 40])
def test_second_derivatives_of_the_factor_are_torch_s(size: int) -> None:
    torch = pytest.importorskip("torch")
    a = definite(size, size)
    x, y = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    (first,) = (x + x.transpose()).cholesky().square().square().sum().gradient(x)
    (found,) = first.square().sum().gradient(x)
    loss = torch.linalg.cholesky(y + y.T).square().square().sum()
    (slope,) = torch.autograd.grad(loss, y, create_graph=True)
    (wanted,) = torch.autograd.grad(slope.square().sum(), y)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-7, atol=1e-8)


def test_the_gradient_of_a_factor_eliminates_nothing() -> None:
    a = Tensor(definite(20, 20)).float().realize()
    GlobalCounters.reset()
    a.cholesky().realize()
    forward = GlobalCounters.kernel_count
    a.cholesky().sum().gradient(a)[0].realize()
    assert GlobalCounters.kernel_count - forward < 1.5 * forward


@pytest.mark.parametrize("size", [1, 2, 3, BLOCK - 1, BLOCK + 1, 2 * BLOCK + 5])
def test_triangles_are_solved(size: int) -> None:
    lower = np.tril(matrices(size, size)) / size + np.eye(size) * 2
    b = matrices(size, 2, seed=1)
    x, y = Tensor(lower), Tensor(b)
    np.testing.assert_allclose(inverse_of_lower(x).numpy(), np.linalg.inv(lower), **CLOSE)
    np.testing.assert_allclose(solved_lower(x, y).numpy(), np.linalg.solve(lower, b), **CLOSE)
    turned = solved_upper(x.transpose(), y).numpy()
    np.testing.assert_allclose(turned, np.linalg.solve(lower.T, b), **CLOSE)


def test_recorded_ones_solve_other_matrices() -> None:
    solve = TinyJit(lambda a, b: a.solve(b).realize())
    for k in range(3):
        a, b = matrices(66, 66, seed=k), matrices(66, 1, seed=k + 9)
        found = solve(Tensor(a).realize(), Tensor(b).realize()).numpy()
        np.testing.assert_allclose(found, np.linalg.solve(a, b), **CLOSE)
