"""Every name and argument name of tinygrad's Tensor is here, or is named with the reason.

The list is that of tinygrad 0.14 by subject; where tinygrad is installed the signatures are compared.
"""

from __future__ import annotations

import inspect
import re
from ast import literal_eval
from pathlib import Path
from typing import Any

import pytest

from proofgrad import Ops, Tensor
from proofgrad.reference import tensor_reference

ACCESS = """shape dtype device ndim grad uop T is_param numel nbytes element_size size is_floating_point
max_shape max_numel data item tolist numpy empty empty_like invalids full full_like zeros zeros_like ones
ones_like arange linspace eye const const_like from_blob from_url manual_seed rand rand_like randn
randn_like randint normal uniform scaled_uniform glorot_uniform kaiming_uniform kaiming_normal randperm
multinomial dropout random_bits cast bitcast float half int bool bfloat16 double long short realize
replace assign detach clone contiguous to to_ backward gradient is_param_"""
ELEMENTWISE = """neg logical_not bitwise_not abs sign sqrt rsqrt reciprocal square exp exp2 log log2 log10
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf trunc ceil floor round isnan isinf isfinite
isclose clamp clip lerp softsign relu relu6 leaky_relu elu celu selu silu swish mish gelu quick_gelu sigmoid
hardsigmoid hardswish hardtanh logsigmoid softplus add sub mul div mod fmod pow maximum minimum bitwise_and
bitwise_or bitwise_xor lshift rshift copysign fma logaddexp eq ne where masked_fill threefry alu usum
uprod ufix"""
MOVEMENT = """reshape view expand permute flip shrink shrink_to pad pad_to squeeze unsqueeze transpose
flatten unflatten rearrange split chunk stack cat repeat repeat_interleave meshgrid diag diagonal roll unfold
gather scatter scatter_reduce masked_select nonzero triu tril one_hot"""
REDUCE = """sum prod max min mean any all var std var_mean std_mean argmax argmin logsumexp logcumsumexp
softmax log_softmax softmin cumsum cumprod cummax cummin sort argsort topk allclose normalize dot matmul
einsum linear conv2d conv_transpose2d avg_pool2d max_pool2d max_unpool2d interpolate sequential layernorm
batchnorm scaled_dot_product_attention binary_crossentropy binary_crossentropy_logits
sparse_categorical_crossentropy cross_entropy nll_loss qr svd newton_schulz"""
NAMES = f"{ACCESS} {ELEMENTWISE} {MOVEMENT} {REDUCE}".split()

LEFT_OUT = {
    "decode_hevc_frame": "video",
    "image_conv2d": "textures of one vendor",
    "image_dot": "textures of one vendor",
    "as_param": "names a slot of tinygrad's own graphs",
    "call": "graphs of tinygrad; custom gradients are custom_vjp",
    "linear_with_vars": "graphs of tinygrad",
    "schedule_linear": "graphs of tinygrad; see schedule",
    "shard": "several devices",
    "shard_": "several devices",
    "shard_like": "several devices",
}
OTHER_ARGUMENTS = {
    "contiguous": "kwargs",
    "realize": "do_update_stats",
    "from_blob": "kwargs: device and dtype are named",
}


def test_every_name_of_tinygrad_is_here() -> None:
    assert [name for name in NAMES if not hasattr(Tensor, name)] == []


def test_every_public_method_says_what_it_does() -> None:
    public = [name for name in dir(Tensor) if not name.startswith("_")]
    silent = [
        name
        for name in public
        if callable(getattr(Tensor, name)) and not getattr(Tensor, name).__doc__
    ]
    assert silent == []


def test_names_and_arguments_are_those_of_tinygrad_where_it_is_installed() -> None:
    theirs = pytest.importorskip("tinygrad").Tensor
    differences = {}
    for name in dir(theirs):
        if name.startswith("_") or name in LEFT_OUT:
            continue
        if not hasattr(Tensor, name):
            differences[name] = "missing"
        elif callable(getattr(theirs, name)) and name not in OTHER_ARGUMENTS:
            difference = compared(getattr(theirs, name), getattr(Tensor, name))
            if difference:
                differences[name] = difference
    assert differences == {}


def compared(theirs: object, ours: object) -> str:
    """What of the arguments of `theirs` cannot be given to `ours` in the same way."""
    wanted = list(inspect.signature(theirs).parameters.values())  # type: ignore[arg-type]
    given = inspect.signature(ours).parameters  # type: ignore[arg-type]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in given.values())
    order = [p.name for p in given.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    position = 0
    for parameter in wanted:
        match parameter.kind:
            case parameter.VAR_KEYWORD:
                continue
            case parameter.POSITIONAL_OR_KEYWORD:
                if order[position : position + 1] != [parameter.name]:
                    return f"argument {position} is {parameter.name!r} there, here {order}"
                position += 1
            case _ if parameter.name not in given and not takes_any:
                return f"no argument {parameter.name!r}"
    return ""


def test_reference_page_is_what_the_docstrings_say() -> None:
    page = Path(__file__).parent.parent / "docs" / "tensor.md"
    assert page.read_text() == tensor_reference(), (
        "python -m proofgrad docs tensor > docs/tensor.md"
    )


def test_examples_of_docstrings_give_what_they_show() -> None:
    shown = 0
    for block in re.findall(r"```python\n(.*?)```", tensor_reference(), re.DOTALL):
        names: dict[str, Any] = {"Tensor": Tensor, "Ops": Ops}
        *before, last = block.strip().splitlines()
        exec("\n".join(before), names)  # noqa: S102
        code, _, value = last.partition("  # ")
        if value.startswith("[") and " and " not in value and " = " not in code:
            result = eval(code, names)
            assert (result.tolist() if isinstance(result, Tensor) else result) == literal_eval(
                value
            )
            shown += 1
    assert shown >= 6
