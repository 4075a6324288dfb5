"""What each stage changed of a graph, as lines of the text of loop nests.

Owns: the texts of one graph on its way through the stages, in which a term keeps its name as long as it stays. Does not
own: that text (show.py), where it is printed (compile/shown.py).

    --- kernel: simplify merged: nothing changed
    --- kernel: choose axes -> Kernel
        for r0 < 3
    -     out[r0] = sum[r1 < 4](a[r0 * 4 + r1])
    +     out[r0] = sum[r1 < 4 as upcast](a[r0 * 4 + r1])
"""

from __future__ import annotations

from difflib import SequenceMatcher

from proofgrad.core.compile.passes.memory import memory_below
from proofgrad.core.compile.passes.stages import Stage, parts_of
from proofgrad.core.compile.text.show import NestText, show_nest
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

MOST_LINES = 32  # of what changed in one stage; the rest is counted
MOST_LETS = (
    2_000  # beyond so many terms, those that changed are not called as what they were before
)


def show_stage(root: UOp) -> str:
    """The whole text of what a stage made: of a KernelGraph each call with its body."""
    if any([call.op is Ops.CALL for call in root.src]):
        return "\n".join([_call(call) for call in root.src])
    return show_nest(root)


class Changes:
    """Told each stage of a graph, and of the graphs that it becomes, says what changed."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._before: tuple[UOp, NestText] | None = None
        self._waiting: list[tuple[UOp, NestText]] = []  # graphs whose stages come later

    def after(self, stage: Stage, root: UOp) -> str:
        """What a stage changed."""
        head = f"--- {self.what}: {stage.name}"
        if self._before is not None and self._before[0] is root:
            return f"{head}: nothing changed"
        if any([call.op is Ops.CALL for call in root.src]):
            return f"{head} -> {stage.makes.value}\n{_calls(root)}"
        text = self._named(root)
        old = None if self._before is None else self._before[1].text.splitlines()
        new = text.text.splitlines()
        shown = new if old is None else _changed(old, new)
        more = len(shown) - MOST_LINES
        if more > 0:
            shown = [*shown[:MOST_LINES], f"... and {more} lines more (DEBUG=4 prints all of them)"]
        self._go_on(root, text)
        return "\n".join([f"{head} -> {stage.makes.value}", *[f"  {line}" for line in shown]])

    def _named(self, root: UOp) -> NestText:
        """The text of a graph with the names of the one before."""
        if self._before is None:
            return NestText(root)
        names = self._before[1].names
        text = NestText(root, names)
        old, new = [_terms(known) for known in (names, text.names)]
        if max(len(old), len(new)) > MOST_LETS:
            return text
        wanted = dict(names)
        matcher = SequenceMatcher(a=old, b=new, autojunk=False)
        for kind, i, j, k, m in matcher.get_opcodes():
            if kind == "replace":
                wanted |= {n: names[o] for o, n in zip(old[i:j], new[k:m])}
        return NestText(root, wanted)

    def _go_on(self, root: UOp, text: NestText) -> None:
        """The next stage is of this graph; of several, of the first, and of the others afterwards."""
        parts = parts_of(root)
        if len(parts) > 1:
            self._waiting += [(part, NestText(part, text.names)) for part in reversed(parts)]
        if len(parts) > 1 or root.op is Ops.LINEAR:
            self._before = self._waiting.pop() if self._waiting else None
        else:
            self._before = root, text


def _terms(names: dict[UOp, str]) -> list[UOp]:
    """The terms that have a name by number."""
    return [node for node, name in names.items() if name[0] == "t" and name[1:].isdigit()]


def _changed(old: list[str], new: list[str]) -> list[str]:
    """The lines that differ, below the loops around them; all new ones where most of them differ."""
    matcher = SequenceMatcher(a=old, b=new, autojunk=False)
    parts = [part for part in matcher.get_opcodes() if part[0] != "equal"]
    if 2 * sum([m - k for _, _, _, k, m in parts]) > len(new):
        memory = {line for line in old if " = param " in line}
        return [line for line in new if line not in memory]
    lines: list[str] = []
    shown = -1  # the last line of `new` that was given
    for _, i, j, k, m in parts:
        around = [n for n in _loops_around(new, k) if n > shown]
        lines += [f"  {new[n]}" for n in around]
        lines += [f"- {line}" for line in old[i:j]]
        lines += [f"+ {line}" for line in new[k:m]]
        shown = max([m - 1, *around, shown])
    return lines


def _loops_around(lines: list[str], at: int) -> list[int]:
    """The lines above that open a block in which a line stands."""
    found: list[int] = []
    depth = _indent(lines[at]) if at < len(lines) else 2
    for n in range(min(at, len(lines)) - 1, 0, -1):
        if _indent(lines[n]) < depth and lines[n].lstrip().startswith("for "):
            found.append(n)
            depth = _indent(lines[n])
    return found[::-1]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _calls(graph: UOp) -> str:
    return "\n".join([f"  {_buffers(call)}" for call in graph.src])


def _call(call: UOp) -> str:
    body = call.src[0]
    is_copy = body.src[0].op is Ops.COPY
    return _buffers(call) if is_copy else f"{_buffers(call)}\n{show_nest(body)}"


def _number(source: UOp) -> str:
    """1, or 1[512:1024] for a part."""
    part = "[{}:{}]".format(*source.arg[0]) if source.op is Ops.SHRINK else ""
    return f"{memory_below(source).src[0].arg}{part}"


def _buffers(call: UOp) -> str:
    """call on CPU: buffer -1 of 12 f32 from buffers 0, 1."""
    written, *read = [_number(source) for source in call.src[1:]]
    made = "copy" if call.src[0].src[0].op is Ops.COPY else "call"
    size = f"{call.src[1].arg} {call.src[1].dtype.name}"
    return (
        f"{made} on {call.arg.device}: buffer {written} ({size}) from {', '.join(read) or 'none'}"
    )
