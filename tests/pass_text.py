"""Cases of steps and passes as text: tests/passes/*.txt.

Owns: how such a file is read, written, and what its commands mean. A file has cases, each with a heading, a sentence,
the graph before, a command, and the graph after, or what is said where a step refuses:

    # A size that divides needs no mask
    The loop becomes two.

    before
        kernel
          ...
    split r0 by 4 into r0, r2 as vector
    after
        kernel
          ...

A command is a step with its arguments (`_STEPS` below), or `pass NAME [on TARGET] [override CHOICES]` for a stage of the
compiler. A term is named by the `let` of the graph before. ` of reals` behind a step: where FASTMATH names `real`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from proofgrad.core.compile.machine.target import MatrixUnit, Target, TileUnit
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, read_schedule
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.passes.stages import Library, RuleSets, Tactic, parts_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.keep_window import Axis
from proofgrad.core.compile.steps.loop_nest import STEPS, StepRefused, lowered
from proofgrad.core.compile.steps.stage import Digit
from proofgrad.core.compile.text.reader import read_named
from proofgrad.core.compile.text.show import show_nest
from proofgrad.core.compile.text.syntax import TYPES
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.journal import Journal
from proofgrad.rules.library import load_library
from proofgrad.rules.pipeline import COTANGENTS, FACTS, KERNEL_STAGES
from proofgrad.verify.steps.all_steps import all_steps

all_steps()  # imports each, so that one that no tactic takes yet has cases, too

UNITS = (
    MatrixUnit(dtypes.float16, dtypes.float32, 2, 4),
    MatrixUnit(dtypes.float64, dtypes.float64, 1, 1),
    TileUnit(dtypes.int8, dtypes.uint8, dtypes.int32, 2, 2, 2, 1, 4),
)
PASSES = {stage.name: stage for stage in KERNEL_STAGES}
TARGETS = {
    "PLAIN": Target("PLAIN"),
    "AVX512": Target("AVX512", vector_bytes=64, vector_registers=32, threads=2, scratch_bytes=4096),
    "SERVER": Target("SERVER", vector_bytes=64, past_caches_bytes=1 << 23),
    "TILES": Target("TILES", vector_bytes=16, scratch_bytes=4096, matrix_units=UNITS),
    "SSE": Target("SSE", vector_bytes=16),
    "DOTS": Target("DOTS", vector_bytes=16, has_dot=True),
    "ITEMS": Target("ITEMS", work_items=True, index_dtype=dtypes.int32),
    "GROUPS": Target(
        "GROUPS", vector_bytes=16, work_items=True, group_items=64, local_bytes=4096, lockstep=32
    ),
    "WARPS": Target(
        "WARPS",
        vector_bytes=16,
        work_items=True,
        group_items=64,
        local_bytes=4096,
        lockstep=32,
        warp_items=32,
        matrix_units=UNITS,
    ),
}
_FORMS = {"kernel": Form.KERNEL, "program": Form.PROGRAM, "linear": Form.LINEAR}


@cache
def library() -> Library:
    """The rules of the library."""
    return Library(load_library(), FACTS, COTANGENTS, Journal())


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a file."""

    heading: str
    sentence: str
    before: str
    command: str
    after: str  # a graph, `refused: why` or `unchanged`

    def __str__(self) -> str:
        head = f"# {self.heading}\n{self.sentence}\n\nbefore\n{_indented(self.before)}"
        is_graph = self.after.split()[0].rstrip(",") in _FORMS
        after = f"after\n{_indented(self.after)}" if is_graph else f"{self.after}\n"
        return f"{head}{self.command}\n{after}"

    @property
    def subject(self) -> str:
        """The step, or the pass, that it is about."""
        found = re.match(r"pass (.+?)(?: on \w+)?(?: override .*)?$", self.command)
        if found is not None:
            return found[1]
        return _step_of(self.command.removesuffix(" of reals"))[0]


def read_cases(path: Path) -> list[Case]:
    """The cases of a file. Raises: ValueError for a file of another form."""
    found: list[Case] = []
    for text in re.split(r"^# ", path.read_text(), flags=re.MULTILINE)[1:]:
        parts = re.fullmatch(
            r"(?P<heading>.+)\n(?P<sentence>(?:.+\n)+)\n*before\n(?P<before>(?: {4}.*\n|\n)+)"
            r"(?P<command>\w.*)\n(?P<after>(?:after\n(?: {4}.*\n|\n)+|[ru].*\n+)?)\n*",
            text,
        )
        if parts is None:
            raise ValueError(f"{path}: no case of the form that pass_text.py says: {text[:200]}")
        after = parts["after"].strip("\n")
        after = _plain(after.removeprefix("after\n")) if after.startswith("after") else after
        before = _plain(parts["before"])
        found.append(
            Case(parts["heading"], parts["sentence"].strip(), before, parts["command"], after)
        )
    return found


