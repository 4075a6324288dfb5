"""The rewrite engine: one pass from the sources up, to the normal form under rule sets.

Owns: the order of visits, memory of normal forms, the canonical order of commutative operands, the
journal of what fired, gradients of one node by COTANGENT rules. Does not own: matching (match.py),
which rules there are (rules/), evidence (ledger.py).

Every rule goes down in one order (rules/README.md), so rewriting ends. A set that does not is
caught here: an endless rewrite raises RewriteError and names the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from proofgrad.core.ir.ops import COMMUTATIVE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import Candidates, Matcher, RuleSet, key_of
from proofgrad.core.rewrite.scope import CONSTANT_OPS, scalar_of
from proofgrad.core.rewrite.sums import Sums, is_linear_law

# An endless rewrite is noticed after this many applications, plus so many for each node given.
FREE_APPLICATIONS = 20_000
APPLICATIONS_PER_NODE = 1_000
REMEMBERED_RULES = 8
LEAVES = frozenset({Ops.CONST, Ops.PARAM})  # no rule has them on its left side
SHOWN_CHARACTERS = 2_000


class RewriteError(RuntimeError):
    """A rule set that does not end, or a rule that changed a type: an error of the rules."""


class EndlessRewriteError(Exception):
    """The normal form of `node` would contain the normal form of `node`."""

    def __init__(self, node: UOp) -> None:
        super().__init__()
        self.node = node


class NotDifferentiable(ValueError):
    """An operation with no COTANGENT rule."""


Step = Callable[[UOp, tuple[UOp, ...]], UOp]
Parts = Callable[[UOp], Iterable[UOp]]


def settle(root: UOp, step: Step, normal: dict[UOp, UOp], parts: Parts = attrgetter("src")) -> UOp:
    """The normal form of `root`, sources first; `normal` remembers all that were found.

    `step(node, normal parts)` gives the node to go on with, or `node` itself if it is normal.
    `parts` says what is brought to its normal form before a node is: its sources, if not given.
    Raises: EndlessRewriteError if a node comes up below its own replacement.
    """
    becomes: dict[UOp, UOp] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in normal:
            stack.pop()
            continue
        following = becomes.get(node)
        if following is not None:
            if following not in normal:
                raise EndlessRewriteError(node)
            normal[node] = normal[following]
            stack.pop()
            continue
        needed = parts(node)
        sources = [normal.get(source) for source in needed]
        if None in sources:
            stack.extend([source for source in needed if source not in normal][::-1])
            continue
        following = step(node, tuple(sources))  # type: ignore[arg-type]
        if following is node:
            normal[node] = node
            stack.pop()
        else:
            becomes[node] = following
            stack.append(following)
    return normal[root]


class Rewriter:
    """Rewrites graphs to their normal form under `rulesets`; earlier sets and rules come first.

    Normal forms are remembered, so one rewriter may be asked for many graphs of one compilation.
    """

    def __init__(
        self, rulesets: Sequence[RuleSet], facts: Facts, journal: Journal | None = None
    ) -> None:
        self._rulesets = tuple(rulesets)
        self._facts = facts
        self._journal = Journal() if journal is None else journal
        self._normal: dict[UOp, UOp] = {}
        self._candidates: Candidates = rulesets[0].joined(self._rulesets) if rulesets else {}
        self._collector = _collector(self._rulesets)
        self._sums = None if self._collector is None else Sums(facts)
        self._parts: Parts = attrgetter("src") if self._sums is None else self._sums.parts
        self._last_rules: deque[str] = deque(maxlen=REMEMBERED_RULES)
        self._applications = 0
        self._root: UOp | None = None

    def rewrite(self, root: UOp) -> UOp:
        """The normal form of `root`. Raises: RewriteError if the rules do not end."""
        self._applications = 0
        self._root = root
        try:
            return settle(root, self._step, self._normal, self._parts)
        except EndlessRewriteError as error:
            raise self._endless(error.node) from None

    def _step(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """`node` over its normal parts, in canonical order; if it is that already, one rule."""
        op, sums = node.op, self._sums
        if op in LEAVES:
            return node
        if op is Ops.ADD and sums is not None and node in sums:
            tidy = sums.tidy(node, sources)
            if tidy is not node:
                self._note(*self._collector, node, tidy)  # type: ignore[misc]
                return tidy
            return self._first_rule(node, True)
        if op in COMMUTATIVE and not self._in_order(sources):
            sources = sources[::-1]
        elif op in (Ops.REDUCE, Ops.ACCUMULATOR):
            sources = (sources[0], *[s for s in sources[1:] if s.op is not Ops.CONST])
        if sources != node.src:
            return UOp(node.op, node.dtype, sources, node.arg)
        return self._first_rule(node, False)

    def _first_rule(self, node: UOp, is_tidy: bool) -> UOp:
        """What the first rule that fires makes of `node`; `node` itself if none does."""
        key = key_of(node)
        candidates = self._candidates.get((key, is_tidy))
        if candidates is None:
            candidates = self._find_candidates(node, is_tidy)
            self._candidates[(key, is_tidy)] = candidates
        facts = self._facts
        for matcher, proven in candidates:
            result = matcher.apply(node, facts)
            if result is not None and result is not node:
                self._count(matcher, proven, node, result)
                return result
        return node

    def _find_candidates(self, node: UOp, is_tidy: bool) -> tuple[tuple[Matcher, bool], ...]:
        """The rules for nodes like `node`, in order; linear laws change nothing about a tidy sum."""
        found = [(m, s.proven) for s in self._rulesets for m in s.candidates(node)]
        return tuple([(m, p) for m, p in found if not (is_tidy and is_linear_law(m.rule))])

    def _in_order(self, sources: tuple[UOp, ...]) -> bool:
        """Constants stand right; other operands in the one stable order of nodes."""
        first, second = sources
        if _is_constant(second):
            return not _is_constant(first) or self._sorted(first, second)
        return not _is_constant(first) and self._sorted(first, second)

    def _sorted(self, first: UOp, second: UOp) -> bool:
        return self._facts.order_key(first) <= self._facts.order_key(second)

    def _count(self, matcher: Matcher, proven: bool, node: UOp, result: UOp) -> None:
        name = matcher.rule.full_name
        if result.dtype is not node.dtype or result.shape != node.shape:
            raise RewriteError(
                f"rule {name} made {result.dtype} of shape {result.shape} out of {node.dtype} of"
                f" shape {node.shape}, at node\n{_excerpt(node)}"
            )
        self._note(name, proven, node, result)

    def _note(self, name: str, proven: bool, node: UOp, result: UOp) -> None:
        self._journal.record(name, proven)
        if self._journal.observe is not None:
            self._journal.observe(name, node, result)
        self._last_rules.append(name)
        self._applications += 1
        if not self._applications % FREE_APPLICATIONS and self._root is not None:
            allowed = FREE_APPLICATIONS + APPLICATIONS_PER_NODE * len(self._root.toposort())
            if self._applications >= allowed:
                raise self._endless(node)

    def _endless(self, node: UOp) -> RewriteError:
        rules = ", ".join(self._last_rules)
        return RewriteError(
            f"rewriting does not end; the last rules were {rules}; one of them must go down in the"
            f" order that rules/README.md states. At node\n{_excerpt(node)}"
        )


def _collector(rulesets: Sequence[RuleSet]) -> tuple[str, bool] | None:
    """The name of the rule that collects sums, and whether it has evidence; None: not among them."""
    for rules in rulesets:
        if rules.collector is not None:
            return rules.collector, rules.proven
    return None


def _is_constant(node: UOp) -> bool:
    return node.op in CONSTANT_OPS and (node.op is Ops.CONST or scalar_of(node) is not None)


def _excerpt(node: UOp) -> str:
    text = repr(node)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " ..."


def cotangents(
    ruleset: RuleSet,
    node: UOp,
    cotangent: UOp,
    facts: Facts | None = None,
    journal: Journal | None = None,
) -> tuple[UOp | None, ...]:
    """The cotangents of the sources of `node`, given its own; None where no gradient passes.

    Raises: NotDifferentiable if no rule of `ruleset` says so.
    """
    known = Facts(RuleSet("bounds", ())) if facts is None else facts
    for matcher in ruleset.candidates(node):
        found = matcher.cotangents(node, known, cotangent)
        if found is not None:
            if journal is not None:
                journal.record(matcher.rule.full_name, ruleset.proven)
            return found
    if not node.dtype.is_float:
        return (None,) * len(node.src)
    raise NotDifferentiable(
        f"no gradient through {node.op.name.lower()} of {node.dtype}; a line in"
        f" rules/cotangent.rules would give it one"
    )
