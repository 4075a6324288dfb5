"""Padded values whose windows lie so far apart that not all of their elements are read: they are stored nowhere, where masks are cheap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_epilogues import WIDE, given

from proofgrad import Tensor
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.stages import run_stages
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run
from proofgrad.rules.pipeline import GRAPH_STAGES

NARROW = replace(WIDE, vector_bytes=32, vector_registers=16, core=Core(mask_registers=16))
FAR: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((11, 8, 15, 24, 24), (106, 8, 3, 2, 3), {"stride": 3, "padding": (2, 0, 2), "dilation": 2}),
    ((8, 32, 57, 57), (64, 32, 1, 1), {"stride": 2, "padding": 1}),
    ((2, 31, 1001), (64, 31, 3), {"stride": 4, "padding": 2}),
]
NEAR: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 8, 15, 24), (106, 8, 3, 3), {"padding": 1}),
    ((2, 31, 1001), (64, 31, 5), {"stride": 3, "padding": 2}),
]


def is_stored(
    image: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any], target: Target
) -> bool:
    """Whether the padded image gets a buffer."""
    graph = graph_to_run([given(*image).conv2d(given(*weight), **options).uop], "CPU")
    kernels = run_stages(GRAPH_STAGES, graph, compiler().library, target)
    return len(kernels.src) > 1


@pytest.mark.heuristics
@pytest.mark.parametrize(("image", "weight", "options"), FAR, ids=str)
def test_what_far_windows_read_is_not_padded_before(
    image: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]
) -> None:
    assert not is_stored(image, weight, options, WIDE)
    assert is_stored(image, weight, options, NARROW)


@pytest.mark.heuristics
@pytest.mark.parametrize(("image", "weight", "options"), NEAR, ids=str)
def test_what_windows_read_whole_is_padded_before(
    image: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]
) -> None:
    assert is_stored(image, weight, options, WIDE)


def test_values_of_far_windows_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-3, 4, (2, 3, 20)), rng.integers(-3, 4, (40, 3, 2))
    wide = np.pad(x, ((0, 0), (0, 0), (2, 1)))
    expected = np.stack(
        [np.einsum("bcw,ocw->bo", wide[:, :, k : k + 2], w) for k in range(0, 22, 5)], -1
    )
    found = Tensor(x.astype(np.float32)).conv2d(
        Tensor(w.astype(np.float32)), stride=5, padding=(2, 1)
    )
    np.testing.assert_array_equal(found.numpy(), expected)
