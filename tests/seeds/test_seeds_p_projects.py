"""Seed lines P00 to P8: every task of the projects."""

from __future__ import annotations

import ctypes
import re
import time
from pathlib import Path

import numpy as np
import pytest
from seed_lines import ROOT, Count, debug_text, later, my_backend, page, run_snippet, searched

from proofgrad import Device, Ops, Tensor, commands, explain, gradcheck
from proofgrad.renderer.cstyle import CStyleLanguage


def c_of(tensor: Tensor) -> str:
    return CStyleLanguage().render_tensor(tensor)


def ready(*shape: int) -> Tensor:
    return Tensor.rand(*shape).realize()


def kernels_of(tensor: Tensor) -> int:
    with Count() as kernels:
        tensor.realize()
    return kernels.count


def example(pattern: str) -> Path:
    found = sorted((ROOT / "examples").rglob(pattern))
    assert found, f"examples/**/{pattern}"
    return found[0]


def test_P00_introduction() -> None:
    """project 0: lazy evaluation, fusion, views"""
    text = example("00_intro.py").read_text()
    for subject in ("realize", "kernel_count", "permute"):
        assert subject in text


def test_P1_1_factories_have_shapes_and_types() -> None:
    """create Tensors in every way; check shapes and types"""
    made = {
        "zeros": Tensor.zeros(3, 4), "ones": Tensor.ones(3, 4), "full": Tensor.full((3, 4), 7.0),
        "randn": Tensor.randn(3, 4), "rand": Tensor.rand(3, 4), "eye": Tensor.eye(3, 4),
        "uniform": Tensor.uniform(3, 4), "glorot": Tensor.glorot_uniform(3, 4),
        "arange": Tensor.arange(12.0).reshape(3, 4), "like": Tensor.zeros(3, 4).ones_like(),
    }  # fmt: skip
    for name, tensor in made.items():
        assert (tensor.shape, str(tensor.dtype)) == ((3, 4), "dtypes.float"), name
    assert str(Tensor.arange(3).dtype) == "dtypes.int"


def test_P1_2_fused_sum_is_one_kernel() -> None:
    """DEBUG=1: `(a + b).relu().sum()` is one kernel"""
    a, b = ready(4, 4), ready(4, 4)
    assert re.search(r"\b1 kernels?\b", debug_text(1, lambda: (a + b).relu().sum().realize()))


def test_P1_3_operations_are_found_in_c() -> None:
    """DEBUG=3: find ADD, RELU and SUM in the C code"""
    text = c_of((ready(4, 41) + ready(4, 41)).relu().sum())
    assert re.search(r"v\d+ \+ v\d+", text)  # ADD
    assert re.search(r"\? v?\d+[^;]*: ", text) or "max" in text  # RELU
    assert re.search(r"total0 = total0 \+|total0 = .* \+ total0", text)  # SUM


def test_P1_4_realize_between_breaks_fusion() -> None:
    """`.realize()` after each operation: three kernels"""
    a, b = ready(4, 5), ready(4, 5)
    with Count() as kernels:
        c = (a + b).realize()
        d = c.relu().realize()
        d.sum().realize()
    assert kernels.count == 3
    assert kernels_of((b + a).relu().sum()) == 1


def test_P1_5_schedule_before_and_after() -> None:
    """`.schedule()` before and after `.realize()`"""
    t = (ready(4, 4) + 1).sum()
    assert len(t.schedule()) == 1
    assert len(t.realize().schedule()) == 0


def test_P2_1_elementwise_operations_in_c() -> None:
    """`x.relu()`, `x * 2`, `x.exp()` in the C code"""
    x = ready(4, 42)
    assert "* 2.0f" in c_of(x * 2)
    assert "?" in c_of(x.relu()) or "max" in c_of(x.relu())
    assert "0.72134" in c_of(x.exp())  # 1 / ln 4, times x: a power of 4


def test_P2_2_reductions_are_loops() -> None:
    """`x.sum()`, `x.max(axis=0)`: the loops of the kernel"""
    x = ready(20, 34)  # the loop of a few values is written out
    assert re.findall(r"< (\d+); i\d\+\+", c_of(x.sum())) in (["680"], ["20", "34"])
    assert re.findall(r"< (\d+); i\d\+\+", c_of(x.max(axis=0))) == ["34", "20"]


def test_P2_3_movement_runs_nothing() -> None:
    """reshape, permute, expand at DEBUG=2: no kernel"""
    x = ready(4, 6)
    views = (x.reshape(24), x.permute(1, 0), x.expand(5, 4, 6))
    assert "E_" not in debug_text(2, lambda: Tensor.realize(*views))


