"""Losses, and attention.

Owns: what each loss compares, and how the losses of a batch become one number.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Self, TypeVar

from proofgrad.core import settings
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.shapes import ShapeError, is_plain, show
from proofgrad.core.messages import warn
from proofgrad.core.tensor.data.arguments import Flag, Operand, Real, Whole, refuses
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError, PositionError
from proofgrad.core.tensor.data.promotion import accumulation_dtype, least_float, promote
from proofgrad.core.tensor.methods.indexing.take import is_position
from proofgrad.core.tensor.methods.linalg.rounding import are_rounded
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.nn.layers import Layers
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime.device import Device

MOST_LABELS = 1 << 16  # that are looked at before a loss
_LEAST_LOG = -100.0  # of a probability of 0, as torch has it: times a label of 0 it is 0
# Queries of causal attention whose scores are computed together, at least; and into how many parts, at most.
CAUSAL_ROWS, CAUSAL_PARTS = 256, 4
# Queries that a group of items of a GPU takes: 8 warps of 16 rows (schedule/warp_rows.py). Parts run one after the other, each on all units.
CAUSAL_ROWS_OF_A_GROUP = 128
_OF_CLASSES = "write x.log_softmax(1).nll_loss(y, weight=..., ignore_index=...)"
_T = TypeVar("_T", bound="Losses")


class Losses(Layers):
    """How far predictions are from what was wanted. `reduction`: "mean", "sum" or "none"."""

    __slots__ = ()

    def _check_labels(self, labels: Self, axis: Whole, ignored: Whole | None = None) -> None:
        """Whether there is a label for each row of scores along an axis, of integers.

        Raises: IndexError for a label that is no class, but for `ignored`, where the labels are in memory of the host.
        """
        if not labels.dtype.is_int:
            raise DtypeError(f"class labels are integers, not {labels.dtype}")
        if not self.ndim:
            raise ShapeError("scores have an axis of classes, and a 0-d Tensor has none")
        rows = self.shape[:axis] + self.shape[axis + 1 :]
        if labels.shape != rows:
            raise ShapeError(
                f"labels {show(labels.shape)} for scores {show(self.shape)}: expected"
                f" {show(rows)}, one label for each row of scores"
            )
        if isinstance(self.shape[axis], int):
            _check_values(labels, self.shape[axis], ignored)

    def _hits(self, labels: Self) -> Self:
        """Where the last axis is the class that `labels` names."""
        return is_position(labels.unsqueeze(-1), -1, self.shape[-1])

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: Whole = -1,
        label_smoothing: Real = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Cross-entropy of scores (.., classes) with integer labels; `ignore_index` counts not."""
        Y = self._given("the target of sparse_categorical_crossentropy", Y)
        self._check_labels(Y, self.ndim - 1, ignore_index)
        _check_smoothing(label_smoothing)
        return self._costs_of_labels(Y, ignore_index, label_smoothing, reduction)

    @made_once
    def _costs_of_labels(
        self, Y: Self, ignore_index: Whole, label_smoothing: Real, reduction: str
    ) -> Self:
        hits, scores = self._hits(Y), self._wide()._log_shares(-1)
        can_occur = _holds(Y, ignore_index)
        counted = Y.ne(ignore_index) if can_occur else Y.ones_like(dtype=dtypes.bool)
        picked = hits.where(scores, 0).sum(-1)
        if label_smoothing:
            picked = picked * (1 - label_smoothing) + scores.mean(-1) * label_smoothing
        losses, kind = counted.where(-picked, 0), least_float(self.dtype)
        if reduction == "mean":
            return (losses.sum() / counted.sum())._in_type(kind)
        return _reduced(losses, reduction)._in_type(kind)

    @refuses(weight=_OF_CLASSES, ignore_index=_OF_CLASSES)
    def cross_entropy(self, Y: Self, reduction: str = "mean", label_smoothing: Real = 0.0) -> Self:
        """Cross-entropy with class labels, or with a distribution of the shape of the scores.

        Classes are axis 1, as in torch; axis 0 is the batch. A class that cannot be, whose score is
        minus infinity, costs nothing where its target is 0.
        """
        axis, Y = 0 if self.ndim == 1 else 1, self._given("the target of cross_entropy", Y)
        _check_smoothing(label_smoothing)
        if Y.ndim == self.ndim and Y.shape != self.shape:
            raise ShapeError(f"cross_entropy of {show(self.shape)} with {show(Y.shape)}")
        if Y.ndim != self.ndim:
            self._check_labels(Y, axis)
        return self._costs_along(Y, axis, reduction, label_smoothing)

    @made_once
    def _costs_along(self, Y: Self, axis: Whole, reduction: str, label_smoothing: Real) -> Self:
        scores, kind = self._wide()._log_shares(axis), least_float(self.dtype)
        if Y.ndim == self.ndim:
            target = Y.cast(scores.dtype)
        else:
            order = [k for k in range(self.ndim) if k != axis] + [axis]
            hits = self.permute(order)._hits(Y)
            hits = hits.permute([order.index(k) for k in range(self.ndim)])
            if not label_smoothing:
                return _reduced(-hits.where(scores, 0).sum(axis), reduction)._in_type(kind)
            target = hits.cast(scores.dtype)
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / self.shape[axis]
        costs = target.eq(0).where(0, scores * target)
        return _reduced(-costs.sum(axis), reduction)._in_type(kind)

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """Of probabilities with labels 0 .. 1. Logarithms are at least -100."""
        return self._costs_of_chances(self._target("binary_crossentropy", Y), reduction)

    @made_once
    def _costs_of_chances(self, Y: Self, reduction: str) -> Self:
        kind, (p, y) = self._together(Y)
        hit, miss = p.log().maximum(_LEAST_LOG), (1 - p).log().maximum(_LEAST_LOG)
        return _reduced(-(y * hit + (1 - y) * miss), reduction)._in_type(kind)

    def binary_crossentropy_logits(
        self, Y: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Of scores, through a sigmoid that never overflows, with labels 0 .. 1.

        The sum of what the sign of a score costs and of log(1 + exp(-|score|)), neither of which is
        negative: nothing cancels. `pos_weight` multiplies the losses of label 1.
        """
        Y = self._target("binary_crossentropy_logits", Y)
        if pos_weight is not None:
            pos_weight = self._given("pos_weight", pos_weight)
        return self._costs_of_logits(Y, pos_weight, reduction)

    @made_once
    def _costs_of_logits(self, Y: Self, pos_weight: Self | None, reduction: str) -> Self:
        if pos_weight is not None:
            kind, (x, y, weight) = self._together(Y, pos_weight)
            hit, miss = (-x).softplus(), x.softplus()
            return _reduced(weight * y * hit + (1 - y) * miss, reduction)._in_type(kind)
        kind, (x, y) = self._together(Y)
        negative = x < 0
        rest = negative.where(x, -x).exp().log1p()
        return _reduced(negative.where(-y, 1 - y) * x + rest, reduction)._in_type(kind)

    def _together(self, *others: Self) -> tuple[DType, list[Self]]:
        """The type of a loss of these Tensors, and all of them in the type it is computed in."""
        kinds = [part.dtype for part in others]
        kind = functools.reduce(promote, kinds, least_float(self.dtype))
        return kind, [part.cast(accumulation_dtype(kind)) for part in (self, *others)]

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: Whole | None = None,
        reduction: str = "mean",
    ) -> Self:
        """Minus the score of the labelled class; scores are log-probabilities, classes axis 1.

        Scores of one example have only the axis of classes, and their label none.
        `weight` has a number for each class; "mean" divides by their sum. Labels equal to
        `ignore_index` do not count.
        """
        Y = self._given("the target of nll_loss", Y)
        axis = 0 if self.ndim == 1 else 1
        if not self.ndim or Y.shape != self.shape[:axis] + self.shape[axis + 1 :]:
            raise ShapeError(f"nll_loss of {show(self.shape)} with labels {show(Y.shape)}")
        self._check_labels(Y, axis, ignore_index)
        of_class = None if weight is None else self._given("weight", weight)
        return self._costs_of_classes(Y, of_class, ignore_index, reduction)

    @made_once
    def _costs_of_classes(
        self, Y: Self, weight: Self | None, ignore_index: Whole | None, reduction: str
    ) -> Self:
        axis, kind = 0 if self.ndim == 1 else 1, least_float(self.dtype)
        scores = self._axis_last(axis)._wide()
        hits = scores._hits(Y)
        losses = -hits.where(scores, 0).sum(-1)
        weights = hits.where(1.0 if weight is None else weight, 0).sum(-1).cast(losses.dtype)
        if weight is None:
            weights = weights.ones_like()
        if ignore_index is not None and _holds(Y, ignore_index):
            weights = Y.ne(ignore_index).where(weights, 0)
        losses = weights.ne(0).where(losses * weights, 0)
        if reduction == "mean":
            return (losses.sum() / weights.sum())._in_type(kind)
        return _reduced(losses, reduction)._in_type(kind)

    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The mean of the squared differences. Shapes that are not equal are broadcast, with a warning."""
        return self._squared_costs(self._target("mse_loss", target), reduction)

    @made_once
    def _squared_costs(self, target: Self, reduction: str) -> Self:
        kind, (x, y) = self._together(target)
        return _reduced((x - y).square(), reduction)._in_type(kind)

    def _target(self, name: str, target: Operand) -> Self:
        """What a loss compares with: a number stands for a Tensor full of it, other shapes are warned of."""
        wanted = self._given(f"the target of {name}", target)
        if isinstance(target, (bool, int, float)):
            return wanted.expand(self.shape)
        _warn_if_broadcast(name, self, wanted)
        return wanted

    def _difference(self, target: Self) -> tuple[DType, Self]:
        """How far apart two Tensors are, and the type of a loss of them."""
        kind, (x, y) = self._together(target)
        return kind, x - y

    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The mean of the distances. Shapes that are not equal are broadcast, with a warning."""
        return self._distances(self._target("l1_loss", target), reduction)

    @made_once
    def _distances(self, target: Self, reduction: str) -> Self:
        kind, difference = self._difference(target)
        return _reduced(difference.abs(), reduction)._in_type(kind)

    def huber_loss(self, target: Self, reduction: str = "mean", delta: Real = 1.0) -> Self:
        """Half of the square of distances up to `delta`, and delta * (distance - delta / 2) beyond (Huber, 1964).

        Shapes that are not equal are broadcast, with a warning. Raises: ValueError for a delta that is not above 0.
        """
        if not delta > 0:
            raise ArgumentError(f"delta of huber_loss is above 0, not {delta}")
        return self._huber_costs(self._target("huber_loss", target), reduction, delta)

    @made_once
    def _huber_costs(self, target: Self, reduction: str, delta: Real) -> Self:
        kind, difference = self._difference(target)
        distance = difference.abs()
        near, far = difference.square() * 0.5, (distance - delta / 2) * delta
        return _reduced((distance < delta).where(near, far), reduction)._in_type(kind)

    def smooth_l1_loss(self, target: Self, reduction: str = "mean", beta: Real = 1.0) -> Self:
        """huber_loss over `beta`, which is its delta; l1_loss for a beta of 0.

        Shapes that are not equal are broadcast, with a warning. Raises: ValueError for a beta below 0.
        """
        if not beta >= 0:
            raise ArgumentError(f"beta of smooth_l1_loss is 0 or more, not {beta}")
        return self._smooth_costs(self._target("smooth_l1_loss", target), reduction, beta)

    @made_once
    def _smooth_costs(self, target: Self, reduction: str, beta: Real) -> Self:
        kind, difference = self._difference(target)
        distance = difference.abs()
        if beta == 0:
            return _reduced(distance, reduction)._in_type(kind)
        near = difference.square() * (0.5 / beta)
        return _reduced((distance < beta).where(near, distance - beta / 2), reduction)._in_type(
            kind
        )

    def kl_div(self, target: Self, reduction: str = "mean", log_target: Flag = False) -> Self:
        """target * (log(target) - input), for an input of log-probabilities: the Kullback-Leibler divergence.

        What is not to be expected costs nothing. `log_target`: the target is of log-probabilities, too.
        `reduction` "batchmean" divides the sum by the size of the first axis.
        """
        target = self._target("kl_div", target)
        return self._costs_of_shares(target, reduction, log_target)

    @made_once
    def _costs_of_shares(self, target: Self, reduction: str, log_target: Flag) -> Self:
        kind, (x, y) = self._together(target)
        if log_target:
            costs = y.exp() * (y - x)
        else:
            nothing = y.eq(0)
            costs = nothing.where(0, y * (nothing.where(1, y).log() - x))
        if reduction == "batchmean":
            return (costs.sum() / self.shape[0])._in_type(kind)
        return _reduced(costs, reduction)._in_type(kind)

    # -- attention --------------------------------------------------------------------------------

    @refuses(scale="multiply the queries by scale times the root of their last size")
    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: Real = 0.0,
        is_causal: Flag = False,
        enable_gqa: Flag = False,
    ) -> Self:
        """softmax(q k^T / sqrt(d)) v over the last two axes; scores are kept in float32 or wider.

        They are multiplied by the rounded 1 / sqrt(d), as in torch: a division takes as long as a power.

        `attn_mask`: bools that say where to look, or numbers that are added. `is_causal`: a query looks
        at no key after its own position; scores that would be hidden are mostly not computed. `enable_gqa`:
        groups of query heads (axis -3) share a head of key and value.
        """
        key, value = self._given("key", key), self._given("value", value)
        attn_mask = None if attn_mask is None else self._given("attn_mask", attn_mask)
        if is_causal and attn_mask is not None:
            raise ArgumentError("is_causal makes a mask, so attn_mask cannot be given as well")
        if enable_gqa:
            groups = _head_groups(self, key, value)
            key = key.repeat_interleave(groups, -3)
            value = value.repeat_interleave(groups, -3)
        if not is_causal:
            return self._attention(key, value, attn_mask, None, dropout_p)
        queries, keys = self.shape[-2], key.shape[-2]
        if not is_plain(self.shape + key.shape) or queries <= CAUSAL_ROWS:
            return self._attention(key, value, None, 0, dropout_p)
        if not type(self).training and self._takes_keys_once(key, value):
            return self._attention(key, value, None, 0, dropout_p)
        rows = max(CAUSAL_ROWS, -(-queries // CAUSAL_PARTS), self._rows_for_all_units())
        parts = []
        for begin in range(0, queries, rows):
            some, seen = self._cut(-2, begin, min(begin + rows, queries)), min(begin + rows, keys)
            key_part, value_part = key._cut(-2, 0, seen), value._cut(-2, 0, seen)
            parts.append(some._attention(key_part, value_part, None, begin, dropout_p))
        return parts[0].cat(*parts[1:], dim=-2)

    def _rows_for_all_units(self) -> Whole:
        """So many of each head give nearly every unit of a GPU one group of them, and none two; 0 on other machines."""
        target = Device[self.device].target
        if not target.units or target.lockstep == 1:
            return 0
        groups_of_a_head = target.units // max(1, math.prod(self.shape[:-2]))
        return groups_of_a_head * CAUSAL_ROWS_OF_A_GROUP

    def _takes_keys_once(self, key: Self, value: Self) -> Flag:
        """Whether one kernel leaves out what a mask hides, so that no rows are cut off for that."""
        if "real" not in settings.fastmath():
            return False
        # Here, as a plain import needs nothing of the compiler.
        from proofgrad.core.compile.fusion.row_products import Sizes, takes_keys_once

        rows, depth = self.shape[-2:]
        sizes = Sizes(rows, key.shape[-2], depth, value.shape[-1])
        types = self.dtype, accumulation_dtype(self.dtype)
        is_rounded = are_rounded(types[1], self.dtype)
        target = Device[self.device].target
        return takes_keys_once(math.prod(self.shape[:-2]), sizes, types, is_rounded, target)

    def _attention(
        self, key: Self, value: Self, mask: Self | None, diagonal: Whole | None, dropout_p: Real
    ) -> Self:
        """With a diagonal, query i looks at the keys up to i + diagonal."""
        if not dropout_p:
            return self._seen_values(key, value, mask, diagonal)
        return self._shares_of_keys(key, mask, diagonal).dropout(dropout_p) @ value

    @made_once
    def _seen_values(
        self, key: Self, value: Self, mask: Self | None, diagonal: Whole | None
    ) -> Self:
        """Without dropout."""
        return self._shares_of_keys(key, mask, diagonal) @ value

    @made_once
    def _shares_of_keys(self, key: Self, mask: Self | None, diagonal: Whole | None) -> Self:
        """How much of the value of each key a query takes."""
        scores = self.dot(key.transpose(-2, -1), dtype=accumulation_dtype(self.dtype))
        depth = self.shape[-1]
        scores = scores * (1 / math.sqrt(depth) if depth else math.inf)  # of nothing: 0 * inf
        if diagonal is not None:
            mask = scores.ones_like(dtype=dtypes.bool).tril(diagonal)
        if mask is not None:
            hides = mask.dtype.is_bool
            scores = mask.where(scores, -math.inf) if hides else scores + mask
        return scores.softmax(-1).cast(self.dtype)


def _head_groups(query: Losses, key: Losses, value: Losses) -> Whole:
    """How many heads of the query share one of key and value."""
    heads = [part.shape[-3] if part.ndim > 2 else 0 for part in (query, key, value)]
    if not heads[1] or heads[1] != heads[2] or heads[0] % heads[1]:
        raise ShapeError(
            f"enable_gqa needs heads on axis -3, those of the query a multiple of those of key and"
            f" value: {show(query.shape)}, {show(key.shape)}, {show(value.shape)}"
        )
    return heads[0] // heads[1]


def _holds(labels: Losses, number: Whole) -> Flag:
    """Can a label be this number at all?"""
    return bool(dtypes.min(labels.dtype) <= number <= dtypes.max(labels.dtype))


def _check_values(labels: Losses, classes: int, ignored: Whole | None) -> None:
    data = reading.at_hand(labels._uop) if labels.max_numel() <= MOST_LABELS else None
    if data is None:
        return
    values: memoryview[Any] = data.cast(labels.dtype.fmt)  # type: ignore[call-overload]
    found = reading.extremes(values, ignored)
    if not found or (found[0] >= 0 and found[1] < classes):
        return
    wrong = [label for label in values if not 0 <= label < classes and label != ignored]
    if wrong:
        left_out = "" if ignored is None else f" (and {ignored}, which counts not)"
        raise PositionError(
            f"label {wrong[0]} of {classes} classes: labels are 0 to {classes - 1}{left_out}; mask others, or"
            " name one with ignore_index= (sparse_categorical_crossentropy, nll_loss)"
        )


def _reduced(losses: _T, reduction: str) -> _T:
    match reduction:
        case "mean":
            return losses.mean()
        case "sum":
            return losses.sum()
        case "none":
            return losses
        case _:
            raise ArgumentError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}")


def _check_smoothing(value: Real) -> None:
    if not 0 <= value <= 1:
        raise ArgumentError(f"label_smoothing is 0 to 1, not {value}")


def _warn_if_broadcast(name: str, x: Losses, target: Losses) -> None:
    """A warning, where the loss is asked for."""
    if target.shape != x.shape:
        warn(
            f"{name} of {show(x.shape)} and {show(target.shape)}: they are broadcast against"
            f" each other, which is seldom meant"
        )
