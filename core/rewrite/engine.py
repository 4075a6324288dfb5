"""The rewrite engine: one pass from the sources up, to the normal form under rule sets.

Owns: the order of visits, memory of normal forms, the canonical order of commutative operands, the
journal of what fired, gradients of one node by COTANGENT rules. Does not own: matching (match.py),
which rules there are (rules/), evidence (ledger.py).

Every rule goes down in one order (rules/README.md), so rewriting ends. A set that does not is
caught here: an endless rewrite raises RewriteError and names the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from weakref import WeakMethod

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import CONST, FLOORDIV, MUL, RANGE, WHERE
from proofgrad.core.ir.ops import COMMUTATIVE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.index_terms import IndexProgram, IndexTerms, index_program
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import Candidates, Joined, Matcher, RuleSet, key_of
from proofgrad.core.rewrite.narrowing import Narrowing
from proofgrad.core.rewrite.scope import CONSTANT_OPS, scalar_of
from proofgrad.core.rewrite.sums import LINEAR, Sum, read_sum

# An endless rewrite is noticed after this many applications, plus so many for each node given.
FREE_APPLICATIONS = 20_000
APPLICATIONS_PER_NODE = 1_000
REMEMBERED_RULES = 8
HAVE_LOOPS = frozenset({Ops.REDUCE, Ops.LOCAL_BUFFER, Ops.ACCUMULATOR})
LEAVES = frozenset({Ops.CONST, Ops.PARAM})  # no rule has them on its left side
DIVISIONS = frozenset({Ops.FLOORDIV, Ops.MOD})
DEEPEST = 40  # divisions within divisions that are settled by recursion; deeper ones by the walk
_INDEX = dtypes.index
SUM_OPS = LINEAR | {Ops.CONST, Ops.FLOORDIV, Ops.MOD}
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


class Rewriter:
    """Rewrites graphs to their normal form under `rulesets`; earlier sets and rules come first.

    Normal forms are remembered, so one rewriter may be asked for many graphs of one compilation.
    Where the sets state the laws of sums, index terms that are sums, or sums divided by numbers,
    are rewritten as sums (index_terms.py) and written as terms where another node reads them.
    """

    def __init__(
        self, rulesets: Sequence[RuleSet], facts: Facts, journal: Journal | None = None
    ) -> None:
        self._rulesets = tuple(rulesets)
        self._facts = facts
        self._journal = Journal() if journal is None else journal
        self._settled: dict[UOp, UOp | Sum] = {}  # normal forms; those of scalar index terms: sums
        self._normal: dict[UOp, UOp] = {}  # normal forms as terms, where they were asked for
        self._joined = self._rulesets[0].joined(self._rulesets) if rulesets else Joined()
        self._candidates: Candidates = self._joined.candidates
        self._program: IndexProgram | None = None
        self._index: IndexTerms | None = None
        self.narrowing: Narrowing | None = None  # for what is read within masks
        self._is_prepared = False  # for index terms; some graphs have none
        self._applications = _Applications(self._journal)
        self._note = self._applications.note

    def _prepare(self) -> None:
        """Make the functions for index terms, if the sets state the laws of sums."""
        self._is_prepared = True
        self._program = _program_of(self._joined, self._rulesets)
        if self._program is not None:
            note, observe = self._note, self._journal.observe
            self._index = IndexTerms(
                self._program, self._rulesets, self._facts, note, observe, WeakMethod(self._form_of)
            )
            if self._program.narrows:
                normal_of: WeakMethod[Callable[[UOp], UOp]] = WeakMethod(self._normal_form)
                self.narrowing = Narrowing(self._index, self._facts.forms, normal_of)
                self._facts.narrowing = self.narrowing

    def __del__(self) -> None:
        if getattr(self, "_index", None) is not None:
            self._index.release()  # type: ignore[union-attr]

    def rewrite(self, root: UOp) -> UOp:
        """The normal form of `root`. Raises: RewriteError if the rules do not end."""
        self._applications.begin(root)
        outer = self._facts.narrowing
        self._facts.narrowing = self.narrowing
        try:
            self._settle(root)
            return self._normal_of(root)
        except EndlessRewriteError as error:
            raise self._applications.endless(error.node) from None
        except RecursionError:
            raise self._applications.endless(root) from None
        finally:
            self._facts.narrowing = outer

    # -- the walk -----------------------------------------------------------------------------------

    def _settle(self, root: UOp) -> None:
        """Find the normal form of `root`, sources first, without recursion.

        Raises: EndlessRewriteError if a node comes up below its own replacement.
        """
        settled, normal = self._settled, self._normal.get
        becomes: dict[UOp, UOp] = {}
        stack = [root]
        while stack:
            node = stack[-1]
            if node in settled:
                stack.pop()
                continue
            if node in becomes:
                self._follow(node, becomes[node])
                stack.pop()
                continue
            is_sum = node.dtype is _INDEX and node.op in SUM_OPS and not node.shape
            if is_sum:
                missing = self._add_sum(node)
                if missing is not None:
                    stack.extend(missing)
                    continue
            sources = tuple(map(normal, node.src))
            if None in sources:  # not settled, or settled as a sum that is not written yet
                missing = [s for s in node.src if s not in settled]
                if missing and node.op is WHERE:
                    if node.src[0] not in settled:
                        stack.append(node.src[0])
                        continue
                    decided = self._decided(node)
                    if decided is not node:
                        becomes[node] = decided
                        stack.append(decided)
                        continue
                if missing:
                    stack.extend(missing[::-1])
                    continue
                sources = tuple([self._normal_of(s) for s in node.src])
            over = self._over(node, sources)  # type: ignore[arg-type]  # none of them is None
            if over is not node and (is_sum or over in settled or over.op in HAVE_LOOPS):
                becomes[node] = over
                stack.append(over)
                continue
            following = self._first_rule(over)
            if following is over:
                self._keep(over)
                settled[node] = settled[over]
                stack.pop()
                continue
            if over is not node:
                becomes[node] = over
                stack.append(over)
            becomes[over] = following
            stack.append(following)

    def _decided(self, choice: UOp) -> UOp:
        """What a rule makes of a choice whose condition is constant, before either way is looked at: the other one may be long."""
        condition = self._normal_of(choice.src[0])
        if condition.op is not CONST:
            return choice
        over = UOp(WHERE, choice.dtype, (condition, *choice.src[1:]), choice.arg)
        following = self._first_rule(over)
        return choice if following is over else following

    def _add_sum(self, node: UOp) -> Sequence[UOp] | None:
        """Settle a sum, or a sum divided by a number; gives the nodes to settle before.

        None: it is neither, or too long to be kept as a sum.
        """
        if not self._is_prepared:
            self._prepare()
        if self._index is None:
            return None
        missing: list[UOp] = []
        if node.op in DIVISIONS:
            if node.src[1].op is not CONST:
                return None
            found = self._division_of(node, missing, DEEPEST)
        else:
            found = self._sum_of(node, missing, DEEPEST)
        return missing or None if found is None else ()

    def _division_of(self, node: UOp, missing: list[UOp], depth: int) -> Sum | None:
        """A sum divided by a number, simplified, or a loop; None if something is `missing`."""
        op = node.op
        if op is RANGE:
            return self._loop(node)
        if not depth or op not in DIVISIONS or node.src[1].op is not CONST:
            missing.append(node)
            return None
        term, number = node.src
        form = self._sum_of(term, missing, depth - 1)
        if form is None:
            if not missing:
                missing.append(term)
            return None
        assert self._index is not None
        divide = self._index.quotient if op is FLOORDIV else self._index.remainder
        found: Sum = divide(form, number.arg)
        self._settled[node] = found
        return found

    def _loop(self, node: UOp) -> Sum:
        """The normal form of a loop's counter. Only rules about any term may match it."""
        assert self._index is not None and self._program is not None
        if node.src[0].op is not CONST or not self._program.has_rules_of_any_term:
            return self._form_of(node)
        found: Sum = self._index.whole(({self._facts.forms.wrapped(node): 1}, 0))
        self._settled[node] = found
        return found

    def _sum_of(self, root: UOp, missing: list[UOp], depth: int) -> Sum | None:
        """`root` as a sum of what is settled; None if it is too long, or if something is `missing`.

        Divisions by numbers among its summands are settled on the way, if not nested too deeply.
        """
        known = self._settled.get(root)
        if known is not None:
            return known  # type: ignore[return-value]
        if root.op not in LINEAR:
            if root.op is CONST:
                self._normal[root] = root
                number: Sum = {}, root.arg
                self._settled[root] = number
                return number
            return self._division_of(root, missing, depth)
        if root.op is MUL and not any([source.op is CONST for source in root.src]):
            return None
        found = read_sum(root, self._settled, self._division_of, missing, depth)
        if found is not None:
            self._settled[root] = found
        return found

    def _keep(self, node: UOp) -> None:
        """`node` is its own normal form."""
        self._normal[node] = self._settled[node] = node
        if node.dtype is not _INDEX or node.shape:
            return
        if not self._is_prepared:
            self._prepare()
        if self._index is not None:
            self._settled[node] = {self._facts.forms.wrapped(node): 1}, 0

    def _follow(self, node: UOp, following: UOp) -> None:
        """`node` has the normal form of what it has become."""
        found = self._settled.get(following)
        if found is None:
            raise EndlessRewriteError(node)
        self._settled[node] = found

    def _normal_of(self, node: UOp) -> UOp:
        """The normal form of a node that is settled, as a term."""
        found = self._normal.get(node)
        if found is None:
            settled = self._settled[node]
            found = settled if isinstance(settled, UOp) else self._written(node, settled)
            self._normal[node] = found
        return found

    def _written(self, node: UOp, form: Sum) -> UOp:
        """The normal form of a sum that is settled, as a term."""
        assert self._index is not None and self._program is not None
        whole = self._index.whole(form)
        found = self._facts.forms.written(whole)
        if found is not node:
            if node.op in LINEAR:
                self._note(*self._program.collector)
                if self._journal.observe is not None:
                    self._journal.observe(self._program.collector[0], node, found)
            self._settled[found] = whole
            self._normal[found] = found
        return found

    def _form_of(self, node: UOp) -> Sum:
        """The normal form of an index term, as a sum."""
        self._settle(node)
        found = self._settled[node]
        assert not isinstance(found, UOp)
        return found

    def _normal_form(self, node: UOp) -> UOp:
        """The normal form of a term that a rule asks about."""
        self._settle(node)
        return self._normal_of(node)

    def _over(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        """`node` over its normal sources, in canonical order."""
        op = node.op
        if op in COMMUTATIVE and not self._in_order(sources):
            sources = sources[::-1]
        elif op in HAVE_LOOPS:
            sources = (sources[0], *_loops(node.src[1:], sources[1:]))
        return node if sources == node.src else UOp(op, node.dtype, sources, node.arg)

    def _first_rule(self, node: UOp) -> UOp:
        """What the first rule that fires makes of `node`; `node` itself if none does."""
        if node.op in LEAVES:
            return node
        key = key_of(node)
        candidates = self._candidates.get(key)
        if candidates is None:
            found = [(m, s.proven) for s in self._rulesets for m in s.candidates(node)]
            candidates = tuple([(m.glance, m, proven) for m, proven in found])
            self._candidates[key] = candidates
        facts = self._facts
        for glance, matcher, proven in candidates:
            if glance is not None and not glance(node):
                continue
            result = matcher.apply(node, facts)
            if result is not None and result is not node:
                self._count(matcher, proven, node, result)
                return result
        return node

    def _in_order(self, sources: tuple[UOp, ...]) -> bool:
        """Constants stand right; other operands in the one stable order of nodes."""
        first, second = sources
        if _is_constant(second):
            return not _is_constant(first) or self._sorted(first, second)
        return not _is_constant(first) and self._sorted(first, second)

    def _sorted(self, first: UOp, second: UOp) -> bool:
        return self._facts.in_order(first, second)

    def _count(self, matcher: Matcher, proven: bool, node: UOp, result: UOp) -> None:
        name = matcher.rule.full_name
        if result.dtype is not node.dtype or result.shape != node.shape:
            raise RewriteError(
                f"rule {name} made {result.dtype} of shape {result.shape} out of {node.dtype} of"
                f" shape {node.shape}, at node\n{_excerpt(node)}"
            )
        self._note(name, proven)
        if self._journal.observe is not None:
            self._journal.observe(name, node, result)


class _Applications:
    """How many rules have fired in one rewrite, and the last of them."""

    __slots__ = ("_count", "_last", "_record", "_root")

    def __init__(self, journal: Journal) -> None:
        self._record = journal.record
        self._last: deque[str] = deque(maxlen=REMEMBERED_RULES)
        self._count = 0
        self._root: UOp | None = None

    def begin(self, root: UOp) -> None:
        """Count anew, for the graph `root`."""
        self._count = 0
        self._root = root

    def note(self, name: str, proven: bool) -> None:
        """A rule has fired. Raises: RewriteError if there were too many for the graph."""
        self._record(name, proven)
        self._last.append(name)
        self._count += 1
        if not self._count % FREE_APPLICATIONS and self._root is not None:
            allowed = FREE_APPLICATIONS + APPLICATIONS_PER_NODE * len(self._root.toposort())
            if self._count >= allowed:
                raise self.endless(self._root)

    def endless(self, node: UOp) -> RewriteError:
        """The error of rules that do not end."""
        rules = ", ".join(self._last)
        return RewriteError(
            f"rewriting does not end; the last rules were {rules}; one of them must go down in the"
            f" order that rules/README.md states. At node\n{_excerpt(node)}"
        )


def _loops(before: Sequence[UOp], after: Sequence[UOp]) -> list[UOp]:
    """The loops of a reduction over normal sources: all but those that run exactly once.

    A rule may find the only value that a counter can have. That is no reason to drop a loop that may
    run no time at all: over nothing a reduction has another value.
    """
    kept = [(old, new) for old, new in zip(before, after) if not _runs_once(old, new)]
    return [old if new.op is CONST else new for old, new in kept]


def _runs_once(old: UOp, new: UOp) -> bool:
    size = old.src[0] if old.op is RANGE else old
    return new.op is CONST and size.op is CONST and (old.op is CONST or size.arg == 1)


def _program_of(joined: Joined, rulesets: tuple[RuleSet, ...]) -> IndexProgram | None:
    """The program for index terms of rule sets, made when they are first used."""
    if not joined.has_index:
        joined.index = index_program(rulesets)
        joined.has_index = True
    program: IndexProgram | None = joined.index
    return program


def _is_constant(node: UOp) -> bool:
    return node.op in CONSTANT_OPS and (node.op is CONST or scalar_of(node) is not None)


def _excerpt(node: UOp) -> str:
    text = repr(node)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " ..."


_NO_BOUNDS = RuleSet("bounds", ())  # one, for it compiles functions when first asked


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
    known = Facts(_NO_BOUNDS) if facts is None else facts
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
