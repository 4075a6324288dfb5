"""The workloads in numpy, as far as it has them."""

from __future__ import annotations

from typing import Any

from peer_workloads import Workload, arrays
from side_by_side import Run


def run_of(workload: Workload) -> Run:
    """Raises: NotImplementedError for what numpy has no function of."""
    import numpy

    one, *more = arrays(workload)
    match workload.kind:
        case "product" | "batch":
            return lambda: one @ more[0]
        case "turned_a":
            return lambda: one.T @ more[0]
        case "turned_b":
            return lambda: one @ more[0].T
        case "sum":
            return lambda: one.sum()
        case "sum_axis0":
            return lambda: one.sum(0)
        case "transpose":
            return lambda: numpy.ascontiguousarray(one.T)
        case "embedding":
            return lambda: one[more[0]]
        case "embedding_gradient":
            return lambda: _added(numpy.zeros_like(one), *more)
        case "eager":
            return lambda: one + 1
        case "ten":
            return lambda: _ten(one)
    raise NotImplementedError(f"{workload.name} is many calls in numpy")


def _added(rows: Any, positions: Any, values: Any) -> Any:
    import numpy

    numpy.add.at(rows, positions, values)
    return rows


def _ten(x: object) -> object:
    for _ in range(10):
        x = x @ x  # type: ignore[operator]
    return x
