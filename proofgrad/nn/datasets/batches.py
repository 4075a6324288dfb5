"""A data set in batches.

Owns: order and size of batches, and threads that make batches ahead. Rows are picked on the host.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from proofgrad import ShapeError, Tensor, dtypes


class Batches:
    """Goes through arrays, Tensors or lists of equal length, `size` rows at a time, as often as asked.

    Each time in another order if `shuffle`; the same orders for the same `seed`. The last rows are
    left out if they do not fill a batch, so that all batches run the same kernels, unless
    `drop_last` is False.

    `transform` gets the rows of a batch, one argument for each part (of a list a list, else a numpy array), and gives one array
    or a tuple of them. With `workers` that many threads prepare batches ahead, in order: reading and decoding files, and numpy,
    run beside the training. How often the rows were gone through is part of the state: `save_training(.., batches=batches)`.

    Raises: ShapeError for lengths that differ, or fewer rows than a batch.

    Example:
        for images, labels in Batches(x_train, y_train, size=64): ...
    """

    def __init__(
        self,
        *parts: Any,
        size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        transform: Callable[..., Any] | None = None,
        workers: int = 0,
    ) -> None:
        if not parts or size < 1:
            raise ValueError(f"batches need arrays and a size of 1 or more, not {size}")
        if workers < 0:
            raise ValueError(f"workers are 0 or more threads, not {workers}")
        lengths = [len(part) for part in parts]
        if len(set(lengths)) > 1:
            raise ShapeError(f"the parts of a batch need one length, and have {lengths}")
        if drop_last and lengths[0] < size:
            raise ShapeError(f"{lengths[0]} rows fill no batch of {size}; use drop_last=False")
        self.count, self.size, self.drop_last = lengths[0], size, drop_last
        self.seed = seed if shuffle else None
        self.transform, self.workers = transform, workers
        self.rounds = Tensor([0], "CPU", dtypes.int64, requires_grad=False)  # part of the state
        self._types = [(p.dtype, p.device) if isinstance(p, Tensor) else None for p in parts]
        self._rows = [part.numpy() if isinstance(part, Tensor) else part for part in parts]

    def __len__(self) -> int:
        return self.count // self.size if self.drop_last else -(-self.count // self.size)

    @property
    def epoch(self) -> int:
        """How often the rows were gone through, the time that is under way included."""
        return int(self.rounds.item())

    @epoch.setter
    def epoch(self, number: int) -> None:
        self.rounds.assign(Tensor([number], "CPU", dtypes.int64)).realize()

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        chosen = self._order()
        for rows in self._ahead(chosen) if self.workers else map(self._prepared, chosen):
            yield tuple([self._batch(position, part) for position, part in enumerate(rows)])

    def _order(self) -> list[Any]:
        """The positions of the rows of each batch."""
        import numpy

        order = numpy.arange(self.count)
        if self.seed is not None:
            numpy.random.default_rng((self.seed, self.epoch)).shuffle(order)
        self.epoch += 1
        return [order[number * self.size :][: self.size] for number in range(len(self))]

    def _ahead(self, chosen: list[Any]) -> Iterator[Sequence[Any]]:
        """What `_prepared` gives, made by threads, twice as many batches ahead as there are threads."""
        waiting: collections.deque[Future[Sequence[Any]]] = collections.deque()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="batches") as pool:
            try:
                for positions in chosen:
                    waiting.append(pool.submit(self._prepared, positions))
                    if len(waiting) > 2 * self.workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:  # a loop that is left early, or an error: nothing more is prepared
                for rest in waiting:
                    rest.cancel()

    def _prepared(self, positions: Any) -> Sequence[Any]:
        rows = [
            [part[int(k)] for k in positions]
            if isinstance(part, (list, tuple))
            else part[positions]
            for part in self._rows
        ]
        if self.transform is None:
            return rows
        found = self.transform(*rows)
        return found if isinstance(found, tuple) else (found,)

    def _batch(self, position: int, rows: Any) -> Tensor:
        kind = self._types[position] if self.transform is None else None
        if kind is None:
            return Tensor(rows, requires_grad=False)
        dtype, device = kind
        return Tensor(rows, device, dtype, requires_grad=False)
