"""Plans on disk: a second process makes none, and no file makes a result wrong."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from proofgrad import Context, Device, Tensor, Variable, wiring
from proofgrad.core.compile.compiler import Compiler
from proofgrad.core.compile.plan.plan import Plan
from proofgrad.core.compile.plan.store import graph_text
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.tensor.data.storage import unpack
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.execute import execute
from proofgrad.core.tensor.runtime.memory import memory_of

TRAINING = """
import json, sys
from proofgrad import Tensor, nn
from proofgrad.core.tensor.runtime.realize import compiler
if sys.argv[1:] == ["warm"]:
    from proofgrad.backends.cpu.codegen import Host
    def refuse(*_):
        raise SystemExit("a second process compiles")
    Host.object_code = refuse
    compiler()._new_plan = refuse
Tensor.manual_seed(1)
layer = nn.Linear(40, 30)
other = nn.Linear(30, 10)
optimizer = nn.optim.Adam([*nn.state.get_parameters(layer), *nn.state.get_parameters(other)])
x = Tensor.rand(16, 40)
for _ in range(3):
    with Tensor.train():
        optimizer.zero_grad()
        loss = other(layer(x).relu()).softmax(-1).log()[:, 3].mean().backward()
        optimizer.step()
values = [loss.item(), *layer.weight.flatten()[:50].tolist(), x.sum(0).tolist()]
print(json.dumps([values, compiler().kernels_compiled]))
"""


# Two models that train each other. What Python collects when, and where its objects lie, is another thing in each process: nodes
# get addresses in an order that is drawn.
GAN = """
import gc, json, random, sys
from proofgrad import Tensor, nn
from proofgrad.core.ir.uop import _Parts
from proofgrad.core.tensor.runtime.realize import compiler
if sys.argv[1] == "warm":
    from proofgrad.backends.cpu.codegen import Host
    def refuse(*_):
        raise SystemExit("a later process compiles")
    Host.object_code = refuse
    compiler()._new_plan = refuse
gc.set_threshold(int(sys.argv[2]))
kept = [[number] for number in range(int(sys.argv[2]))]
places = [_Parts() for _ in range(50_000)]
random.shuffle(places)
while places:
    places.pop()
Tensor.manual_seed(1)
class Generator:
    def __init__(self):
        self.first, self.second = nn.Linear(5, 12), nn.Linear(12, 7)
        self.itself = self
    def __call__(self, x):
        self.seen = self.first(x).relu()
        return self.second(self.seen).tanh()
class Discriminator:
    def __init__(self):
        self.first, self.second = nn.Linear(7, 9), nn.Linear(9, 1)
    def __call__(self, x):
        return self.second(self.first(x).leaky_relu().dropout(0.3))
make, judge = Generator(), Discriminator()
of_make = nn.optim.Adam(nn.state.get_parameters([make.first, make.second]))
of_judge = nn.optim.Adam(nn.state.get_parameters(judge))
losses = []
for _ in range(2):
    with Tensor.train():
        made, real = make(Tensor.randn(6, 5)), Tensor.rand(6, 7)
        of_judge.zero_grad()
        loss = (judge(made.detach()).sigmoid() - judge(real).sigmoid()).mean()
        loss.backward()
        of_judge.step()
        of_make.zero_grad()
        other = judge(make(Tensor.randn(6, 5))).sigmoid().log().mean()
        other.backward()
        of_make.step()
    losses += [loss.item(), other.item()]
