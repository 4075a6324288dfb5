"""Faults planted in steps: in the functions of their laws, which proofs find, and around them, which runs find.

    python tests/planted/step_faults.py --laws                    every change of a law's function
    python tests/planted/step_faults.py --bodies 60 --seed 1      so many changes of what is around them

Owns: which functions are laws, the three ways to find a fault, the table. Does not own: the changes of text (mutations.py), the
claims (verify/steps), what steps make of small kernels and programs (step_runs.py).

A fault is found by *proof* if the claims of a step that it changes are not proved, for small numbers or by the solver; by *test* if a
test of what steps refuse fails (test_step_conditions.py); by *run* if a step makes a small kernel that is not the same, or stops in
an error that is no refusal. It only *refuses* if some applications are refused that are not without it, and no others are
made: so a step may be taken less often, never wrongly. What is the *same* has its reason in SAME. Each of the rest is *not found*.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # else the folder of tests is found already
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest  # noqa: E402
from programs_of_kernels import WrongStep  # noqa: E402

from planted.mutations import functions_of, mutation  # noqa: E402
from planted.plant import Fault, in_a_fork, plant  # noqa: E402
from planted.step_runs import FEWER, Differences, differences, right_ones  # noqa: E402
from proofgrad.core.compile.steps import evidence, reorder  # noqa: E402
from proofgrad.core.compile.steps.bijection import Bijection  # noqa: E402
from proofgrad.verify.steps import laws  # noqa: E402
from proofgrad.verify.steps.all_steps import all_steps, problems  # noqa: E402
from proofgrad.verify.steps.claims import PROVED, tried  # noqa: E402
from proofgrad.verify.steps.prove import decide_claim  # noqa: E402

FOLDER = "core/compile/steps"
LAW_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "split": ("split_law", "_quotient_up", "_digits", "reach_of", "nearest_inside"),
    "extend": ("extend_law", "quotient_up"),
    "window": ("window_law", "bounds_by"),
    "split_index_set": ("is_of_part", "size_of_part"),
    "align": ("align_law",),
    "hidden_blocks": ("end_of_mask", "inside_of_loop", "begin_of_mask", "before_the_end"),
    "collapse": ("collapse_law", "digits_of"),
    "digits": ("product_of", "number_of"),
    "bounds": ("lies_between", "is_inside", "fits"),
    "merge": ("counted_by", "is_one_number"),
    "deinterleave": ("phase_and_position", "length_of", "element_at", "slot_of"),
    "pad_rows": ("position_in_copy", "rows_of", "element_of"),
    "stage": ("position_of",),
    "carry": ("takes_in", "taken_before", "nearest", "is_one"),
    "rescale_blocks": ("finite", "of_block", "of_row"),
    "carry_maximum": ("scaled",),
    "prefix_blocks": ("whole_blocks", "is_before", "is_of_last", "element_of"),
    "scatter": ("nearest_between",),
    "overwrite": ("is_some",),
    "clamp": ("brought",),
    "unmask": ("unmasked",),
    "pair": ("dot_of_words", "word_of"),
    "offset_factor": ("moved", "restored"),
    "where_normal": ("gap_of", "exponent_of", "is_normal"),
    "keep_window": ("position_of", "is_element", "remainder", "quotient_at_once"),
    "turn_rows": ("turn_law", "turn_of"),
    "all_reduce": ("taken_from",),
    "fill_ahead": ("iteration_kept", "part_read", "position_in_part"),
    "mma": ("warp_law", "_of_warp"),
    "mma_in_item": ("square_law",),
    "unroll": ("_written_out", "_copies", "_combined", "_one_by_one", "_onto_each_other"),
    "narrow": ("terms_beyond",),
    "accumulate": ("_fill",),
    "lanes": ("_combiner",),
    "store": ("over_memory", "number_of"),
    "read_through": ("is_apart", "is_inside", "is_before", "is_behind", "counted_from", "of_slice", "of_repeated", "summed"),
    "read_parts": ("begin_of", "first_of", "last_of"),
    "exchange": ("exchanged",),
    "reduce_in_parts": ("in_blocks", "with_blocks_first", "ends_of"),
}  # fmt: skip
BODIES = (
    *(
        "bijection",
        "split",
        "collapse",
        "merge",
        "reorder",
        "run_as",
        "running",
        "unroll",
        "local_buffer",
        "keep_window",
        "turn_rows",
        "fill_ahead",
        "keep_in_item",
        "all_reduce",
        "prefix_blocks",
        "rescale_blocks",
        "carry_maximum",
        "divide_once",
        "own_loops",
        "mma",
        "mma_in_item",
    ),
    *(
        "stage",
        "stage_window",
        "deinterleave",
        "pad_rows",
        "sum_in_memory",
        "scatter",
        "overwrite",
        "join",
        "clamp",
        "unmask",
        "pair",
        "offset_factor",
        "where_normal",
        "tables",
    ),
    *("accumulate", "lanes", "narrow", "narrow_lanes", "extend", "window", "leave"),
    *("split_index_set", "align"),
    *("tensor_program", "read_through", "reduce_in_parts", "store", "read_parts", "exchange"),
)
SECONDS = 120  # of a process's own time for one fault
CONDITIONS = Path(__file__).resolve().parents[1] / "test_step_conditions.py"


@dataclass(frozen=True, slots=True)
class Found:
    """What found a fault, and how; nothing: what was tried did not."""

    fault: Fault
    by: str = ""
    how: str = ""

    def __str__(self) -> str:
        return f"{self.by or 'NOT FOUND':9} {self.fault.name[:88]:88} {self.how[:160]}"


def by_proof(fault: Fault) -> Found:
    """What the claims of the steps say of a fault: of small numbers first, of all claims."""

    text = fault.text()

    def work(tell: Callable[[Any], None]) -> None:
        try:
            _plant(fault, text)
            changed = importlib.reload(laws).LAWS
        except Exception as error:  # noqa: BLE001  (a law may stop in any)
            tell(f"the laws cannot be made: {type(error).__name__}")
            return
        claims = {c: f"{s}: {n}" for s in _decided_by(fault) for n, c in changed[s].claims.items()}
        for claim, name in claims.items():
            if (small := tried(claim)).verdict != PROVED:
                tell(f"{name}: {small.what} is {small.verdict} at {small.found}")
                return
        for claim, name in claims.items():
            if (decision := decide_claim(name, claim)).verdict != PROVED:
                tell(f"{name}: {decision.why}")
                return

    return _found(fault, "proof", in_a_fork(work, SECONDS))


def by_test(fault: Fault) -> Found:
    """What the tests of what steps refuse say of a fault."""

    text = fault.text()

    def work(tell: Callable[[Any], None]) -> None:
        failed = Failed()
        with contextlib.redirect_stdout(io.StringIO()):
            _plant(fault, text)
            pytest.main(["-x", "-q", "-p", "no:cacheprovider", str(CONDITIONS)], [failed])
        if failed.tests:
            tell(failed.tests[0].rpartition("::")[2])

    return _found(fault, "test", in_a_fork(work, SECONDS))


class Failed:
    """Tells pytest to keep the names of tests that fail."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests.append(report.nodeid)


