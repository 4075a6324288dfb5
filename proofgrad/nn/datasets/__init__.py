"""Data sets to learn with, fetched once and checked, and batches of them.

Owns: the names under `proofgrad.nn.datasets`.
"""

from __future__ import annotations

from proofgrad.nn.datasets.batches import Batches
from proofgrad.nn.datasets.digits import MissingDataError, digits
from proofgrad.nn.datasets.fetch import DownloadError, fetch
from proofgrad.nn.datasets.images import cifar, mnist

__all__ = ["Batches", "DownloadError", "MissingDataError", "cifar", "digits", "fetch", "mnist"]