def write_cases(path: Path, cases: list[Case]) -> None:
    path.write_text("\n".join([str(case) for case in cases]))


def run_case(case: Case) -> Case:
    """The case with what its command makes."""
    graph, names = read_named(case.before)
    check_form(_form(graph, case.before), graph) if _form(graph, case.before) else None
    made = _run(case, graph, names)
    if isinstance(made, str):
        return replace(case, after=made)
    if made is graph:
        return replace(case, after="unchanged")
    after = show_nest(made).rstrip("\n")
    assert read_named(after)[0] is made
    for part in parts_of(made):
        if (form := _form(part, after)) is not None:
            check_form(form, part)
    return replace(case, after=after)


def _run(case: Case, graph: UOp, names: dict[str, UOp]) -> UOp | str:
    known = library()
    facts = known.facts()
    found = re.fullmatch(r"pass (.+?)(?: on (\w+))?(?: override (.*))?", case.command)
    try:
        if found is not None:
            stage, target = PASSES[found[1]], TARGETS[found[2] or "PLAIN"]
            override = read_schedule(found[3]) if found[3] else AUTOMATIC
            if isinstance(stage.step, RuleSets):
                return Rewriter(
                    known.rules_of(stage.step.used(target.native)), facts, known.journal
                ).rewrite(graph)
            context = Context(target, facts, override)
            if isinstance(stage.step, Tactic):
                nests = stage.step(lowered(graph, facts, target), context)
                graphs = [nest.graph for nest in nests]
                return graphs[0] if len(graphs) == 1 else UOp.sink(*graphs)
            return stage.step(graph, context)
        name, rest = _step_of(command := case.command.removesuffix(" of reals"))
        nest = lowered(
            graph, facts, replace(TARGETS["AVX512"], local_bytes=4096, matrix_units=UNITS)
        )
        classes = {} if command == case.command else {"FASTMATH": "real"}
        with patch.dict(os.environ, classes):
            made = STEPS[name](nest, *_STEPS[name](_Arguments(rest, names)))
    except StepRefused as refusal:
        return f"refused: {refusal}"
    return UOp.sink(*[n.graph for n in made]) if isinstance(made, tuple) else made.graph


def _step_of(command: str) -> tuple[str, str]:
    """The name of a step, and its arguments."""
    known = sorted(STEPS, key=len, reverse=True)
    if " reading inside" in command:
        return "split_reading_inside", command.removeprefix("split").replace(" reading inside", "")
    for name in known:
        words = name.replace("_", " ")
        if command == words or command.startswith(f"{words} "):
            return name, command.removeprefix(words)
    raise ValueError(f"no step {command!r}; there are {', '.join(known)}")


class _Arguments:
    """The words of a command behind its name."""

    def __init__(self, text: str, names: dict[str, UOp]) -> None:
        self.text, self.names = text, names

    def after(self, word: str) -> str:
        """The text behind a word, up to the next."""
        found = re.search(rf"\b{word} (.+?)(?= (?:by|into|to|along|alike|of|from) |$)", self.text)
        if found is None:
            raise ValueError(f"expected `{word}` in {self.text!r}")
        return found[1]

    def first(self) -> str:
        return re.split(r" (?:by|into|to|along|alike|from) ", f"{self.text} ")[0].strip()

    def nodes(self, text: str) -> tuple[UOp, ...]:
        return tuple([self.names[name.strip()] for name in text.split(",")])

    def node(self) -> UOp:
        return self.names[self.first()]

    def numbers(self, word: str) -> tuple[int, ...]:
        return tuple([int(n) for n in re.findall(r"\d+", self.after(word))])

    def made(self) -> tuple[NewLoop, ...]:
        """Loops as `r0, r2 as vector`."""
        found = re.findall(r"r(\d+)(?: as (\w+))?", self.after("into"))
        return tuple([NewLoop(int(n), AxisRole(role or "loop")) for n, role in found])

    def items(self) -> tuple[tuple[NewLoop, ...], NewLoop]:
        """Loops of items and of what each has of the result, and the one over what it holds."""
        *made, own = self.made()
        return tuple(made), own

    def digits(self) -> tuple[Digit, ...]:
        """Digits of loops as `r9 = r1 // 4 % 2`."""
        pattern = r"r(\d+) = (r\d+)(?: // (\d+))? % (\d+)"
        return tuple(
            [
                Digit(self.names[loop], int(size), NewLoop(int(number)), int(stride or 1))
                for number, loop, stride, size in re.findall(pattern, self.after("by"))
            ]
        )

    def axes(self) -> tuple[Axis, ...]:
        """Axes of a window as `along t0, r3 into r5, r6 by 6, 3, 4, 1`: places, loops, a size and a stride of each."""
        places, numbers = self.nodes(self.after("along")), self.numbers("by")
        parts = zip(places, numbers[::2], numbers[1::2], self.made(), strict=True)
        return tuple([Axis(*part) for part in parts])

    def roles(self) -> dict[UOp, AxisRole]:
        """Loops as `r0 as thread, r1 as vector`."""
        return {
            self.names[n]: AxisRole(role) for n, role in re.findall(r"(r\d+) as (\w+)", self.text)
        }

    def carried(self) -> tuple[tuple[UOp, ...]]:
        """Reductions as `t0, t1`."""
        return (self.nodes(self.first()),)

    def alike(self) -> list[tuple[UOp, tuple[UOp, ...]]]:
        """Values as `alike t1 of r2, r3`, each of its loops."""
        found = re.findall(r"alike (\w+) of (\w+(?:, \w+)*)", self.text)
        return [
            (self.names[v], tuple([self.names[r] for r in own.split(", ")])) for v, own in found
        ]


