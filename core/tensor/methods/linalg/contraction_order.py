"""In which order the operands of an einsum are multiplied, two at a time.

Owns: the choice. Does not own: the products (products.py).

All operands in one loop take as many products as all axes have combinations: n**6 for a chain of five matrices, where
four products of two matrices take 4 * n**3. For a few operands all orders are compared; for more the cheapest pair
comes first, each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

# Among so many operands the best of all orders is searched: there are 3**n ways to part subsets of n.
MOST_SEARCHED = 7


def contraction_order(
    letters: Sequence[str], wanted: str, sizes: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Pairs of positions in a list of operands: a pair is taken out, and its product put at the end.

    `letters`: the axes of each operand; `wanted`: those of the result; `sizes`: elements of each axis.
    """
    if len(letters) > MOST_SEARCHED:
        return _cheapest_pairs(letters, wanted, sizes)
    return _as_positions(_best_tree(letters, wanted, sizes), len(letters))


def letters_left(used: Sequence[str], others: Sequence[str], wanted: str) -> str:
    """The axes of a product that something else still needs; the rest is summed over."""
    kept = set(wanted).union(*others)
    return "".join([letter for letter in dict.fromkeys("".join(used)) if letter in kept])


_Tree = int | tuple["_Tree", "_Tree"]


def _best_tree(letters: Sequence[str], wanted: str, sizes: Mapping[str, int]) -> _Tree:
    """The cheapest binary tree over all operands, by subsets from small to large."""
    every = frozenset(range(len(letters)))
    best: dict[frozenset[int], tuple[int, _Tree]] = {frozenset((k,)): (0, k) for k in every}

    def own(subset: frozenset[int]) -> str:
        inside, outside = [letters[k] for k in subset], [letters[k] for k in every - subset]
        return letters_left(inside, outside, wanted)

    for count in range(2, len(letters) + 1):
        for members in combinations(sorted(every), count):
            whole = frozenset(members)
            ways = [(best[part][0] + best[whole - part][0] + _products(own(part) + own(whole - part), sizes),
                     (best[part][1], best[whole - part][1]))
                    for part in _parts_with_first(members)]  # fmt: skip
            best[whole] = min(ways, key=lambda way: way[0])
    return best[every][1]


def _parts_with_first(members: Sequence[int]) -> list[frozenset[int]]:
    """The proper subsets with the first member: one of each way to part the members in two."""
    first, *rest = members
    return [
        frozenset((first, *some))
        for count in range(len(rest))
        for some in combinations(rest, count)
    ]


def _products(letters: str, sizes: Mapping[str, int]) -> int:
    return prod([sizes[letter] for letter in set(letters)])


def _as_positions(tree: _Tree, count: int) -> list[tuple[int, int]]:
    """The pairs of a tree, inner ones first, as positions in a list that products join at the end."""
    there: list[_Tree] = list(range(count))
    found: list[tuple[int, int]] = []

    def multiply(node: _Tree) -> None:
        if isinstance(node, int):
            return
        for part in node:
            multiply(part)
        first, second = [there.index(part) for part in node]
        found.append((first, second))
        for position in sorted((first, second), reverse=True):
            there.pop(position)
        there.append(node)

    multiply(tree)
    return found


def _cheapest_pairs(
    letters: Sequence[str], wanted: str, sizes: Mapping[str, int]
) -> list[tuple[int, int]]:
    """At each turn the pair whose product takes the fewest multiplications."""
    there, found = list(letters), list[tuple[int, int]]()
    while len(there) > 1:
        pairs = combinations(range(len(there)), 2)
        pair = min(pairs, key=lambda pair: _products(there[pair[0]] + there[pair[1]], sizes))
        found.append(pair)
        second, first = there.pop(pair[1]), there.pop(pair[0])
        there.append(letters_left((first, second), there, wanted))
    return found
