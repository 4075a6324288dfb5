"""Walks through graphs: sources first, each node once, without recursion, and with little work for each node."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from counted_calls import calls

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp, counters_in, known_below, toposort

Enter = Callable[[UOp], bool]


def drawn(seed: int, size: int = 40) -> UOp:
    """Sums and products of numbers and of each other."""
    draw = random.Random(seed)
    nodes = [UOp.index(k) for k in range(5)]
    for _ in range(size):
        op = draw.choice([Ops.ADD, Ops.MUL, Ops.NEG])
        sources = tuple(draw.choices(nodes, k=1 if op is Ops.NEG else 2))
        nodes.append(UOp(op, dtypes.index, sources))
    return nodes[-1]


def chain(length: int) -> UOp:
    node = UOp.range(8, 0)
    for k in range(length):
        node = UOp(Ops.ADD, dtypes.index, (node, UOp.index(k + 1)))
    return node


def by_recursion(root: UOp, enter: Enter) -> list[UOp]:
    """The order as it is defined: the sources of a node from the first to the last, then the node."""
    found: dict[UOp, None] = {}

    def visit(node: UOp) -> None:
        if node not in found:
            for source in node.src if node.src and enter(node) else ():
                visit(source)
            found[node] = None

    visit(root)
    return list(found)


@pytest.mark.parametrize("seed", range(12))
def test_walk_lists_sources_first_in_order_of_operands(seed: int) -> None:
    root = drawn(seed)
    assert toposort((root,)) == by_recursion(root, lambda node: True)
    assert root.toposort(_is_no_product) == by_recursion(root, _is_no_product)


def _is_no_product(node: UOp) -> bool:
    return node.op is not Ops.MUL


def test_walk_from_several_roots_lists_each_node_once() -> None:
    first, second = drawn(1), drawn(2)
    below = by_recursion(UOp.sink(first, second, first), lambda node: True)[:-1]
    assert toposort((first, second, first)) == below
    assert toposort(()) == []


def test_walk_asks_about_each_node_once_and_about_no_leaf() -> None:
    root, asked = drawn(3), Counter[UOp]()

    def enter(node: UOp) -> bool:
        asked[node] += 1
        return True

    nodes = root.toposort(enter)
    assert asked == Counter([node for node in nodes if node.src])


def test_walk_of_a_long_chain_calls_three_functions_a_node_at_most() -> None:
    root = chain(5_000)
    inner = [node for node in toposort((root,)) if node.src]
    assert len(inner) > 5_000
    assert calls(lambda: toposort((root,))) < 3 * len(inner) + 20


def test_what_is_known_is_found_after_the_sources_and_once() -> None:
    root, asked, known = chain(3_000), Counter[UOp](), dict[UOp, int]()

    def sources(node: UOp) -> tuple[UOp, ...]:
        asked[node] += 1
        return node.src

    def height(node: UOp) -> int:
        return 1 + max([known[source] for source in node.src], default=0)

    assert known_below(root, known, height, sources) == 3_002  # a range stands over its size
    assert set(asked.values()) == {1}
    assert known_below(root, known, height, sources) == 3_002
    assert set(asked.values()) == {1}


def test_what_is_found_meanwhile_is_not_found_again() -> None:
    """As where the rule for a node asks for more than its sources."""
    root, found, known = drawn(4), Counter[UOp](), dict[UOp, int]()

    def value(node: UOp) -> int:
        for other in node.src:
            known_below(other, known, value, lambda top: ())
        found[node] += 1
        return sum([known[source] for source in node.src])

    known_below(root, known, value, lambda node: node.src[:1])
    assert set(found.values()) == {1}


def test_loops_below_a_node_are_those_that_a_walk_comes_by() -> None:
    first, second = UOp.range(4, 0), UOp.range(5, 1)
    both = first * 3 + second
    assert counters_in(both) == {first, second}
    assert counters_in(both) is counters_in(both)
    assert counters_in(first) == {first}
    assert counters_in(UOp.index(7)) == frozenset()


@pytest.mark.parametrize(
    "shape, count", [((), 1), ((0,), 0), ((7,), 7), ((3, 0, 5), 0), ((2, 3, 11), 66)]
)
def test_elements_of_a_shape_are_counted(shape: tuple[int, ...], count: int) -> None:
    assert elements(shape) == count


def test_elements_of_a_shape_with_a_variable_are_the_most_there_can_be() -> None:
    size = UOp.variable("n", 1, 6)
    assert elements((size, 5)) == 30
    assert elements((size, 0)) == 0
