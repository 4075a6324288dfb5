"""The workloads in proofgrad and in tinygrad, which have one interface: recorded by TinyJit."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from peer_workloads import Workload, arrays
from side_by_side import Run

HEADS = 12


def run_of(workload: Workload, package: str) -> Run:
    """A call that waits for its result. Raises: NotImplementedError."""
    if workload.kind == "embedding_gradient" and package != "proofgrad":
        raise NotImplementedError(f"{package} takes minutes for {workload.name}")
    framework = _Framework(package)
    given = [framework.ready(array) for array in arrays(workload)]
    if workload.kind.startswith("train"):
        return framework.trainer(workload.kind, *given)
    if workload.kind == "eager":
        return lambda: (given[0] + 1).realize()
    return framework.recorded(workload, given)


class _Framework:
    """The names of a package that has tinygrad's interface."""

    def __init__(self, package: str) -> None:
        self.package = package
        module = import_module(package)
        self.Tensor, self.Device, self.TinyJit = module.Tensor, module.Device, module.TinyJit
        self.nn = import_module(f"{package}.nn")
        self.optim = import_module(f"{package}.nn.optim")
        self.state = import_module(f"{package}.nn.state")
        if package != "proofgrad":
            self._try()
        self.device = self.Device[self.Device.DEFAULT]

    def _try(self) -> None:
        """Raises: NotImplementedError where it does not run; tinygrad's CPU needs clang."""
        try:
            (self.Tensor([1.0]) + 1).realize()
        except (RuntimeError, OSError) as error:
            raise NotImplementedError(f"{self.package} does not run here: {error}") from error

    def ready(self, array: Any) -> Any:
        return self.Tensor(array).realize()

    def recorded(self, workload: Workload, given: list[Any]) -> Run:
        function = self.function(workload)
        step = self.TinyJit(lambda *arguments: function(*arguments).realize())
        if workload.is_fresh and self.package != "proofgrad":
            raise NotImplementedError("memory that is not used again is asked of ours")

        def run() -> None:
            step(*given)
            self.device.synchronize()

        def run_fresh() -> None:
            run()
            self.device.memory.clear()

        return run_fresh if workload.is_fresh else run

    def function(self, workload: Workload) -> Any:
        """The workload on Tensors."""
        match workload.kind:
            case "product" | "batch":
                return lambda a, b: a @ b
            case "turned_a":
                return lambda a, b: a.T @ b
            case "turned_b":
                return lambda a, b: a @ b.T
            case "elementwise":
                return lambda x: (x * 2 + 1).relu() * x - 3
            case "gelu":
                return lambda x: x.gelu()
            case "softmax":
                return lambda x: x.softmax(-1)
            case "layernorm":
                return lambda x: x.layernorm()
            case "transpose":
                return lambda x: x.permute(1, 0).contiguous()
            case "sum":
                return lambda x: x.sum()
            case "sum_axis0":
                return lambda x: x.sum(axis=0)
            case "embedding":
                return lambda x, positions: x[positions]
            case "embedding_gradient":
                return lambda x, positions, slope: (x[positions] * slope).sum().gradient(x)[0]
            case "convolution":
                *_, window, stride = workload.sizes
                return lambda x, w: x.conv2d(w, stride=stride, padding=window // 2)
            case "attention" | "causal" as kind:
                return lambda q, *kv: q.scaled_dot_product_attention(
                    *kv, is_causal=kind == "causal"
                )
            case "block":
                return _Block(self.nn)
            case "jitted":
                return lambda x: ((x + 1) * 2).relu()
            case "ten":
                return _ten
        raise NotImplementedError(f"{workload.name} is not written for {self.package}")

    def trainer(self, kind: str, x: Any, labels: Any) -> Run:
        """A step of Adam."""
        nn, Tensor = self.nn, self.Tensor
        if kind == "train_mlp":
            first, second, third = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)
            layers = [first, Tensor.relu, second, Tensor.relu, third]
        else:
            layers = [
                *(nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu),
                *(nn.BatchNorm(32), Tensor.max_pool2d),
                *(nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu),
                *(nn.BatchNorm(64), Tensor.max_pool2d),
                *(lambda t: t.flatten(1), nn.Linear(576, 10)),
            ]
        optimizer = self.optim.Adam(self.state.get_parameters(layers), lr=1e-3)

        @self.TinyJit  # type: ignore[untyped-decorator]
        def step(x: Any, labels: Any) -> Any:
            with self.training():
                optimizer.zero_grad()
                loss = x.sequential(layers).sparse_categorical_crossentropy(labels).backward()
                return loss.realize(*optimizer.schedule_step())

        def run() -> None:
            step(x, labels)
            self.device.synchronize()

        return run

    def training(self) -> Any:
        if hasattr(self.Tensor, "train"):
            return self.Tensor.train()
        return import_module(self.package).Context(TRAINING=1)


class _Block:
    """A block of GPT-2: attention and two layers, each after a norm."""

    def __init__(self, nn: Any, width: int = 768) -> None:
        self.norms = [nn.LayerNorm(width), nn.LayerNorm(width)]
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        shape = (batch, tokens, HEADS, width // HEADS)
        q, k, v = [part.reshape(*shape).permute(0, 2, 1, 3) for part in parts]
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
        x = x + self.out(mixed.permute(0, 2, 1, 3).reshape(batch, tokens, width))
        return x + self.down(self.up(self.norms[1](x)).gelu())


def _ten(x: Any) -> Any:
    for _ in range(10):
        x = (x @ x).contiguous()
    return x