def by_run(fault: Fault, start: int = 0) -> Found:
    """What the steps that a fault changes make of small kernels, and of small programs."""

    text = fault.text()
    if stale := problems():  # else each step is refused, and each fault found
        raise evidence.EvidenceError(stale[0])
    own = [name for name in all_steps() if module_of_step(name) == fault.module]
    others = [name for name in _decided_by(fault) if name not in own]
    for stride, names in ((1, own), (FEWER, others)):
        for name in names:
            right_ones(name, start, stride)

    def work(tell: Callable[[Any], None]) -> None:
        try:
            _plant(fault, text)
            found = Differences()
            found.add(differences(own, start))
            found.add(differences(others, start, FEWER))
        except WrongStep as wrong:
            tell(["run", str(wrong)])
        except Exception as error:  # noqa: BLE001  (a fault may stop in any)
            tell(["run", f"{type(error).__name__}: {error}"])
        else:
            tell(["refuses" if found.only_refuses else "", str(found)])

    told = in_a_fork(work, SECONDS)[0]
    return Found(fault, "run", told) if isinstance(told, str) else Found(fault, *told)


def _found(fault: Fault, by: str, told: list[Any]) -> Found:
    return Found(fault, by, str(told[0])) if told else Found(fault)


def _plant(fault: Fault, text: str) -> None:
    before = vars(importlib.import_module(fault.module)).copy()
    plant(fault.module, text)
    if fault.module == reorder.__name__:  # a law that is a constant
        changed: dict[str, Any] = {"__name__": fault.module}
        exec(compile(text, fault.file, "exec"), changed)
        for part in Bijection.__slots__:
            object.__setattr__(before["RENUMBER"], part, getattr(changed["RENUMBER"], part))


