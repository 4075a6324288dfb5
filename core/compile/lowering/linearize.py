"""Program -> Linear: nodes in running order, loops opened and closed.

Owns: the nesting of loops and the order of nodes. A node runs in the innermost loop that it depends
on, so what does not change with a loop is computed before it. Does not own: anything's value.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import count, takewhile
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import ACCUMULATOR, FILLED, MULACC, RANGE, RESULT, SINK, WHERE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group, toposort

Path = tuple[UOp, ...]  # open loops, outermost first
Units = dict[UOp, None]  # nodes of a loop body, in order; of an inner loop its counter alone
Lists = defaultdict[Any, Units]  # of each loop body, or of each unit

_OUTERMOST = (AxisRole.THREAD, AxisRole.GLOBAL, AxisRole.BLOCK)
# They do not run where a register is that they read: they are where it is decided.
_FIXED = frozenset({RANGE, ACCUMULATOR, RESULT, FILLED})


def linearize(program: UOp) -> UOp:
    """Put nodes in running order; open and close the loops: those of results around each other."""
    nodes = _nodes_of(program)
    loops = _loops_of(nodes)
    _check_that_all_stores_run([loops[store] for store in program.src])
    # What runs inside of a loop that got a name of its own is there twice, with the same loops inside.
    while (separated := _separate_loops(program, nodes, loops)) is not program:
        program = separated
        nodes = _nodes_of(program)
        loops = _loops_of(nodes)
    inside, needs = _units(_block_paths(nodes, loops))
    return UOp(Ops.LINEAR, dtypes.void, tuple(_emit_block((), inside, needs)))


def _check_that_all_stores_run(around: list[frozenset[UOp]]) -> None:
    """Every store stands in all output loops: one that never runs would hide a store that has none of it.

    A store may have fewer loops than others: copies of a tile that lie outside of the results, under a false mask.
    """
    some = frozenset().union(*around).difference(frozenset.intersection(*around))
    if not all([loop.src[0].op is Ops.CONST and loop.src[0].arg > 0 for loop in some]):
        raise AssertionError("stores that run in different loops, of which one may never run")


def _nodes_of(program: UOp) -> list[UOp]:
    return [n for n in toposort((program,)) if n.op is not SINK]


# -- which loops a node runs in -----------------------------------------------------------------


def _loops_of(nodes: Iterable[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For each node the loops in which it runs, all of them.

    A register is set where its result is read: inside the loops of the result, not its own.
    """
    running: dict[UOp, frozenset[UOp]] = {}
    results: list[UOp] = []
    for node in nodes:
        op = node.op
        if op is RANGE:
            running[node] = running[node.src[0]] | {node}
        elif op is RESULT:
            running[node] = running[node.src[0]].difference(_own_loops(node))
            results.append(node)
        elif op is FILLED:
            running[node] = running[node.src[0]].difference(node.src[1:])
        else:
            running[node] = _together([running[s] for s in node.src])
    registers = {result.src[0].src[0]: running[result] for result in results}
    registers |= _carried_beside(nodes, registers)
    running.update(registers)
    reads = set(registers)
    for node in nodes:  # what reads a register runs where it is, even if it has no loop of its own
        if node.op not in _FIXED and not reads.isdisjoint(node.src):
            reads.add(node)
            around = [running[s] for s in node.src]
            around += [frozenset(s.src[1:]) for s in node.src if s.op is ACCUMULATOR]
            running[node] = _together(around)
    return running


def _carried_beside(
    nodes: Iterable[UOp], reduced: Mapping[UOp, frozenset[UOp]]
) -> dict[UOp, frozenset[UOp]]:
    """Registers that are no reduction's: each is set where that one's is whose loops carry it, or where the output loop begins."""
    found = [n for n in nodes if n.op is ACCUMULATOR and n not in reduced]
    outputs = _output_loops(nodes) if found else []
    before = {n: min(map(_nesting_key, n.src[1:])) for n in found}
    around = {n: frozenset([x for x in outputs if _nesting_key(x) < before[n]]) for n in found}
    of_loops = {n.src[1:]: loops for n, loops in reduced.items()}
    return {n: of_loops.get(n.src[1:], around[n]) for n in found}


