"""Attention as a layer.

Owns: MultiheadAttention. Does not own: the attention itself (core/tensor).
"""

from __future__ import annotations

from proofgrad import ShapeError, Tensor
from proofgrad.nn.layers import Linear, check_last_axis, parameter
from proofgrad.nn.shown import Shown


class MultiheadAttention(Shown):
    """Heads of attention between two sequences (Vaswani et al., 2017); torch's, batch first.

    Shapes: query (n, t, embed_dim), key and value (n, s, embed_dim), by default the query; the
    result is (n, t, embed_dim). Weights are named as in torch.nn.MultiheadAttention.

    Raises: ShapeError if the heads do not divide embed_dim.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = True,
    ) -> None:
        if not batch_first:
            raise ValueError(
                "MultiheadAttention takes (n, t, embed_dim); transpose(0, 1) what is (t, n, embed_dim), and the result"
            )
        if embed_dim % num_heads:
            raise ShapeError(f"{num_heads} heads do not divide embed_dim {embed_dim}")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.in_proj_weight = Tensor.glorot_uniform(3 * embed_dim, embed_dim)
        self.in_proj_bias = parameter(0.0, 3 * embed_dim) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if bias:
            self.out_proj.bias = parameter(0.0, embed_dim)

    def __call__(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """`attn_mask`: True where to look, or floats to add to the scores."""
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = [self._heads(x, part) for part, x in enumerate((query, key, value))]
        dropped = self.dropout if Tensor.training else 0.0
        y = q.scaled_dot_product_attention(k, v, attn_mask, dropped, is_causal)
        n, _, t, _ = y.shape
        return self.out_proj(y.transpose(1, 2).reshape((n, t, self.embed_dim)))

    def _heads(self, x: Tensor, part: int) -> Tensor:
        """(n, t, embed_dim) to (n, heads, t, size of a head) by the weights of q, k or v."""
        check_last_axis("MultiheadAttention", x, self.embed_dim)
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        y = x.linear(self.in_proj_weight[rows].transpose(), bias)
        return y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
