"""Methods of other packages that a Tensor does not have, and what does the same here.

Owns: the table, the error. It is asked only where a name is missing.
"""

from __future__ import annotations

import difflib
import functools
from typing import NoReturn

INSTEAD = {
    "cuda": "x.to('CUDA')",
    "cpu": "x.to('CPU')",
    "leakyrelu": "x.leaky_relu()",
    "pad2d": "x.pad((left, right, top, bottom))",
    "slice": "x[...], or x.shrink(ranges)",
    "shard": "x.to(device): a program runs on one device",
    "shard_": "x.to(device): a program runs on one device",
    "mm": "x @ y",
    "t": "x.T",
    "view_as": "x.reshape(y.shape)",
    "reshape_as": "x.reshape(y.shape)",
    "bmm": "x @ y",
    "addmm": "x @ y + z",
    "outer": "x.unsqueeze(-1) * y",
    "inner": "(x * y).sum(-1)",
    "index_select": "x[:, positions]",
    "index_add": "x.scatter_reduce(dim, index, src, 'sum'), with an index for each element of src",
    "scatter_add": "x.scatter_reduce(dim, index, src, 'sum')",
    "index_copy": "x[positions] = y, of a clone if x is to stay",
    "index_fill": "x[positions] = v, of a clone if x is to stay",
    "index_put": "x[positions] = y, of a clone if x is to stay",
    "index_put_": "x[positions] = y",
    "masked_scatter": "x[mask] = y, of a clone if x is to stay",
    "narrow": "x[:, start : start + length], or x.shrink(ranges)",
    "select": "x[:, i]",
    "take": "x.flatten()[positions]",
    "take_along_dim": "x.gather(dim, index)",
    "unique": "y = x.flatten().sort()[0]; y[Tensor([True]).cat(y[1:] != y[:-1])]",
    "bincount": "x.one_hot(n).sum(0)",
    "histc": "((x - low) / (high - low) * n).floor().int().one_hot(n).sum(0)",
    "searchsorted": "(values.unsqueeze(-1) > x).sum(-1), or >= for the last place",
    "bucketize": "(x.unsqueeze(-1) > bounds).sum(-1), or >= for the last place",
    "isin": "x.unsqueeze(-1).eq(values).any(-1)",
    "argwhere": "x.nonzero()",
    "median": "x.sort(axis)[0][:, (n - 1) // 2]",
    "kthvalue": "x.topk(k, largest=False), whose last one it is",
    "diff": "x[1:] - x[:-1]",
    "flipud": "x.flip(0)",
    "fliplr": "x.flip(1)",
    "rot90": "x.transpose(0, 1).flip(0)",
    "tile": "x.repeat(counts)",
    "vstack": "Tensor.cat(x, y)",
    "hstack": "Tensor.cat(x, y, dim=1)",
    "concat": "Tensor.cat(x, y)",
    "broadcast_to": "x.expand(shape)",
    "moveaxis": "x.permute(order), or x.transpose(a, b)",
    "nan_to_num": "x.isnan().where(0, x)",
    "shuffle": "x[Tensor.randperm(x.shape[0])]",
    "dim": "x.ndim",
    "copy": "x.clone()",
    "to_numpy": "x.numpy()",
    "unbind": "list(x), or x.split(1)",
    "swapaxes": "x.transpose(a, b)",
    "movedim": "x.permute(order), or x.transpose(a, b)",
    "amax": "x.max(axis)",
    "amin": "x.min(axis)",
    "nelement": "x.numel()",
    "type": "x.cast(dtype)",
    "astype": "x.cast(dtype)",
    "fill_": "x.assign(Tensor.full_like(x, v)), or x[:] = v",
    "zero_": "x.assign(x.zeros_like())",
    "uniform_": "x.assign(Tensor.uniform(*x.shape))",
    "normal_": "x.assign(Tensor.randn(*x.shape))",
    "copy_": "x.assign(y)",
    "new_zeros": "Tensor.zeros(*shape, dtype=x.dtype)",
    "new_ones": "Tensor.ones(*shape, dtype=x.dtype)",
    "is_cuda": "x.device",
    "retain_grad": "nothing is to be asked: .grad of every result is there after backward",
    "count_nonzero": "x.ne(0).sum()",
    "nansum": "x.isnan().where(0, x).sum()",
    "trace": "x.diagonal().sum()",
    "addcmul": "x + value * y * z",
    "addcdiv": "x + value * y / z",
    "clamp_min": "x.maximum(v)",
    "clamp_max": "x.minimum(v)",
    "ravel": "x.flatten()",
    "tobytes": "bytes(x.data())",
    "register_hook": "custom_vjp, see docs/custom-gradients.md",
    "from_numpy": "Tensor(array), or Tensor.from_dlpack(array) to share its memory",
    "mT": "x.transpose(-2, -1)",
    "mv": "x @ y",
    "values": "x itself: max and min give the values alone, argmax and argmin where they are",
    "indices": "x.argmax(axis) or x.argmin(axis): max and min give the values alone",
    "equal": "x.eq(y).all()",
    "quantile": "x.sort(axis)[0], and of it the position q * (n - 1)",
    "cross": "x.roll(-1, -1) * y.roll(-2, -1) - x.roll(-2, -1) * y.roll(-1, -1)",
    "stride": "x.view_info().strides",
    "is_contiguous": "x.contiguous(), which copies what does not lie in order",
    "rms_norm": "x * (x.square().mean(-1, keepdim=True) + eps).rsqrt(), or nn.RMSNorm",
    "rmsnorm": "x * (x.square().mean(-1, keepdim=True) + eps).rsqrt(), or nn.RMSNorm",
    "atan2": "(x / y).atan() + (y < 0).where((x < 0).where(-pi, pi), 0)",
    "hypot": "(x * x + y * y).sqrt()",
    "logit": "(x / (1 - x)).log()",
    "sinc": "x.eq(0).where(1, (pi * x).sin() / (pi * x))",
    "erfc": "1 - x.erf()",
    "frac": "x - x.trunc()",
    "xlogy": "x.eq(0).where(0, x * y.log())",
    "heaviside": "x.eq(0).where(y, (x > 0).cast(x.dtype))",
    "floor_divide": "x // y",
    "remainder": "x % y",
    "true_divide": "x / y",
    "nanmean": "x.isnan().where(0, x).sum() / x.isnan().logical_not().sum()",
    "cov": "(x - x.mean(1, keepdim=True)) @ (x - x.mean(1, keepdim=True)).T / (x.shape[1] - 1)",
    "cdist": "(x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1).sqrt()",
    "kron": "Tensor.einsum('ij,kl->ikjl', x, y).reshape(rows, columns)",
    "tensordot": "Tensor.einsum(formula, x, y)",
    "baddbmm": "x + y @ z",
    "inv": "x.inverse()",
    "take_along_axis": "x.gather(axis, positions)",
    "conv1d": "x.conv2d(weight), which takes any number of axes",
    "conv3d": "x.conv2d(weight), which takes any number of axes",
    "bernoulli": "(x.rand_like() < x).cast(x.dtype)",
    "apply_": "operations on whole Tensors",
}


def no_such_attribute(name: str, kind: type, owner: str = "'Tensor' object") -> NoReturn:
    """Raises: AttributeError of `owner`, with what does the same, or names that are near."""
    told = INSTEAD.get(name)
    if name.startswith("_"):  # a protocol that somebody asks for
        told = ""
    elif told is None:
        told = _in_place(name, kind) or _near(name, kind)
    else:
        told = f"use {told}"
    raise AttributeError(f"{owner} has no attribute {name!r}" + (f"; {told}" if told else ""))


def _in_place(name: str, kind: type) -> str:
    """For a method of torch that changes its Tensor, where the one that gives a result is here."""
    method = name.removesuffix("_")
    return f"use x.assign(x.{method}(...))" if method != name and hasattr(kind, method) else ""


@functools.lru_cache(maxsize=256)
def _near(name: str, kind: type) -> str:
    """Names that are near: once for each, as programs that ask with `hasattr` do so again and again."""
    near = difflib.get_close_matches(name, [k for k in dir(kind) if not k.startswith("_")], n=2)
    return f"did you mean {' or '.join(near)}?" if near else ""