_STEPS: dict[str, Callable[[_Arguments], tuple[Any, ...]]] = {
    "accumulate": lambda a: (),
    "align": lambda a: (a.node(), *a.nodes(a.after("from")), *a.numbers("by")),
    "all_reduce": lambda a: (a.node(), a.made()[0].number),
    "carry": lambda a: a.carried(),
    "carry_maximum": lambda a: (),
    "collapse": lambda a: (a.nodes(a.first()), a.made()[0]),
    "deinterleave": lambda a: (
        a.node(),
        *a.nodes(a.after("along")),
        *(a.numbers("rows of") if "rows of" in a.text else ()),
    ),
    "pad_rows": lambda a: (a.node(), *a.nodes(a.after("along")), *a.numbers("by")),
    "fill_ahead": lambda a: (a.node(), *a.made(), *(a.numbers("by") if " by " in a.text else ())),
    "turn_rows": lambda a: (a.node(), *a.nodes(a.after("along")), *a.numbers("by")),
    "begin_after_hidden": lambda a: (a.node(), a.nodes(a.after("along"))),
    "end_before_hidden": lambda a: (a.node(), a.nodes(a.after("along"))),
    "extend": lambda a: (a.node(),),
    "keep_window": lambda a: (a.node(), *a.nodes(a.after("from")), a.axes()),
    "stage_window": lambda a: (a.node(), a.axes()),
    "keep_in_item": lambda a: (a.node(), *a.nodes(a.after("along"))),
    "join_sums": lambda a: (a.node(),),
    "leave": lambda a: (a.node(),),
    "local_buffer": lambda a: (a.node(), a.nodes(a.after("along")), a.made(), a.alike()),
    "lanes": lambda a: (a.node(),),
    "mma": lambda a: (a.node(), a.nodes(a.after("along")), *a.items()),
    "mma_in_item": lambda a: (a.node(), *a.nodes(a.after("along")), *a.made()),
    "merge": lambda a: a.nodes(a.first()),
    "offset_factor": lambda a: (a.node(), *a.numbers("by")),
    "own_loops": lambda a: (a.nodes(a.after("along")) if " along " in a.text else (),),
    "one_reduction": lambda a: a.nodes(a.first()),
    "pair": lambda a: (a.node(), *a.nodes(a.after("along"))),
    "prefix_in_blocks": lambda a: (a.node(), *a.numbers("by"), a.made()),
    "narrow": lambda a: (TYPES[a.after("to")],),
    "narrow_lanes": lambda a: (TYPES[a.after("to")],),
    "reduce_inside": lambda a: (a.node(), a.nodes(a.after("along"))),
    "read_inside": lambda a: (a.node(),),
    "reorder": lambda a: (a.node(), *a.numbers("to")),
    "rescale_blocks": lambda a: (a.node(),),
    "divide_once": lambda a: (a.node(),),
    "reverse": lambda a: (a.node(),),
    "run_as": lambda a: (a.roles(),),
    "scatter": lambda a: (),
    "overwrite": lambda a: (),
    "shorten": lambda a: (a.node(),),
    "split": lambda a: (a.node(), a.numbers("by"), a.made()),
    "split_reading_inside": lambda a: (a.node(), a.numbers("by"), a.made()),
    "split_index_set": lambda a: (a.node(), a.numbers("by")),
    "stage": lambda a: (a.node(), a.digits()),
    "sum_in_memory": lambda a: (*a.numbers("by"), a.made()[0].number),
    "unmask": lambda a: (a.node(),),
    "where_normal": lambda a: (a.node(),),
    "unroll": lambda a: (frozenset(a.nodes(a.first())),),
    "window": lambda a: (a.node(),),
}


def _form(graph: UOp, text: str) -> Form | None:
    """The form that the first word of a text says."""
    return _FORMS.get(re.split(r"\W", text, maxsplit=1)[0])


def _indented(text: str) -> str:
    return "".join([f"    {line}\n" if line else "\n" for line in text.splitlines()])


def _plain(text: str) -> str:
    return "\n".join([line[4:] for line in text.splitlines()]).strip("\n")
