"""Handwritten digits that need no network: scikit-learn brings them.

Owns: reading and splitting them. Source: E. Alpaydin and C. Kaynak, "Optical Recognition of
Handwritten Digits", UCI Machine Learning Repository, 1998 (the test part: 1,797 images).
"""

from __future__ import annotations

from typing import Any

from proofgrad import Tensor

LARGEST = 16  # of a pixel
TEST_SHARE = 0.2
SEED = 0  # of the shuffle before the split


class MissingDataError(RuntimeError):
    """The images are not there: says what to install."""


def digits(device: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train with, and to test with.

    Shapes: (1438, 1, 8, 8), (1438,), (359, 1, 8, 8), (359,). Dtypes: uint8, pixels 0 .. 16.
    Raises: MissingDataError without scikit-learn.
    """
    parts = [Tensor(part.astype("uint8"), device) for part in digit_arrays()]
    return parts[0], parts[1], parts[2], parts[3]


def digit_arrays() -> tuple[Any, Any, Any, Any]:
    """As `digits`, in numpy arrays of floats and integers. Raises: MissingDataError."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingDataError(
            "the digits need scikit-learn; run: pip install 'proofgrad[demo]'"
        ) from None
    import numpy

    images, labels = load_digits(return_X_y=True)
    order = numpy.random.default_rng(SEED).permutation(len(images))
    images, labels = images[order].reshape(-1, 1, 8, 8), labels[order]
    test = round(len(images) * TEST_SHARE)
    return images[test:], labels[test:], images[:test], labels[:test]