def module_of_step(name: str) -> str:
    return str(all_steps()[name].function.__module__)


def _decided_by(fault: Fault) -> list[str]:
    """The steps whose laws the file of a fault decides."""
    sources, own = evidence.read_sources(), fault.module.rpartition(".")[2]
    steps = {name: step.function.__module__ for name, step in all_steps().items()}
    return [name for name, module in steps.items() if own in sources.deciding(module)]


# Changes that are none, by function and text, and why.
SAME = {
    "offset_factor.moved byte - distance": "128 added, or taken off, is the same modulo 256",
    "where_normal.is_normal one + other > LEAST + 2 * (BIAS + DIGITS)": "one way is taken less often, and the other more",
    "where_normal.is_normal one > 1": "one way is taken less often, and the other more",
    "where_normal.is_normal other > 1": "one way is taken less often, and the other more",
    "where_normal.is_normal one - other": "it holds less often: then the one is larger than both need be",
    "where_normal.is_normal 2": "it holds less often",
    "where_normal.is_normal 3": "it holds less often",
    "store.number_of 2": "one number is left out",
    "reduce_in_parts.ends_of ((length, whole), (0, length))": "the order of a reduction is not specified",
    "split.split_law (*[f'k{p + 1}' for p in range(parts)], 'n')": "names of parameters, by which nothing is found",
    "unroll._combined (b, a)": "the order of a reduction is not specified",
    "join.is_nested value.op is not Ops.MUL": "sums of products are what is worth it; the law is of any sums",
    "unroll._unrolled product_of(value) is None": "one by one or as a tree: the order of a reduction is not specified",
    "clamp._brought_inside loop in found": "no position is brought inside; a load loses its mask only where it is inside as it is",
    "accumulate.accumulate 2": "numbers of registers, which are told apart as before",
    "accumulate.accumulate number -= 1": "numbers of registers, which are told apart as before",
    "split.split_reading_inside sizes[-1] if not made[-1].role is AxisRole.VECTOR else 1": "any iteration that is inside may be read beyond the end",
    "rescale_blocks.of_block finite(least, block)": "the larger of two numbers, either way",
    "rescale_blocks.of_row finite(least, row)": "the larger of two numbers, either way",
    "read_parts._part sum((), ranges)": "no slice is one without gaps; with them it has the same elements",
    "read_parts._part (taken.arg, taken.src[0].shape)": "no slice is one without gaps; with them it has the same elements",
    "read_parts._part buffer.op is Ops.BUFFER": "no slice is one without gaps; with them it has the same elements",
    "read_parts.parts_of node.op is Ops.PAD and node.op is Ops.SKEW": "beside padding it is taken as well: it asks for more, of the same elements",
    "carry.takes_in 0 < count - 1 + offset": "the step is taken less often",
    "carry.takes_in 1": "the step is taken less often",
    "carry.takes_in 2": "the step is taken less often",
    "carry.taken_before offset < 0": "none are taken in before where it is 0, either way",
    "carry.taken_before size <= offset": "of two numbers that are the same either is the smaller",
    "pad_rows.pad_rows 2": "the number of a loop in a graph of its own",
    "deinterleave.deinterleave 2": "the number of a loop in a graph of its own",
    "narrow._loads_of_variables FIRST_VARIABLE - k": "numbers that no buffer has, each of one variable, as before",
    "merge._index_demands 5": "how many graphs are remembered at once",
    "local_buffer.functions_of functions.setdefault(len(functions), key)": "a function's number is its key itself, which is as good",
    "keep_window._is_by_number divisor.arg >= 0": "no position has a remainder by 0",
    "keep_window.position_of zip(strides, places, strict=True)": "where an element is does not matter to the law, if it is filled from there and decided to be read there",
    "keep_window.position_of position - place * stride": "where an element is does not matter to the law, if it is filled from there and decided to be read there",
    "keep_window.position_of place + stride": "where an element is does not matter to the law, if it is filled from there and decided to be read there",
    "turn_rows.turn_law ('by', 'n')": "names of parameters, by which nothing is found",
    "turn_rows.turn_law by <= n": "a turn by all pieces is none",
    "accumulate._loads_of n.op is not LOAD": "the order in which products go into a register is that of a reduction",
    "tables.new_table 2": "a parameter that no graph has is one number further",
    "collapse.digits_of k - 1": "is_last is never so, and number // 1 is number",
}