print(json.dumps([losses, compiler().kernels_compiled]))
"""


def environment(folder: Path) -> dict[str, str]:
    asked = {"PLANS": "1", "CHECK": "0", "PROOFGRAD_CACHE": str(folder), "NUM_THREADS": "1"}
    return {**os.environ, **asked}


def trained(folder: Path, *arguments: str, program: str = TRAINING) -> list[Any]:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(
        command, env=environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_second_process_makes_no_plan_and_compiles_nothing(tmp_path: Path) -> None:
    cold, compiled = trained(tmp_path)
    assert compiled > 10
    assert trained(tmp_path, "warm") == [cold, 0]


@pytest.mark.long
def test_no_later_process_of_two_models_that_train_each_other_compiles(tmp_path: Path) -> None:
    losses, compiled = trained(tmp_path, "cold", "700", program=GAN)
    assert compiled > 20
    for threshold in ("50", "0", "5000"):
        assert trained(tmp_path, "warm", threshold, program=GAN) == [losses, 0]


@pytest.mark.long
def test_many_writers_some_of_whom_are_killed_leave_files_that_are_right(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAINING]
    writers = [
        subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for writer in writers[:4]:
        time.sleep(random.random())
        writer.send_signal(signal.SIGKILL)
    outputs = [writer.communicate()[0] for writer in writers]
    values = [json.loads(text)[0] for text in outputs[4:]]
    assert all(found == values[0] for found in values)
    assert trained(tmp_path)[0] == values[0]
    assert trained(tmp_path, "warm") == [values[0], 0]


# -- one plan, in this process ----------------------------------------------------------------------


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    with Context(PROOFGRAD_CACHE=str(tmp_path)):
        yield tmp_path / "plans"


def files(folder: Path) -> list[Path]:
    return sorted([path for path in folder.rglob("*") if path.is_file()])


def product(scale: float = 2.0) -> Tensor:
    x = Tensor([[float(k) for k in range(6)] for _ in range(6)]).realize()
    return ((x @ x) * scale + 1).softmax(-1)


def plan_of(
    tensor: Tensor, compiler: Compiler | None = None, **variables: int | str
) -> tuple[Compiler, Plan]:
    """The plan that a new process with these variables would take for a Tensor."""
    compiler = compiler or wiring._compiler()
    with Context(**{"PLANS": 1, "CHECK": 0, **variables}):
        return compiler, compiler.plan(machine.graph_to_run([tensor._uop], tensor.device))


def run(plan: Plan, tensor: Tensor) -> list[float]:
    _, inputs = machine.graph_and_inputs([tensor._uop], tensor.device)
    given = [memory_of(buffer) for buffer in inputs]
    (handle,) = execute(plan, given, [buffer.src[1].arg for buffer in inputs])
    data = bytearray(tensor.nbytes())
    Device[tensor.device].copyout(memoryview(data), handle)
    return unpack(bytes(data), tensor.dtype)


def test_plan_from_the_disk_is_the_plan_that_was_made(cache: Path) -> None:
    tensor = product()
    first, made = plan_of(tensor)
    second, found = plan_of(tensor)
    assert first.kernels_compiled > 0
    assert second.kernels_compiled == 0
    assert second._library is None  # no rule was even loaded
    assert run(found, tensor) == run(made, tensor) == tensor.flatten().tolist()
    assert (found.made, found.results, found.peak_bytes) == (
        made.made, made.results, made.peak_bytes,
    )  # fmt: skip
    for a, b in zip(found.steps, made.steps, strict=True):
        assert (a.slots, a.free_after, a.nbytes, a.shape) == (
            b.slots,
            b.free_after,
            b.nbytes,
            b.shape,
        )
        assert a.kernel is not None
        assert b.kernel is not None
        assert a.kernel.source == b.kernel.source
    assert len(files(cache)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NOALG", "1"),
        ("NOSCHED", "1"),
        ("FASTMATH", "real"),
        ("CHOICES", "vectors=*x8"),
        ("SCHEDULE", "threads=off"),
    ],
)
def test_other_settings_are_other_plans(cache: Path, name: str, value: str) -> None:
    plan_of(product())
    compiler, _ = plan_of(product(), **{name: value})
    assert compiler.kernels_compiled > 0
    assert len(files(cache)) == 2


def test_other_sources_and_other_inputs_to_write_over_are_other_plans(cache: Path) -> None:
    compiler, _ = plan_of(product())
    graph = machine.graph_to_run([product()._uop], "CPU")
    assert compiler._store is not None
    keys = {compiler._store.key(graph, unneeded, (), Device["CPU"])
            for unneeded in (frozenset(), frozenset({0}), frozenset({0, 1}))}  # fmt: skip
    compiler._store._digest = "other code"
    keys.add(compiler._store.key(graph, frozenset(), (), Device["CPU"]))
    assert len(keys) == 4


def test_the_digest_of_the_code_tells_content_name_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "_ROOT", tmp_path)
    inner = tmp_path / "core" / "inner"
    inner.mkdir(parents=True)
    found = [wiring._sources()]
    steps: list[Callable[[], object]] = [
        lambda: (inner / "a.py").write_text("1"),
        lambda: (inner / "a.py").write_text("2"),
        lambda: (inner / "a.py").rename(inner / "b.py"),
        lambda: (inner / "b.py").rename(inner.parent / "b.py"),
    ]
    for step in steps:
        step()
        found.append(wiring._sources())
    assert len(set(found)) == len(found)
    (inner / "notes.txt").write_text("decides nothing")
    assert wiring._sources() == found[-1]


@pytest.mark.parametrize(
    ("name", "value"), [("PLANS", 0), ("DEBUG", 2), ("PROVE", 1), ("CHECK", 1), ("SPEC", 1)]
)
def test_who_looks_at_stages_sees_them_run(cache: Path, name: str, value: int) -> None:
    plan_of(product())
    compiler, _ = plan_of(product(), **{name: value})
    assert compiler.kernels_compiled > 0
    assert len(files(cache)) == 1


def test_rules_of_a_user_are_not_mixed_with_plans_of_others(cache: Path) -> None:
    compiler, _ = plan_of(product())
    (rule, *_) = compiler.library.sets["algebra"].rules
    compiler.use_rules(RuleSet("mine", (rule,)))
    plan_of(product(), compiler)
    assert compiler.kernels_compiled > 0
    assert len(files(cache)) == 1


def test_sizes_that_vary_are_kept_for_all_values_between_their_bounds(cache: Path) -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()

    def short(greatest: int, value: int) -> Tensor:
        return x.shrink(((0, Variable("n", 1, greatest).bind(value)),)) + 1

    _, made = plan_of(short(4, 3))
    assert short(4, 3).tolist() == [2, 3, 4]
    compiler, found = plan_of(short(4, 2))
    assert compiler.kernels_compiled == 0 and found.variables == made.variables == (("n", "CPU"),)
    assert [step.shape for step in found.steps] == [(4,)]
    compiler, _ = plan_of(short(3, 2))
    assert compiler.kernels_compiled == 1 and len(files(cache)) == 2


def test_a_second_process_takes_kept_plans_with_variables(tmp_path: Path) -> None:
    program = (
        "from proofgrad import Tensor, Variable\n"
        "from proofgrad.core.tensor.runtime.realize import compiler\n"
        "cache = Tensor.zeros(5, 3).contiguous().realize()\n"
        "for k in (1, 4, 2):\n"
        "    at = Variable('at', 0, 4).bind(k)\n"
        "    cache[at : at + 1].assign(Tensor.full((1, 3), float(k))).realize()\n"
        "    print((cache[: at + 1] * 2).realize().sum(0).tolist())\n"
        "print(compiler().kernels_compiled)\n"
    )
    environment = {**os.environ, "PROOFGRAD_CACHE": str(tmp_path), "PLANS": "1", "CHECK": "0"}
    printed = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for _ in range(2)
    ]
    assert (
        printed[0][:3]
        == printed[1][:3]
        == ["[2.0, 2.0, 2.0]", "[10.0, 10.0, 10.0]", "[6.0, 6.0, 6.0]"]
    )
    assert int(printed[0][3]) > 0 and printed[1][3] == "0"


def test_plans_of_other_machines_are_not_kept(cache: Path) -> None:
    plan_of(Tensor([1.0, 2.0], device="REFERENCE").realize() + 1)
    assert files(cache) == []


# -- bad files --------------------------------------------------------------------------------------


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """What is kept for a plan, as another plan."""

    def edit(content: bytes) -> bytes:
        data = json.loads(zlib.decompress(content))
        change(data)
        return zlib.compress(json.dumps(data).encode())

    return edit


def whole(content: bytes) -> Callable[[bytes], bytes]:
    return lambda _: content


@pytest.mark.parametrize(
    "edit",
    [
        whole(b""),
        whole(b"no zlib"),
        whole(zlib.compress(b"no json")),
        whole(zlib.compress(b"[1, 2]")),
        whole(zlib.compress(b"{}")),
        changed(lambda plan: plan.pop("steps")),
        changed(lambda plan: plan["results"].append(99)),
        changed(lambda plan: plan["results"].__setitem__(0, -1)),
        changed(lambda plan: plan["steps"][0].__setitem__(0, 7)),
        changed(lambda plan: plan["steps"][0].__setitem__(1, [0, 1e300])),
        changed(lambda plan: plan["steps"][0].__setitem__(1, [0])),
        changed(lambda plan: plan["steps"][0][1].append(0)),
        changed(lambda plan: plan["made"].__setitem__(0, ["float33", 36, "CPU"])),
        changed(lambda plan: plan["made"].__setitem__(0, ["float32", -36, "CPU"])),
        changed(lambda plan: plan["kernels"][0].__setitem__("params", None)),
        changed(lambda plan: plan["kernels"][0].__setitem__("text", "define nonsense")),
    ],
)
def test_file_that_is_no_plan_is_made_again(cache: Path, edit: Callable[[bytes], bytes]) -> None:
    tensor = product()
    plan_of(tensor)
    (file,) = files(cache)
    right = file.read_bytes()
    kept = DiskCache(cache)
    content = kept.get(file.name)
    assert content is not None
    kept.put(file.name, edit(content))  # with a right checksum
    compiler, plan = plan_of(tensor)
    assert compiler.kernels_compiled > 0
    assert run(plan, tensor) == tensor.flatten().tolist()
    assert file.read_bytes() == right


def test_files_of_another_layout_are_made_again_in_silence(cache: Path) -> None:
    tensor = product()
    plan_of(tensor)
    (file,) = files(cache)
    right = file.read_bytes()
    for other in (b"", sha256(b"plan").digest() + b"plan", b"text"):
        file.write_bytes(other)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plan_of(tensor)
        assert file.read_bytes() == right


def test_torn_file_is_made_again_with_a_warning(cache: Path) -> None:
    tensor = product()
    plan_of(tensor)
    (file,) = files(cache)
    right = file.read_bytes()
    file.write_bytes(right[:-5])
    with pytest.warns(UserWarning, match="is damaged and is not used"):
        plan_of(tensor)
    assert file.read_bytes() == right


def test_full_disk_costs_one_warning_and_nothing_else(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DiskCache, "_write", full)
    compiler = wiring._compiler()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for scale in (2.0, 3.0):
            tensor = product(scale)
            assert run(plan_of(tensor, compiler)[1], tensor) == tensor.flatten().tolist()
    told = [str(w.message) for w in caught if "No space left on device" in str(w.message)]
    assert len([text for text in told if "plans" in text]) == 1
    assert files(cache) == []


# -- graphs as text ---------------------------------------------------------------------------------


def test_graphs_that_differ_have_different_texts() -> None:
    buffer = [
        UOp(Ops.BUFFER, dtype, (UOp(Ops.UNIQUE, dtypes.void, (), k), UOp(Ops.DEVICE, dtypes.void, (), name)), 4)
        for dtype in (dtypes.float32, dtypes.int32) for k in (0, 1) for name in ("CPU", "PTX")
    ]  # fmt: skip
    constants = [UOp.const(dtypes.float32, v) for v in (0.0, -0.0, 1.0, float("nan"), float("inf"))]
    others = [
        UOp.const(dtypes.int32, 1),
        UOp.const(dtypes.bool, True),
        UOp.const(dtypes.float64, 1.0),
    ]
    a, b = buffer[0], buffer[2]
    sums = [a + b, b + a, a + a, (a + b) + a, a + (b + a), a * b, a.cast(dtypes.float16)]
    shapes = [UOp(Ops.RESHAPE, a.dtype, (a,), shape) for shape in ((2, 2), (4, 1), (1, 4))]
    graphs = [
        *buffer,
        *constants,
        *others,
        *sums,
        *shapes,
        UOp.sink(a, b),
        UOp.sink(b, a),
        UOp.sink(a),
    ]
    assert len({graph_text(graph) for graph in graphs}) == len(set(graphs)) == len(graphs)


# -- the size of a cache ----------------------------------------------------------------------------


def name(k: int) -> str:
    return "ab" + sha256(str(k).encode()).hexdigest()[2:]  # all in one folder


def test_cache_keeps_below_its_limit_and_drops_what_was_not_used_longest(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit_bytes=256 * 1100)
    for k in range(10):
        cache.put(name(k), bytes([k]) * 51)
        os.utime(tmp_path / "ab" / name(k), (k, k))
    assert cache.get(name(0)) == bytes(51)  # used just now
    cache.put(name(10), b"x" * 51)
    cache.put(name(11), b"y" * 51)
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 1100
    assert cache.get(name(1)) is None
    assert cache.get(name(0)) == bytes(51)
    assert cache.get(name(11)) == b"y" * 51


def test_file_larger_than_its_share_is_kept_until_the_next(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit_bytes=256 * 100)
    cache.put(name(0), b"z" * 1000)
    assert cache.get(name(0)) == b"z" * 1000
    cache.put(name(1), b"w" * 1000)
    assert cache.get(name(0)) is None
    assert cache.get(name(1)) == b"w" * 1000


def test_what_a_killed_writer_left_goes_after_an_hour(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(name(0), b"data")
    old, new = tmp_path / "ab" / ".new-old", tmp_path / "ab" / ".new-new"
    old.write_bytes(b"torn")
    new.write_bytes(b"being written")
    os.utime(old, (time.time() - 7200,) * 2)
    cache.put(name(1), b"more")
    assert not old.exists()
    assert new.exists()
    assert cache.get(name(0)) == b"data"


def test_a_plan_for_a_lesser_greatest_size_is_not_taken_for_a_greater_one(cache: Path) -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    for greatest, value in ((2, 2), (4, 4), (3, 3)):
        short = x.shrink(((0, Variable("n", 1, greatest).bind(value)),)) + 1
        plan_of(short)
        assert short.tolist() == [2.0, 3.0, 4.0, 5.0][:value]
