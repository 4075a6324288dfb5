"""How far and how fast index terms are simplified: a random corpus, beside a peer if it is installed.

Usage: python benchmarks/index_corpus.py [--terms N] [--seed S] [--peer tinygrad] [--lost N]

Each term is simplified with the sets and the evidence that the compiler uses, in a fresh memory, and
compared with the term as it was by brute force. Times are of the processor. With a peer, the same raw terms are built and
simplified by it in the same run, one after the other, and `--lost` prints terms where it leaves
fewer divisions than we do.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from index_terms import Work, are_equal, corpus, show, work

from proofgrad.core.compile.passes.stages import Library, RuleSets
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.journal import Journal
from proofgrad.rules.library import load_library
from proofgrad.rules.pipeline import COTANGENTS, FACTS, KERNEL_STAGES

STAGE = "simplify index terms"


@dataclass(slots=True)
class Results:
    """What one engine made of the corpus."""

    terms: list[Any] = field(default_factory=list)
    left: list[Work] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, simplify: Callable[[Any], Any], measure: Callable[[Any], Work], raw: Any) -> None:
        start = time.thread_time()
        term = simplify(raw)
        self.seconds.append(time.thread_time() - start)
        self.terms.append(term)
        self.left.append(measure(term))

    def row(self, name: str) -> str:
        divisions = sum(work.divisions for work in self.left)
        nodes = sum(work.nodes for work in self.left)
        median = statistics.median(self.seconds) * 1e6
        mean = statistics.fmean(self.seconds) * 1e6
        return f"{name:<12} {divisions:>12} {nodes:>12} {median:>12.0f} {mean:>12.0f}"


def simplifier() -> Callable[[UOp], UOp]:
    """The compiler's own stage for index terms, with nothing remembered from term to term."""
    library = Library(load_library(), FACTS, COTANGENTS, Journal())
    (step,) = [stage.step for stage in KERNEL_STAGES if stage.name == STAGE]
    assert isinstance(step, RuleSets)
    sets = library.rules_of(step.used(()))
    return lambda term: Rewriter(sets, library.facts(), library.journal).rewrite(term)


def run(terms: Sequence[UOp], peer: bool, timed: bool = True) -> tuple[Results, Results]:
    """Ours and, if asked for, theirs, term by term in turn. `timed`: each once before, unless nobody reads the times."""
    ours, theirs, simplify = Results(), Results(), simplifier()
    for term in terms:
        if timed:
            simplify(term)  # matchers are compiled when first needed
        ours.add(simplify, work, term)
        if peer:
            import tinygrad_terms

            raw = tinygrad_terms.translated(term)
            theirs.add(tinygrad_terms.simplified, tinygrad_terms.work, raw)
    return ours, theirs


def compare(ours: Results, theirs: Results) -> str:
    """The three figures that matter."""
    pairs = [(a.divisions, b.divisions) for a, b in zip(ours.left, theirs.left)]
    fewer, more = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    total, other = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    ratio = statistics.median([b / a for a, b in zip(ours.seconds, theirs.seconds)])
    return (
        f"divisions left: at most as many in {1 - more / len(pairs):.1%} of the terms"
        f" (fewer in {fewer}, more in {more}), {1 - total / other:.1%} fewer in total\n"
        f"median of the time of one term: {ratio:.1f} times as fast"
    )


def show_lost(terms: Sequence[UOp], ours: Results, theirs: Results, most: int) -> None:
    lost = [k for k, w in enumerate(ours.left) if w.divisions > theirs.left[k].divisions]
    for k in sorted(lost, key=lambda k: ours.left[k].nodes)[:most]:
        print(f"\nterm   {show(terms[k])}\nours   {show(ours.terms[k])}")
        print(f"theirs {theirs.terms[k].render()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--terms", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--peer", choices=["tinygrad"])
    parser.add_argument("--lost", type=int, default=0, help="how many lost terms to print")
    options = parser.parse_args()
    terms = corpus(options.terms, options.seed)
    ours, theirs = run(terms, options.peer is not None)
    wrong = sum(not are_equal(raw, term) for raw, term in zip(terms, ours.terms))
    raw = [work(term) for term in terms]
    print(f"{'':<12} {'div and mod':>12} {'operations':>12} {'median us':>12} {'mean us':>12}")
    print(f"{'raw':<12} {sum(w.divisions for w in raw):>12} {sum(w.nodes for w in raw):>12}")
    print(ours.row("proofgrad"))
    if options.peer is not None:
        print(f"{theirs.row(options.peer)}\n{compare(ours, theirs)}")
        show_lost(terms, ours, theirs, options.lost)
    print(f"{len(terms)} terms, {wrong} of them not equal to brute force")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