def test_P2_4_kernels_of_a_mixture_are_predicted() -> None:
    """predict the kernels of a mixture of operations"""
    x, y = ready(64, 64), ready(64 * 64)
    assert explain((x.permute(1, 0) @ y.reshape(64, 64)).sum(axis=1)).startswith("2 kernels")


def test_P2_5_matmul_by_hand() -> None:
    """matmul from expand, `*` and sum equals `@`"""
    x, y = ready(4, 5), ready(5, 6)
    by_hand = (x.reshape(4, 1, 5).expand(4, 6, 5) * y.T.reshape(1, 6, 5).expand(4, 6, 5)).sum(2)
    np.testing.assert_allclose(by_hand.numpy(), (x @ y).numpy(), rtol=1e-6)


def test_P3_1_three_gradients_by_hand() -> None:
    """gradients of x², x * w, sigmoid"""
    x, w = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)
    (x.pow(2).sum() + (x * w).sum()).backward()
    assert x.grad is not None and w.grad is not None
    assert x.grad.tolist() == pytest.approx([5.0, 8.0], rel=1e-6)
    assert w.grad.tolist() == [1.0, 2.0]
    z = Tensor([0.0], requires_grad=True)
    assert z.sigmoid().gradient(z)[0].item() == pytest.approx(0.25, rel=1e-6)


