"""Program -> Linear: nodes in running order, loops opened and closed.

Owns: the nesting of loops and the order of nodes. A node runs in the innermost loop that it depends
on, so what does not change with a loop is computed before it. Does not own: anything's value.
"""

from __future__ import annotations

from collections.abc import Iterable

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

Path = tuple[UOp, ...]  # open loops, outermost first

_OUTERMOST = (AxisRole.THREAD, AxisRole.GLOBAL)


def linearize(program: UOp) -> UOp:
    """Put nodes in running order; open and close the loops."""
    program = _separate_loops(program)
    nodes = [n for n in toposort((program,)) if n.op is not Ops.SINK]
    loops = _loops_of(nodes)
    paths = _block_paths(nodes, loops)
    return UOp(Ops.LINEAR, dtypes.void, tuple(_emit_block((), nodes, paths)))


# -- which loops a node runs in -----------------------------------------------------------------


def _loops_of(nodes: Iterable[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For each node the loops in which it runs, all of them.

    A register is set where its result is read: inside the loops of the result, not its own.
    """
    running: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        parts = [running[s] for s in node.src]
        below = frozenset().union(*parts) if parts else frozenset()
        if node.op is Ops.RANGE:
            below = frozenset((node,))
        elif node.op is Ops.RESULT:
            below = running[node.src[0]] - set(node.src[0].src[0].src[1:])
        elif node.op is Ops.KEPT:
            below = running[node.src[0]] - set(node.src[1:])
        running[node] = below
    for node in nodes:
        if node.op is Ops.RESULT:
            register = node.src[0].src[0]
            running[register] = running[node]
    for node in nodes:  # what reads a register runs where it is, even if it has no loop of its own
        if node.op not in (Ops.RANGE, Ops.ACCUMULATOR, Ops.RESULT, Ops.KEPT):
            running[node] = frozenset().union(*[_loops_to_read(s, running) for s in node.src])
    return running


def _loops_to_read(source: UOp, running: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    own = source.src[1:] if source.op is Ops.ACCUMULATOR else ()
    return running[source].union(own)


def _block_paths(nodes: list[UOp], loops: dict[UOp, frozenset[UOp]]) -> dict[UOp, Path]:
    """For each node the nest of loops that it stands in."""
    reductions = {n.src[0].src[0].src[1:]: loops[n] for n in nodes if n.op is Ops.RESULT}
    reductions |= {n.src[1:]: loops[n] for n in nodes if n.op is Ops.KEPT}
    own = {loop for group in reductions for loop in group}
    outputs = sorted((n for n in nodes if n.op is Ops.RANGE and n not in own), key=_nesting_key)
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
    return {node: _longest(path_of[loop] for loop in loops[node]) for node in nodes}


def _nesting_key(loop: UOp) -> tuple[bool, int]:
    return (loop.arg[1] not in _OUTERMOST, loop.arg[0])


def _longest(paths: Iterable[Path]) -> Path:
    return max(paths, key=len, default=())


def _separate_loops(program: UOp) -> UOp:
    """Reductions that share a loop but run in different places get loops of their own.

    They may stay together only if their results stand in the same nest and none needs another.
    """
    nodes = toposort((program,))
    loops = _loops_of([n for n in nodes if n.op is not Ops.SINK])
    next_number = 1 + max((n.arg[0] for n in nodes if n.op is Ops.RANGE), default=0)
    below = _results_below(nodes)
    groups: dict[Path, list[list[UOp]]] = {}
    for result in (n for n in nodes if n.op is Ops.RESULT):
        own = result.src[0].src[0].src[1:]
        for members in groups.setdefault(own, []):
            together = loops[members[0]] == loops[result]
            if together and not any(m in below[result] for m in members):
                members.append(result)
                break
        else:
            groups[own].append([result])
    changes: dict[UOp, dict[UOp, UOp]] = {}
    shared = _loops_in_several_groups(groups)
    for own, partitions in groups.items():
        for k, members in enumerate(partitions):
            if k == 0 and not shared.intersection(own):
                continue
            fresh: dict[UOp, UOp] = {}
            for loop in own:
                fresh[loop] = loop.replace(arg=(next_number, loop.arg[1]))
                next_number += 1
            changes.update({member: fresh for member in members})
    return _rename(program, changes) if changes else program


def _loops_in_several_groups(groups: dict[Path, list[list[UOp]]]) -> set[UOp]:
    seen: set[UOp] = set()
    several: set[UOp] = set()
    for own in groups:
        several.update(loop for loop in own if loop in seen)
        seen.update(own)
    return several


def _results_below(nodes: list[UOp]) -> dict[UOp, frozenset[UOp]]:
    found: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        parts = [found[s] for s in node.src]
        parts += [frozenset((s,)) for s in node.src if s.op is Ops.RESULT]
        found[node] = frozenset().union(*parts) if parts else frozenset()
    return found


def _rename(program: UOp, changes: dict[UOp, dict[UOp, UOp]]) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in toposort((program,)):
        if node in changes:
            done[node] = node.substitute({**_inner_results(node, done), **changes[node]})
        else:
            done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return done[program]


def _inner_results(result: UOp, done: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """Results below `result` that were renamed before it."""
    inner = [n for n in result.toposort() if n.op is Ops.RESULT and n is not result]
    return {n: done[n] for n in inner if done[n] is not n}


# -- order --------------------------------------------------------------------------------------


def _emit_block(path: Path, nodes: list[UOp], paths: dict[UOp, Path]) -> list[UOp]:
    """The nodes of one loop body, inner loops as units, each after what it needs."""
    depth = len(path)
    unit_of: dict[
        UOp, UOp
    ] = {}  # a node of this body stands for itself, an inner loop for all of it
    members: dict[UOp, list[UOp]] = {}
    for node in nodes:
        unit = node if len(paths[node]) == depth else paths[node][depth]
        unit_of[node] = unit
        members.setdefault(unit, []).append(node)
    order = _ordered(members, unit_of)
    out: list[UOp] = []
    for unit in order:
        inner = members[unit]
        if inner == [unit] and len(paths[unit]) == depth:
            out.append(unit)
            continue
        loop_path = path + (unit,)
        body = [n for n in inner if n is not unit]
        out.append(unit)
        out.extend(_emit_block(loop_path, body, paths))
        out.append(UOp(Ops.END, dtypes.void, (unit,)))
    return out


def _ordered(members: dict[UOp, list[UOp]], unit_of: dict[UOp, UOp]) -> list[UOp]:
    """Units, each after the units it needs; otherwise in order of first appearance."""
    order: list[UOp] = []
    done: set[UOp] = set()
    expanded: set[UOp] = set()
    for start in [*_by_step(members), *members]:
        stack = [start]
        while stack:
            unit = stack[-1]
            if unit in done:
                stack.pop()
            elif unit in expanded:
                done.add(unit)
                order.append(stack.pop())
            else:
                expanded.add(unit)
                waiting = [n for n in _needs(unit, members, unit_of) if n not in done]
                if any(n in expanded for n in waiting):
                    raise AssertionError("two loops need each other's results")
                stack.extend(reversed(waiting))
    return order


def _by_step(units: Iterable[UOp]) -> list[UOp]:
    """What goes into registers, the first step of every register before the second of any.

    So an unrolled loop holds the operands of one step at a time.
    """
    step_of: dict[UOp, int] = {}
    for unit in units:
        if unit.op is Ops.MULACC:
            step_of[unit] = step_of.get(unit.src[2], -1) + 1
    return sorted(step_of, key=lambda unit: step_of[unit])


def _needs(unit: UOp, members: dict[UOp, list[UOp]], unit_of: dict[UOp, UOp]) -> list[UOp]:
    needed: dict[UOp, None] = {}
    for member in members[unit]:
        for source in sources_before(member):
            other = unit_of.get(source)
            if other is not None and other is not unit:
                needed[other] = None
    return list(needed)


def sources_before(node: UOp) -> tuple[UOp, ...]:
    """The sources that have run before `node`: an accumulator is set before its loops open."""
    return node.src[:1] if node.op is Ops.ACCUMULATOR else node.src
