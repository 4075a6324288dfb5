"""A counterexample as a program of Tensors, which prints both sides of the rule.

Owns: the text of the program; which counterexamples can be said in Tensors. Does not own: the
counterexample itself (counterexample.py), the values of computed constants (sample/rules.py).
"""

from __future__ import annotations

import math
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import APPROXIMATED, ELEMENTS, UNARY, Ops
from proofgrad.core.rewrite.rule import Calc, Const, Instance, Lit, Node, Var
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode.types import Case
from proofgrad.verify.sample.rules import Outcome, Trial, can_sample

# Parts of each are in parentheses already. Others (exp2, log2, sin, mulacc) are left out: machines
# may round them in their own way, or Tensors have no such operation.
_NO_METHOD = frozenset({Ops.TF32})
_FORMS: dict[Ops, str] = {
    **{
        op: f"{{0}}.{row.name}()"
        for op, row in ELEMENTS.items()
        if row.name and op in UNARY - APPROXIMATED - _NO_METHOD
    },
    Ops.NEG: "-{0}",
    Ops.NOT: "~{0}",
    Ops.ADD: "{0} + {1}",
    Ops.MUL: "{0} * {1}",
    Ops.FDIV: "{0} / {1}",
    Ops.FLOORDIV: "{0} // {1}",
    Ops.MOD: "{0} % {1}",
    Ops.TRUNCDIV: '{0}.div({1}, rounding_mode="trunc")',
    Ops.TRUNCMOD: "{0}.fmod({1})",
    Ops.FMOD: "{0}.fmod({1})",
    Ops.MAX: "{0}.maximum({1})",
    Ops.MIN: "{0}.minimum({1})",
    Ops.AND: "{0} & {1}",
    Ops.OR: "{0} | {1}",
    Ops.XOR: "{0} ^ {1}",
    Ops.SHL: "{0} << {1}",
    Ops.SHR: "{0} >> {1}",
    Ops.CMPLT: "{0} < {1}",
    Ops.CMPEQ: "{0} == {1}",
    Ops.WHERE: "{0}.where({1}, {2})",
    Ops.FMA: "{0}.fma({1}, {2})",
}
_OWN_NAMES = frozenset({"Tensor", "left", "right"})


class _NoScript(Exception):
    """The counterexample cannot be said in Tensors."""


def tensor_script(case: Case, outcome: Outcome) -> str | None:
    """Python that prints two different results; None if Tensors cannot say it.

    Constants are Tensors too, so that no operation takes another type than in the rule.
    """
    if not can_sample(case.rule):
        return None
    try:
        return _Script(case, outcome).text()
    except _NoScript:
        return None


class _Script:
    def __init__(self, case: Case, outcome: Outcome) -> None:
        self._case = case
        self._values = outcome.values
        self._trial = Trial(case, outcome.values, outcome.bounds)

    def text(self) -> str:
        (right_term,) = self._case.rule.right
        if right_term is None or _OWN_NAMES & self._values.keys():
            raise _NoScript
        lines = ["from proofgrad import Tensor", ""]
        for name, value in self._values.items():
            lines.append(f"{name} = {_tensor(value, self._trial.dtypes[name])}")
        lines.append(f"left = {self._term(self._case.rule.left)}")
        lines.append(f"right = {self._term(right_term)}")
        return "\n".join([*lines, "print(left.tolist(), right.tolist())"])

    def _term(self, term: RuleTerm) -> str:
        dtype = self._case.dtype(term.type)
        match term:
            case Var(name, _) | Const(name, _):
                return name
            case Instance():
                raise _NoScript
            case Lit() | Calc():
                return _tensor(self._trial.term(term), dtype)
            case Node(op, _, _) if Ops[op] not in {*_FORMS, Ops.CAST, Ops.BITCAST}:
                raise _NoScript
            case Node("BITCAST", (source,), _) if _is_nan(self._trial.term(source)):
                raise _NoScript  # its bits are those of any NaN, and a machine has one
            case Node(op, src, _):
                parts = [self._operand(source) for source in src]
                if op in ("CAST", "BITCAST"):
                    return f'{parts[0]}.{op.lower()}("{_scriptable(dtype).name}")'
                return _FORMS[Ops[op]].format(*parts)

    def _operand(self, term: RuleTerm) -> str:
        text = self._term(term)
        return f"({text})" if isinstance(term, Node) else text


def _tensor(value: Any, dtype: DType) -> str:
    return f'Tensor([{_number(value)}], dtype="{_scriptable(dtype).name}")'


def _scriptable(dtype: DType) -> DType:
    if dtype not in dtypes.all:
        raise _NoScript
    return dtype


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
