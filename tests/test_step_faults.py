"""Faults planted in steps: those in the functions of laws fall in the proofs, those around them in runs."""

from __future__ import annotations

import os
import random
import re
from datetime import date

import pytest
from planted.mutations import functions_of, mutation
from planted.plant import Fault
from planted.step_faults import (
    FOLDER,
    LAW_FUNCTIONS,
    RENUMBERED,
    SAME,
    by_proof,
    by_run,
    by_test,
    law_faults,
    same_as,
)

from proofgrad.core.compile.steps import evidence
from proofgrad.verify.steps.all_steps import all_steps


def _fault(module: str, before: str, after: str) -> Fault:
    return Fault(f"{module}: {after}", f"{FOLDER}/{module}.py", before, after)


# One or two of each law, as somebody might write them; what the claims have to see.
LAWS = (
    _fault("split", "return -(-n // k)", "return n // k"),
    _fault("split", "        number = number // size\n", ""),
    _fault("split", "vector.minimum(n // lanes - 1)", "vector.minimum(n // lanes)"),
    _fault("split", "number_of(counters, sizes).minimum(n - 1)", "number_of(counters, sizes)"),
    _fault("split", "return _quotient_up(n, product_of(sizes)) * product_of(sizes)", "return n"),
    _fault("collapse", "digit if k == 0 else digit % sizes[k]", "digit"),
    _fault("collapse", "product_of(sizes[k + 1 :])", "product_of(sizes[k:])"),
    _fault("merge", "return start, both", "return both, start"),
    _fault("merge", "return a == b * size", "return a == b"),
    _fault("deinterleave", "return rest % step, rest // step + count", "return rest % step, rest // step"),
    _fault("deinterleave", "return -(-elements // step)", "return elements // step"),
    _fault("deinterleave", "return phase * length + position", "return phase + position * length"),
    _fault("pad_rows", "+ padding * (rest // length)", ""),
    _fault("pad_rows", "return -(-elements // length)", "return elements // length"),
    _fault("pad_rows", "return row * distance + column", "return row + column * distance"),
    _fault("turn_rows", "(p + by) % n", "p + by"),
    _fault("turn_rows", "(q + (n - by)) % n", "(q + by) % n"),
    _fault("turn_rows", "// each % count", "// each"),
    _fault("stage", "position, *values, None, *some)", "position, *values, None, *reversed(some))"),
    _fault("scatter", "term.minimum(last).maximum(first)", "term.minimum(last)"),
    _fault("overwrite", "(least <= bound) & (bound < 0)", "bound < 0"),
    _fault("overwrite", "(bound < 0)", "(bound <= 0)"),
    _fault("clamp", "return nearest + (loop - term)", "return nearest + (term - loop)"),
    _fault("offset_factor", "return byte + distance", "return byte + distance // 2"),
    _fault("offset_factor", "total + beside * -distance", "total + beside * distance"),
    _fault("where_normal", "magnitude * (NUMBERS - 1)", "magnitude * NUMBERS"),
    _fault("where_normal", "(NUMBERS - gap) // FRACTIONS", "gap // FRACTIONS"),
    _fault("where_normal", "(one >= 1) & (other >= 1) & ", ""),
    _fault("where_normal", "LEAST + 2 * (BIAS + DIGITS)", "LEAST + 2 * BIAS"),
    _fault("mma", "return warp * WARP + item, register", "return item, register"),
    _fault("mma", "(WARP * m, COLUMNS_EACH * h)", "(WARP * m, h)"),
    _fault("all_reduce", "both = distance + distance", "both = distance"),
    _fault("all_reduce", "item // both * both + ", ""),
    _fault("all_reduce", "item % both + part * distance", "item % both + part"),
    _fault("fill_ahead", "(iteration + (part - iteration) % parts)", "(iteration + part)"),
    _fault("fill_ahead", "(part - iteration) % parts", "(part + iteration) % parts"),
    _fault("fill_ahead", ".minimum(count - 1)", ".minimum(count)"),
    _fault("fill_ahead", "return part * size + position", "return part + position * 2"),
    _fault("mma_in_item", "Square(s, 1, 1).result_element(e)", "Square(s, 1, 1).result_element(e)[::-1]"),
    _fault("mma_in_item", "Square(s, 1, 1).result_holder(r, c)", "Square(s, 1, 1).result_holder(c, r)"),
    _fault("prefix_blocks", "return block < end // k", "return block <= end // k"),
    _fault("prefix_blocks", "else at.minimum(n - 1)", "else at"),
    _fault("rescale_blocks", "return reference.maximum(least)", "return reference"),
    _fault("rescale_blocks", "return e(x, finite(block, least))", "return e(block, finite(x, least))"),
    _fault("rescale_blocks", "return e(block, finite(row, least))", "return e(row, finite(block, least))"),
    _fault("carry_maximum", "return total * of_row(e, before, now, least)", "return total"),
    _fault("carry_maximum", "of_row(e, before, now, least)", "of_row(e, now, before, least)"),
    _fault("hidden_blocks", "(1 if takes_end else 0)", "0"),
    _fault("hidden_blocks", "return most - least", "return most + least"),
    _fault("hidden_blocks", "end.maximum(1).minimum(size)", "end.minimum(size)"),
    _fault("hidden_blocks", "(0 if takes_end else 1)", "1"),
    _fault("hidden_blocks", "return kept + least", "return kept - least"),
    _fault("hidden_blocks", "first.minimum(size - 1)", "first.minimum(size)"),
    _fault("hidden_blocks", ".maximum(0)", ""),
    _fault("unroll", "for k in range(size_of(loop)):", "for k in range(1, size_of(loop)):"),
    _fault("unroll", "values[len(pairs) * 2 :]", "values[len(pairs) * 2 + 1 :]"),
    _fault("unroll", "total = product.with_src((item, total, *factors))", "total = product"),
    _fault("bounds", "high <= most", "high <= most + 1"),
    _fault("accumulate", "position * loop.src[0].arg + loop", "position + loop"),
    _fault("reduce_in_parts", "sizes[axis] // size, size, *", "size, sizes[axis] // size, *"),
    _fault("reduce_in_parts", "(0, length), (length, whole)", "(0, length), (length - 1, whole)"),
    _fault("reduce_in_parts", "return (axis, *[a for", "return (0, *[a for"),
    _fault("store", "return -1 - made", "return made"),
    _fault("store", "return -1 - made", "return -made"),
    _fault("store", "sources[0] if op in _SAME else computed(sources)", "sources[0]"),
    _fault("lanes", "tuple([step * k for k in range(lanes)])", "tuple(range(lanes))"),
    _fault("bounds", "least <= low", "least < low"),
    _fault("extend", "(n + (times - 1)) // times", "n // times"),
    _fault("extend", "i < n,", "i < m,"),
    _fault("extend", "n <= m,", "m <= n,"),
    _fault("window", "~(i < first) & (i < first + w)", "~(i < first) & (i <= first + w)"),
    _fault("window", "(first + j,)", "(j,)"),
    _fault("window", "border + 1, None", "border + 2, None"),
    _fault("split_index_set", "return end - first", "return end - first + 1"),
    _fault("split_index_set", "(i < end)", "(i <= end)"),
    _fault("align", "j + s // k * k - s,", "j - s,"),
    _fault("align", "(s % k + i,)", "(i,)"),
    _fault("align", "(n + (k - 1),)", "(n,)"),
    _fault("align", "~(j < s % k) & (j < s % k + n)", "j < s % k + n"),
)  # fmt: skip

