"""A data set in batches.

Owns: order and size of batches. Rows are picked on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proofgrad import ShapeError, Tensor


class Batches:
    """Goes through arrays or Tensors of equal length, `size` rows at a time, as often as asked.

    Each time in another order if `shuffle`; the same orders for the same `seed`. The last rows are
    left out if they do not fill a batch, so that all batches run the same kernels, unless
    `drop_last` is False.

    Raises: ShapeError for lengths that differ, or fewer rows than a batch.

    Example:
        for images, labels in Batches(x_train, y_train, size=64): ...
    """

    def __init__(
        self, *parts: Any, size: int, shuffle: bool = True, seed: int = 0, drop_last: bool = True
    ) -> None:
        if not parts or size < 1:
            raise ValueError(f"batches need arrays and a size of 1 or more, not {size}")
        lengths = [len(part) for part in parts]
        if len(set(lengths)) > 1:
            raise ShapeError(f"the parts of a batch need one length, and have {lengths}")
        if drop_last and lengths[0] < size:
            raise ShapeError(f"{lengths[0]} rows fill no batch of {size}; use drop_last=False")
        self.count, self.size, self.drop_last = lengths[0], size, drop_last
        self.seed = seed if shuffle else None
        self.epoch = 0
        self._types = [(p.dtype, p.device) if isinstance(p, Tensor) else None for p in parts]
        self._rows = [part.numpy() if isinstance(part, Tensor) else part for part in parts]

    def __len__(self) -> int:
        return self.count // self.size if self.drop_last else -(-self.count // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        import numpy

        order = numpy.arange(self.count)
        if self.seed is not None:
            numpy.random.default_rng((self.seed, self.epoch)).shuffle(order)
        self.epoch += 1
        for number in range(len(self)):
            chosen = order[number * self.size : (number + 1) * self.size]
            yield tuple([self._batch(place, chosen) for place in range(len(self._rows))])

    def _batch(self, place: int, chosen: Any) -> Tensor:
        rows, kind = self._rows[place][chosen], self._types[place]
        if kind is None:
            return Tensor(rows, requires_grad=False)
        dtype, device = kind
        return Tensor(rows, device, dtype, requires_grad=False)
