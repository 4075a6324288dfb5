"""The programs of programs.py in torch, as its users write them; no compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
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
from torch import Tensor, nn

Step = Callable[[], float]
Give = Callable[[Any], None]  # gives a model the weights that both sides start from
Data = dict[str, Tensor]


def tensors(arrays: dict[str, Any]) -> Data:
    """Arrays as Tensors; positions are int64, as torch wants them."""
    found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {name: t.long() if t.dtype == torch.int32 else t for name, t in found.items()}


# -- the character model --------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, cache: Tensor | None = None, at: int = 0) -> Tensor:
        n, t, _ = x.shape
        heads = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[0, :, :, at : at + t], cache[1, :, :, at : at + t] = k, v
            k, v = cache[0, :, :, : at + t], cache[1, :, :, : at + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS)

    def forward(self, text: Tensor, caches: Any = (None,) * BLOCKS, at: int = 0) -> Tensor:
        x = self.letters(text) + self.positions(torch.arange(at, at + text.shape[1]))
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, at)
        return self.head(self.norm(x))


def gpt(data: Data, give: Give, folder: Path) -> Step:
    model = GPT()
    give(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01)
    text, following = data["text"][:, :-1], data["text"][:, 1:]

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def generate(data: Data, give: Give, folder: Path) -> Step:
    model = GPT()
    give(model)
    cache = torch.zeros(BLOCKS, 2, 1, HEADS, LENGTH, WIDTH // HEADS)
    state = {"at": 0, "letter": data["text"][:1, :1]}

    @torch.no_grad()
    def step() -> float:
        state["letter"] = model(state["letter"], cache, state["at"]).argmax(-1)
        state["at"] = (state["at"] + 1) % LENGTH
        return float(state["letter"].item())

    return step


# -- pictures -------------------------------------------------------------------------------------


def cnn(data: Data, give: Give, folder: Path) -> Step:
    def parts() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
        return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    def stepping(model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> Step:
        def step() -> float:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data["x"]), data["y"])
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.item()

        return step

    first = parts()
    give(first[0])
    step = stepping(*first)
    step(), step()
    torch.save([part.state_dict() for part in first], folder / "run.pt")
    second = parts()
    for part, state in zip(second, torch.load(folder / "run.pt"), strict=True):
        part.load_state_dict(state)
    return stepping(*second)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(y)) + x).relu()


def residual_net() -> nn.Module:
    """What a checkpoint is of."""
    body = [nn.Conv2d(3, 32, 3, padding=1), Residual(32), nn.MaxPool2d(2), Residual(32)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def checkpoint(data: Data, give: Give, folder: Path) -> Step:
    model = residual_net()
    give(model)
    if not (folder / "model.pt").exists():
        torch.save({"model": model.state_dict()}, folder / "model.pt")
    model.load_state_dict(torch.load(folder / "model.pt")["model"])
    model.eval()

    @torch.no_grad()
    def step() -> float:
        return model(data["x"]).square().mean().item()

    return step


class UNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Conv2d(2 * width, 1, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, 2 * width)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        shift = self.level(level[:, None] / LEVELS)[:, :, None, None]
        high = F.silu(self.norm1(self.enter(x) + shift))
        low = F.silu(self.norm2(self.down(high)))
        low = low + F.silu(self.middle(low))
        return self.leave(torch.cat([high, self.up(low)], 1))


def unet(data: Data, give: Give, folder: Path) -> Step:
    model = UNet()
    give(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.1, LEVELS), 0)

    def step() -> float:
        share = kept[data["level"]][:, None, None, None]
        spoilt = share.sqrt() * data["x"] + (1 - share).sqrt() * data["noise"]
        optimizer.zero_grad()
        loss = F.mse_loss(model(spoilt, data["level"].float()), data["noise"])
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


# -- generators, sequences, tables ----------------------------------------------------------------


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 256), nn.ReLU())
        self.mean, self.spread = nn.Linear(256, LATENT), nn.Linear(256, LATENT)
        self.decode = nn.Sequential(nn.Linear(LATENT, 256), nn.ReLU(), nn.Linear(256, 784))

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encode(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        return self.decode(mean + (spread / 2).exp() * noise), mean, spread


def vae(data: Data, give: Give, folder: Path) -> Step:
    model = VAE()
    give(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> float:
        optimizer.zero_grad()
        found, mean, spread = model(data["x"], data["noise"])
        fit = F.binary_cross_entropy_with_logits(found, data["x"], reduction="none").sum(1)
        apart = (mean.square() + spread.exp() - 1 - spread).sum(1) / 2
        loss = (fit + apart).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


class GAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        makes = [nn.Linear(NOISE, 256), nn.LeakyReLU(0.2), nn.Linear(256, 784), nn.Tanh()]
        judges = [nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)]
        self.maker, self.judge = nn.Sequential(*makes), nn.Sequential(*judges)


def gan(data: Data, give: Give, folder: Path) -> Step:
    model = GAN()
    give(model)
    makes = torch.optim.Adam(model.maker.parameters(), 2e-4, (0.5, 0.999))
    judges = torch.optim.Adam(model.judge.parameters(), 2e-4, (0.5, 0.999))
    score = F.binary_cross_entropy_with_logits
    yes, no = torch.ones(32, 1), torch.zeros(32, 1)

    def step() -> float:
        made = model.maker(data["noise"])
        judges.zero_grad()
        loss = score(model.judge(data["x"]), yes) + score(model.judge(made.detach()), no)
        loss.backward()
        judges.step()
        makes.zero_grad()
        other = score(model.judge(made), yes)
        other.backward()
        makes.step()
        return loss.item() + other.item()

    return step


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(FEATURES, HIDDEN, batch_first=True), nn.Linear(HIDDEN, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm(data: Data, give: Give, folder: Path) -> Step:
    model = Recurrent()
    give(model)
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data["x"]), data["y"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.ModuleList([nn.Embedding(size, 8) for size in CATEGORIES])
        layers = [nn.Linear(8 * len(CATEGORIES) + NUMBERS, 128), nn.GELU(), nn.Linear(128, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, kinds: Tensor, x: Tensor) -> Tensor:
        columns = [column(kinds[:, k]) for k, column in enumerate(self.columns)]
        return self.layers(torch.cat([*columns, x], 1))


def tabular(data: Data, give: Give, folder: Path) -> Step:
    model = Table()
    give(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    rows = torch.utils.data.TensorDataset(data["kinds"], data["x"], data["y"])
    loader = torch.utils.data.DataLoader(rows, batch_size=128)

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    rounds = batches()

    def step() -> float:
        kinds, x, y = next(rounds)
        optimizer.zero_grad()
        loss = F.huber_loss(model(kinds, x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


PROGRAMS: dict[str, Callable[[Data, Give, Path], Step]] = {
    "gpt": gpt, "generate": generate, "cnn": cnn, "vae": vae, "gan": gan, "unet": unet,
    "lstm": lstm, "checkpoint": checkpoint, "tabular": tabular,
}  # fmt: skip