# Around the laws: what the runs of every small kernel have to see.
BODIES = (
    _fault("mma_in_item", "square.row_element(held)", "square.column_element(held)"),
    _fault("mma_in_item", "square.column_element(held)", "Square(unit.side, unit.groups * unit.group, 1).column_element(held)"),
    _fault("keep_in_item", "require(always_equal(digits[own], item), \"what another item has filled\", index)", "pass"),
    _fault("keep_in_item", "value.substitute({own: item})", "value.substitute({own: UOp.index(0)})"),
    _fault("keep_in_item", "*[digits[x] for x in rest]", "*[digits[x] for x in reversed(rest)]"),
    _fault("mma", "row_element(item, half, held, steps)", "row_element(item, 0, held, steps)"),
    _fault("mma", "(item, nothing, *factors, register, held)", "(item, nothing, *factors[:1], *factors[:0:-1], register, held)"),
    _fault("rescale_blocks", "(mine, own[1]), Ops.MAX)", "(mine, own[1]), Ops.MIN)"),
    _fault("rescale_blocks", "(scale * part, blocks)", "(part, blocks)"),
    _fault("divide_once", "above.whole(_plain(above))", "_plain(above)"),
    _fault("hidden_blocks", "hidden.arg == -inf", "True"),
    _fault("hidden_blocks", "form.times < 1", "form.times == 0"),
    _fault("hidden_blocks", "form.times > -1", "form.times == 0"),
    _fault("hidden_blocks", "_begin_by, UOp.maximum)", "_end_by, UOp.minimum)"),
    _fault("hidden_blocks", "reduce(UOp.minimum, firsts)", "reduce(UOp.minimum, firsts) + 1"),
    _fault("hidden_blocks", "own_maximum(n) for n in sums if", "maxima[0] for n in sums if"),
    _fault("hidden_blocks", "least, _ = interval", "_, least = interval"),
    _fault("own_loops", "arg=(number + k, loop.arg[1])", "arg=(number, loop.arg[1])"),
    _fault("own_loops", "is_alike(node, same), ", "True, "),
    _fault("own_loops", "how = node.arg, node.dtype", "how = same.arg, node.dtype"),
    _fault("carry_maximum", "(maximum, larger, before.src[1])", "(maximum, larger)"),
    _fault("narrow_lanes", "node.with_src((one, other))", "node.with_src((other, one))"),
    _fault("prefix_blocks", "n not in before]", "n in before]"),
    _fault("bijection", "inside.where(new.src[0], neutral(node))", "new.src[0]"),
    _fault("bijection", "src=(position.src[0], position.src[1], mask)", "src=(position.src[0], position.src[1])"),
    _fault("extend", "term.src[2] is neutral(node)", "True"),
    _fault("leave", "not implies(condition, mask, facts) and", "False and"),
    _fault("leave", "value.src == (position,)", "True"),
    _fault("window", "lies_between(one.first, 0, size_of(loop) - one.size, facts)", "True"),
    _fault("window", "set.intersection(*windows)", "set.union(*windows)"),
    _fault("split_index_set", "(0, *borders, size)", "(0, *borders)"),
    _fault("align", "bound.isdisjoint((loop, *around))", "loop not in bound"),
    _fault("align", "exchanged(nest.graph, {loop: value}, counters, inside)", "exchanged(nest.graph, {loop: value}, counters)"),
    _fault("split_index_set", "UOp.index(first)", "UOp.index(0)"),
    _fault("extend", "lies_between(rest, 0, facts.hi(rest), facts)", "True"),
    _fault("tables", "start = UOp.const(memory.dtype, identity(op, memory.dtype))", "start = UOp.const(memory.dtype, 1)"),
    _fault("join", "masked = mask.where(product, UOp.const(value.dtype, 0))", "masked = product"),
    _fault("reduce_in_parts", "a + (a > axis)", "a"),
    _fault("reduce_in_parts", "_in_parts(head, parts.head).alu(op, ", "_in_parts(head, parts.head).alu(Ops.ADD, "),
    _fault("store", "slot = len(inputs) + 1", "slot = 1"),
    _fault("store", "node is target or not self._is_read(node)", "not self._is_read(node)"),
    _fault("stage", "done[node] = masked(new, inside) if", "done[node] = new if"),
)  # fmt: skip


