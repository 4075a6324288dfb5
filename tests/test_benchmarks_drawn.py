"""What benchmarks/random_shapes.py draws, and that ours and the peers compute the same of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kept_results
import numpy as np
import pytest
from drawn_cases import ELEMENTWISE, KINDS, Case, Operand, case_from_json, cases, seed_of_month
from drawn_ours import FUNCTIONS, arrays, searched
from drawn_peers import PEERS, _for_torch, function_of
from random_shapes import summary_of

from proofgrad import Tensor

LITTLE = {"least": 0.0, "most": 2e4}
# What few drawn cases leave out.
X, ROW = Operand((4, 6, 5, 3)), Operand((7, 9))
ALSO = (
    *[Case("elementwise", what, (X, Operand((5, 1)), Operand((4, 1, 5, 3)))) for what in ELEMENTWISE],
    Case("norm", "group_norm", (X,), {"groups": 3}), Case("norm", "batch_norm", (X,)), Case("norm", "rms_norm", (ROW,)),
    Case("loss", "bce", (ROW, ROW)), Case("loss", "mse", (ROW, ROW)), Case("sort", "topk", (ROW,), {"count": 4}),
    Case("sort", "sort", (ROW,)), Case("sort", "argsort", (ROW,)), Case("norm", "layer_norm", (ROW,)),
    Case("loss", "cross_entropy", (ROW, Operand((7,), below=9))), Case("gather", "rows", (ROW, Operand((2, 3), below=7))),
    Case("product", "matmul", (ROW, Operand((5, 9))), {"turned": [False, True]}),
    Case("softmax", "softmax", (X,), {"axis": 0}),
    *[Case("scan", what, (ROW,), {"axis": axis}) for what in ("cumsum", "cumprod", "cummax") for axis in (0, 1)],
    *[Case("reduction", what, (X,), {"axes": [0, 2]}) for what in ("sum", "mean", "max", "std")],
    Case("reduction", "argmax", (X,), {"axis": 1}), Case("gather", "gather", (ROW, Operand((5, 9), below=7)), {"axis": 0}),
    Case("softmax", "log_softmax", (X,), {"axis": 1}),
    *[Case("pool", what, (X,), {"window": [3, 2], "stride": 2, "padding": 1}) for what in ("max_pool", "avg_pool")],
)  # fmt: skip


def small_cases() -> Iterator[Case]:
    yield from cases(1, len(KINDS), **LITTLE)
    yield from ALSO


def test_a_seed_draws_the_same_whichever_kinds_are_asked_for() -> None:
    every = cases(7, 4 * len(KINDS))
    assert every == cases(7, 4 * len(KINDS)) and every != cases(8, 4 * len(KINDS))
    assert {case.kind for case in every} == set(KINDS)
    assert [c for c in every if c.kind == "pool"] == cases(7, 4 * len(KINDS), ["pool"])
    assert all(2e6 <= case.operations <= 1e9 for case in every)
    assert 200_000 < seed_of_month() < 300_000


def test_a_case_travels_as_json() -> None:
    for case in cases(3, 2 * len(KINDS)):
        assert case_from_json(case.to_json()) == case


def test_a_case_with_no_such_work_is_refused() -> None:
    with pytest.raises(ValueError, match="no case of kind attention has between"):
        cases(0, len(KINDS), ["attention"], least=1e30, most=1e31)


def test_every_operation_is_among_the_small_cases() -> None:
    assert {case.what for case in small_cases()} == set(FUNCTIONS)


@pytest.mark.parametrize("peer", PEERS)
def test_ours_and_a_peer_compute_the_same(peer: str) -> None:
    if peer != "numpy":
        pytest.importorskip(peer)
    compared = 0
    for case in small_cases():
        try:
            function = function_of(case, peer)
        except NotImplementedError:
            continue
        given: list[Any] = arrays(case)
        ours = FUNCTIONS[case.what](case.options, *map(Tensor, given)).numpy()
        theirs = np.asarray(function(*[_for_torch(a) if peer == "torch" else a for a in given]))
        assert ours.shape == theirs.shape, case.text
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4, err_msg=case.text)
        compared += 1
    assert compared >= 20


def test_the_search_answers_for_each_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    monkeypatch.setenv("WIDTH", "1")
    monkeypatch.setenv("BEAM_SECONDS", "1")
    operands = (Operand((64, 65)), Operand((65, 66)))
    found = searched(Case("product", "matmul", operands, {"turned": [False, False]}))["found"]
    assert found and all(gain >= 1.0 for _, _, gain, _ in found)


def test_the_summary_names_the_worst_lines_first() -> None:
    rows = [{"case": {"kind": "pool"}, "text": str(k), "ratio": k / 10} for k in range(20, 0, -1)]
    summary = summary_of([*rows, {"case": {"kind": "sort"}, "text": "no peer"}], is_search=False)
    assert (summary["lines"], summary["least"], summary["tenth percentile"]) == (20, 0.1, 0.2)
    assert [text for _, text in summary["worst"]] == [str(k) for k in range(1, 11)]
    worst = summary_of(rows, is_search=True)["worst"]
    assert worst[0] == [2.0, "20"] and summary_of([], is_search=True) == {"lines": 0}


def test_numbers_of_results() -> None:
    assert kept_results.geomean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert [kept_results.percentile([3, 1, 2, 4], p) for p in (0, 10, 50, 51, 100)] == [
        1,
        1,
        2,
        3,
        4,
    ]
    with pytest.raises(ValueError, match="no ratios"):
        kept_results.geomean([])
