"""Every script of examples/ runs and prints what it promises."""

from __future__ import annotations

import gzip
import hashlib
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from proofgrad.nn.datasets import images
from proofgrad.nn.datasets.digits import digit_arrays
from proofgrad.nn.datasets.fetch import RemoteFile

EXAMPLES = Path(__file__).parent.parent / "examples"
# Arguments that keep a run short, and patterns of what is printed.
PROMISED: dict[str, tuple[list[str], list[str]]] = {
    "00_intro.py": (
        [],
        [
            r"fused: one kernel for \+, relu, \*: 1 -> \[\[3.0, 2.0\], \[0.0, 12.0\]\]",
            "runs nothing: 0",
            r"\[2.0, 4.0\], \[1.0, 3.0\]|2.0, 4.0, 1.0, 3.0",
            "at 2 = 7.0",
        ],
    ),
    "01_tensor_basics.py": (
        [],
        [
            r"eye +\(3, 3\) +dtypes.float",
            "at_once +1 kernels",
            "in_steps +3 kernels",
            "before realize: 1, after: 0",
        ],
    ),
    "02_op_types.py": (
        [],
        [
            "'relu': 1, 'exp': 1, 'neg': 1",
            "'reshape': 0, 'permute': 0, 'expand': 0, 'flip': 0",
            "a sum of sums: 1",
            r"differs from @ by [0-9.]+e-0[678]|differs from @ by 0.0",
        ],
    ),
    "03_autograd.py": (
        [],
        ["hold", r"loss 0\.00\d\d", r"\[2.5, 0.245, 0.005, 0.405, 2.0\]", "True"],
    ),
    "04_mnist.py": (["--epochs", "5"], [r"test accuracy (98|99|100)\.\d\d%", "same bits: True"]),
    "06_custom_ops.py": (
        [],
        ["formulas", "torch", "differences: True", "gelu +1 kernels", "gelu_in_steps +4 kernels"],
    ),
    "custom_activation.py": ([], [re.escape("derivatives [1.0, 1.0, 0.75, 12.0]")]),
    "fit_line.py": ([], ["y = 3.0 x -1.0"]),
    "resnet.py": ([], [r"11181642 weights, scores \(1, 10\)\nfinite"]),
    "transformer.py": (["--steps", "45"], ["every rule that rewrites a program is proven before"]),
}
NEEDS = {"04_mnist.py": ("sklearn", "safetensors")}


def run(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script as a user would."""
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_every_example_has_its_promise() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISED)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROMISED)
def test_example_prints_what_it_promises(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, patterns = PROMISED[name]
    run(name, arguments, monkeypatch)
    printed = capsys.readouterr().out
    for pattern in patterns:
        assert re.search(pattern, printed), (pattern, printed)


def idx(array: np.ndarray) -> bytes:
    """The IDX format, packed as MNIST is."""
    sizes = b"".join([size.to_bytes(4, "big") for size in array.shape])
    return gzip.compress(b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes(), mtime=0)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_mnist_example_learns_from_idx_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are the digits of scikit-learn drawn at the size of MNIST: 4 of 5 to learn from."""
    pytest.importorskip("sklearn")
    train, train_labels, test, test_labels = digit_arrays()

    def drawn(small: np.ndarray) -> np.ndarray:
        large = small[:, 0].repeat(3, axis=1).repeat(3, axis=2) * (255 / 16)
        return np.pad(large, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)

    parts = [drawn(train), train_labels, drawn(test), test_labels]
    files = []
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for known, part in zip(images.MNIST_FILES, parts, strict=True):
        data = idx(part.astype(np.uint8))
        (folder / known.name).write_bytes(data)
        files.append(RemoteFile(known.name, len(data), hashlib.sha256(data).hexdigest()))
    monkeypatch.setattr(images, "MNIST_FILES", tuple(files))
    monkeypatch.setattr(images, "MNIST_MIRRORS", ())
    monkeypatch.setenv("PROOFGRAD_DATA", str(tmp_path / "data"))
    saved = tmp_path / "weights.safetensors"
    run("04_mnist.py", ["--data", "mnist", "--epochs", "5", "--save", str(saved)], monkeypatch)
    printed = capsys.readouterr().out
    accuracy = float(re.search(r"test accuracy ([\d.]+)%", printed)[1])  # type: ignore[index]
    assert accuracy > 98 and "same bits: True" in printed and saved.stat().st_size > 20_000
