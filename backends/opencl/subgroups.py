"""Items of a subgroup, which exchange what they hold without memory: a warp, where a device has such of the size of one.

Owns: whether a device has them, which is tried on it; their text. Does not own: which memory is exchanged (lowering/held_by_warps.py).

How many items a subgroup has and which they are, a driver decides for each kernel. So a kernel asks for the size of a warp
(cl_intel_required_subgroup_size; a driver that does not have it must refuse to build), and the number of an item in its group is made of that of
its subgroup and its number there: whichever items a driver puts together, those of a subgroup are a warp. A group is whole warps, so each
subgroup is full.
"""

from __future__ import annotations

import warnings
from typing import Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.fragments import WARP

REQUIRED = frozenset({"cl_khr_subgroup_shuffle", "cl_intel_required_subgroup_size"})
EXTENSION = "#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable"
ATTRIBUTE = f"__attribute__((intel_reqd_sub_group_size({WARP})))\n"
ITEM = f"(int)(get_sub_group_id() * {WARP}u + get_sub_group_local_id())"

_GROUPS, _ITEMS, _BITS, _STEP = 2, 2 * WARP, 21, 7
TRIAL = f"""{EXTENSION}
{ATTRIBUTE}kernel void trial(global int *out) {{
  int item = {ITEM};
  int held = 3 * item + 1;
  int across = sub_group_shuffle_xor(held, {_BITS}u);
  int other = sub_group_shuffle(held, (uint)(item * {_STEP}) % {WARP}u);
  global int *own = out + 3 * ((int)get_group_id(0) * {_ITEMS} + item);
  own[0] = (int)get_sub_group_size();
  own[1] = across;
  own[2] = other;
}}"""


def exchange(cl: Any, device: Any, context: Any) -> bool:
    """Whether the items of a subgroup of the size of a warp exchange what they hold, as a trial of several groups shows."""
    if not REQUIRED <= set(device.extensions.split()):
        return False
    import numpy

    result = numpy.zeros((_GROUPS, _ITEMS, 3), numpy.int32)
    try:
        queue, program = cl.CommandQueue(context), cl.Program(context, TRIAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.build(["-w"], cache_dir=False)
        memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, result.nbytes)
        cl.enqueue_copy(queue, memory, result, is_blocking=True)
        kernel = cl.Kernel(program, "trial")
        kernel.set_args(memory)
        cl.enqueue_nd_range_kernel(queue, kernel, (_GROUPS * _ITEMS,), (_ITEMS,))
        cl.enqueue_copy(queue, result, memory, is_blocking=True)
    except cl.Error:
        return False
    return bool((result == _expected()).all())


def _expected() -> Any:
    """What each item has of the trial: the size of its subgroup, and what it gets of two others of it."""
    import numpy

    item = numpy.arange(_ITEMS)
    others = item ^ _BITS, item // WARP * WARP + item * _STEP % WARP
    return numpy.stack([numpy.full(_ITEMS, WARP), *[3 * other + 1 for other in others]], axis=1)


def across(held: str, dtype: DType, bits: int) -> str:
    """What the item holds whose number differs in these bits."""
    return _got(f"sub_group_shuffle_xor({_given(held, dtype)}, {bits}u)", dtype)


def of_item(held: str, dtype: DType, item: str) -> str:
    """What the item of this number holds, which is one of the same warp."""
    return _got(f"sub_group_shuffle({_given(held, dtype)}, (uint){item} % {WARP}u)", dtype)


def _given(held: str, dtype: DType) -> str:
    return f"(uchar){held}" if dtype.is_bool else held


def _got(text: str, dtype: DType) -> str:
    return f"({text} != 0)" if dtype.is_bool else text