@pytest.mark.parametrize("fault", [*LAWS, *RENUMBERED[:2]], ids=lambda fault: fault.name)
def test_a_fault_in_a_law_is_found_by_its_proof(fault: Fault) -> None:
    assert by_proof(fault).by == "proof"


def test_faults_in_laws_that_are_drawn_are_found_by_proofs() -> None:
    """The same in each run, or those of PLANTED_SEED."""
    seed = os.environ.get("PLANTED_SEED", "0")
    faults = [fault for fault in law_faults() if same_as(fault) is None]
    for fault in random.Random(seed).sample(faults, 3):
        assert by_proof(fault).by, f"PLANTED_SEED={seed}: {fault.name}"


@pytest.mark.long
def test_faults_around_laws_are_found_by_runs() -> None:
    """Some of them, others each day."""
    for fault in random.Random(date.today().toordinal()).sample(BODIES, 2):
        assert by_run(fault).by == "run", fault.name


@pytest.mark.long
def test_a_fault_by_which_a_step_is_taken_less_often_is_told_apart() -> None:
    found = by_run(_fault("deinterleave", "step > 1", "step > 2"))
    assert found.by == "refuses"
    assert re.fullmatch(r"of [\d,]+: \d+ refused", found.how)


def test_a_fault_by_which_a_step_asks_for_less_is_found_by_a_test_of_its_condition() -> None:
    """No small kernel is wrong by it: loops of no iterations have no digits."""
    fault = _fault("collapse", "min(sizes) > 0", "min(sizes) >= 0")
    assert by_test(fault).how == "test_a_loop_that_never_runs_is_not_collapsed"


def test_without_a_fault_nothing_is_found() -> None:
    text = '"""The steps: the only'
    same = Fault("none", f"{FOLDER}/reorder.py", "from __future__", "from __future__")
    assert text and (by_proof(same).by, by_test(same).by, by_run(same).by) == ("", "", "")


def test_each_law_has_functions_that_are_planted_in() -> None:
    modules = {step.function.__module__.rpartition(".")[2] for step in all_steps().values()}
    # the laws of these are those of split, collapse and keep_window, or no function at all: folds.py
    others = {
        "leave",
        "narrow_lanes",
        "divide_once",
        "local_buffer",
        "own_loops",
        "reorder",
        "run_as",
        "sum_in_memory",
        "join",
        "keep_in_item",
        "reduce_inside",
        "reverse",
        "stage_window",
    }
    shared = {"digits", "bounds"}  # of several laws
    assert modules == set(LAW_FUNCTIONS) - shared | others
    assert all([(evidence.STEPS_FOLDER / f"{name}.py").exists() for name in LAW_FUNCTIONS])


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_is_a_fault_that_can_be_planted(name: str) -> None:
    module, function = name.partition(" ")[0].split(".")
    file = f"{FOLDER}/{module}.py"
    own = [k for k, one in enumerate(functions_of(file)) if one == function]
    assert any([same_as(mutation(file, k)) == SAME[name] for k in own])
