"""Write docs/ops.md: every operation, what machines must support, how functions decompose.

Run: python docs/make_ops.py        (with --check: write nothing, 1 if the page would change)
"""

from __future__ import annotations

import sys
from pathlib import Path

from proofgrad import Ops, Tensor
from proofgrad.backends import BUILT_IN
from proofgrad.core.compile.math.transcendental import EXPANSIONS
from proofgrad.core.compile.passes.forms import ALLOWED, Form
from proofgrad.core.compile.passes.stages import RuleSets
from proofgrad.core.ir.ops import BINARY, CASTS, ELEMENTWISE, MEANING, MOVEMENT, TERNARY, UNARY
from proofgrad.rules.pipeline import KERNEL_STAGES

PAGE = Path(__file__).resolve().parent / "ops.md"

# Of names that tutorials use: our operation, or the method that is made of operations.
SEED_OPS = {
    "ADD": "`Ops.ADD`",
    "ASSIGN": "`Ops.ASSIGN`: what `Tensor.assign` and `kernelize` make",
    "BUFFER": "`Ops.BUFFER`",
    "CAST": "`Ops.CAST`",
    "CMPEQ": "`Ops.CMPEQ`",
    "CMPLT": "`Ops.CMPLT`",
    "CONST": "`Ops.CONST`",
    "COPY": "`Ops.COPY`, the device is its arg",
    "DEFINE_GLOBAL": "`Ops.PARAM`",
    "DEVICE": "`Ops.DEVICE`",
    "DIV": "`Ops.FDIV` of floats; `Ops.FLOORDIV` and `Ops.TRUNCDIV` of ints",
    "EXP": "`Ops.EXP`",
    "EXP2": "`Ops.EXP2`",
    "EXPAND": "`Ops.EXPAND`",
    "GROUP": "no operation; a role of an axis in tinygrad",
    "INDEX": "`Ops.INDEX`",
    "KERNEL": "`Ops.CALL`",
    "LOAD": "`Ops.LOAD`",
    "LOG": "`Tensor.log`: `Ops.LOG2` times a constant",
    "LOG2": "`Ops.LOG2`",
    "MAX": "`Ops.MAX`, and `Ops.REDUCE_AXIS` with it",
    "MOD": "`Ops.MOD`, with the sign of the divisor",
    "MUL": "`Ops.MUL`",
    "MULACC": "`Ops.MULACC`",
    "NEG": "`Ops.NEG`",
    "NOOP": "no operation",
    "PAD": "`Ops.PAD`",
    "PERMUTE": "`Ops.PERMUTE`",
    "POW": "`Ops.POW`",
    "RECIP": "`Tensor.reciprocal`: `Ops.FDIV` of 1",
    "RELU": "`Tensor.relu`: `Ops.WHERE` of a comparison",
    "RESHAPE": "`Ops.RESHAPE`",
    "SHRINK": "`Ops.SHRINK`",
    "SIN": "`Ops.SIN`",
    "SINK": "`Ops.SINK`",
    "SPECIAL": "`Ops.RANGE` with the role GLOBAL",
    "SQRT": "`Ops.SQRT`",
    "STORE": "`Ops.STORE`",
    "STRIDE": "`Ops.SHRINK` and `Ops.FLIP` after `Ops.RESHAPE`: `x[::2]`, `x[::-1]`",
    "SUB": "`Tensor.sub`: `Ops.ADD` of `Ops.NEG`",
    "SUM": "`Ops.REDUCE_AXIS` with `Ops.ADD`",
    "UNIQUE": "`Ops.UNIQUE`",
    "UNROLL": "no operation; the role UPCAST of `Ops.RANGE`",
    "VIEW": "no operation; `Tensor.view_info` tells views",
    "WHERE": "`Ops.WHERE`",
}
BY_RULES = {op for s in KERNEL_STAGES if isinstance(s.step, RuleSets) for op, _ in s.step.lacking}
KINDS = (
    ("one source", UNARY, "elementwise"),
    ("two sources", BINARY, "elementwise"),
    ("three sources", TERNARY, "elementwise"),
    ("conversions", CASTS, "elementwise"),
    ("movement", MOVEMENT, "movement"),
    ("reduction", frozenset({Ops.REDUCE_AXIS}), "reduction"),
)
FUNCTIONS = (
    "relu", "exp", "log", "sigmoid", "tanh", "softmax", "mean", "max", "gelu", "silu", "abs", "sqrt",
)  # fmt: skip


