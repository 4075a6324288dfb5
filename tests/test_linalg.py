"""Systems of equations, determinants, Cholesky: values beside numpy, gradients beside torch, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import GlobalCounters, Ops, ShapeError, Tensor, TinyJit, gradcheck
from proofgrad.core.tensor.methods.linalg.steps_of_columns import LANES
from proofgrad.core.tensor.runtime.kept_program import KeptProgram

SIZES = (0, 1, 2, 3, 5, 13)


def matrices(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def definite(*shape: int) -> np.ndarray:
    x = matrices(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


@pytest.mark.parametrize("before", [(), (4,), (2, 3)])
@pytest.mark.parametrize("size", SIZES)
def test_each_solves_what_numpy_solves(size: int, before: tuple[int, ...]) -> None:
    a, b = matrices(*before, size, size), matrices(*before, size, 2, seed=1)
    x = Tensor(a)
    close = {"rtol": 1e-8, "atol": 1e-9}
    np.testing.assert_allclose(x.solve(Tensor(b)).numpy(), np.linalg.solve(a, b), **close)
    np.testing.assert_allclose(x.inverse().numpy(), np.linalg.inv(a), **close)
    np.testing.assert_allclose(x.det().numpy(), np.linalg.det(a), **close)
    for found, wanted in zip(x.slogdet(), np.linalg.slogdet(a), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, **close)
    symmetric = definite(*before, size, size)
    factor = Tensor(symmetric).cholesky()
    np.testing.assert_allclose(factor.numpy(), np.linalg.cholesky(symmetric), **close)
    upper = Tensor(symmetric).cholesky(upper=True)
    np.testing.assert_allclose(upper.numpy(), np.swapaxes(factor.numpy(), -1, -2), **close)


@pytest.mark.parametrize("size", [1, LANES - 1, LANES, LANES + 1])
@pytest.mark.parametrize("before", [(LANES - 1,), (LANES,), (LANES + 1,), (5, 7)])
def test_matrices_side_by_side_have_each_its_own_order_of_rows(
    size: int, before: tuple[int, ...]
) -> None:
    a, b = matrices(*before, size, size, seed=size), matrices(*before, size, 2, seed=1)
    x = Tensor(a)
    np.testing.assert_allclose(x.det().numpy(), np.linalg.det(a), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(x.solve(Tensor(b)).numpy(), np.linalg.solve(a, b), atol=1e-8)
    symmetric = definite(*before, size, size)
    np.testing.assert_allclose(
        Tensor(symmetric).cholesky().numpy(), np.linalg.cholesky(symmetric), atol=1e-9
    )


def test_lines_and_batches_broadcast() -> None:
    a, b = matrices(3, 4, 4), matrices(4, 2, seed=1)
    found = Tensor(a).solve(Tensor(b)).numpy()
    np.testing.assert_allclose(found, np.linalg.solve(a, np.broadcast_to(b, (3, 4, 2))), rtol=1e-9)
    line = Tensor(a[0]).solve(Tensor(b[:, 0])).numpy()
    np.testing.assert_allclose(line, np.linalg.solve(a[0], b[:, 0]), rtol=1e-9)


def test_a_zero_where_the_pivot_would_be_is_no_obstacle() -> None:
    a = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [4.0, 0.0, 0.0]])
    assert Tensor(a).det().item() == 8.0
    np.testing.assert_allclose(Tensor(a).inverse().numpy(), np.linalg.inv(a))


def test_a_singular_matrix_has_no_inverse_and_a_determinant_of_zero() -> None:
    a = Tensor([[1.0, 2.0], [2.0, 4.0]])
    sign, size = a.slogdet()
    assert a.det().item() == sign.item() == 0.0 and size.item() == -math.inf
    assert not a.inverse().isfinite().all().item()
    assert Tensor([[1.0, 2.0], [2.0, 1.0]]).cholesky().isnan().any().item()


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4), (1, 5)])
def test_lstsq_is_nearest(shape: tuple[int, int]) -> None:
    a, b = matrices(*shape), matrices(shape[0], 2, seed=1)
    wanted = np.linalg.lstsq(a, b, rcond=None)[0]
    np.testing.assert_allclose(Tensor(a).lstsq(Tensor(b)).numpy(), wanted, rtol=1e-8)
    line = Tensor(a).lstsq(Tensor(b[:, 0])).numpy()
    np.testing.assert_allclose(line, wanted[:, 0], rtol=1e-8)


GRADIENTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any, Any], Any]]] = {
    "inverse": (lambda a: a.inverse(), lambda torch, a: torch.linalg.inv(a)),
    "det": (lambda a: a.det(), lambda torch, a: torch.linalg.det(a)),
    "slogdet": (lambda a: a.slogdet()[1], lambda torch, a: torch.linalg.slogdet(a)[1]),
    "solve": (lambda a: a.solve(a * 2 + 1), lambda torch, a: torch.linalg.solve(a, a * 2 + 1)),
    "cholesky": (
        lambda a: (a @ a.transpose() + 1).cholesky(),
        lambda torch, a: torch.linalg.cholesky(a @ a.T + 1),
    ),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_are_those_of_torch(case: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = GRADIENTS[case]
    a = matrices(4, 4)
    x, y = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    weights = matrices(4, 4, seed=2)
    (ours(x) * Tensor(weights)).sum().backward()
    (theirs(torch, y) * torch.tensor(weights)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-6, atol=1e-8)


# -- eigenvalues, pseudo-inverses, norms ----------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (2, 2, 2), (5, 5)])
def test_eigh_is_numpy_s(shape: tuple[int, ...]) -> None:
    size = shape[-1]
    a = matrices(*shape)
    a = a + np.swapaxes(a, -1, -2)
    values, vectors = Tensor(np.tril(a)).eigh()
    np.testing.assert_allclose(values.numpy(), np.linalg.eigvalsh(a), atol=1e-12)
    v = vectors.numpy()
    np.testing.assert_allclose(a @ v, v * values.numpy()[..., None, :], atol=1e-11)
    np.testing.assert_allclose(np.swapaxes(v, -1, -2) @ v, np.eye(size) + 0 * a, atol=1e-11)


@pytest.mark.long
def test_equal_and_opposite_eigenvalues_are_found() -> None:
    wanted = np.array([(0, 0, 0), (-1, 1, 1), (5, 5, 5), (-1e3, 0, 1e-3), (-2, 0, 2)])
    q, _ = np.linalg.qr(matrices(3, 3))
    a = (q * wanted[:, None, :]) @ q.T
    values, vectors = Tensor(a).eigh()
    np.testing.assert_allclose(values.numpy(), wanted, atol=1e-11)
    v = vectors.numpy()
    np.testing.assert_allclose((v * wanted[:, None, :]) @ np.swapaxes(v, -1, -2), a, atol=1e-10)


@pytest.mark.parametrize("shape", [(2, 4, 3), (2, 3), (1, 1), (0, 3)])
def test_pinv_is_numpy_s(shape: tuple[int, ...]) -> None:
    a = matrices(*shape)
    np.testing.assert_allclose(Tensor(a).pinv().numpy(), np.linalg.pinv(a), atol=1e-11)


def test_pinv_of_a_singular_matrix_leaves_small_singular_values_out() -> None:
    a = np.outer([1.0, 2.0, 3.0], [1.0, -1.0, 0.5, 2.0])
    np.testing.assert_allclose(Tensor(a).pinv().numpy(), np.linalg.pinv(a), atol=1e-12)
    assert not Tensor.zeros(2, 3).pinv().numpy().any()
    b = np.diag([1.0, 0.1])
    np.testing.assert_allclose(Tensor(b).pinv(rtol=0.5).numpy(), np.diag([1.0, 0.0]), atol=1e-12)


NORMS: list[tuple[Any, dict[str, Any]]] = [
    (p, options)
    for p in (2.0, "fro", 1, 0, 3, 0.5, -1, math.inf, -math.inf)
    for options in ({}, {"dim": 1}, {"dim": (0, 2), "keepdim": True})
    if not (p == "fro" and options.get("dim") == 1)
]


@pytest.mark.parametrize("case", range(len(NORMS)))
def test_norms_are_torch_s(case: int) -> None:
    torch = pytest.importorskip("torch")
    p, options = NORMS[case]
    a = matrices(3, 5, 2)
    x, y = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    found, wanted = x.norm(p, **options), y.norm(p, **{"dim": None, **options})
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=1e-10)
    if p != 0:  # torch has the gradient 0, and here there is none
        found.square().sum().backward(), wanted.square().sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-8, atol=1e-12)


def test_norms_at_zero_and_in_narrow_types() -> None:
    x = Tensor.zeros(3).contiguous().requires_grad_()
    x.norm().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 0.0, 0.0]
    assert Tensor([300.0, 400.0], dtype="float16").norm().item() == 500.0
    assert Tensor([3, 4]).norm().item() == 5.0 and Tensor([1.0, 0.0]).norm(-1).item() == 0.0
    with pytest.raises(ValueError, match="number or 'fro'"):
        x.norm("nuc")


def _symmetric(x: Any) -> Any:
    return (x + x.transpose(-1, -2)) / 2


SPECTRAL: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "eigenvalues": (
        lambda a: _symmetric(a).eigh()[0].sin(),
        lambda torch, a: torch.linalg.eigh(_symmetric(a))[0].sin(), (3, 3),
    ),
    "eigenvectors": (
        lambda a: _symmetric(a).eigh()[1].square(),
        lambda torch, a: torch.linalg.eigh(_symmetric(a))[1].square(), (3, 3),
    ),
    "pinv, tall": (lambda a: a.pinv(), lambda torch, a: torch.linalg.pinv(a), (3, 2)),
    "pinv, wide": (lambda a: a.pinv(), lambda torch, a: torch.linalg.pinv(a), (2, 2, 3)),
    "svd": (lambda a: a.svd()[1].square(), lambda torch, a: torch.linalg.svd(a)[1].square(), (4, 3)),
    "qr": (lambda a: a.qr()[1].square(), lambda torch, a: torch.linalg.qr(a)[1].square(), (3, 3)),
    "lstsq": (
        lambda a: a.lstsq(a[:, :2] * 2 + 1),
        lambda torch, a: torch.linalg.pinv(a) @ (a[:, :2] * 2 + 1), (3, 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPECTRAL)
def test_gradients_of_factors_are_those_of_torch(case: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs, shape = SPECTRAL[case]
    a = matrices(*shape, seed=4)
    x, y = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    found, wanted = ours(x), theirs(torch, y)
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=1e-8, atol=1e-10)
    weights = matrices(*found.shape, seed=2)
    (found * Tensor(weights)).sum().backward()
    (wanted * torch.tensor(weights)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(1, 1), (2, 5, 3), (3, 5), (66, 66), (97, 70), (2, 65, 101)])
@pytest.mark.parametrize("kind", ["any", "zeros", "one column"])
def test_qr_gives_an_orthogonal_and_a_triangular_factor(shape: tuple[int, ...], kind: str) -> None:
    a = matrices(*shape, seed=5)
    a = {"any": a, "zeros": a * 0, "one column": a * 0 + a[..., :1]}[kind]
    q, r = [factor.numpy() for factor in Tensor(a).qr()]
    rows = shape[-2]
    np.testing.assert_allclose(q @ r, a, atol=1e-13 * max(shape))
    np.testing.assert_allclose(
        np.swapaxes(q, -1, -2) @ q, np.eye(rows) + a[..., :1] * 0, atol=1e-13
    )
    assert not np.tril(r, -1).any()
    wanted = np.abs(np.diagonal(np.linalg.qr(a)[1], axis1=-2, axis2=-1))
    found = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
    np.testing.assert_allclose(found, wanted, atol=1e-12 if kind != "one column" else 1e-10)


def test_all_steps_of_qr_run_the_same_kernels(fresh_runs: Any) -> None:
    counts = []
    for size in (12, 24):
        launched = Tensor(matrices(size, size)).realize().qr()[1].schedule()
        counts.append(len({(kernel.name, kernel.ast) for kernel in launched}))
    assert counts[0] == counts[1]


def test_singular_vectors_of_many_columns_are_orthogonal() -> None:
    a = matrices(70, 70, seed=3).astype(np.float32)
    u, s, vt = [one.numpy() for one in Tensor(a).svd()]
    np.testing.assert_allclose(u.T @ u, np.eye(70), atol=1e-5)
    np.testing.assert_allclose(vt @ vt.T, np.eye(70), atol=5e-5)
    np.testing.assert_allclose((u * s) @ vt, a, atol=1e-4)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_factors_of_very_small_and_very_large_numbers_have_their_size(size: float) -> None:
    a = definite(5, 5)
    x = Tensor((a * size).astype(np.float32)).realize()
    q, r = [one.numpy() for one in x.qr()]
    np.testing.assert_allclose(q @ (r / np.float32(size)), a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(x.svd()[1].numpy() / size, np.linalg.svd(a)[1], rtol=1e-4)
    np.testing.assert_allclose(x.eigh()[0].numpy() / size, np.linalg.eigvalsh(a), rtol=1e-4)


def test_eigenvectors_of_zeros_and_of_values_of_one_sign_are_orthogonal() -> None:
    line = matrices(2, 5, 1, seed=7)
    ranked = line @ np.swapaxes(line, -1, -2)
    for a in (ranked, -ranked, ranked * 0, ranked * 0 + np.eye(5)):
        values, vectors = [one.numpy() for one in Tensor(a).eigh()]
        seen = np.swapaxes(vectors, -1, -2) @ vectors
        np.testing.assert_allclose(seen, np.eye(5) + a * 0, atol=1e-13)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(a), atol=1e-12)


def test_second_derivatives_of_eigenvalues_are_differences() -> None:
    x = Tensor(matrices(2, 2))
    assert gradcheck(
        lambda a: (
            _symmetric(a).eigh()[0].gradient(a, gradient=Tensor([1.0, -2.0], dtype="float64"))[0]
        ),
        x,
    )


def test_gradients_are_differences() -> None:
    x = Tensor(definite(3, 3))
    gradcheck(lambda a: a.inverse().sum(), x)
    gradcheck(lambda a: a.det(), x)
    gradcheck(lambda a: ((a + a.transpose()) / 2).cholesky().square().sum(), x)


def test_all_steps_run_the_same_kernels_recorded_too() -> None:
    a = Tensor(definite(9, 9)).float().realize()
    solve = TinyJit(lambda a, b: a.solve(b).realize())
    for k in range(4):
        b = Tensor(matrices(9, 2, seed=k)).float().realize()
        np.testing.assert_allclose((a @ solve(a, b)).numpy(), b.numpy(), atol=1e-4)


def test_graphs_are_made_once_and_signs_and_logarithms_are_one_elimination() -> None:
    a = Tensor(definite(2, 5, 5)).realize()
    for found in (a.det(), a.cholesky(), *a.slogdet(), *a.qr()):
        assert sum(node.op is Ops.APPLY for node in found._uop.toposort()) == 1
        assert len(found._uop.toposort()) < 12
    assert max(len(a.eigh()[0]._uop.toposort()), len(a.svd()[0]._uop.toposort())) < 120
    counts = []
    for run in (lambda: a.det().realize(), lambda: Tensor.realize(*a.slogdet())):
        GlobalCounters.reset()
        run()
        counts.append(GlobalCounters.kernel_count)
    assert counts[1] < counts[0] + 8


def test_steps_of_small_matrices_are_one_native_call(
    fresh_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECK", "0")
    ran: list[KeptProgram] = []
    run = KeptProgram.run
    monkeypatch.setattr(
        KeptProgram, "run", lambda self, *given: (ran.append(self), run(self, *given))
    )
    for seed in range(3):
        a = matrices(5, 5, seed=seed)
        np.testing.assert_allclose(Tensor(a).realize().det().numpy(), np.linalg.det(a))
    assert len(ran) == 2


def test_pivots_of_infinities_and_nan_are_no_numbers() -> None:
    a = matrices(3, 4, 4)
    a[0, 2, 1], a[1, 0, 0] = math.nan, math.inf
    found = Tensor(a).det().numpy()
    assert not np.isfinite(found[:2]).any()
    np.testing.assert_allclose(found[2], np.linalg.det(a[2]))


REFUSED: dict[str, Callable[[], object]] = {
    "no matrix": lambda: Tensor([1.0]).inverse(),
    "not square": lambda: Tensor.ones(2, 3).det(),
    "other rows": lambda: Tensor.ones(2, 2).solve(Tensor.ones(3, 1)),
    "other rows of lstsq": lambda: Tensor.ones(2, 3).lstsq(Tensor.ones(3)),
    "no matrix of eigh": lambda: Tensor.ones(3).eigh(),
    "not square for eigh": lambda: Tensor.ones(3, 2).eigh(),
    "no matrix of pinv": lambda: Tensor.ones(3).pinv(),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    with pytest.raises(ShapeError, match="takes"):
        REFUSED[case]()
