"""Index terms, which are mathematical integers, get a machine width.

    x + y = (x + y) mod 2^w   where the facts show that x, y and x + y are values of the w bits

    least ... low ... term ... high ... most

Bounds of every term are shown to fit first; a machine operation on values that fit, with a result that fits, is the mathematical
one. Variables are read from parameters of one int64.
"""

from __future__ import annotations

from proofgrad.core.compile.steps.bounds import fits
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import CAST, VARIABLE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts

FIRST_VARIABLE = 1 << 20  # the slot of the first variable: behind all buffers


@step("x op y = (x op y) of w bits, if x, y and the result fit them", makes_loops=False)
def narrow(nest: LoopNest, width: DType) -> UOp:
    """Every `index` becomes a machine integer, if all terms fit it."""
    require(width.is_int and width is not dtypes.index, "no machine integer", width)
    nodes = toposort((nest.graph,))
    terms = [n for n in nodes if n.dtype is dtypes.index]
    unfit = next(iter(terms_beyond(terms, width, nest.facts)), None)
    require(unfit is None, "an index term that does not fit", width, unfit)
    return _with_width(nodes, width)


def require_widths(graph: UOp) -> None:
    """Raises: StepRefused where an index term has no width yet."""
    nodes = toposort((graph,))
    index = {dtype for dtype in {n.dtype for n in nodes} if dtype.scalar is dtypes.index}
    terms = [n for n in nodes if n.dtype in index] if index else []
    require(not terms, "an index term without a width", *terms[:1])


def terms_beyond(terms: list[UOp], dtype: DType, facts: Facts) -> list[UOp]:
    """The terms that may have values that `dtype` has not."""
    return [term for term in terms if not fits(term, dtype, facts)]


def _with_width(nodes: list[UOp], width: DType) -> UOp:
    """The last of `nodes`, which are in order, with machine integers for index terms."""
    index = dtypes.index
    done = _loads_of_variables(nodes, width)
    for node in nodes:
        if node in done:
            continue
        src, dtype = tuple([done[s] for s in node.src]), node.dtype
        if node.op is CAST and src[0].dtype is dtype:
            done[node] = src[0]
        elif dtype is index:
            done[node] = UOp(node.op, width, src, node.arg)
        else:
            done[node] = node.with_src(src)
    return done[nodes[-1]]


def _loads_of_variables(nodes: list[UOp], width: DType) -> dict[UOp, UOp]:
    """Each variable read from a parameter of one int64. Its bounds have been used by now."""
    variables = [n for n in nodes if n.op is VARIABLE]
    found: dict[UOp, UOp] = {}
    for k, node in enumerate(sorted(variables, key=lambda v: str(v.arg[0]))):
        memory = UOp(Ops.PARAM, dtypes.int64, (), (FIRST_VARIABLE + k, 1, node.arg[0]))
        position = UOp(Ops.INDEX, dtypes.int64, (memory, UOp.const(width, 0)))
        found[node] = UOp(Ops.LOAD, dtypes.int64, (position,)).cast(width)
    return found
