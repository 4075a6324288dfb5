"""What an operation on elements lacks: each part that is missing, and the file that it belongs into.

Owns: the list of parts that every operation has before a rule is proven. Does not own: the parts
(docs/add-an-op.md lists them), what printers and CHECK lack, which tests/test_operations.py asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from proofgrad.core.compile.lowering.promote import ROUNDED_OTHERWISE, ROUNDED_TWICE
from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import ELEMENTS, Elementwise, Ops, Precision
from proofgrad.core.rewrite.rule import Node, Rule
from proofgrad.verify.dsl.names import CALL_OPS, INFIX_OPS, PREFIX_OPS
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.derivative import DERIVATIVES

# A type of each kind; of codes, which are only stored, operations have no values of their own.
_TYPES: dict[Kind, DType] = {
    Kind.BOOL: dtypes.bool,
    Kind.SIGNED: dtypes.int8,
    Kind.UNSIGNED: dtypes.uint8,
    Kind.INDEX: dtypes.index,
    Kind.FLOAT: dtypes.float32,
}
_ONES = {Kind.BOOL: True, Kind.FLOAT: 1.0}


def missing_from_all(rules: Mapping[str, Sequence[Rule]]) -> list[str]:
    """A line for each missing part of each operation on elements, given the rules of a library by set.

    A library that has no set `cotangent`, or none `bounds`, need have no lines of it.
    """
    by_set = {
        name: _operations_of(rules[name]) for name in ("cotangent", "bounds") if name in rules
    }
    return [f"{op.name} {part}" for op in ELEMENTS for part in missing_parts(op, by_set)]


def missing_parts(op: Ops, by_set: Mapping[str, Collection[str]]) -> list[str]:
    """What `op` lacks, each with what to do. `by_set`: which operations the lines of a set are about."""
    row = ELEMENTS[op]
    return [*_lacks_of_row(op, row), *_lacks_of_meaning(op, row), *_lacks_of_rules(op, row, by_set)]


def _lacks_of_row(op: Ops, row: Elementwise) -> Iterator[str]:
    if not row.meaning:
        yield "has no meaning in words: write it into its row in core/ir/ops.py"
    written = {*INFIX_OPS.values(), *PREFIX_OPS.values(), *[name for name, _ in CALL_OPS.values()]}
    if op.name not in written:
        yield (
            "cannot be written in rules: give its row in core/ir/ops.py a `name`, or name its sign in"
            " verify/dsl/names.py"
        )
    if row.is_step and (row.arity > 1 or not row.numpy) and not row.gives_bool:
        yield "is a step, which takes one operand and names its function of `numpy` in core/ir/ops.py"


def _lacks_of_meaning(op: Ops, row: Elementwise) -> Iterator[str]:
    for kind, dtype in _TYPES.items():
        if kind not in row.kinds:
            continue
        result = dtypes.bool if row.gives_bool else dtype
        sources = [dtypes.bool if op is Ops.WHERE else dtype, *[dtype] * (row.arity - 1)]
        ones = [_ONES.get(source.kind, 1) for source in sources]
        try:
            evaluate(op, result, ones, sources)
        except ValueError:
            yield f"has no value on a {dtype.name}: write it into the tables of core/ir/evaluate.py"
        try:
            terms = [semantics.constant(s, one) for s, one in zip(sources, ones)]
            semantics.meaning(op, result, terms, sources)
        except semantics.NoMeaning:
            if (op, kind) not in _NOT_PROVEN:
                yield (
                    f"has no SMT term on a {dtype.name}: write it into the tables of"
                    " verify/encode/semantics.py"
                )
    if Kind.FLOAT in row.kinds and row.precision is Precision.ROUNDED:
        if op not in ROUNDED_TWICE | ROUNDED_OTHERWISE:
            yield (
                "is rounded once, and core/compile/lowering/promote.py does not say how it is computed"
                " of float16 and bfloat16"
            )


# Of floats it may round once or twice, so that it has no one value.
_NOT_PROVEN = frozenset({(Ops.MULACC, Kind.FLOAT)})


def _lacks_of_rules(
    op: Ops, row: Elementwise, by_set: Mapping[str, Collection[str]]
) -> Iterator[str]:
    if Kind.FLOAT not in row.kinds:
        return
    if not row.is_step and op not in DERIVATIVES and op is not Ops.WHERE:
        yield (
            "has no derivative: write it into DERIVATIVES of verify/encode/derivative.py, or say"
            " is_step=True in its row in core/ir/ops.py"
        )
    if op.name not in by_set.get("cotangent", (op.name,)):
        example = ", ".join(["none"] * row.arity) if row.is_step else "..."
        sources = ", ".join("xyz"[: row.arity])
        yield (
            "has no gradient: add to rules/cotangent.rules a line"
            f" `cotangent {op.name.lower()}: {row.name or op.name.lower()}({sources}), g => {example}`"
        )
    if op.name not in by_set.get("bounds", (op.name,)) and not row.no_bounds:
        yield (
            "has no bounds: add a line to rules/bounds.rules, or say why there is none by `no_bounds` in"
            " its row in core/ir/ops.py"
        )


def _operations_of(rules: Sequence[Rule]) -> frozenset[str]:
    """The operations of the left sides."""
    return frozenset([rule.left.op for rule in rules if isinstance(rule.left, Node)])