def same_as(fault: Fault) -> str | None:
    """Why a fault is none; None if it is one."""
    return SAME.get(fault.name.partition(":")[0] + fault.name.rpartition(":")[2])


# -- which ----------------------------------------------------------------------------------------

RENUMBERED = tuple(
    Fault(f"reorder.RENUMBER: {before} is {after}", f"{FOLDER}/reorder.py", before, after)
    for before, after in (
        ("old=lambda i, n: (i,)", "old=lambda i, n: (i + 1,)"),
        ("old=lambda i, n: (i,)", "old=lambda i, n: (n - i,)"),
        ("old=lambda i, n: (i,)", "old=lambda i, n: (n - 1 - i,)"),
        ("new=lambda i, n: (i,)", "new=lambda i, n: (0,)"),
        ("new=lambda i, n: (i,)", "new=lambda i, n: (i // 2,)"),
        ("after=lambda n: (n,)", "after=lambda n: (n + 1,)"),
        ("after=lambda n: (n,)", "after=lambda n: (n - 1,)"),
        ("before=lambda n: (n,)", "before=lambda n: (n * n,)"),
    )
)


def law_faults(modules: Collection[str] = BODIES) -> list[Fault]:
    """Every change of a function of a law."""
    found = list(RENUMBERED) if "reorder" in modules else []
    for module, functions in LAW_FUNCTIONS.items():
        if module not in modules:
            continue
        file = f"{FOLDER}/{module}.py"
        names = functions_of(file)
        found += [mutation(file, k) for k, name in enumerate(names) if name in functions]
    return found


def body_faults(count: int, seed: int, modules: Collection[str] = BODIES) -> list[Fault]:
    """So many changes of what is around the laws, drawn: of each file as many as of the others."""
    draw, waiting = random.Random(seed), {}
    for module in [module for module in BODIES if module in modules]:
        file, own = f"{FOLDER}/{module}.py", LAW_FUNCTIONS.get(module, ())
        numbers = [k for k, name in enumerate(functions_of(file)) if name not in own]
        waiting[file] = draw.sample(numbers, len(numbers))
    found: list[Fault] = []
    while len(found) < count and any(waiting.values()):
        for file, numbers in waiting.items():
            if numbers and len(found) < count:
                found.append(mutation(file, numbers.pop()))
    return found


def find(faults: Iterable[Fault], ways: Sequence[Callable[[Fault], Found]]) -> list[Found]:
    """What finds each fault, the first way that does."""
    found = []
    for fault in faults:
        reason = same_as(fault)
        one = Found(fault, "same" if reason else "", reason or "")
        for way in ways:
            if not one.by:
                now = way(fault)
                one = now if now.by or now.how else one
        print(one, flush=True)
        found.append(one)
    return found


WAYS = {"proof": "by proof", "test": "by test", "run": "by run", "refuses": "only refuses", "same": "the same",
        "": "not found"}  # fmt: skip


def table(found: Sequence[Found]) -> str:
    counts = Counter([(one.fault.file, one.by) for one in found])
    ways = [way for way in WAYS if not way or any([one.by == way for one in found])]
    rows = [
        f"| file | faults | {' | '.join([WAYS[way] for way in ways])} |",
        "|---" * (2 + len(ways)) + "|",
    ]
    for file in sorted({one.fault.file for one in found}):
        numbers = [counts[file, way] for way in ways]
        rows.append(f"| `{file}` | {sum(numbers)} | {' | '.join(map(str, numbers))} |")
    totals = [sum([one.by == way for one in found]) for way in ways]
    return "\n".join([*rows, f"| together | {len(found)} | {' | '.join(map(str, totals))} |"])


def main(arguments: Sequence[str]) -> int:
    """Plant, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--laws", action="store_true", help="every change of a law's function")
    parser.add_argument("--bodies", type=int, default=0, help="so many changes around them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--module", action="append", help="only in these")
    asked = parser.parse_args(arguments)
    all_steps()
    modules = asked.module or (*BODIES, *LAW_FUNCTIONS)
    found = find(law_faults(modules), [by_proof]) if asked.laws else []
    found += find(body_faults(asked.bodies, asked.seed, modules), [by_test, by_run, by_proof])
    print(f"\n{table(found)}")
    return 1 if any([not one.by for one in found]) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
