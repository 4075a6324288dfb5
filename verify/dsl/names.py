"""The names that rule files may use, and what each stands for.

Owns: infix and call syntax of operations, names of constants, arities. Does not own: the meaning of
functions (core/rewrite/functions.py) and operations (core/ir/ops.py).
"""

from __future__ import annotations

import inspect
import math
import re

from proofgrad.core.ir.ops import ELEMENTS
from proofgrad.core.rewrite.extractors import CONTRACTS
from proofgrad.core.rewrite.functions import (
    ARG_FUNCTIONS,
    DOMAIN_TYPES,
    FACTS,
    NUMBER_FUNCTIONS,
    TYPE_CLASSES,
    TYPE_FUNCTIONS,
    TYPE_NUMBERS,
)

CONST_NAME = re.compile(r"[cdkmn][0-9]*")
LITERALS: dict[str, int | float | bool] = {
    "true": True,
    "false": False,
    "inf": math.inf,
    "nan": math.nan,
}
SORTS = {
    "var": "a variable for terms",
    "const": "a constant",
    "arg": "the arg of an operation",
    "number": "a number from an extractor",
    "ranges": "the ranges of a reduction",
    "range": "the counter of a loop",
    "type": "a type",
}

STRUCTURAL_DOMAINS = {"tensor": "any", "loop": "any", "derivative": "float"}
DOMAINS = (*DOMAIN_TYPES, *STRUCTURAL_DOMAINS)

INFIX_OPS = {
    "+": "ADD", "*": "MUL", "/": "FDIV", "//": "FLOORDIV", "%": "MOD", "&": "AND", "|": "OR",
    "^": "XOR", "<<": "SHL", ">>": "SHR", "<": "CMPLT", "==": "CMPEQ",
}  # fmt: skip
PREFIX_OPS = {"-": "NEG", "!": "NOT"}
CALL_OPS: dict[str, tuple[str, tuple[int, ...]]] = {
    **{row.name: (op.name, (row.arity,)) for op, row in ELEMENTS.items() if row.name},
    "load": ("LOAD", (1,)),
    "index": ("INDEX", (2, 3)),
    "contiguous": ("CONTIGUOUS", (1,)),
    "detach": ("DETACH", (1,)),
}
CALL_NAMES = {op: name for name, (op, _) in CALL_OPS.items()}


def written(op: str) -> str:
    """An operation as rule files have it: a symbol or a name."""
    symbols = {op: symbol for symbol, op in (*INFIX_OPS.items(), *PREFIX_OPS.items())}
    name = op.removesuffix("[]")  # of a reduction
    return symbols.get(op) or CALL_NAMES.get(name, name) + op[len(name) :]


CAST_OPS = {"cast": "CAST", "bitcast": "BITCAST"}
MOVEMENT_OPS = {
    "reshape": "RESHAPE",
    "permute": "PERMUTE",
    "expand": "EXPAND",
    "pad": "PAD",
    "shrink": "SHRINK",
    "flip": "FLIP",
    "skew": "SKEW",
    "copy": "COPY",
}
WHOLE_OPS = frozenset({*MOVEMENT_OPS, "contiguous", "detach"})
WHOLE_DOMAINS = frozenset({"tensor", "derivative"})
REDUCE_OPS = {"sum": "ADD", "product": "MUL", "max": "MAX", "min": "MIN"}

NUMBER_INFIX = (
    "+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or", "&", "|", "^", "<<",
    ">>",
)  # fmt: skip
FACT_FUNCTIONS = {name: 2 if name == "independent" else 1 for name in FACTS}
FUNCTIONS: dict[str, int] = {
    **{name: 2 for name in ("min", "max", "gcd", "divides", "without", "wrapped")},
    **{name: 1 for name in ("abs", "is_power_of_two", "log2_exact", "fill")},
    **{name: 1 for name in TYPE_NUMBERS if name != "wrapped"},
    **FACT_FUNCTIONS,
    **{name: len(inspect.signature(f).parameters) for name, f in ARG_FUNCTIONS.items()},
    **{name: 2 for name in TYPE_FUNCTIONS},
}
TRUTHS = {
    "<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "divides", "is_power_of_two", "finite",
    "not_nan", "independent", "loop_free", "is_identity", "is_full_shrink", "is_zero_pad",
    "is_no_flip", "is_empty",
    "disjoint", *TYPE_FUNCTIONS,
}  # fmt: skip

SINGLE_TYPES = frozenset(
    [name for name, members in TYPE_CLASSES.items() if [d.name for d in members] == [name]]
)

# extractor -> sorts of its inputs, sorts of its outputs: "term" or "number"
EXTRACTORS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    name: (tuple([s for _, s in extractor.inputs]), tuple([s for _, s in extractor.outputs]))
    for name, extractor in CONTRACTS.items()
}


def unlisted_functions() -> set[str]:
    """Functions of core/rewrite/functions.py that this table does not know; a test wants none."""
    known = {*FUNCTIONS, *NUMBER_INFIX, "neg", "not"}
    claimed = {*NUMBER_FUNCTIONS, *ARG_FUNCTIONS, *FACTS, *TYPE_FUNCTIONS, *TYPE_NUMBERS}
    return claimed - known
