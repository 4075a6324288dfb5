"""The compiler, top to bottom: every stage in the order in which it runs.

A stage is rule sets, which fire only with proofs, or a named procedure, which has a validation test.
`python -m proofgrad stages` prints this list.
"""

from __future__ import annotations

from proofgrad.core.compile.fusion.kernels import cut_into_kernels
from proofgrad.core.compile.fusion.past_writes import read_what_was_written
from proofgrad.core.compile.fusion.shared_kernels import order_operands, read_slices
from proofgrad.core.compile.fusion.split_reductions import split_long_reductions
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.lowering.lower import lower_movement
from proofgrad.core.compile.lowering.promote import SMALL_FLOATS, promote_small_floats
from proofgrad.core.compile.math.transcendental import EXPANSIONS, expand_transcendentals
from proofgrad.core.compile.passes.forms import Form
from proofgrad.core.compile.passes.stages import GraphTactic, Procedure, RuleSets, Stage, Tactic
from proofgrad.core.compile.tactics.alike_reductions import join_alike
from proofgrad.core.compile.tactics.axes import choose_axes, share_out_work_items
from proofgrad.core.compile.tactics.block_reductions import sum_in_blocks
from proofgrad.core.compile.tactics.channels import channels_inside
from proofgrad.core.compile.tactics.coalesce import merge_loops
from proofgrad.core.compile.tactics.columns import rows_inside
from proofgrad.core.compile.tactics.local_buffers import use_local_buffers
from proofgrad.core.compile.tactics.nested_sums import join_nested_sums
from proofgrad.core.compile.tactics.pack_operands import stage_operands
from proofgrad.core.compile.tactics.pad_rows import pad_conflicting_rows
from proofgrad.core.compile.tactics.pair_products import pair_products
from proofgrad.core.compile.tactics.scatter import lower_scatters
from proofgrad.core.compile.tactics.separate import separate_loops
from proofgrad.core.compile.tactics.split_index_sets import split_index_sets
from proofgrad.core.compile.tactics.to_program import (
    choose_index_width,
    reductions_to_accumulators,
    vectorize,
)
from proofgrad.core.compile.tactics.unroll import unroll_blocks, unroll_upcasts
from proofgrad.core.compile.tactics.variable_sizes import extend_loops, shorten_loops
from proofgrad.core.compile.tactics.whole_lines import write_whole_lines
from proofgrad.core.compile.tactics.windows import deinterleave_windows
from proofgrad.core.compile.tactics.write_windows import write_windows
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.rules.library import COTANGENTS as COTANGENTS
from proofgrad.rules.library import FACTS as FACTS

_TIDY = RuleSets(("movement", "reduce"))
_SIMPLIFY = RuleSets(("algebra", "compare", "where", "cast", "divmod", "ranges", "reduce"))
_LEGALISE = RuleSets(
    ("fp8", "legalise", "algebra", "compare", "where", "cast"), lacking=((Ops.TF32, "tf32"),)
)


def _takes_small_floats(node: UOp) -> bool:
    """Whether it is an operation on float16 or bfloat16, which is done in float32."""
    is_small = any(source.dtype.scalar in SMALL_FLOATS for source in node.src)
    return is_small and (node.op is Ops.REDUCE or node.op in ELEMENTWISE)


GRAPH_STAGES: tuple[Stage, ...] = (
    Stage("tidy", Form.TENSOR_GRAPH, _TIDY, optional=True),
    Stage("read past writes", Form.TENSOR_GRAPH, GraphTactic(read_what_was_written), optional=True),
    Stage(
        "split reductions",
        Form.TENSOR_GRAPH,
        GraphTactic(split_long_reductions, in_parts=True),
        optional=True,
    ),
    Stage("cut into kernels", Form.KERNEL_GRAPH, GraphTactic(cut_into_kernels, required=True)),
    Stage("read parts", Form.KERNEL_GRAPH, GraphTactic(read_slices), optional=True),
    Stage("order operands", Form.KERNEL_GRAPH, GraphTactic(order_operands), optional=True),
)

