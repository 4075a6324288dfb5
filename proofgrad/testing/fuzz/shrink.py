"""A smaller program that shows the same fault.

Owns: which changes are tried. Every candidate is run; one that has no meaning is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.oracle import Machine, Meaningless, expected
from proofgrad.testing.fuzz.program import (
    Data,
    Program,
    Realize,
    Ref,
    Statement,
    Step,
    Write,
    is_leaf,
    references,
)
from proofgrad.testing.fuzz.run import Outcome
from proofgrad.testing.fuzz.values import kind_of

MOST_RUNS = 400
MOST_SLOW_RUNS = 25  # each of them takes all the time that it may


def shrunk(
    program: Program, outcome: Outcome, check: Callable[[Program], Outcome]
) -> tuple[Program, Outcome]:
    """The smallest that was found within so many runs, and its outcome."""
    runs = 0
    most = MOST_SLOW_RUNS if outcome.status == "slow" else MOST_RUNS

    def still(candidate: Program) -> Outcome | None:
        nonlocal runs
        if runs >= most or not candidate.results:
            return None
        try:
            expected(candidate)
        except Meaningless:
            return None
        runs += 1
        found = check(candidate)
        same = found.status == outcome.status and (
            found.status != "error" or found.fault == outcome.fault
        )
        return found if same else None

    best = outcome
    changed = True
    while changed and runs < most:
        changed = False
        for change in CHANGES:
            for candidate in change(program):
                if candidate == program:
                    continue
                found = still(candidate)
                if found is not None:
                    program, best, changed = candidate, found, True
                    break
            if changed:
                break
    return program, best


# -- fewer statements -----------------------------------------------------------------------------


def without_settings(program: Program) -> Iterator[Program]:
    """Without environment variables; with each result realized by itself."""
    if program.settings:
        yield program.with_(settings=())
    if program.is_together:
        yield program.with_(is_together=False)


def one_result(program: Program) -> Iterator[Program]:
    """With one result fewer, with one alone, for one gradient alone; without what is not used."""
    if len(program.results) > 1:
        for position, ref in enumerate(program.results):
            if program.is_together:
                others = program.results[:position] + program.results[position + 1 :]
                left = program.weights[:position] + program.weights[position + 1 :]
                yield needed(program.with_(results=others, weights=left))
            weights = program.weights[position : position + 1]
            yield needed(program.with_(results=(ref,), weights=weights))
    if len(program.gradient_of) > 1:
        for ref in program.gradient_of:
            yield program.with_(gradient_of=(ref,))
    yield needed(program)


def needed(program: Program) -> Program:
    """Without steps that nothing uses; writes count as uses."""
    wanted = {ref.number for ref in (*program.results, *program.gradient_of)}
    wanted |= set(references(program.calls))
    body = _used(program.body, wanted)
    statements = _used(program.statements, wanted)
    return program.with_(statements=statements, body=body)


def _used(statements: tuple[Statement, ...], wanted: set[int]) -> tuple[Statement, ...]:
    kept: list[Statement] = []
    for statement in reversed(statements):
        if isinstance(statement, Step) and statement.target not in wanted:
            continue
        if isinstance(statement, Realize) and statement.target.number not in wanted:
            continue
        wanted |= set(references(statement))
        kept.append(statement)
    return tuple(kept[::-1])


def fewer_calls(program: Program) -> Iterator[Program]:
    """Without one of the calls of a recorded function, or one of the sizes of a variable."""
    for k in range(len(program.calls)):
        yield program.with_(calls=program.calls[:k] + program.calls[k + 1 :])
    for k in range(len(program.sizes)):
        if len(program.sizes) > 1:
            yield program.with_(sizes=program.sizes[:k] + program.sizes[k + 1 :])


def without_statements(program: Program) -> Iterator[Program]:
    """Halves, quarters, ... of the statements, then each alone."""
    for part in ("statements", "body"):
        statements = getattr(program, part)
        size = len(statements)
        while size:
            for begin in range(0, len(statements), size):
                cut = [s for s in statements[begin : begin + size] if not is_leaf(s) or size == 1]
                kept = tuple([s for s in statements if s not in cut])
                if len(kept) < len(statements):
                    yield _closed(program.with_(**{part: kept}))
            size //= 2


def _closed(program: Program) -> Program:
    """Without results that are no longer made."""
    made = {s.target for s in (*program.statements, *program.body) if isinstance(s, Step)}
    made |= set(program.parameters)
    positions = [k for k, ref in enumerate(program.results) if ref.number in made]
    weights = tuple([program.weights[k] for k in positions]) if program.weights else ()
    return program.with_(results=tuple([program.results[k] for k in positions]), weights=weights)


def operands_instead(program: Program) -> Iterator[Program]:
    """One of a step's operands in its place."""
    for part in ("statements", "body"):
        for k, statement in enumerate(getattr(program, part)):
            if not isinstance(statement, Step) or is_leaf(statement):
                continue
            for number in dict.fromkeys(references(statement)):
                rest = getattr(program, part)
                changed = tuple(
                    [_renamed(s, statement.target, number) for s in (*rest[:k], *rest[k + 1 :])]
                )
                results = tuple(
                    [Ref(number) if r.number == statement.target else r for r in program.results]
                )
                if len(set(results)) == len(results) and not program.weights:
                    yield needed(program.with_(**{part: changed, "results": results}))


