"""einsum multiplies two operands at a time, in the cheapest order, and gives what numpy gives."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from proofgrad import GlobalCounters, Tensor
from proofgrad.core.tensor.methods.linalg.contraction_order import contraction_order, letters_left

SIZES = dict.fromkeys("abcdefghij", 10)


def cost(letters: list[str], wanted: str, sizes: dict[str, int]) -> int:
    there, total = list(letters), 0
    for pair in contraction_order(letters, wanted, sizes):
        used = [there[k] for k in pair]
        there = [named for k, named in enumerate(there) if k not in pair]
        total += prod([sizes[letter] for letter in set("".join(used))])
        there.append(letters_left(used, there, wanted))
    assert len(there) == 1
    return total


def test_a_chain_of_matrices_takes_products_of_two() -> None:
    assert cost(["ab", "bc", "cd", "de", "ef"], "af", SIZES) == 4 * 10**3


def test_the_thin_end_of_a_chain_comes_first() -> None:
    sizes = {**SIZES, "d": 1}
    assert contraction_order(["ab", "bc", "cd"], "ad", sizes) == [(1, 2), (0, 1)]


@pytest.mark.parametrize("count", [7, 8, 9])
def test_many_operands_are_no_loop_over_all_axes(count: int) -> None:
    letters = ["abcdefghij"[k : k + 2] for k in range(count)]
    assert cost(letters, letters[0][0] + letters[-1][1], SIZES) == (count - 1) * 10**3


def test_a_chain_in_a_program_multiplies_no_more_than_its_pairs() -> None:
    parts = [Tensor.ones(24, 24).contiguous().realize() for _ in range(5)]
    GlobalCounters.reset()
    got = Tensor.einsum("ab,bc,cd,de,ef->af", *parts).realize()
    assert GlobalCounters.global_ops <= 4 * 3 * 24**3
    assert got[0, 0].item() == 24.0**4


@pytest.mark.parametrize("seed", range(40))
def test_drawn_formulas_agree_with_numpy(seed: int) -> None:
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    sizes = {letter: draw.choice([1, 2, 3, 5]) for letter in "abcdef"}
    names = ["".join(draw.sample("abcdef", draw.randint(1, 3))) for _ in range(draw.randint(1, 5))]
    every = sorted(set("".join(names)))
    wanted = "".join(draw.sample(every, draw.randint(0, min(3, len(every)))))
    kind = draw.choice(["float32", "int32", "int8"])
    parts = [numbers.integers(-1, 2, [sizes[x] for x in named]).astype(kind) for named in names]
    formula = f"{','.join(names)}->{wanted}"
    want = np.einsum(formula, *[part.astype("int64") for part in parts])
    got = Tensor.einsum(formula, *map(Tensor, parts), dtype="int32").numpy()
    np.testing.assert_array_equal(got, want, err_msg=formula)


def test_an_axis_of_one_element_is_broadcast_whichever_operand_has_it() -> None:
    a, b, c = Tensor.ones(2, 1), Tensor.ones(1, 3), Tensor.ones(5, 3)
    assert Tensor.einsum("ij,jk,jk->i", a, b, c).tolist() == [15.0, 15.0]


def test_an_axis_without_elements_sums_to_zero() -> None:
    assert Tensor.einsum("ij,jk,kl->il", Tensor.ones(2, 0), Tensor.ones(0, 3), Tensor.ones(3, 2)).tolist() == [
        [0.0, 0.0],
        [0.0, 0.0],
    ]  # fmt: skip