def _output_loops(nodes: Iterable[UOp]) -> list[UOp]:
    """The loops that are neither a reduction's nor of a local buffer, outermost first."""
    own = {loop for n in nodes if n.op is RESULT for loop in _own_loops(n)}
    own |= {loop for n in nodes if n.op is FILLED for loop in n.src[1:]}
    return sorted((n for n in nodes if n.op is RANGE and n not in own), key=_nesting_key)


def _together(sets: Iterable[frozenset[UOp]]) -> frozenset[UOp]:
    """Their union. Most are the same set, or parts of the largest one."""
    found: frozenset[UOp] = frozenset()
    for more in sets:
        if more is not found and not more <= found:
            found = found | more if found else more
    return found


def _block_paths(nodes: list[UOp], loops: dict[UOp, frozenset[UOp]]) -> dict[UOp, Path]:
    """For each node the nest of loops that it stands in."""
    reductions = {_own_loops(n): loops[n] for n in nodes if n.op is RESULT}
    reductions |= {n.src[1:]: loops[n] for n in nodes if n.op is FILLED}
    outputs = _output_loops(nodes)
    path_of: dict[UOp, Path] = {loop: tuple(outputs[: k + 1]) for k, loop in enumerate(outputs)}
    waiting = dict(reductions)
    while waiting:
        ready = [g for g, around in waiting.items() if all(loop in path_of for loop in around)]
        if not ready:
            raise AssertionError("reductions whose loops contain each other")
        for group in ready:
            base = _longest(path_of[loop] for loop in waiting.pop(group))
            for k, loop in enumerate(group):
                path_of[loop] = base + group[: k + 1]
    paths = {around: _longest(path_of[loop] for loop in around) for around in set(loops.values())}
    return {node: paths[loops[node]] for node in nodes}


def _nesting_key(loop: UOp) -> tuple[bool, int]:
    return (loop.arg[1] not in _OUTERMOST, loop.arg[0])


def _longest(paths: Iterable[Path]) -> Path:
    return max(paths, key=len, default=())


def _separate_loops(program: UOp, nodes: list[UOp], loops: dict[UOp, frozenset[UOp]]) -> UOp:
    """Reductions that share a loop but run in different positions get loops of their own.

    They stay together if their results stand in the same nest and as many reductions deep: so none needs
    another, and no two loops need each other.
    """
    results = [n for n in nodes if n.op is RESULT]
    if len(results) < 2:
        return program
    numbers = count(1 + max((n.arg[0] for n in nodes if n.op is RANGE), default=0))
    depths = _depths(nodes)
    groups: dict[Path, dict[tuple[frozenset[UOp], int], list[UOp]]] = {}
    for result in results:
        alike = groups.setdefault(_own_loops(result), {})
        alike.setdefault((loops[result], depths[result]), []).append(result)
    changes: dict[UOp, dict[UOp, UOp]] = {}
    uses = Counter([loop for own in groups for loop in own])
    for own, partitions in groups.items():
        for k, members in enumerate(partitions.values()):
            if k == 0 and all(uses[loop] == 1 for loop in own):
                continue
            fresh = {loop: loop.replace(arg=(next(numbers), loop.arg[1])) for loop in own}
            changes.update({member: fresh for member in members})
    return _rename(program, changes) if changes else program


def _depths(nodes: list[UOp]) -> dict[UOp, int]:
    """How many results each node needs, one after another; a result counts itself."""
    found: dict[UOp, int] = {}
    for node in nodes:
        below = max([found[s] for s in node.src], default=0)
        found[node] = below + 1 if node.op is RESULT else below
    return found


