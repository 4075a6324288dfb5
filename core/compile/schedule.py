"""TensorGraph -> KernelGraph: which nodes get a buffer, and the kernels between buffers.

Owns: the choice (a heuristic: it changes speed and memory, never values), the cut, the order, and
when a buffer is no longer needed. Does not own: what a kernel looks like inside (lower.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proofgrad.core import settings
from proofgrad.core.compile.cost_model import COSTLY
from proofgrad.core.compile.fusion_limits import beyond_limits
from proofgrad.core.compile.rows import reductions_by_row
from proofgrad.core.compile.sums_of_products import is_contraction
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.origin import origin_of
from proofgrad.core.ir.shapes import elements, is_plain, sizes
from proofgrad.core.ir.uop import UOp, toposort

# Movement that uses every element at most once, so that fusing over it computes nothing twice.
_AT_MOST_ONCE = MOVEMENT - {Ops.EXPAND}
# A reduction runs inside another one that combines at most so many of its results, as the sum over
# a window does; a longer one would leave too few output elements to share out.
LARGEST_OUTER_REDUCTION = 16
# A padded value is stored if a reduction reads each of its elements so often: as copies, without gates.
READ_OFTEN = 32
_TRANSPARENT = MOVEMENT | {Ops.DETACH}
_SAME = frozenset({Ops.DETACH, Ops.CONTIGUOUS})


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What a CALL carries beside its body: the device it runs on, and where it comes from.

    `origin` are the methods of Tensor whose nodes it holds, if they were traced.
    """

    device: str
    origin: tuple[str, ...] = ()
    ast: UOp | None = None  # the body again, in a graph that a user looks at (kernelize)

    def __repr__(self) -> str:
        if self.ast is None:
            return f"CallInfo({self.device!r}, {self.origin!r})"
        return f"<KERNEL on {self.device}: {' '.join(['SINK', *self.origin])}>"


def cut_into_kernels(root: UOp, target: Target) -> UOp:
    """Decide what gets a buffer; one CALL a kernel, in running order.

    The arg of the SINK holds the buffer of each root. Each CALL is (body, buffer written, buffers
    read ...). The body is SINK(value over PARAMs), slot 0 being the buffer written. New buffers are
    numbered from -1 down. The arg of `root` is the device for values that read no buffer, and
    `target` is that of this device.
    """
    return _Cut(root, target).calls()


class _Cut:
    """One run of the cut."""

    def __init__(self, root: UOp, target: Target) -> None:
        self.root = root
        self.nodes = toposort((root,))
        self.stored = nodes_that_need_a_buffer(root, target)
        self.buffer_of: dict[UOp, UOp] = {n: n for n in self.nodes if n.op is Ops.BUFFER}
        self.device_of = _devices(self.nodes)
        self.next_unique = -1

    def calls(self) -> UOp:
        found: list[UOp] = []
        for node in self.nodes:
            if node not in self.stored:
                continue
            if elements(node.shape):
                found.append(self._call(node))
            else:
                self.buffer_of[node] = self._new_buffer(node)
        buffers = tuple([self.buffer_of[_below_reshape(source)] for source in self.root.src])
        return UOp(Ops.SINK, dtypes.void, tuple(found), buffers)

    def _call(self, node: UOp) -> UOp:
        """The kernel, or the copy between devices, that fills the buffer of `node`."""
        inputs: dict[UOp, UOp] = {}
        body = self._body(node, inputs)
        self.buffer_of[node] = buffer = self._new_buffer(node)
        info = CallInfo(buffer.src[1].arg, self._origin(node))
        return UOp(Ops.CALL, dtypes.void, (UOp.sink(body), buffer, *inputs), info)

    def _new_buffer(self, node: UOp) -> UOp:
        unique = UOp(Ops.UNIQUE, dtypes.void, (), self.next_unique)
        name = self.device_of.get(node, self.root.arg)
        device = UOp(Ops.DEVICE, dtypes.void, (), name)
        self.next_unique -= 1
        return UOp(Ops.BUFFER, node.dtype, (unique, device), elements(node.shape))

    def _body(self, target: UOp, inputs: dict[UOp, UOp]) -> UOp:
        """The value of `target` with every stored node below it read from a parameter."""
        done: dict[UOp, UOp] = {}

        def inside(node: UOp) -> bool:
            return node is target or not self._is_read(node)

        for node in toposort((target,), inside):
            if not inside(node):
                done[node] = self._parameter(node, inputs)
            elif node.op in (Ops.CONTIGUOUS, Ops.DETACH):
                done[node] = done[node.src[0]]
            else:
                done[node] = node.with_src(tuple([done[s] for s in node.src]))
        return done[target]

    def _origin(self, target: UOp) -> tuple[str, ...]:
        """The methods of Tensor that the nodes of a kernel come from, where they were traced."""
        if not settings.traces_methods():
            return ()
        inside = target.toposort(lambda n: n is target or not self._is_read(n))
        names = [origin_of(n) for n in inside if n is target or not self._is_read(n)]
        return tuple(dict.fromkeys([name for name in names if name]))

    def _is_read(self, node: UOp) -> bool:
        return node.op is Ops.BUFFER or node in self.stored

    def _parameter(self, node: UOp, inputs: dict[UOp, UOp]) -> UOp:
        buffer = self.buffer_of[node]
        if buffer not in inputs:
            slot = len(inputs) + 1
            inputs[buffer] = UOp(Ops.PARAM, buffer.dtype, (), (slot, buffer.arg))
        parameter = inputs[buffer]
        return parameter if node.shape == parameter.shape else _reshaped(parameter, node)