def test_P3_2_mlp_learns_xor_by_heart() -> None:
    """a network of two layers overfits ten points of XOR"""
    from proofgrad.nn.optim import Adam

    rng = np.random.default_rng(1)
    points = rng.integers(0, 2, (10, 2)).astype("f")
    answers = (points[:, :1] != points[:, 1:]).astype("f")
    Tensor.manual_seed(1)
    l1, l2 = Tensor.randn(3, 16).realize(), (Tensor.randn(17, 1) * 0.1).realize()
    x = Tensor(np.hstack([points, np.ones((10, 1), "f")])).realize()
    ones, y = Tensor(np.ones((10, 1), "f")).realize(), Tensor(answers).realize()
    optimizer = Adam([l1, l2], lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (x.linear(l1).relu().cat(ones, dim=1).linear(l2) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-2


def test_P3_3_rules_of_derivatives_are_read_and_explained() -> None:
    """read three backward rules and explain each"""
    rules = commands.rules("cotangent")
    text = page("guide.md")
    for name in ("add", "mul", "exp2"):
        assert re.search(rf"^cotangent {name}\b", rules, re.MULTILINE), name
        assert f"`{name}`" in text, name


def test_P3_4_huber_against_differences() -> None:
    """Huber loss, its gradient against finite differences"""
    x = Tensor(np.array([0.3, -1.7, 2.2, -0.4]))
    assert gradcheck(lambda t: (t.abs() < 1).where(t * t * 0.5, t.abs() - 0.5), x) is True


def test_P4_1_mnist_can_be_asked_for() -> None:
    """`from tinygrad.nn.datasets import mnist`"""
    assert callable(run_snippet("from tinygrad.nn.datasets import mnist")["mnist"])


def test_P4_2_cnn_is_built() -> None:
    """a network of Conv2d, BatchNorm, relu, Linear"""
    ran = run_snippet("""\
from tinygrad import Tensor
from tinygrad.nn import Linear, BatchNorm, Conv2d

class Net:
    def __init__(self):
        self.c1, self.b1, self.l1 = Conv2d(1, 8, 3), BatchNorm(8), Linear(8*13*13, 10)
    def __call__(self, x):
        return self.l1(self.b1(self.c1(x)).relu().max_pool2d().flatten(1))

out = Net()(Tensor.randn(2, 1, 28, 28))
""")
    assert ran["out"].shape == (2, 10) and np.isfinite(ran["out"].numpy()).all()


def test_P4_3_cnn_is_right_98_of_100_times() -> None:
    """five epochs of Adam: more than 98 % right (digits, small and drawn at the size of MNIST)"""
    assert "more than 98 %" in example("04_mnist.py").read_text()
    shown = (ROOT / "tests/test_examples.py").read_text()
    assert "accuracy (98|99|100)" in shown and "accuracy > 98" in shown


def test_P4_4_training_step_is_profiled() -> None:
    """DEBUG=1: kernels a step; which take the most time"""
    from proofgrad.nn.optim import SGD

    w = Tensor([[0.5], [1.0]], requires_grad=True)
    optimizer = SGD([w], lr=0.1)
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()

    def step() -> None:
        optimizer.zero_grad()
        (x @ w).pow(2).mean().backward()
        optimizer.step()

    step()
    text = debug_text(2, step)
    rows = re.findall(r"\b([Er]_\d\S*).*?([\d.]+) ?[mu]s", text)
    assert len(rows) >= 2 and re.search(rf"\b{len(rows)} kernels?\b", text)


def test_P4_5_search_speeds_training_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """BEAM=2: does training get faster?"""
    from proofgrad.nn.optim import SGD

    x, target = ready(32, 20), ready(32, 1)

    def losses(width: str) -> list[float]:
        monkeypatch.setenv("BEAM", width)
        w = Tensor.zeros(20, 1, requires_grad=True)
        optimizer = SGD([w], lr=0.1)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = ((x @ w) - target).pow(2).mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    monkeypatch.setenv("BEAM_SECONDS", "1")
    assert losses("2") == pytest.approx(losses("0"), rel=1e-5)
    assert re.search(r"(keeps|takes) .*tile=", searched(27, 2))


def test_P4_6_reloaded_model_answers_the_same(tmp_path: Path) -> None:
    """safe_save, reload: the same answers to the bit"""
    from proofgrad.nn import Linear
    from proofgrad.nn.state import get_state_dict, load_state_dict, safe_load, safe_save

    x, one, other = ready(5, 8), Linear(8, 3), Linear(8, 3)
    safe_save(get_state_dict(one), str(tmp_path / "model.safetensors"))
    load_state_dict(other, safe_load(str(tmp_path / "model.safetensors")))
    assert one(x).numpy().tobytes() == other(x).numpy().tobytes()


def test_P5_1_schedule_shows_each_kernel() -> None:
    """five or more operations, `.schedule()`, the AST of each kernel"""
    x, y = ready(64, 64), ready(64, 64)
    items = ((x @ y).relu() * 2 + 1).sum(axis=0).sqrt().schedule()
    assert len(items) == 2
    for item in items:
        assert item.ast.op is Ops.SINK and len(item.ast.toposort()) > 3


@later("VIZ, the explorer of rewrites in a browser")
def test_P5_2_matmul_in_the_browser() -> None:
    """VIZ=1: elementwise, reduce and loop nodes of a matmul"""
    run_snippet("from tinygrad.viz import serve")


def test_P5_3_four_stages_of_a_matmul() -> None:
    """DEBUG=4: first graph, after folding, after the choice of loops, the last"""
    x = ready(4, 4)
    text = debug_text(4, lambda: (x @ x + 50.5).realize())
    places = [text.index(f"--- kernel: {name} ->") for name in (
        "movement to index terms", "simplify index terms", "choose axes", "linearize"
    )]  # fmt: skip
    assert places == sorted(places)


def test_P5_4_noopt_keeps_the_algebra_undone() -> None:
    """`x * 1 + 0` with and without NOOPT=1"""
    x = Tensor([[7, 8, 9], [4, 5, 6]]).realize()
    plain = debug_text(3, lambda: (x * 1 + 0 + 51).realize(), NOOPT="1")
    assert re.search(r"\bmul\b", plain) and "51" in plain


def test_P5_5_search_on_a_big_matmul() -> None:
    """1024 x 1024: BEAM=0 against BEAM=4, the tile chosen"""
    text = searched(256, 4)
    if re.search(r"BEAM=4 r_\w+: takes tiled=on reduction_block=[1-9]", text):
        return  # in blocks: the kernel that adds them up has a tile of its own
    found = re.search(
        r"BEAM=4 r_\w+: (keeps|takes) tiled=on rows=\d+ columns=\d+ tile=(\d+)x(\d+)x(\d+)", text
    )
    assert found is not None
    rows, vectors, lanes = (int(number) for number in found.groups()[1:])
    assert rows * vectors >= 4 and lanes >= 4


OWN = """\
def gelu(x):
    return x * 0.5 * (1 + (x / 2**0.5).erf())
def rms_norm(x):
    return x / ((x*x).mean() + 1e-6).sqrt()
def swiglu(x, gate):
    return x * gate.sigmoid()
"""


def test_P6_1_operations_from_primitives() -> None:
    """gelu, rms_norm, swiglu from primitives"""
    ran = run_snippet(OWN)
    x = Tensor([1.0, -1.0])
    assert ran["gelu"](x).tolist() == pytest.approx([0.8413447, -0.1586553], rel=1e-5)
    assert ran["rms_norm"](x).tolist() == pytest.approx([1.0, -1.0], rel=1e-5)
    assert ran["swiglu"](x, Tensor([0.0, 0.0])).tolist() == [0.5, -0.5]


def test_P6_2_they_match_torch() -> None:
    """each matches PyTorch"""
    torch = pytest.importorskip("torch")
    ran = run_snippet(OWN)
    a = np.random.default_rng(0).normal(size=(3, 7)).astype("f")
    x, t = Tensor(a).realize(), torch.tensor(a)
    np.testing.assert_allclose(
        ran["gelu"](x).numpy(), torch.nn.functional.gelu(t).numpy(), rtol=1e-5, atol=1e-6
    )
    expected = t / torch.sqrt((t * t).mean() + 1e-6)
    np.testing.assert_allclose(ran["rms_norm"](x).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_P6_3_gradient_of_rms_norm() -> None:
    """the gradient of rms_norm against finite differences"""
    ran = run_snippet(OWN)
    x = Tensor(np.random.default_rng(0).normal(size=(2, 3)))
    assert gradcheck(ran["rms_norm"], x) is True


def test_P6_4_operations_of_each_kernel_are_counted() -> None:
    """DEBUG=3: count the operations of each kernel"""
    ran = run_snippet(OWN)
    x = ready(4, 31)
    operators = {name: len(re.findall(r" [*/+-] ", c_of(ran[name](x)))) for name in ("gelu",)}
    assert operators["gelu"] > 5
    assert c_of(ran["swiglu"](x, ready(4, 31))).count("data2[") == 1


def test_P6_5_gelu_in_one_and_in_steps() -> None:
    """gelu at once and with `.realize()` between: kernels"""
    ran = run_snippet(OWN)
    x = ready(1000)
    assert kernels_of(ran["gelu"](x)) == 1
    with Count() as steps:
        y = (x / 2**0.5).realize()
        y = y.erf().realize()
        y = (1 + y).realize()
        (x * 0.5 * y).realize()
    assert steps.count == 4


def test_P7_A_allocator_keeps_an_array() -> None:
    """allocator: `ctypes.create_string_buffer`, `ctypes.memmove`; an array in and out again"""
    array, out = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    allocator = my_backend().MyAllocator()
    memory = allocator._alloc(array.nbytes)
    allocator.copyin(memory, memoryview(array.tobytes()))
    allocator.copyout(memoryview(out.view(np.uint8)), memory)
    assert np.array_equal(array, out)


def test_P7_B_compiler_calls_clang() -> None:
    """compiler: clang (or another C compiler) as a subprocess on a trivial kernel"""
    lib = my_backend().MyCompiler().compile("void kernel(float* a) { a[0] = 42.0f; }")
    assert lib[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")


def test_P7_C_runner_calls_the_library() -> None:
    """runner: ctypes.CDLL, the loop over global_size in Python"""
    module = my_backend()
    lib = module.MyCompiler().compile("void kernel(float* a) { a[0] += 1.0f; }")
    memory = (ctypes.c_float * 1)()
    module.MyRunner("kernel", lib)(memory, global_size=(3, 1, 1), local_size=(1, 1, 1))
    assert memory[0] == 3.0


def test_P7_D_device_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """the device: [1,2,3] + [4,5,6] is [5,7,9]"""
    monkeypatch.setitem(Device._devices, "MY", my_backend().MyDevice)
    ran = run_snippet("""\
from tinygrad import Tensor
print((Tensor([1,2,3], device="MY") + Tensor([4,5,6], device="MY")).tolist())
""")
    assert ran.printed == ["[5, 7, 9]"]


def test_P7_E_device_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """a matmul on it and on the CPU: GFLOPS of both (here 64 x 64, to be quick)"""
    monkeypatch.setitem(Device._devices, "MY", my_backend().MyDevice)
    n, rates = 64, {}
    a = np.random.default_rng(0).normal(size=(n, n)).astype("f")
    for device in ("MY", "CPU"):
        x = Tensor(a, device=device).realize()
        (x @ x).realize()
        start = time.perf_counter()
        result = (x @ (x + 0)).realize()
        rates[device] = 2 * n**3 / (time.perf_counter() - start) / 1e9
        np.testing.assert_allclose(result.numpy(), a @ a, rtol=1e-3, atol=1e-3)
    assert all(rate > 0 for rate in rates.values())


def test_P8_projects_of_the_second_document() -> None:
    """an MNIST classifier, an activation of one's own, a transformer"""
    names = {path.name for path in (ROOT / "examples").rglob("*.py")}
    assert "custom_activation.py" in names and "04_mnist.py" in names
    assert any("transformer" in name for name in names)
