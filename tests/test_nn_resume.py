"""A run that is saved and resumed goes on as if nothing had been; a file of another run changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proofgrad import ShapeError, Tensor, nn
from proofgrad.nn.datasets import Batches
from proofgrad.nn.state import FormatError, resume_training, safe_load, safe_save, save_training

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: nn.optim.SGD(p, 0.1, momentum=0.9),
    "Nesterov": lambda p: nn.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: nn.optim.Adam(p, 0.05),
    "fused": lambda p: nn.optim.AdamW(p, 0.05, fused=True),
    "Adagrad": lambda p: nn.optim.Adagrad(p, 0.1, lr_decay=0.1),
    "RMSprop": lambda p: nn.optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "LARS": lambda p: nn.optim.LARS(p, 0.1),
    "LAMB": lambda p: nn.optim.LAMB(p, 0.05),
    "Muon": lambda p: nn.optim.OptimizerGroup(
        nn.optim.Muon([x for x in p if x.ndim > 1], 0.02),
        nn.optim.AdamW([x for x in p if x.ndim < 2], 0.01),
    ),
}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: nn.optim.StepLR(o, 2),
    "milestones": lambda o: nn.optim.MultiStepLR(o, [1, 5]),
    "exponential": lambda o: nn.optim.ExponentialLR(o, 0.9),
    "lambda": lambda o: nn.optim.LambdaLR(o, lambda step: 1 / (1 + step)),
    "cosine": lambda o: nn.optim.CosineAnnealingLR(o, 6),
    "one cycle": lambda o: nn.optim.OneCycleLR(o, max_lr=0.3, total_steps=9),
    "warmup": lambda o: nn.optim.LinearWarmup(o, 4, then=nn.optim.ExponentialLR(o, 0.8)),
    "plateau": lambda o: nn.optim.ReduceLROnPlateau(o, patience=0, cooldown=1),
}


class Run:
    """A small network with dropout and batch norm, an optimizer, a schedule."""

    def __init__(self, make: Callable[[Any], Any], width: int = 5, schedule: str = "step") -> None:
        self.model = nn.Sequential(
            nn.Linear(3, width), nn.BatchNorm(width), nn.Dropout(0.3), nn.Linear(width, 1)
        )
        self.optimizer = make(nn.state.get_parameters(self.model))
        self.schedule = SCHEDULES[schedule](self.optimizer)

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}

    def losses(self, count: int) -> list[float]:
        found = []
        with Tensor.train():
            for _ in range(count):
                self.optimizer.zero_grad()
                loss = self.model(Tensor.randn(4, 3)).square().mean().backward()
                self.optimizer.step()
                is_judged = isinstance(self.schedule, nn.optim.ReduceLROnPlateau)
                self.schedule.step(loss) if is_judged else self.schedule.step()
                found += [loss.item(), *self.rates()]
        return found

    def rates(self) -> list[float]:
        parts = getattr(self.optimizer, "optimizers", [self.optimizer])
        return [part.lr.item() for part in parts]


@pytest.mark.parametrize(
    ("name", "schedule"),
    [(n, "step") for n in OPTIMIZERS] + [(n, s) for s in SCHEDULES for n in ("Adam", "Muon")],
)
def test_a_resumed_run_goes_on_exactly(name: str, schedule: str, tmp_path: Path) -> None:
    first = Run(OPTIMIZERS[name], schedule=schedule)
    first.losses(3)
    save_training(tmp_path / "run.safetensors", **first.parts())
    wanted = first.losses(4)
    second = Run(OPTIMIZERS[name], schedule=schedule)
    second.losses(1)
    resume_training(tmp_path / "run.safetensors", **second.parts())
    assert second.losses(4) == wanted


def test_batches_go_on_in_the_order_of_the_next_round(tmp_path: Path) -> None:
    def rounds(batches: Batches, count: int) -> list[list[int]]:
        return [[int(k) for (x,) in batches for k in x.tolist()] for _ in range(count)]

    first = Batches(list(range(12)), size=4, seed=3)
    rounds(first, 2)
    save_training(tmp_path / "run", batches=first)
    second = Batches(list(range(12)), size=4, seed=3)
    resume_training(tmp_path / "run", batches=second)
    assert second.epoch == 2 and rounds(second, 2) == rounds(first, 2)


def test_what_two_parts_have_is_written_once(tmp_path: Path) -> None:
    run = Run(OPTIMIZERS["Adam"])
    save_training(tmp_path / "run", **run.parts())
    names = list(safe_load(tmp_path / "run"))
    assert "model.layers.0.weight" in names and not [n for n in names if ".params." in n]
    assert [n for n in names if n.startswith("schedule")] == ["schedule.epoch"]


def test_a_file_of_another_run_changes_nothing(tmp_path: Path) -> None:
    save_training(tmp_path / "run", **Run(OPTIMIZERS["Adam"]).parts())
    wide, other = Run(OPTIMIZERS["Adam"], 7), Run(OPTIMIZERS["SGD"])
    safe_save({"x": Tensor([1.0])}, tmp_path / "plain")
    cases: list[tuple[Any, str, type[Exception]]] = [
        (wide.parts(), "run", ShapeError), (other.parts(), "run", KeyError), (wide.parts(), "plain", FormatError),
    ]  # fmt: skip
    for parts, file, error in cases:
        before = {name: t.tolist() for name, t in nn.state.get_state_dict(parts).items()}
        at = Tensor.get_rng_state().tolist()
        with pytest.raises(error):
            resume_training(tmp_path / file, **parts)
        assert before == {name: t.tolist() for name, t in nn.state.get_state_dict(parts).items()}
        assert Tensor.get_rng_state().tolist() == at
    with pytest.raises(ValueError, match="'random'"):
        save_training(tmp_path / "run", random=wide.model)
