"""The laws of the steps: for each step what is claimed, how that is proved, and what is decided at each use instead.

Owns: the table. Does not own: the claims (bijections.py, folds.py, graphs.py, programs.py), why they are enough (theory.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proofgrad.core.compile.steps.align import align_law
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse_law
from proofgrad.core.compile.steps.extend import extend_law
from proofgrad.core.compile.steps.mma import warp_law
from proofgrad.core.compile.steps.mma_in_item import square_law
from proofgrad.core.compile.steps.reorder import RENUMBER
from proofgrad.core.compile.steps.reverse import BACKWARDS
from proofgrad.core.compile.steps.split import MOST_PARTS, split_law
from proofgrad.core.compile.steps.stage import MOST_DIGITS
from proofgrad.core.compile.steps.turn_rows import turn_law
from proofgrad.core.compile.steps.window import window_law
from proofgrad.verify.steps import ahead, folds, fragments, graphs, powers, programs, rounds
from proofgrad.verify.steps import bijections as iterations
from proofgrad.verify.steps.claims import Claim


@dataclass(frozen=True, slots=True)
class Law:
    """What is claimed for a step, once for all kernels; `decided`: what is left to each use, and what decides it."""

    claims: Mapping[str, Claim]
    decided: str


_PARTS = range(1, MOST_PARTS + 1)
_SPLIT = {
    name: claim
    for p in _PARTS
    for name, claim in (
        *iterations.claims_of(f"{p} parts", split_law(p)).items(),
        (f"{p} parts that divide the loop need no mask", iterations.whole_split(p)),
    )
}
_COLLAPSE = {
    name: claim
    for k in range(1, MOST_LOOPS + 1)
    for name, claim in iterations.claims_of(f"{k} loops", collapse_law(k)).items()
}
_ONCE = {
    "a loop takes in each iteration once": folds.taken_once,
    "masked iterations are identities": folds.taken_once_inside,
}
_BOUNDS = {"a term without a bound is nowhere": programs.nothing_of_what_is_not_known}
_INSIDE = _BOUNDS | {"an index that is inside is an element's": programs.in_memory}
_ORDER = {"neighbours may be exchanged": folds.neighbours}
_POSITIONS = {
    f"{k} digits have one position": iterations.one_position_each(k)
    for k in range(1, MOST_DIGITS + 1)
}
# What is read at some places along axes.
_WINDOW = (
    {
        name: claim
        for k in range(1, MOST_LOOPS + 1)
        for name, claim in (
            (f"{k} digits have one position", _POSITIONS[f"{k} digits have one position"]),
            (f"along {k} axes the element that was read", iterations.kept_of_window(k)),
        )
    }
    | {
        "a window is filled from elements": iterations.filled_from_memory,
        "a remainder is what quotients leave": iterations.left_by_quotient,
        "a quotient of a quotient is one": iterations.quotient_of_quotient,
    }
    | _INSIDE
)

LAWS: dict[str, Law] = {
    "split": Law(
        _SPLIT | _ONCE | _ORDER,
        "the loop's size is known; its numbers are free; no loop that runs in order",
    ),
    "split_reading_inside": Law(
        _SPLIT
        | {
            f"{p} parts read inside{', in vectors' if vectors else ''}": iterations.reading_inside(
                p, vectors
            )
            for p in _PARTS
            for vectors in (False, True)
        }
        | _INSIDE
        | _ORDER,
        "an output loop; that a position is inside of its memory for the longer loop, by facts",
    ),
    "collapse": Law(
        _COLLAPSE | _ONCE | _ORDER,
        "the loops' sizes are known; all of them are of the output, or of one reduction; a store has all of them, or none",
    ),
    "extend": Law(
        iterations.claims_of("the longer loop", extend_law()) | _ONCE | _ORDER | _INSIDE,
        "a loop that a variable bounds, by bounds that facts show; no loop that runs in order",
    ),
    "shorten": Law(
        iterations.claims_of("the longer loop", extend_law())
        | {"a mask ends the loop": iterations.ended_by_mask}
        | _ONCE
        | _ORDER,
        "a mask of each store below the loop, or of what its reduction takes in, by linear forms",
    ),
    "window": Law(
        iterations.claims_of("the whole loop", window_law())
        | {"comparisons leave a window": iterations.left_by_comparison}
        | _BOUNDS
        | _ONCE
        | _ORDER,
        "masks of each store below the loop, or of what its reduction takes in, by linear forms; that the window is inside"
        " of the loop, by facts",
    ),
    "split_index_set": Law(
        iterations.claims_of("a part", window_law())
        | {"each iteration is of one part": iterations.of_one_part}
        | _ORDER,
        "an output loop of known size, of one store, that nothing else runs over; borders are inside of it, in order; the memory"
        " that is stored is read at the position that is stored alone",
    ),
    "align": Law(
        iterations.claims_of("the earlier loop", align_law()) | _BOUNDS | _ORDER,
        "an output loop of known size, that nothing else runs over, nor over a loop of the start; that the start is not below 0, by facts",
    ),
    "leave": Law(
        {
            "what is written is what was to be there": folds.left_as_it_was,
            "a choice is what is there where its mask is off": folds.chosen_inside,
        }
        | _ORDER,
        "that a value is what is there where the mask is off, by the masks of its choices",
    ),
    "merge": Law(
        iterations.claims_of("2 loops", collapse_law(2))
        | {"a term reads them as one": iterations.one_reading}
        | _ONCE
        | _ORDER,
        "the coefficients of both loops in every index, by linear forms",
    ),
    "reorder": Law(
        iterations.claims_of("another number", RENUMBER) | _ORDER,
        "an output loop whose size is known; the number is free",
    ),
    "own_loops": Law(
        iterations.claims_of("another number", RENUMBER) | _ONCE,
        "several stores; none of the loops is one of results, too",
    ),
    "one_reduction": Law(
        iterations.claims_of("another number", RENUMBER) | _ONCE,
        "two reductions in one way, in loops that end at the same; that they are one function of their loops, node by node",
    ),
    "reverse": Law(
        iterations.claims_of("from the last to the first", BACKWARDS) | _ONCE | _ORDER,
        "the loop's size is known; no loop that runs in order",
    ),
    "rescale_blocks": Law(
        {
            "a weight is that in its block times its block's": powers.weight_by_blocks,
            "where all is -inf all weights are 0": powers.weight_of_nothing,
            "a factor of all terms is one of the sum": powers.factor_of_sum,
        }
        | _ONCE
        | _ORDER,
        "FASTMATH names `real`; that the sum's weights are powers of the distance from the maximum of what they are powers of, divided by"
        " their own sum, which nothing else reads; all over as many blocks and elements",
    ),
    "divide_once": Law(
        {"a factor of all terms is one of the sum": powers.factor_of_sum} | _ONCE,
        "FASTMATH names `real`; that the sum's weights are powers of the distance from a maximum, times and divided by what does not"
        " change with its loops",
    ),
    "carry_maximum": Law(
        {
            "what was added is scaled to the next maximum": powers.carried_sum,
            "the first block": powers.carried_from_start,
            "where all is -inf all weights are 0": powers.weight_of_nothing,
            "a factor of all terms is one of the sum": powers.factor_of_sum,
        }
        | _ONCE
        | _ORDER,
        "FASTMATH names `real`; that what is summed is a power of the distance of what the maximum is of, times what does not read the"
        " maximum, which nothing else reads",
    ),
    "end_before_hidden": Law(
        iterations.claims_of("the longer loop", extend_law())
        | {
            "a comparison ends the loop": iterations.ended_by_hiding,
            "a block of -inf adds nothing": powers.block_of_nothing,
        }
        | _ONCE
        | _ORDER,
        "FASTMATH names `real`; that all sums over the loop are beside one maximum, of what is -inf where a comparison of index terms"
        " does not hold, by linear forms and bounds; that it changes with the same loops around as its end",
    ),
    "begin_after_hidden": Law(
        iterations.claims_of("the iterations from the first on", window_law())
        | {
            "a comparison begins the loop": iterations.begun_by_hiding,
            "a block of -inf adds nothing": powers.block_of_nothing,
        }
        | _ONCE
        | _ORDER,
        "FASTMATH names `real`; that all sums over the loop are beside one maximum, of what is -inf where a comparison of index terms"
        " does not hold, by linear forms and bounds; that it changes with the same loops around as its first iteration",
    ),
    "carry": Law(
        {
            "a register has taken in the first iterations": folds.first_iterations,
            "none lies outside": folds.plain_iterations,
            "what is read is taken in elsewhere": folds.read_inside,
            "it takes in one more by its operation": programs.carried_takes_once,
        }
        | _ONCE
        | _ORDER,
        "that the mask says j <= i + c, by linear forms; no loop but those of lanes inside of the one that carries the register",
    ),
    "prefix_in_blocks": Law(
        {
            f"{name}, {which}": claim
            for k, which in enumerate(("without the end", "with the end"))
            for name, claim in (
                ("whole blocks and a part of one are the first", folds.blocks_of_first(k)),
                ("what is read", folds.element_of_block(k)),
            )
        }
        | _ONCE
        | _INSIDE,
        "that the mask says j < t, or j <= t, by linear forms; 0 <= t < n, and that what is read without the mask is inside of its memory, by facts",
    ),
    "run_as": Law(
        _ORDER | {"a loop takes in each iteration once": folds.taken_once},
        "that no two iterations of output loops write one position is believed of lowering, and kept by every law;"
        " loops that run in order are refused; a value changes with one loop of lanes",
    ),
    "unroll": Law(
        {
            "a tree of copies": folds.written_out(folds.tree, folds.element),
            "copies one by one": folds.written_out(folds.chain, folds.element),
            "products one by one": folds.written_out(folds.chain, folds.product),
            "products of matrices onto each other": folds.written_out(
                folds.onto_each_other, folds.product_of_matrices
            ),
        }
        | _ONCE
        | _ORDER,
        f"each number of copies below {folds.MOST_COPIES} is run, and more are combined by the same loop; the loop's size is known",
    ),
    "local_buffer": Law(
        _COLLAPSE
        | {
            f"{k} loops have one position": _POSITIONS[f"{k} digits have one position"]
            for k in range(1, MOST_LOOPS + 1)
        }
        | iterations.claims_of("items of a group in turns", split_law(1))
        | {"an item reads what was filled last": folds.between_waits},
        "the value changes with loops of one reduction at most beside those it is kept along; that others are alike, node by"
        " node; that all items come to each wait (steps/running.py), and that waits stand between what items fill and read,"
        " in each Linear (verify/kernels/waiting.py)",
    ),
    "keep_window": Law(
        _WINDOW | {"an item reads what was filled last": folds.between_waits},
        "that a position is one of a window, by linear forms; that places are inside of the window, by facts, for each iteration of a few"
        " loops; as of local_buffer the loops in which memory is filled anew, and the waits",
    ),
    "stage_window": Law(
        _WINDOW,
        "that a position is that of its places, by linear forms; that places are inside of their axes, by facts",
    ),
    "all_reduce": Law(
        rounds.claims()
        | {"a loop takes in each iteration once": folds.taken_once}
        | _COLLAPSE
        | {"1 loops have one position": _POSITIONS["1 digits have one position"]},
        "the number of elements is a power of two, and they lie side by side, from a multiple of it on; that all items come to each"
        " wait, or exchange (steps/running.py, verify/kernels/waiting.py)",
    ),
    "keep_in_item": Law(
        _COLLAPSE
        | {
            f"{k} loops have one position": _POSITIONS[f"{k} digits have one position"]
            for k in range(1, MOST_LOOPS + 1)
        },
        "that the item which has filled what is read is the one that reads it, of every iteration of the loops that the position"
        " changes with, of which there are few",
    ),
    "fill_ahead": Law(
        ahead.claims(),
        "the loop is the outermost of one reduction, or of those that a loop which carries a maximum runs together, and runs one by one; no reduction in what is kept; that later steps leave the loops"
        " alone (steps/loop_nest.py), and that waits stand between what items fill and read, in each Linear"
        " (verify/kernels/waiting.py)",
    ),
    "turn_rows": Law(
        iterations.claims_of("pieces of a row", turn_law())
        | {"a row is turned by less than all": iterations.turned_by_less}
        | _COLLAPSE
        | {
            f"{k} loops have one position": _POSITIONS[f"{k} digits have one position"]
            for k in range(1, MOST_LOOPS + 1)
        },
        "one thing alone is kept along both loops, whose sizes are known",
    ),
    "stage": Law(
        _POSITIONS
        | {
            f"{p} digits below the first name a loop": iterations.digits_of_a_loop(p)
            for p in _PARTS
        },
        "the digits of each loop have no gaps, and reach its end; all loops of the value have digits",
    ),
    "deinterleave": Law(
        {
            "the element that was read": iterations.copied_element,
            "the element of a row that was read": iterations.copied_of_a_row,
            "every position is filled": iterations.copied_whole,
            "each element has one position": iterations.copied_apart,
        },
        "the coefficients of loops in the index, by linear forms; that those which do not go from row to row stay in one, by bounds",
    ),
    "pad_rows": Law(
        {
            "the element that was read": iterations.padded_element,
            "what is copied is there": iterations.padded_whole,
            "each element has one position": iterations.padded_apart,
        },
        "the coefficient of the loop in the index, by linear forms",
    ),
    "sum_in_memory": Law(
        iterations.claims_of("blocks", split_law(1))
        | {
            "blocks of equal length need no mask": iterations.whole_split(1),
            "block by block": folds.blocks,
        }
        | _ONCE
        | _ORDER,
        "one store of one reduction; every position of its memory is written; the blocks divide the loop",
    ),
    "reduce_in_parts": Law(
        iterations.claims_of("blocks", split_law(1))
        | {
            "blocks of equal length need no mask": iterations.whole_split(1),
            "block by block": folds.blocks,
            "an element of a block is one of the axis": graphs.element_of_block,
            "results are in one order": graphs.results_in_order,
            "axes one after the other are all of them": graphs.nested_axes,
            "two ends are the axis": graphs.both_ends,
        }
        | _ONCE
        | _ORDER,
        "the axis is one of the reduction's, of known size, and the blocks divide it; the others are its too",
    ),
    "store": Law(
        {
            f"a node of {k} sources over memory": graphs.same_over_memory(k)
            for k in range(graphs.MOST_SOURCES + 1)
        }
        | {
            "kernels leave the memory that is there": graphs.leaves_what_is_there,
            "kernels leave what kernels have filled": graphs.leaves_what_is_filled,
            "each value is computed over those before it": graphs.in_running_order,
        },
        "the roots are stored, or memory; a value is stored before it is read; a copy is of what memory holds; memory"
        " that a kernel reads is of its device; no memory that is there has a new number",
    ),
    "read_parts": Law(
        {
            "an element of a part is one of the slice": graphs.element_of_part,
            "so it is of a slice with gaps": graphs.element_of_part_with_gaps,
        },
        "the slice is of memory that the kernel only reads, taken whole but for reshapes, of known sizes: one element of"
        " the axes before, all of those behind, or of a block of which it is one, as others of the same memory are; axes before are one axis in row-major order, and so are those behind",
    ),
    "read_through": Law(
        {
            "a slice apart from a place has nothing of it": graphs.apart_from_place,
            "a slice inside has what was put there": graphs.inside_of_place,
            "a slice on one side of a border": graphs.sides_of_border,
            "a slice of what is repeated": graphs.slice_of_repeated,
            "a slice of a slice": graphs.slice_of_slice,
            "a slice of a sum": graphs.slice_of_sum,
        },
        "sizes are known; a place is where padding is not, and its mask all true, or the slice apart from it on one axis; it is"
        " inside on every axis; a border is a constant that a counter along one axis is compared with; an operation is on elements",
    ),
    "exchange": Law(
        {"operands that are exchanged": graphs.operands_exchanged},
        "that the operation commutes, by the table of operations; parameters are numbered as their memory is passed",
    ),
    "scatter": Law(
        {
            "each position takes in what the mask gave it": folds.one_position_takes,
            "what fits is what the machine counts": programs.in_width,
        }
        | _BOUNDS
        | _ONCE
        | _ORDER,
        "that the mask says p(j) = r, by its solution, which rules prove; every position of the memory is a result",
    ),
    "overwrite": Law(
        {
            "each position takes in what the mask gave it": folds.one_position_takes,
            "the last one stays": folds.last_one_stays,
            "what fits is what the machine counts": programs.in_width,
        }
        | _BOUNDS
        | _ONCE
        | _ORDER,
        "that the mask says p(j) = r, by its solution, which rules prove; that what is chosen is the counter, in a type that holds it;"
        " that values, positions and masks read other memory",
    ),
    "reduce_inside": Law(
        {"loops one after the other are all of them": graphs.nested_axes} | _ONCE | _ORDER,
        "the loops inside are some of the reduction's, and not all",
    ),
    "join_sums": Law(
        {"a mask goes to the leaves": folds.nested_mask} | _INSIDE | _ONCE,
        "no loop of two sums; a load without its mask stays inside of its memory, by facts",
    ),
    "unmask": Law(
        {
            "factors that are 0 need no mask": folds.mask_of_zeros,
            "a factor may have the mask": folds.mask_of_one_factor,
        }
        | _ONCE,
        "that the mask is part of the masks of both factors' loads, or of one, and the other gets it; 0 converted to a number is 0",
    ),
    "mma": Law(
        iterations.claims_of("one warp", warp_law(False))
        | iterations.claims_of("warps", warp_law(True))
        | iterations.claims_of("what items hold of rows", fragments.ROW_FRAGMENT)
        | iterations.claims_of("what items hold of columns", fragments.COLUMN_FRAGMENT)
        | {"what items hold are the factors of each result": fragments.factors_of_results}
        | _COLLAPSE
        | {
            f"{k} loops have one position": _POSITIONS[f"{k} digits have one position"]
            for k in range(1, MOST_LOOPS + 1)
        }
        | _ONCE
        | _ORDER,
        "that rows change one factor alone, and columns the other; the types and steps are a unit's; that one thing alone is kept"
        " along the loops, where they are no loops of results; that all items of a warp come to it (steps/running.py,"
        " verify/kernels/waiting.py)",
    ),
    "mma_in_item": Law(
        iterations.claims_of("results", square_law())
        | iterations.claims_of("what the item holds of rows", fragments.ROWS_IN_ITEM)
        | iterations.claims_of("what the item holds of columns", fragments.COLUMNS_IN_ITEM)
        | _ONCE
        | _ORDER,
        "that rows change one factor alone, and columns the other; the types and sizes are a unit's",
    ),
    "read_inside": Law(
        {
            f"brought {name}": folds.brought_inside(low, high)
            for name, low, high in (
                ("above", True, False),
                ("below", False, True),
                ("between", True, True),
            )
        }
        | _INSIDE,
        "the load's own mask is part of the sum's; the position it is brought to is inside of its memory, by facts",
    ),
    "accumulate": Law(
        {
            "a register takes in each iteration once": programs.register_takes_once,
            "what is kept is in order": programs.kept_in_order,
        }
        | _ONCE
        | _ORDER,
        "nothing; what is kept, and how up to so many products go into a register, is run",
    ),
    "lanes": Law(
        {
            "a lane reads its own element": programs.lane_reads_its_element,
            "the lane that a mask leaves reads its own": programs.left_lane_reads_its_element,
            "lanes are combined as iterations were": programs.partial_results,
        }
        | _INSIDE
        | _ONCE
        | _ORDER,
        "the coefficient of the loop in each position, by linear forms; an operation of vectors is by its meaning that"
        " of each lane; which nodes become vectors is run",
    ),
    "pair": Law(
        {"a dot of words is two products": programs.dot_of_words} | _ONCE | _ORDER,
        "the sum is of int32, its factors are converted from types that fit 16 bits with sign; the loop has two iterations"
        " and is not the only one; DOT is by its meaning that of the halves",
    ),
    "offset_factor": Law(
        {
            "a byte of the other type is at the distance": folds.other_byte,
            "what is added is taken off": folds.offset_taken_off,
        }
        | _ONCE,
        "the sum is of int32, the factor converted from int8 or uint8; its loops run in order; sums and products of machine"
        " integers are the mathematical ones, modulo",
    ),
    "where_normal": Law(
        {
            "the smallest exponent is found": folds.smallest_exponent,
            "no product is denormal, nor a sum": folds.not_denormal,
            "one way stores": folds.one_of_two_ways,
        }
        | _ONCE,
        "one sum of products of float32, whose factors are loads of bfloat16; one store, of results that nothing was said of; a number of"
        " bfloat16 is a multiple of 2**(e - 134) where its stored exponent e is not 0, and what a sum is rounded to has the digits that"
        " it had, or fewer",
    ),
    "narrow_lanes": Law(
        {
            "what fits is what the machine counts": programs.in_width,
            "what fits fewer bits is computed in them": programs.alike_in_fewer_bits,
        }
        | _BOUNDS,
        "that each term, and a quotient or a remainder, fits the width, by facts; a comparison of values is by its meaning the same in any width",
    ),
    "narrow": Law(
        {"what fits is what the machine counts": programs.in_width} | _BOUNDS,
        "that each term fits the width, by facts; an operation of machine integers is by its meaning the"
        " mathematical one, modulo",
    ),
}