KERNEL_STAGES: tuple[Stage, ...] = (
    Stage("movement to index terms", Form.KERNEL, Procedure(lower_movement)),
    Stage("simplify index terms", Form.KERNEL, _SIMPLIFY, optional=True),
    Stage("join alike", Form.KERNEL, Tactic(join_alike), optional=True),
    Stage("write windows", Form.KERNEL, Tactic(write_windows), optional=True),
    Stage("split index sets", Form.KERNEL, Tactic(split_index_sets), optional=True),
    Stage("separate loops", Form.KERNEL, Tactic(separate_loops), optional=True),
    Stage("simplify separated", Form.KERNEL, _SIMPLIFY, optional=True),
    Stage("merge loops", Form.KERNEL, Tactic(merge_loops), optional=True),
    Stage("whole lines", Form.KERNEL, Tactic(write_whole_lines), optional=True),
    Stage("simplify merged", Form.KERNEL, _SIMPLIFY, optional=True),
    Stage("extend loops", Form.KERNEL, Tactic(extend_loops), optional=True),
    Stage("lower scatters", Form.KERNEL, Tactic(lower_scatters), optional=True),
    Stage("join sums", Form.KERNEL, Tactic(join_nested_sums), optional=True),
    Stage("local buffers", Form.KERNEL, Tactic(use_local_buffers), optional=True),
    Stage("rows inside", Form.KERNEL, Tactic(rows_inside), optional=True),
    Stage(
        "channels inside", Form.KERNEL, Tactic(channels_inside, has_override=True), optional=True
    ),
    Stage("pad conflicting rows", Form.KERNEL, Tactic(pad_conflicting_rows), optional=True),
    Stage("simplify padded", Form.KERNEL, _SIMPLIFY, optional=True),
    Stage("pair products", Form.KERNEL, Tactic(pair_products), optional=True),
    # BEAM searches over what the next four tactics are asked (core/compile/nests/kernel_schedule.py).
    Stage("sum in blocks", Form.KERNEL, Tactic(sum_in_blocks, has_override=True), optional=True),
    Stage("stage operands", Form.KERNEL, Tactic(stage_operands, has_override=True), optional=True),
    Stage(
        "deinterleave windows",
        Form.KERNEL,
        Tactic(deinterleave_windows, has_override=True),
        optional=True,
    ),
    Stage("choose axes", Form.KERNEL, Tactic(choose_axes, has_override=True), optional=True),
    Stage("work items", Form.KERNEL, Tactic(share_out_work_items)),
    Stage("shorten loops", Form.KERNEL, Tactic(shorten_loops), optional=True),
    Stage("simplify split", Form.KERNEL, _SIMPLIFY, optional=True),
    Stage("unroll blocks", Form.KERNEL, Tactic(unroll_blocks), optional=True),
    Stage("simplify blocks", Form.KERNEL, _SIMPLIFY, optional=True),
    Stage("unroll", Form.KERNEL, Tactic(unroll_upcasts, required=True)),
    Stage("simplify unrolled", Form.KERNEL, _SIMPLIFY, optional=True),
    Stage("widths of index terms", Form.KERNEL, Tactic(choose_index_width, required=True)),
    Stage("legalise", Form.KERNEL, _LEGALISE),
    Stage("accumulators", Form.PROGRAM, Tactic(reductions_to_accumulators, required=True)),
    Stage("vectors", Form.PROGRAM, Tactic(vectorize, required=True)),
    Stage(
        "promote small floats",
        Form.PROGRAM,
        Procedure(promote_small_floats, computes=_takes_small_floats),
    ),
    Stage(
        "transcendentals",
        Form.PROGRAM,
        Procedure(
            expand_transcendentals,
            ("native", "approximate", "calls_fma"),
            computes=lambda node: node.op in EXPANSIONS,
        ),
    ),
    Stage("linearize", Form.LINEAR, Procedure(linearize)),
)