def kind_of(op: Ops) -> str:
    """Elementwise, movement, reduction, or the form in which the operation occurs."""
    for _, ops, kind in KINDS:
        if op in ops:
            return kind
    forms = [form.value for form, ops in ALLOWED.items() if op in ops]
    return f"{forms[0]} to {forms[-1]}" if len(forms) > 1 else "".join(forms) or "other"


def must_support(op: Ops) -> str:
    """Whether a machine that runs every program has to print the operation."""
    if op not in ALLOWED[Form.LINEAR]:
        return ""
    if op in EXPANSIONS or op in BY_RULES:
        return "if it says so"
    return "if it has vectors" if op in (Ops.BROADCAST, Ops.HREDUCE) else "yes"


def decomposition(name: str) -> str:
    """The elementwise and reducing operations that a method of Tensor builds."""
    nodes = getattr(Tensor([1.0, 2.0, 3.0]).realize(), name)().uop.toposort()
    elementwise = {node.op.name for node in nodes if node.op in ELEMENTWISE}
    reductions = {f"REDUCE_AXIS {n.arg[0].name}" for n in nodes if n.op is Ops.REDUCE_AXIS}
    return ", ".join([*sorted(elementwise), *sorted(reductions)])


def page() -> str:
    """The whole page."""
    machines = ", ".join(BUILT_IN)
    return "\n".join(
        [
            "# Operations",
            "",
            "<!-- written by docs/make_ops.py -->",
            "",
            "All there is to compute with: elementwise operations, reductions, and movement, which only says",
            "where elements are. There is no operation for convolution or matrix product: they are built from",
            "`RESHAPE`, `EXPAND`, `MUL` and a sum. The pages on [elementwise](ops-elementwise.md),",
            "[reduction](ops-reduce.md) and [movement](ops-movement.md) have examples.",
            "",
            "```python",
            "from proofgrad import Ops, Tensor",
            "",
            "x = Tensor([[1.0, 2.0], [3.0, 4.0]])",
            "names = [node.op for node in (x @ x).uop.toposort()]",
            "print(Ops.MUL in names, Ops.REDUCE_AXIS in names)  # prints: True True",
            "```",
            "",
            "| kind | operations |",
            "|---|---|",
            *[f"| {name} | {len(ops)} |" for name, ops, _ in KINDS],
            "",
            "## What a machine must support",
            "",
            f'{machines} take the Linear form. "yes": a machine must support it, for programs may have it.',
            "`EXP2`, `EXP`, `LOG2`, `SIN` and `TF32` are written in other operations unless the machine says that it has them.",
            "`verify/encode/semantics.py` has each meaning as a formula.",
            "",
            "| operation | kind | must support | meaning |",
            "|---|---|---|---|",
            *[
                f"| `{op.name}` | {kind_of(op)} | {must_support(op)} | {MEANING[op].replace('|', chr(92) + '|')} |"
                for op in Ops
            ],
            "",
            "## What functions are made of",
            "",
            "| function | operations |",
            "|---|---|",
            *[f"| `{name}` | {decomposition(name)} |" for name in FUNCTIONS],
            "",
            "## Names in tutorials for tinygrad",
            "",
            "| name there | here |",
            "|---|---|",
            *[f"| `{name}` | {ours} |" for name, ours in SEED_OPS.items()],
            "",
        ]
    )


def main() -> int:
    """Write the page, or compare it."""
    text = page()
    if "--check" in sys.argv:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