def _rename(program: UOp, changes: dict[UOp, dict[UOp, UOp]]) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in toposort((program,)):
        if node in changes:
            # In turn: results inside, renamed or not, run in the loops of this one.
            inner = {n: done[n] for n in node.toposort() if n.op is RESULT and n is not node}
            done[node] = _in_loops(node.substitute(inner), changes[node])
        else:
            done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return done[program]


def _in_loops(result: UOp, fresh: dict[UOp, UOp]) -> UOp:
    """A result with other loops for its own. One below it that has such a loop itself, which is another one there, keeps it."""
    changes = dict(fresh)
    for node in result.toposort() if fresh else ():
        own = _own_loops(node) if node.op is RESULT and node is not result else ()
        if not fresh.keys().isdisjoint(own):
            changes[node] = _in_loops(node, {x: y for x, y in fresh.items() if x not in own})
    return result.substitute(changes)


def _own_loops(result: UOp) -> Path:
    """The loops of the reduction that this is the result of."""
    return result.src[0].src[0].src[1:]


# -- order --------------------------------------------------------------------------------------


def _emit_block(path: Path, inside: Lists, needs: Lists) -> list[UOp]:
    """The nodes of one loop body, inner loops as units, each after what it needs."""
    out: list[UOp] = []
    for unit in _ordered(inside[path], needs):
        out.append(unit)
        if unit.op is RANGE:
            out.extend(_emit_block((*path, unit), inside, needs))
            out.append(UOp(Ops.END, dtypes.void, (unit,)))
    return out


def _units(paths: Mapping[UOp, Path]) -> tuple[Lists, Lists]:
    """What stands in each loop body, an inner loop for all of it; what each needs of those beside it."""
    inside, needs = Lists(dict), Lists(dict)
    for node, path in paths.items():
        if path not in inside:
            for depth, loop in enumerate(path):
                inside[path[:depth]][loop] = None
        if node.op is not RANGE:
            inside[path][node] = None
        for source in sources_before(node):
            around = paths[source]
            if around is path and source.op is not RANGE:  # beside each other, as most are
                needs[node][source] = None
            elif around is not path and source not in around[: (depth := _shared(path, around))]:
                # No counter that is open.
                needs[(*path, node)[depth]][(*around, source)[depth]] = None
    return inside, needs


def _shared(one: Path, other: Path) -> int:
    """How many loops two nests have in common."""
    return len([*takewhile(lambda pair: pair[0] is pair[1], zip(one, other))])


def _ordered(units: Units, needs: Lists) -> Units:
    """Units, each after the units it needs; otherwise in order of first appearance."""
    order: Units = {}
    expanded = set[UOp]()  # of those that are not in order yet
    for start in [*_memory_of_group(units), *_by_step(units), *units]:
        stack = [] if start in order else [start]
        while stack:
            unit = stack[-1]
            waiting = [n for n in needs[unit] if n not in order] if unit in needs else ()
            if not waiting:
                order[stack.pop()] = None
            elif unit in expanded or not expanded.isdisjoint(waiting):
                raise AssertionError("two loops need each other's results")
            else:
                expanded.add(unit)
                stack.extend(reversed(waiting))
    return order


def _memory_of_group(units: Iterable[UOp]) -> list[UOp]:
    """What fills memory of a group: all of it, before any is read, so that items wait once."""
    return [unit for unit in units if unit.op is FILLED and is_of_group(unit.src[1:])]


def _by_step(units: Iterable[UOp]) -> list[UOp]:
    """What goes into registers, the first step of every register before the second of any.

    So an unrolled loop holds the operands of one step at a time.
    """
    step_of: dict[UOp, int] = {}
    for unit in units:
        if unit.op is MULACC:
            before = unit.src[2]
            while before.op is WHERE:  # a product under masks, or else what was before it
                before = before.src[1]
            step_of[unit] = step_of.get(before, -1) + 1
    return sorted(step_of, key=lambda unit: step_of[unit])


def sources_before(node: UOp) -> tuple[UOp, ...]:
    """The sources that have run before `node`: an accumulator is set before its loops open."""
    return node.src[:1] if node.op is ACCUMULATOR else node.src
