"""What the results of extractors weigh, for the proof that rewriting ends.

Owns: these promises. Does not own: the order (termination.py), contracts (core/rewrite/extractors.py).

A contract is an equation, and says nothing of sizes: x == q*c + r holds for r = x + q'*c too. So the
order rests on promises about the searches in core/rewrite/searches.py, in the measures of loops and
of the division load, and of one extractor in that of size. tests/test_extractors.py tests them; where a rule is no smaller in these measures,
and at each use of a rule about sums, the engine tests the order itself (core/rewrite/sum_order.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """Results that together weigh no more than the first input, each taken so many times.

    `less`: by how much they have less division load, at least. `less_size`: by how much they have
    less weighted size; None if nothing is promised of that.
    """

    times: Mapping[str, int]
    less: int = 0
    less_size: int | None = None
    or_less_size: int | None = None


# By extractor, the names of results being those of its contract. Summands that leave a sum whole go to one
# result or another; a coefficient that is taken apart leaves its atom in both.
PROMISES: dict[str, tuple[Promise, ...]] = {
    "split": (Promise({"q": 1, "r": 1}),),
    "residue": (Promise({"q": 1}), Promise({"r": 1})),
    "gcd_split": (Promise({"y": 1, "r": 1}),),
    "multiples": (Promise({"q": 1, "r": 1}),),
    "gcd_multiples": (Promise({"q": 1, "r": 1}),),
    "common": (Promise({"y": 1}),),
    "tidy": (Promise({"y": 1}),),
    # a remainder is gone; t is of what stood in a quotient, or in a quotient in a remainder
    "recombine": (Promise({"rest": 1, "t": 1}, less=1),),
    "recombine_modulo": (Promise({"rest": 1, "t": 1}, less=1),),
    # u stood in a remainder, or in a quotient
    "remainder_in_sum": (Promise({"rest": 1, "u": 8}, less=1),),
    "quotient_in_sum": (Promise({"rest": 1, "u": 8}, less=1),),
    # the engine asks for less load, or as much with summands left out
    "narrow": (Promise({"y": 1}, less=1, or_less_size=1),),
    "narrow_truth": (Promise({"w": 1}, less=1),),
    # a conjunction without some of its conjuncts, or false
    "implied": (Promise({"w": 1}, less_size=1),),
    # the rest of a conjunction, and what an equation or inequality in it is solved for
    "solve": (Promise({"i": 1, "p": 1}),),
    "solve_less": (Promise({"i": 1, "p": 1}),),
    "reciprocal": (),
}
