"""The demo: its data, a short run of its training, and what it says when data are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proofgrad import Tensor, demo
from proofgrad.__main__ import main


def test_data_are_split_the_same_way_every_time() -> None:
    first, second = demo.load_digits(), demo.load_digits()
    assert (len(first.train_images), len(first.test_images)) == (1438, 359)
    assert (first.test_labels == second.test_labels).all()
    assert first.train_images.shape[1:] == (1, 8, 8)
    assert first.train_images.min() == 0 and first.train_images.max() == 1


def test_batches_have_one_size_and_cover_an_epoch_once() -> None:
    digits = demo.load_digits()
    sizes = [images.shape[0] for images, _ in demo.batches(digits, 0)]
    assert sizes == [demo.BATCH] * (len(digits.train_images) // demo.BATCH)


def test_one_epoch_learns_most_digits_and_accounts_for_the_rules() -> None:
    seen = []
    outcome = demo.train(demo.load_digits(), 1, lambda epoch, loss: seen.append((epoch, loss)))
    assert outcome.accuracy > 0.8
    assert outcome.losses[-1] < outcome.losses[0] / 2
    assert len(seen) == len(outcome.losses) == 22
    assert outcome.kernels_compiled > 0 and sum(outcome.rules_by_set.values()) > 0
    assert not Tensor.training
    text = demo.show(outcome)
    assert "test accuracy" in text and "without a proof" in text


def test_missing_data_set_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["demo"]) == 1
    assert "pip install 'proofgrad[demo]'" in capsys.readouterr().err


def test_unknown_command_is_refused_with_the_known_ones() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "proofgrad", "trian"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "demo" in ran.stderr
