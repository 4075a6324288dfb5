"""From the syntax tree of one rule to a `Rule`.

Owns: the parts of a rule and the order in which their names are bound: parameters, left side,
extractors, right side, conditions. Does not own: terms (terms.py), expressions (expressions.py), type
variables (types.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

from lark import Token, Tree

from proofgrad.core.rewrite.extractors import NUMBER, TRUTH
from proofgrad.core.rewrite.rule import (
    FACT_KINDS,
    LOOSE_CLASSES,
    NUMBER_KINDS,
    Calc,
    Expr,
    Extractor,
    Node,
    Rule,
    RuleKind,
    Term,
    Var,
)
from proofgrad.core.rewrite.sorts import IllSorted, check_sorts
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import RuleError, Source, near
from proofgrad.verify.dsl.expressions import conjuncts
from proofgrad.verify.dsl.positions import position_of
from proofgrad.verify.dsl.scope import Scope, Syntax, is_name
from proofgrad.verify.dsl.terms import Terms

_SAID = ("has no `in` or `is`", "says `is number`", "says `in [ones, may]`")  # by how many
_CLAIMS = {kind.value for kind in FACT_KINDS if kind is not RuleKind.BOUNDS}


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first line of a rule file."""

    name: str
    domains: tuple[str, ...]

    @staticmethod
    def checked(name: str, domains: Syntax, source: Source) -> FileHeader:
        """A header with its domains. Raises: RuleError for an unknown one, or a structural one beside others."""
        return FileHeader(name, _domains(domains, source))


def _domains(tree: Syntax, source: Source) -> tuple[str, ...]:
    for before, token in enumerate(tree.children):
        if token in tree.children[:before]:
            raise RuleError(source, position_of(token), f"{str(token)!r} is named twice")
        if token not in names.DOMAINS:
            raise RuleError(
                source,
                position_of(token),
                f"unknown domain {str(token)!r}; {near(str(token), names.DOMAINS)}",
            )
    found = tuple([str(token) for token in tree.children])
    structural = [d for d in found if d in names.STRUCTURAL_DOMAINS]
    if structural and len(found) > 1:
        raise RuleError(
            source, position_of(tree), f"the domain {structural[0]!r} must stand alone in a rule"
        )
    return found