def _reshaped(parameter: UOp, node: UOp) -> UOp:
    if not is_plain(node.shape):  # a buffer is as large as the variables allow
        used = UOp(Ops.SHRINK, node.dtype, (parameter,), ((0, sizes().product(node.shape)),))
        return (
            used if used.shape == node.shape else UOp(Ops.RESHAPE, node.dtype, (used,), node.shape)
        )
    return UOp(Ops.RESHAPE, node.dtype, (parameter,), node.shape)


def _devices(nodes: Iterable[UOp]) -> dict[UOp, str]:
    """The device each node is computed on: that of the buffers below it, or where COPY brings it."""
    found: dict[UOp, str] = {}
    for node in nodes:
        if node.op is Ops.BUFFER:
            found[node] = node.src[1].arg
        elif node.op is Ops.COPY:
            found[node] = node.arg
        else:
            for source in node.src:
                if source in found:
                    found[node] = found[source]
                    break
    return found


# -- the choice ---------------------------------------------------------------------------------


def nodes_that_need_a_buffer(root: UOp, target: Target) -> set[UOp]:
    """Roots, explicit requests, copies, reductions that others wait for, costly expanded values."""
    nodes = toposort((root,))
    consumers = _consumers(nodes)
    stored = {s for s in map(_below_reshape, root.src) if s.op is not Ops.BUFFER}
    for node in nodes:
        if node.op in (Ops.COPY, Ops.CONTIGUOUS):
            stored.add(node)
            if node.op is Ops.COPY and node.src[0].op is not Ops.BUFFER:
                stored.add(node.src[0])
    leads_to_reduction = _leads_to_reduction(nodes, stored)
    meets = _meeting_points(nodes, consumers)
    ends: dict[UOp, list[UOp]] = {}
    for node in nodes:
        if node.op is Ops.REDUCE_AXIS:
            end = _end_of_epilogue(node, consumers, meets, stored)
            stored.add(end)
            ends.setdefault(end, []).append(node)
    for reductions in ends.values():
        stored |= _beside_a_contraction(reductions)
    leads_to_reduction -= _for_selection(nodes)
    for node in nodes:
        if node.op is Ops.EXPAND and _worth_storing(node, stored, leads_to_reduction):
            stored.add(_below_movement(node.src[0], stored))
        if node.op is Ops.PAD and node in leads_to_reduction and _is_read_often(node, consumers):
            stored.add(node)
    kept = set(map(_below_reshape, root.src)) | {n.src[0] for n in nodes if n.op is Ops.COPY}
    if all(is_plain(node.shape) for node in nodes):
        stored = stored - reductions_by_row(nodes, consumers, stored, kept, target)
    return stored | beyond_limits(nodes, consumers, stored)


