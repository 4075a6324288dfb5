"""Sizes and data of the programs that programs.py runs here and in torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.float32] | NDArray[np.int32]]

LETTERS, LENGTH, WIDTH, HEADS, BLOCKS = 65, 64, 64, 4, 2  # the character model
LATENT, NOISE = 16, 16  # of the autoencoder, of the generator
LEVELS = 50  # steps of diffusion
FEATURES, HIDDEN, TIMES = 12, 64, 24  # the recurrent model
CATEGORIES, NUMBERS = (7, 5, 11), 8  # columns of the table


def data_of(name: str) -> Arrays:
    """What program `name` trains on, the same in every process."""
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> NDArray[np.float32]:
        return draw.standard_normal(shape).astype(np.float32)

    def choice(high: int, *shape: int) -> NDArray[np.int32]:
        return draw.integers(0, high, shape).astype(np.int32)

    def share(*shape: int) -> NDArray[np.float32]:
        return draw.random(shape).astype(np.float32)

    match name:
        case "gpt" | "generate":
            return {"text": choice(LETTERS, 8, LENGTH + 1)}
        case "cnn":
            return {"x": normal(32, 1, 28, 28), "y": choice(10, 32)}
        case "vae":
            return {"x": share(64, 784), "noise": normal(64, LATENT)}
        case "gan":
            return {"x": share(32, 784) * 2 - 1, "noise": normal(32, NOISE)}
        case "unet":
            return {
                "x": normal(8, 1, 16, 16),
                "noise": normal(8, 1, 16, 16),
                "level": choice(LEVELS, 8),
            }
        case "lstm":
            return {"x": normal(16, TIMES, FEATURES), "y": choice(5, 16)}
        case "checkpoint":
            return {"x": normal(4, 3, 32, 32)}
        case "tabular":
            rows = 1024
            kinds = np.stack([choice(size, rows) for size in CATEGORIES], 1)
            return {"kinds": kinds, "x": normal(rows, NUMBERS), "y": normal(rows, 1)}
    raise ValueError(f"there is no program {name!r}")
