"""Programs of eight kinds, here and in torch: lines, first call, time of a step, memory; do their losses agree?

    python benchmarks/programs.py                  # all of them
    python benchmarks/programs.py gpt vae --cpu    # processor time on one thread: for a machine that is busy

Both start from torch's weights and data, and must give the same losses. The first call is timed in a process of its own, with
an empty cache, and again with the cache that it left; so is memory, beyond what the imports took. Steps are timed by turns, in
one process. A program that is slower than `--least` of torch's speed, or slower to start than `--first` seconds, is marked.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from programs_data import data_of

NAMES = ("gpt", "generate", "cnn", "vae", "gan", "unet", "lstm", "checkpoint", "tabular")
SIDES = ("proofgrad", "torch")
STEPS = 8  # whose losses are compared
Step = Callable[[], float]
Weights = dict[str, Any]


def main() -> int:
    """Print the table; the result is 1 where losses differ."""
    asked = _arguments()
    if asked.part is not None:
        print(json.dumps(_measured(asked)))
        return 0
    print(
        f"{'program':<11} {'lines':>9} {'first call s':>20} {'step ms':>15} {'memory MB':>13}  ratio"
    )
    agree = True
    for name in asked.names or NAMES:
        agree &= _row(name, asked)
    print(
        "proofgrad/torch in each column, first calls also with a full cache; a ratio of 2 is twice torch's speed"
    )
    return 0 if agree else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="programs; all of them")
    parser.add_argument("--rounds", type=int, default=15, help="turns that are timed")
    parser.add_argument("--steps", type=int, default=20, help="steps of a turn")
    parser.add_argument("--cpu", action="store_true", help="processor time, on one thread")
    parser.add_argument("--least", type=float, default=0.8, help="the ratio that is asked for")
    parser.add_argument("--first", type=float, default=5.0, help="seconds of the first call")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # what a process of its own measures
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


# -- a row, from four processes -------------------------------------------------------------------


def _row(name: str, asked: argparse.Namespace) -> bool:
    """Measure and print a program; whether the losses agree."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = _process(name, "torch", folder, asked)
        cold = _process(name, "proofgrad", folder, asked)
        warm = _process(name, "proofgrad", folder, asked)
        both = _process(name, "both", folder, asked)
    agree = bool(np.allclose(cold["losses"], theirs["losses"], rtol=2e-3, atol=1e-5))
    ratio = both["torch"] / both["proofgrad"]
    firsts = f"{cold['first']:.2f} {warm['first']:.2f} / {theirs['first']:.2f}"
    steps = f"{both['proofgrad'] * 1e3:.2f} / {both['torch'] * 1e3:.2f}"
    lines = f"{_lines('proofgrad', name)} / {_lines('torch', name)}"
    memory = f"{cold['memory']:.0f} / {theirs['memory']:.0f}"
    marks = [
        word
        for word, is_so in (
            ("slow", ratio < asked.least), ("slow start", cold["first"] > asked.first), ("OTHER LOSSES", not agree),
        )
        if is_so
    ]  # fmt: skip
    text = f"{name:<11} {lines:>9} {firsts:>20} {steps:>15} {memory:>13}  {ratio:.2f}"
    print(f"{text} {', '.join(marks)}".rstrip(), flush=True)
    if not agree:
        print(f"  proofgrad {cold['losses']}\n  torch     {theirs['losses']}")
    return agree


def _process(name: str, part: str, folder: str, asked: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, name, "--part", part, "--folder", folder]
    command += ["--rounds", str(asked.rounds), "--steps", str(asked.steps)]
    command += ["--cpu"] if asked.cpu else []
    environment = {**os.environ, "PROOFGRAD_CACHE": str(Path(folder) / "cache")}
    if asked.cpu:
        environment |= {"NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, {part}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _lines(side: str, name: str) -> int:
    """Lines of a program and of the classes and functions of its file that it names, without empty ones and comments."""
    text = (Path(__file__).parent / f"programs_{side}.py").read_text()
    parts = {
        node.name: node
        for node in ast.parse(text).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    wanted, waiting = set(), [name]
    while waiting:
        part = waiting.pop()
        if part in parts and part not in wanted:
            wanted.add(part)
            waiting += [n.id for n in ast.walk(parts[part]) if isinstance(n, ast.Name)]
    return sum([len(ast.unparse(parts[part]).splitlines()) for part in wanted])


# -- what a process measures ----------------------------------------------------------------------


def _measured(asked: argparse.Namespace) -> dict[str, Any]:
    (name,) = asked.names
    clock = time.process_time if asked.cpu else time.perf_counter
    file = asked.folder / "weights.npz"
    if asked.part == "both":
        _torch_threads(asked.cpu)
        return _by_turns({side: _made(side, name, file) for side in SIDES}, asked, clock)
    if asked.part == "torch":
        _torch_threads(asked.cpu)
        _made("torch", name, file)()  # what torch does once in a process is not the program's
    module, data = _opened(asked.part, name)
    before = _memory()
    start = clock()
    step = module.PROGRAMS[name](data, _giver(asked.part, file), asked.folder)
    losses = [step()]
    first = clock() - start
    losses += [step() for _ in range(STEPS - 1)]
    return {"first": first, "losses": losses, "memory": _memory() - before}


def _torch_threads(is_one: bool) -> None:
    import torch

    torch.set_num_threads(1 if is_one else len(os.sched_getaffinity(0)))


def _opened(side: str, name: str) -> tuple[Any, Any]:
    module = importlib.import_module(f"programs_{side}")
    return module, module.tensors(data_of(name))


def _made(side: str, name: str, file: Path) -> Step:
    module, data = _opened(side, name)
    step: Step = module.PROGRAMS[name](data, _giver(side, file), file.parent)
    return step


def _memory() -> float:
    """The most that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _by_turns(
    steps: dict[str, Step], asked: argparse.Namespace, clock: Callable[[], float]
) -> dict[str, float]:
    """Seconds of a step of each, the median of turns."""
    found: dict[str, list[float]] = {side: [] for side in steps}
    for step in steps.values():
        for _ in range(4):  # recorded by the second
            step()
    for _ in range(asked.rounds):
        for side, step in steps.items():
            start = clock()
            for _ in range(asked.steps):
                step()
            found[side].append((clock() - start) / asked.steps)
    return {side: statistics.median(times) for side, times in found.items()}


def _giver(side: str, file: Path) -> Callable[[Any], None]:
    """What gives a model the weights of `file`; torch's first model writes them."""

    def torch_weights(model: Any) -> None:
        import torch

        if not file.exists():
            np.savez(file, **{k: v.numpy() for k, v in model.state_dict().items()})
        with np.load(file) as known:
            model.load_state_dict({k: torch.from_numpy(v) for k, v in known.items()})

    def weights(model: Any) -> None:
        from proofgrad import Tensor
        from proofgrad.nn.state import get_state_dict, load_state_dict

        own = get_state_dict(model)
        with np.load(file) as known:
            given = {_short(key): Tensor(value) for key, value in known.items()}
        load_state_dict(model, {key: given[_short(key)].cast(t.dtype) for key, t in own.items()})

    return torch_weights if side == "torch" else weights


def _short(name: str) -> str:
    """The name of a weight without the lists that hold the layers of a Sequential here."""
    return ".".join([part for part in name.split(".") if part != "layers"])


if __name__ == "__main__":
    sys.exit(main())
