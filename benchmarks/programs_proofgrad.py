"""The programs of programs.py, as users write them here: a step is recorded by TinyJit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from programs_data import (
    BLOCKS,
    CATEGORIES,
    FEATURES,
    HEADS,
    HIDDEN,
    LATENT,
    LENGTH,
    LETTERS,
    LEVELS,
    NOISE,
    NUMBERS,
    WIDTH,
)

from proofgrad import Tensor, TinyJit, Variable, nn
from proofgrad.nn import optim
from proofgrad.nn.state import (
    get_parameters,
    load_state_dict,
    resume_training,
    save_training,
    torch_load,
)

Step = Callable[[], float]
Give = Callable[[Any], None]  # gives a model the weights that both sides start from
Data = dict[str, Tensor]


def tensors(arrays: dict[str, Any]) -> Data:
    """Arrays as Tensors in memory."""
    return {name: Tensor(array).realize() for name, array in arrays.items()}


# -- the character model --------------------------------------------------------------------------


class Block:
    def __init__(self) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x: Tensor, cache: Tensor | None = None, at: Any = 0) -> Tensor:
        n, t, _ = x.shape
        heads = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[:, :, :, at : at + t].assign(Tensor.stack(k, v)).realize()
            k, v = cache[0, :, :, : at + t], cache[1, :, :, : at + t]
        y = q.scaled_dot_product_attention(k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    def __init__(self) -> None:
        self.letters, self.positions = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = [Block() for _ in range(BLOCKS)]
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS)

    def __call__(self, text: Tensor, caches: Any = (None,) * BLOCKS, at: Any = 0) -> Tensor:
        x = self.letters(text) + self.positions.weight[at : at + text.shape[1]]
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, at)
        return self.head(self.norm(x))


def gpt(data: Data, give: Give, folder: Path) -> Step:
    model = GPT()
    give(model)
    optimizer = optim.AdamW(get_parameters(model), 1e-3, weight_decay=0.01)

    @TinyJit
    @Tensor.train()
    def step(text: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(text[:, :-1]).flatten(0, 1).cross_entropy(text[:, 1:].flatten())
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: step(data["text"]).item()


def generate(data: Data, give: Give, folder: Path) -> Step:
    model = GPT()
    give(model)
    caches = [
        Tensor.zeros(2, 1, HEADS, LENGTH, WIDTH // HEADS).contiguous().realize()
        for _ in range(BLOCKS)
    ]
    at = Variable("at", 0, LENGTH - 1)
    state = {"at": 0, "letter": data["text"][:1, :1].contiguous().realize()}

    @TinyJit
    def token(letter: Tensor, at: Any) -> Tensor:
        return model(letter, caches, at).argmax(-1).realize()

    def step() -> float:
        state["letter"] = token(state["letter"], at.bind(state["at"]))
        state["at"] = (state["at"] + 1) % LENGTH
        return float(state["letter"].item())

    return step


# -- pictures -------------------------------------------------------------------------------------


def cnn(data: Data, give: Give, folder: Path) -> Step:
    def parts() -> tuple[Any, Any, Any]:
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
        )
        optimizer = optim.SGD(get_parameters(model), 0.02, momentum=0.9)
        return model, optimizer, optim.CosineAnnealingLR(optimizer, 100)

    def stepping(model: Any, optimizer: Any, schedule: Any) -> Step:
        @TinyJit
        @Tensor.train()
        def forward_and_back(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).cross_entropy(y)
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

        def step() -> float:
            loss = forward_and_back(data["x"], data["y"]).item()
            schedule.step()
            return loss

        return step

    first = parts()
    give(first[0])
    step = stepping(*first)
    step(), step()
    names = ("model", "optimizer", "schedule")
    save_training(folder / "run", **dict(zip(names, first, strict=True)))
    second = parts()
    resume_training(folder / "run", **dict(zip(names, second, strict=True)))
    return stepping(*second)


class Residual:
    def __init__(self, width: int) -> None:
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(y)) + x).relu()


def checkpoint(data: Data, give: Give, folder: Path) -> Step:
    body = [nn.Conv2d(3, 32, 3, padding=1), Residual(32), nn.MaxPool2d(2), Residual(32)]
    layers = [*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    load_state_dict(layers, torch_load(folder / "model.pt")["model"])

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return x.sequential(layers).square().mean().realize()

    return lambda: step(data["x"]).item()


class UNet:
    def __init__(self, width: int = 16) -> None:
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Conv2d(2 * width, 1, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, 2 * width)

    def __call__(self, x: Tensor, level: Tensor) -> Tensor:
        shift = self.level(level[:, None] / LEVELS)[:, :, None, None]
        high = self.norm1(self.enter(x) + shift).silu()
        low = self.norm2(self.down(high)).silu()
        low = low + self.middle(low).silu()
        return self.leave(high.cat(self.up(low), dim=1))


def unet(data: Data, give: Give, folder: Path) -> Step:
    model = UNet()
    give(model)
    optimizer = optim.Adam(get_parameters(model), 1e-3)
    kept = (1 - Tensor.linspace(1e-4, 0.1, LEVELS)).cumprod(0).realize()

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        share = kept[level][:, None, None, None]
        spoilt = share.sqrt() * x + (1 - share).sqrt() * noise
        optimizer.zero_grad()
        loss = model(spoilt, level.float()).mse_loss(noise)
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: step(data["x"], data["noise"], data["level"]).item()


# -- generators, sequences, tables ----------------------------------------------------------------


class VAE:
    def __init__(self) -> None:
        self.encode = nn.Sequential(nn.Linear(784, 256), nn.ReLU())
        self.mean, self.spread = nn.Linear(256, LATENT), nn.Linear(256, LATENT)
        self.decode = nn.Sequential(nn.Linear(LATENT, 256), nn.ReLU(), nn.Linear(256, 784))

    def __call__(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encode(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        return self.decode(mean + (spread / 2).exp() * noise), mean, spread


def vae(data: Data, give: Give, folder: Path) -> Step:
    model = VAE()
    give(model)
    optimizer = optim.Adam(get_parameters(model), 1e-3)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, noise: Tensor) -> Tensor:
        optimizer.zero_grad()
        found, mean, spread = model(x, noise)
        fit = found.binary_crossentropy_logits(x, reduction="none").sum(1)
        apart = (mean.square() + spread.exp() - 1 - spread).sum(1) / 2
        loss = (fit + apart).mean()
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: step(data["x"], data["noise"]).item()


class GAN:
    def __init__(self) -> None:
        makes = [nn.Linear(NOISE, 256), nn.LeakyReLU(0.2), nn.Linear(256, 784), nn.Tanh()]
        judges = [nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)]
        self.maker, self.judge = nn.Sequential(*makes), nn.Sequential(*judges)


def gan(data: Data, give: Give, folder: Path) -> Step:
    model = GAN()
    give(model)
    makes = optim.Adam(get_parameters(model.maker), 2e-4, 0.5, 0.999)
    judges = optim.Adam(get_parameters(model.judge), 2e-4, 0.5, 0.999)
    score = Tensor.binary_crossentropy_logits
    yes, no = Tensor.ones(32, 1), Tensor.zeros(32, 1)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, noise: Tensor) -> Tensor:
        made = model.maker(noise)
        judges.zero_grad()
        loss = score(model.judge(x), yes) + score(model.judge(made.detach()), no)
        loss.backward()
        judges.step()
        makes.zero_grad()
        other = score(model.judge(made), yes)
        other.backward()
        return (loss + other).realize(*makes.schedule_step())

    return lambda: step(data["x"], data["noise"]).item()


class Recurrent:
    def __init__(self) -> None:
        self.lstm, self.head = nn.LSTM(FEATURES, HIDDEN, batch_first=True), nn.Linear(HIDDEN, 5)

    def __call__(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm(data: Data, give: Give, folder: Path) -> Step:
    model = Recurrent()
    give(model)
    optimizer = optim.RMSprop(get_parameters(model), 1e-3)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optim.clip_grad_norm_(optimizer.params, 1.0)
        return loss.realize(*optimizer.schedule_step())

    return lambda: step(data["x"], data["y"]).item()


class Table:
    def __init__(self) -> None:
        self.columns = [nn.Embedding(size, 8) for size in CATEGORIES]
        layers = [nn.Linear(8 * len(CATEGORIES) + NUMBERS, 128), nn.GELU(), nn.Linear(128, 1)]
        self.layers = nn.Sequential(*layers)

    def __call__(self, kinds: Tensor, x: Tensor) -> Tensor:
        columns = [column(kinds[:, k]) for k, column in enumerate(self.columns)]
        return self.layers(columns[0].cat(*columns[1:], x, dim=1))


def tabular(data: Data, give: Give, folder: Path) -> Step:
    model = Table()
    give(model)
    optimizer = optim.AdamW(get_parameters(model), 1e-3)
    loader = nn.datasets.Batches(data["kinds"], data["x"], data["y"], size=128, shuffle=False)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    rounds = batches()

    @TinyJit
    @Tensor.train()
    def step(kinds: Tensor, x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(kinds, x).huber_loss(y)
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    return lambda: step(*next(rounds)).item()


PROGRAMS: dict[str, Callable[[Data, Give, Path], Step]] = {
    "gpt": gpt, "generate": generate, "cnn": cnn, "vae": vae, "gan": gan, "unet": unet,
    "lstm": lstm, "checkpoint": checkpoint, "tabular": tabular,
}  # fmt: skip