class Elaborator:
    """Elaborates one rule; make a new one for each."""

    def __init__(self, header: FileHeader, source: Source) -> None:
        self._header = header
        self._source = source

    def rule(self, tree: Syntax, text: str, doc: str, examples: tuple[str, ...]) -> Rule:
        """Raises: RuleError."""
        name, *children = tree.children[1:]
        params, over = _take(children, "params"), _take(children, "over")
        kind = self._kind(tree, children)
        clauses = _take_all(children, ("where_clause", "when_clause", "let_clause"))
        domains = _domains(over.children[0], self._source) if over else self._header.domains
        self._check_domains(kind, domains, tree)
        self._scope = Scope(domains, self._source)
        self._terms = Terms(self._scope)
        self._declare(params)
        left = self._left(children[0])
        self._scope.left_side = False
        if kind in FACT_KINDS:
            self._scope.types.takes(left.type, kind.value, position_of(children[0]))
        self._check_ranges(left, children[0])
        extractors = tuple([self._extractor(c) for c in clauses if c.data == "let_clause"])
        self._scope.in_loop = False
        right = self._right(kind, children, left)
        where = self._conditions(clauses, "where_clause")
        when = self._conditions(clauses, "when_clause")
        types = self._scope.types.finish(left.type, position_of(tree))
        settled = self._scope.types.resolve((left, right, where, when, extractors))
        parts = dict(zip(("left", "right", "where", "when", "extractors"), settled))
        self._check_bound_types(types, parts["left"], children[0])
        if kind is RuleKind.REWRITE and parts["right"] == (parts["left"],):
            raise self._scope.error(
                children[1], "both sides are the same: the rule changes nothing"
            )
        rule = Rule(
            name=str(name),
            ruleset=self._header.name,
            kind=kind,
            domains=domains,
            types=types,
            **parts,
            text=text,
            doc=doc,
            examples=examples,
            line=tree.meta.line,
        )
        self._check_sorts(rule, tree)
        return rule

    def _check_domains(self, kind: RuleKind, domains: tuple[str, ...], tree: Syntax) -> None:
        """Gradients are laws of reals, other laws are not; facts are of one element."""
        for domain in domains:
            if (domain == "derivative") is not (kind is RuleKind.COTANGENT):
                wanted = "a line `cotangent` is for `over derivative`, and no other is"
            elif kind in FACT_KINDS and domain in (*names.STRUCTURAL_DOMAINS, *LOOSE_CLASSES):
                wanted = "facts are of elements: `over int, index, float, bool` or types"
            else:
                continue
            reason = f"nothing is claimed here over {domain}: {wanted}"
            raise RuleError(self._source, position_of(tree.children[0]), reason)

    def _check_sorts(self, rule: Rule, tree: Syntax) -> None:
        """Refuse a rule in which a part is of another sort than its position wants."""
        try:
            check_sorts(rule)
        except IllSorted as error:
            for part, position in reversed(self._scope.positions):
                if self._scope.types.resolve(part) == error.part:
                    raise RuleError(self._source, position, error.reason) from None
            raise RuleError(self._source, position_of(tree), error.reason) from None

    def _kind(self, tree: Syntax, children: list[Any]) -> RuleKind:
        """What is claimed; of a fact its name is taken from `children`, and its ends stand free."""
        if tree.data != "fact":
            return RuleKind("rewrite" if tree.data == "rule" else tree.data)
        claimed = children.pop(0)
        if str(claimed) not in _CLAIMS:
            reason = f"{str(claimed)!r} is not a fact with transfer functions"
            raise RuleError(
                self._source, position_of(claimed), f"{reason}; {near(str(claimed), _CLAIMS)}"
            )
        kind = RuleKind(str(claimed))
        ends = [c for c in children if isinstance(c, Tree) and c.data == "ends"]
        wanted = NUMBER_KINDS.get(kind, 0)
        if sum([len(found.children) for found in ends]) != wanted:
            raise RuleError(
                self._source, position_of(claimed), f"the fact {str(claimed)} {_SAID[wanted]}"
            )
        for found in ends:
            position = children.index(found)
            children[position : position + 1] = found.children
        return kind

    def _declare(self, params: Syntax) -> None:
        for param in params.children if params else ():
            token = param.children[0]
            if token in self._scope.sorts or token in self._scope.declared_consts:
                raise self._scope.error(token, f"{str(token)!r} is declared twice")
            if param.data == "const_param":
                self._scope.declared_consts.add(str(token))
            else:
                self._scope.sorts[str(token)] = "type"
                self._scope.types.declare(
                    str(token), str(param.children[1]), position_of(param.children[1])
                )

    def _left(self, tree: Syntax) -> Node | Var:
        left = self._terms.term(tree)
        if not isinstance(left, (Node, Var)):
            raise self._scope.error(tree, "the left side must be an operation or a variable")
        return left

    def _check_bound_types(
        self, types: tuple[tuple[str, str], ...], left: Term, tree: Syntax
    ) -> None:
        """Every type variable is the type of a term of the left side: a match has to settle it."""
        unbound = [name for name, _ in types if name not in _types_of(left)]
        if unbound:
            raise self._scope.error(
                tree,
                f"no term of the left side has the type {unbound[0]!r}, so no match settles it",
            )

    def _check_ranges(self, left: Node | Var, tree: Syntax) -> None:
        """A range has a name in the outermost reduction only: the engine tries each of its loops."""
        named = [r for r, sort in self._scope.sorts.items() if sort == "range"]
        outermost = left.src[1:] if isinstance(left, Node) and left.op == "REDUCE" else ()
        outside = set(named) - {source.name for source in outermost if isinstance(source, Var)}
        if outside or len(named) > 1:
            raise self._scope.error(
                tree, "only the outermost reduction of a left side names a range, and only one"
            )

    def _right(
        self, kind: RuleKind, children: list[Any], left: Node | Var
    ) -> tuple[Term | None, ...]:
        match kind:
            case RuleKind.REWRITE:
                return (self._typed_like(children[1], left.type),)
            case RuleKind.COTANGENT:
                return self._cotangents(left, children[1], children[2])
            case RuleKind.BOUNDS | RuleKind.BITS | RuleKind.DIVISOR:
                ends = [self._terms.expressions.number(end) for end in children[1:]]
                return tuple([Calc(end, left.type) for end in ends])
            case RuleKind.FINITE | RuleKind.NOT_NAN:
                return ()
            case _:
                assert_never(kind)

    def _cotangents(
        self, left: Node | Var, cotangent: Token, right: Syntax
    ) -> tuple[Term | None, ...]:
        if cotangent != "g" or "g" in self._scope.sorts:
            raise self._scope.error(
                cotangent, "the cotangent of the node is called g, and nothing else"
            )
        sources = left.src if isinstance(left, Node) else ()
        if len(right.children) != len(sources):
            raise self._scope.error(
                right,
                f"{len(right.children)} cotangents for {len(sources)} sources of the left side;"
                " write one for each, or none",
            )
        self._scope.bind("g", "var", cotangent)
        self._scope.types.unify(self._scope.slots["g"], left.type, position_of(cotangent))
        return tuple(
            [
                None if is_name(tree, "none") else self._typed_like(tree, source.type)
                for tree, source in zip(right.children, sources)
            ]
        )

    def _typed_like(self, tree: Syntax, slot: str) -> Term:
        term = self._terms.term(tree, slot)
        if self._scope.types.is_number_against_bool(term.type, slot):
            domains = ", ".join(self._scope.domains)
            raise self._scope.error(tree, f"the left side is bool, this is not: it is of {domains}")
        self._scope.types.unify(term.type, slot, position_of(tree))
        return term

    def _conditions(self, clauses: list[Syntax], kind: str) -> tuple[Expr, ...]:
        found: list[Expr] = []
        for clause in clauses:
            if clause.data == kind:
                for tree in clause.children[0].children:
                    found.extend(conjuncts(self._terms.expressions.condition(tree)))
        return tuple(found)

    def _extractor(self, clause: Syntax) -> Extractor:
        outputs, function, inputs = clause.children
        if function not in names.EXTRACTORS:
            raise self._scope.error(
                function,
                f"unknown extractor {str(function)!r}; {near(str(function), names.EXTRACTORS)}",
            )
        takes, gives = names.EXTRACTORS[str(function)]
        self._scope.check_count(function, len(inputs.children), len(takes), what="inputs")
        self._scope.check_count(function, len(outputs.children), len(gives), what="outputs")
        given: list[Term | Expr] = []
        slot = ""
        for tree, sort in zip(inputs.children, takes):
            given.append(
                self._terms.expressions.number(tree) if sort == NUMBER else self._terms.term(tree)
            )
            if sort == TRUTH:
                self._scope.types.unify(given[-1].type, self._truth(tree), position_of(tree))  # type: ignore[union-attr]
            elif not slot:
                slot = getattr(given[-1], "type", "")
        for token, sort in zip(outputs.children, gives):
            if token in self._scope.sorts:
                raise self._scope.error(token, f"{str(token)!r} already stands for something else")
            self._scope.sorts[str(token)] = "number" if sort == NUMBER else "var"
            self._scope.slots[str(token)] = self._truth(token) if sort == TRUTH else slot
        pairs = tuple([(str(t), s) for t, s in zip(outputs.children, gives)])
        return Extractor(str(function), tuple(given), pairs)

    def _truth(self, syntax: Syntax) -> str:
        return self._scope.types.named("bool", position_of(syntax))


def _types_of(term: Term) -> set[str]:
    """The types of a term and of all terms in it."""
    if not isinstance(term, Node):
        return {term.type}
    return {term.type}.union(*[_types_of(source) for source in term.src])


def _take(children: list[Syntax], data: str) -> Syntax:
    if children and isinstance(children[0], Tree) and children[0].data == data:
        return children.pop(0)
    return None


def _take_all(children: list[Syntax], kinds: tuple[str, ...]) -> list[Syntax]:
    found = [c for c in children if isinstance(c, Tree) and c.data in kinds]
    children[:] = [c for c in children if not (isinstance(c, Tree) and c.data in kinds)]
    return found