def _renamed(value: Any, old: int, new: int) -> Any:
    if isinstance(value, Ref):
        return Ref(new) if value.number == old else value
    if isinstance(value, Step):
        return replace(
            value,
            operands=_renamed(value.operands, old, new),
            options=_renamed(value.options, old, new),
        )
    if isinstance(value, Write):
        return replace(value, target=_renamed(value.target, old, new), value=_renamed(value.value, old, new),
                       index=_renamed(value.index, old, new))  # fmt: skip
    if isinstance(value, Realize):
        return Realize(_renamed(value.target, old, new))
    if isinstance(value, (tuple, list)):
        return type(value)([_renamed(part, old, new) for part in value])
    return value


def data_instead(program: Program) -> Iterator[Program]:
    """A step's value as data, so that what it is computed from can go."""
    if program.sizes:
        return
    machine = Machine()
    for k, statement in enumerate(program.statements):
        machine.run(statement)
        if isinstance(statement, Step) and not is_leaf(statement):
            value = machine.names[statement.target].value
            if value.size <= 200 and statement.target not in [r.number for r in program.results]:
                data = Data(value.dtype, value.shape, tuple(value.estimate.reshape(-1).tolist()))
                leaf = Step(statement.target, "Tensor", (data,))
                yield needed(
                    program.with_(
                        statements=(*program.statements[:k], leaf, *program.statements[k + 1 :])
                    )
                )


# -- smaller data ---------------------------------------------------------------------------------


def smaller_sizes(program: Program) -> Iterator[Program]:
    """Axes of one size all made smaller together."""
    sizes = sorted(
        {n for s in program.statements if is_leaf(s) for n in _data(s).shape if n > 1}, reverse=True
    )
    for size in sizes:
        for new in sorted({1, 2, size // 2, size - 1}):
            if 0 < new < size:
                yield program.with_(
                    statements=tuple([_cut(s, size, new) for s in program.statements]),
                    weights=tuple([_cut_data(w, size, new) for w in program.weights]),
                    body=tuple([_literals(s, size, new) for s in program.body]),
                )  # fmt: skip
    for k, statement in enumerate(program.statements):
        if is_leaf(statement):
            for size in sorted({n for n in _data(statement).shape if n > 1}):
                for new in sorted({1, size // 2, size - 1}):
                    yield _with_statement(program, k, _cut(statement, size, new))


def _data(statement: Statement) -> Data:
    assert isinstance(statement, Step)
    data: Data = statement.operands[0]
    return data


def _cut(statement: Statement, size: int, new: int) -> Statement:
    if is_leaf(statement) and isinstance(statement, Step):
        return replace(statement, operands=(_cut_data(_data(statement), size, new),))
    return _literals(statement, size, new)


def _cut_data(data: Data, size: int, new: int) -> Data:
    array = np.array(data.elements, dtype=object).reshape(data.shape)
    part = np.array(
        array[tuple(slice(0, new) if n == size else slice(None) for n in data.shape)], dtype=object
    )
    return Data(data.dtype, part.shape, tuple(part.reshape(-1).tolist()))


def _literals(statement: Statement, size: int, new: int) -> Statement:
    """Shapes that stand in a step."""
    if not isinstance(statement, Step) or statement.name not in (
        "reshape",
        "view",
        "expand",
        "unflatten",
    ):
        return statement

    def change(operand: Any) -> Any:
        is_tuple = isinstance(operand, tuple)
        return tuple([new if n == size else n for n in operand]) if is_tuple else operand

    return replace(statement, operands=tuple([change(o) for o in statement.operands]))


def _with_statement(program: Program, position: int, new: Statement) -> Program:
    before, after = program.statements[:position], program.statements[position + 1 :]
    return program.with_(statements=(*before, new, *after))


def simpler_options(program: Program) -> Iterator[Program]:
    """Options left out, or 1 or 0; operands that are None or fewer."""
    for k, statement in enumerate(program.statements):
        if not isinstance(statement, Step) or not statement.options:
            continue
        for position, (name, value) in enumerate(statement.options):
            rest = (*statement.options[:position], *statement.options[position + 1 :])
            yield _with_statement(program, k, replace(statement, options=rest))
            if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
                for simple in (0, 1):
                    for axis in range(len(value)):
                        new = (*value[:axis], simple, *value[axis + 1 :])
                        if value[axis] > simple:
                            options = (*statement.options[:position], (name, new), *statement.options[position + 1 :])  # fmt: skip
                            yield _with_statement(program, k, replace(statement, options=options))


def simple_weights(program: Program) -> Iterator[Program]:
    """A plain sum."""
    ones = tuple([Data(w.dtype, w.shape, (1.0,) * len(w.elements)) for w in program.weights])
    if ones != program.weights:
        yield program.with_(weights=ones)


def simpler_values(program: Program) -> Iterator[Program]:
    """All elements 1, or 0, 1, 2, ..., or those of integers."""
    for k, statement in enumerate(program.statements):
        if not is_leaf(statement) or not isinstance(statement, Step):
            continue
        data = _data(statement)
        kind, count = kind_of(data.dtype), len(data.elements)
        choices: list[tuple[Any, ...]] = []
        if kind == "float":
            choices = [(1.0,) * count, tuple(map(float, range(1, count + 1))), tuple([float(round(e)) if abs(e) < 1e9 else e for e in data.elements])]  # fmt: skip
        elif kind == "int":
            choices = [(0,) * count, (1,) * count]
        elif kind == "bool":
            choices = [(True,) * count]
        simple = next((n for n, c in enumerate(choices) if c == data.elements), len(choices))
        for elements in choices[:simple]:
            leaf = replace(statement, operands=(Data(data.dtype, data.shape, elements),))
            yield program.with_(
                statements=(*program.statements[:k], leaf, *program.statements[k + 1 :])
            )


CHANGES = (
    without_settings, one_result, fewer_calls, without_statements, data_instead, operands_instead,
    smaller_sizes, simpler_options, simpler_values, simple_weights,
)  # fmt: skip
