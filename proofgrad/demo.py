"""The demo: a small convolutional network learns to read handwritten digits.

Owns: model, training loop, and the account of what the compiler did. Source of the data:
scikit-learn's `load_digits` (1,797 images of 8 x 8 pixels, 0 .. 16).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from proofgrad import Context, Device, GlobalCounters, Tensor, nn
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.nn.datasets.digits import LARGEST, digit_arrays

SEED = 0
BATCH = 64
EPOCHS = 10
LEARNING_RATE = 0.004


@dataclass(frozen=True, slots=True)
class Digits:
    """Images (n, 1, 8, 8) in 0 .. 1 and labels (n,), numpy arrays."""

    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of the demo shows."""

    accuracy: float
    seconds: float
    losses: list[float]
    kernels_compiled: int
    kernels_run: int
    rules_by_set: dict[str, int] = field(default_factory=dict)
    unproven: int = 0
    kernel_proofs: str | None = None  # with PROVE=1: what was shown of the kernels


class Reporter(Protocol):
    """Is told after each step."""

    def __call__(self, epoch: int, loss: float) -> None: ...


class Network:
    """Two convolutions, batch norm, max pooling, one linear layer."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm(16)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.last = nn.Linear(32 * 4 * 4, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        x = self.second(x).relu().max_pool2d()
        return self.last(x.flatten(1))


def load_digits() -> Digits:
    """The images, split by a fixed shuffle. Raises: MissingDataError without scikit-learn."""
    train_images, train_labels, test_images, test_labels = digit_arrays()
    return Digits(
        (train_images / LARGEST).astype("float32"),
        train_labels.astype("int32"),
        (test_images / LARGEST).astype("float32"),
        test_labels.astype("int32"),
    )


def train(digits: Digits, epochs: int, report: Reporter) -> Outcome:
    """Train from a fixed seed and measure on the held-out images."""
    start = time.perf_counter()
    Tensor.manual_seed(SEED)
    network = Network()
    optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=LEARNING_RATE)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, epoch):
            losses.append(float(train_step(network, optimizer, images, labels).item()))
            report(epoch, losses[-1])
    accuracy = float(measure(network, digits).item())
    journal, check = compiler().library.journal, compiler().kernel_check
    return Outcome(
        accuracy=accuracy,
        seconds=time.perf_counter() - start,
        losses=losses,
        kernels_compiled=compiler().kernels_compiled,
        kernels_run=GlobalCounters.kernel_count,
        rules_by_set=dict(journal.by_set()),
        unproven=journal.unproven,
        kernel_proofs=None if check is None else check.summary(),
    )


def batches(digits: Digits, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Shuffled batches of one size; what is left over waits for the next epoch."""
    import numpy

    count = len(digits.train_images)
    order = numpy.random.default_rng(SEED + 1 + epoch).permutation(count)
    for begin in range(0, count - BATCH + 1, BATCH):
        chosen = order[begin : begin + BATCH]
        images = Tensor(digits.train_images[chosen], requires_grad=False)
        yield images, Tensor(digits.train_labels[chosen])


def train_step(
    network: Network, optimizer: nn.optim.Optimizer, images: Tensor, labels: Tensor
) -> Tensor:
    """One step of gradient descent; the loss before it."""
    with Tensor.train():
        optimizer.zero_grad()
        loss = network(images).sparse_categorical_crossentropy(labels)
        loss.backward()
        return loss.realize(*optimizer.schedule_step())


def measure(network: Network, digits: Digits) -> Tensor:
    """The share of held-out images whose digit has the highest score."""
    scores = network(Tensor(digits.test_images, requires_grad=False))
    hits = scores.argmax(1) == Tensor(digits.test_labels)
    return hits.cast("float32").mean().realize()


@contextmanager
def progress_bar(total: int) -> Iterator[Reporter]:
    """A bar on a terminal; elsewhere one line an epoch."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=total)
        lines = _EpochLines(quiet=console.is_terminal)

        def report(epoch: int, loss: float) -> None:
            progress.update(task, advance=1, description=f"epoch {epoch + 1}  loss {loss:.4f}")
            lines(epoch, loss)

        yield report
        lines.finish()


class _EpochLines:
    """Prints the last loss of each epoch, for logs."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.last: tuple[int, float] | None = None

    def __call__(self, epoch: int, loss: float) -> None:
        if self.last is not None and self.last[0] != epoch:
            self.finish()
        self.last = (epoch, loss)

    def finish(self) -> None:
        if self.last is not None and not self.quiet:
            print(f"epoch {self.last[0] + 1:2}  loss {self.last[1]:.4f}", flush=True)


def show(outcome: Outcome) -> str:
    """The outcome as text."""
    rows = sorted(outcome.rules_by_set.items(), key=lambda row: -row[1])
    width = max([len(name) for name, _ in rows], default=0)
    rules = [f"  {name:<{width}} {count:>8,}" for name, count in rows]
    proofs = outcome.kernel_proofs
    return "\n".join(
        [
            f"test accuracy       {outcome.accuracy:.2%}",
            f"time                {outcome.seconds:.1f} s",
            f"kernels compiled    {outcome.kernels_compiled:,}",
            f"kernels run         {outcome.kernels_run:,}",
            f"rule applications   {sum(outcome.rules_by_set.values()):,}",
            *rules,
            f"without a proof     {outcome.unproven:,}",
            *([] if proofs is None else [f"kernels proved      {proofs}"]),
        ]
    )


def compile_kernels(digits: Digits) -> int:
    """Compile every kernel of the demo and run none; how many there are."""
    with compile_only():
        network = Network()
        optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=LEARNING_RATE)
        steps = batches(digits, 0)
        for _ in range(2):  # the first step also fills the parameters
            train_step(network, optimizer, *next(steps))
        measure(network, digits)
    return compiler().kernels_compiled


def run(epochs: int = EPOCHS) -> Outcome | None:
    """Train with a progress bar and print the outcome; only compile for a machine that is not here.

    Raises: MissingDataError.
    """
    digits = load_digits()
    if not Device[Device.DEFAULT].target.runs:
        count = compile_kernels(digits)
        print(f"{Device.DEFAULT} cannot run here: {count} kernels compiled, none run (see DEBUG=3)")
        return None
    steps = epochs * (len(digits.train_images) // BATCH)
    with Context(PLANS=0), progress_bar(steps) as report:  # it tells of the rules that fired
        outcome = train(digits, epochs, report)
    print(show(outcome))
    return outcome