def _below_reshape(root: UOp) -> UOp:
    """The node that has the elements of a root in the same order: a buffer has no shape."""
    while root.op is Ops.RESHAPE:
        root = root.src[0]
    return root


def _consumers(nodes: list[UOp]) -> dict[UOp, list[UOp]]:
    consumers: dict[UOp, list[UOp]] = {n: [] for n in nodes}
    for node in nodes:
        for source in dict.fromkeys(node.src):
            consumers[source].append(node)
    return consumers


def _meeting_points(nodes: list[UOp], consumers: dict[UOp, list[UOp]]) -> dict[UOp, UOp | None]:
    """For each node the nearest node through which every use of it passes; None: there is none.

    Immediate post-dominators (Cooper, Harvey, Kennedy, A Simple, Fast Dominance Algorithm, 2001).
    """
    tree = _Tree()
    for node in reversed(nodes):
        common: UOp | None = None
        for k, user in enumerate(consumers[node]):
            common = user if k == 0 else tree.common(common, user)
            if common is None:
                break
        tree.add(node, common)
    return tree.above


class _Tree:
    """Nodes, each below another one or below none (None).

    Each also knows one far above, so that what two have in common is found in as many steps as the
    logarithm of their depth (Myers, An applicative random-access stack, 1983).
    """

    def __init__(self) -> None:
        self.above: dict[UOp, UOp | None] = {}
        self._far: dict[UOp | None, UOp | None] = {None: None}
        self._depth: dict[UOp | None, int] = {None: 0}

    def add(self, node: UOp, above: UOp | None) -> None:
        """`node` right below `above`, which is there."""
        far, depth = self._far, self._depth
        first = far[above]
        is_even = depth[above] - depth[first] == depth[first] - depth[far[first]]
        far[node] = far[first] if is_even else above
        depth[node] = depth[above] + 1
        self.above[node] = above

    def common(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """The lowest node that is above both, or one of them."""
        above, far, depth = self.above, self._far, self._depth
        if depth[a] < depth[b]:
            a, b = b, a
        while a is not None and depth[a] > depth[b]:
            a = far[a] if depth[far[a]] >= depth[b] else above[a]
        while a is not None and b is not None and a is not b:
            a, b = (above[a], above[b]) if far[a] is far[b] else (far[a], far[b])
        return a


def _end_of_epilogue(
    reduction: UOp, consumers: dict[UOp, list[UOp]], meets: dict[UOp, UOp | None], stored: set[UOp]
) -> UOp:
    """The last node that can be computed in the loop of the reduction's results.

    Of a sum of products neither padding is, whose gates would keep the sum from its tiles, nor what
    takes different parts of it, each with a sum of its own.
    """
    end, is_tiled = reduction, is_contraction(reduction)
    fitting = _AT_MOST_ONCE - {Ops.PAD} if is_tiled else _AT_MOST_ONCE
    while end not in stored:
        meeting, users = meets[end], consumers[end]
        if is_tiled and len(users) > 1 and any([user.op in MOVEMENT for user in users]):
            break
        if meeting is None or not _none_twice(end, meeting, consumers, stored, fitting):
            break
        end = meeting
    return end


def _beside_a_contraction(reductions: list[UOp]) -> set[UOp]:
    """Of the reductions of one kernel those that would keep the largest sum of products from its tiles."""
    contractions = [r for r in reductions if is_contraction(r)]
    if len(reductions) == 1 or not contractions:
        return set()
    main = max(contractions, key=lambda r: elements(r.src[0].shape))
    below = set(main.toposort())
    above = {main}
    for node in toposort(reductions):
        above |= set() if above.isdisjoint(node.src) else {node}
    return {r for r in reductions if r not in below and r not in above}


def _none_twice(
    start: UOp,
    end: UOp,
    consumers: dict[UOp, list[UOp]],
    stored: set[UOp],
    movement: frozenset[Ops],
) -> bool:
    """Whether no node on a path from `start` to `end` needs an element of `start` twice.

    And no movement is on it but of these kinds.
    """
    seen: set[UOp] = set()
    stack = [start]
    while stack:
        for user in consumers[stack.pop()]:
            if user in seen:
                continue
            seen.add(user)
            if not _uses_once(user, movement) or (user is not end and user in stored):
                return False
            if user is not end:
                stack.append(user)
    return True


def _uses_once(user: UOp, movement: frozenset[Ops]) -> bool:
    if user.op is Ops.REDUCE_AXIS:
        combined = elements([user.src[0].shape[axis] for axis in user.arg[1]])
        return combined <= LARGEST_OUTER_REDUCTION
    return user.op in ELEMENTWISE or user.op in movement or user.op in _SAME


def _leads_to_reduction(nodes: list[UOp], stored: set[UOp]) -> set[UOp]:
    """Nodes whose elements are read, unstored, by the loop of a reduction."""
    leads: set[UOp] = set()
    for node in reversed(nodes):
        if node.op is Ops.REDUCE_AXIS or (node in leads and node not in stored):
            leads.update(node.src)
    return leads


def _for_selection(nodes: list[UOp]) -> set[UOp]:
    """Comparisons with a counter, what is made of them, and what they compare with the counter.

    A sum that such a comparison selects one term of is no loop in the end, if the rules can see it.
    """
    counters: set[UOp] = set()  # made of counters and constants only
    selecting: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.IOTA or (
            (node.op in ELEMENTWISE or node.op in MOVEMENT)
            and any([s in counters for s in node.src])
            and all([s in counters or not _below_movement(s, set()).src for s in node.src])
        ):
            counters.add(node)
        elif node.op in COMPARE:
            if any([s in counters for s in node.src]):
                selecting.add(node)
        elif any([s in selecting for s in node.src]) and (
            node.dtype.is_bool or node.op in MOVEMENT or (node.op is Ops.CAST and node.dtype.is_int)
        ):
            selecting.add(node)
    compared = set(selecting)
    for node in reversed(nodes):
        if node in compared and (node.op in ELEMENTWISE or node.op in MOVEMENT):
            compared.update(node.src)
    return compared


def _worth_storing(expand: UOp, stored: set[UOp], leads_to_reduction: set[UOp]) -> bool:
    """Whether computing the source of `expand` once for each copy costs more than a buffer."""
    source = _below_movement(expand.src[0], stored)
    if source in stored or elements(expand.shape) <= elements(expand.src[0].shape):
        return False
    work = _unstored_work(source, stored)
    if not work:
        return False
    return expand in leads_to_reduction or any(n.op in COSTLY for n in work)


def _is_read_often(pad: UOp, consumers: dict[UOp, list[UOp]]) -> bool:
    """Whether windows over a padded value read it so often that asking each time costs more."""
    end = pad
    while len(consumers[end]) == 1 and consumers[end][0].op in MOVEMENT:
        (end,) = consumers[end]
    return elements(end.shape) >= READ_OFTEN * elements(pad.shape) > 0


def _below_movement(node: UOp, stored: set[UOp]) -> UOp:
    """What `node` shows through movement operations, or a view of it that has a buffer already."""
    while node.op in _TRANSPARENT and node.op not in (Ops.PAD, Ops.SKEW) and node not in stored:
        node = node.src[0]
    return node


def _unstored_work(source: UOp, stored: set[UOp]) -> list[UOp]:
    """Elementwise nodes on buffers that computing `source` would run."""
    nodes = source.toposort(lambda n: n is source or n not in stored)
    if not any(n.op is Ops.BUFFER or n in stored for n in nodes if n is not source):
        return []
    return [n for n in nodes if n.op in ELEMENTWISE and n.op is not Ops.CAST and n not in stored]
