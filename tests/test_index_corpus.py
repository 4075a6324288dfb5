"""Random index terms keep their value in every rewrite, and lose divisions."""

from __future__ import annotations

import pytest
from index_corpus import Results, run
from index_terms import are_equal, corpus, values, work

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

TERMS = 2_000


@pytest.mark.timeout(300)
def test_simplified_terms_equal_brute_force() -> None:
    terms = corpus(TERMS, seed=2027)
    ours, _ = run(terms, peer=False, timed=False)
    wrong = [k for k, raw in enumerate(terms) if not are_equal(raw, ours.terms[k])]
    assert not wrong
    raw = sum(work(term).divisions for term in terms)
    assert sum(left.divisions for left in ours.left) < raw / 3


def test_brute_force_sees_a_wrong_position_and_a_wrong_mask() -> None:
    loop = UOp.range(12, 0)
    buffer = UOp.range(1, 9)  # stands for memory; positions are what is compared
    term = UOp(Ops.INDEX, loop.dtype, (buffer, loop % 4, loop < 8))
    assert are_equal(term, UOp(Ops.INDEX, loop.dtype, (buffer, loop % 4, ~~(loop < 8))))
    assert not are_equal(term, UOp(Ops.INDEX, loop.dtype, (buffer, loop % 5, loop < 8)))
    assert not are_equal(term, UOp(Ops.INDEX, loop.dtype, (buffer, loop % 4, loop < 9)))
    position, mask = values(term, {loop: 9, buffer: 0})
    assert (position, mask) == (1, False)


def test_corpus_is_the_same_every_time() -> None:
    assert corpus(50, seed=5) == corpus(50, seed=5) != corpus(50, seed=6)


@pytest.mark.timeout(300)
def test_fewer_divisions_are_left_than_by_tinygrad() -> None:
    pytest.importorskip("tinygrad")
    ours, theirs = run(corpus(400, seed=2026), peer=True, timed=False)
    pairs = [(a.divisions, b.divisions) for a, b in zip(ours.left, theirs.left)]
    assert sum(a <= b for a, b in pairs) >= 0.95 * len(pairs)
    assert _divisions(ours) <= 0.85 * _divisions(theirs)


def _divisions(results: Results) -> int:
    return sum(left.divisions for left in results.left)
