"""A transformer from scratch: a few letters are enough for it to learn a sentence by heart.

Run: python examples/transformer.py [--steps N]
"""

from __future__ import annotations

import argparse

from proofgrad import Tensor, dtypes, nn
from proofgrad.nn.optim import AdamW, clip_grad_norm_
from proofgrad.nn.state import get_parameters

TEXT = "every rule that rewrites a program is proven before it runs. "
CONTEXT = 16


class Attention:
    """Causal attention of several heads, written out."""

    def __init__(self, dim: int, heads: int) -> None:
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def __call__(self, x: Tensor) -> Tensor:
        n, t, dim = x.shape
        qkv = self.qkv(x).reshape((n, t, 3, self.heads, dim // self.heads))
        q, k, v = [qkv[:, :, part].transpose(1, 2) for part in range(3)]
        scores = q @ k.transpose(-2, -1) * (dim // self.heads) ** -0.5
        seen = Tensor.ones(t, t, dtype=dtypes.bool).tril()
        mixed = seen.where(scores, -float("inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape((n, t, dim)))


class Block:
    """Attention, then two layers for each position; each adds to what was there."""

    def __init__(self, dim: int, heads: int) -> None:
        self.norm1, self.attention = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(self.wide(self.norm2(x)).gelu())


class Transformer:
    """Letters (n, t) to scores of the next letter (n, t, letters) (Vaswani et al., 2017)."""

    def __init__(self, letters: int, dim: int = 32, heads: int = 4, blocks: int = 1) -> None:
        self.letter, self.position = nn.Embedding(letters, dim), nn.Embedding(CONTEXT, dim)
        self.blocks = [Block(dim, heads) for _ in range(blocks)]
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, letters)

    def __call__(self, x: Tensor) -> Tensor:
        h = self.letter(x) + self.position(Tensor.arange(x.shape[1]))
        return self.head(self.norm(h.sequential(self.blocks)))


def train(model: Transformer, numbers: list[int], steps: int) -> list[float]:
    """The losses, on all windows of the text at once."""
    endless = numbers + numbers[:CONTEXT]
    windows = Tensor([endless[k : k + CONTEXT] for k in range(len(numbers))])
    labels = Tensor([endless[k + 1 : k + CONTEXT + 1] for k in range(len(numbers))])
    optimizer = AdamW(get_parameters(model), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(windows).sparse_categorical_crossentropy(labels)
        loss.backward()
        clip_grad_norm_(optimizer.params, 1.0)
        losses.append(float(loss.realize(*optimizer.schedule_step()).item()))
    return losses


def continued(model: Transformer, numbers: list[int], count: int) -> list[int]:
    """`count` more letters, each the likeliest after those before."""
    for _ in range(count):
        scores = model(Tensor([numbers[-CONTEXT:]]))
        numbers = [*numbers, int(scores[0, -1].argmax().item())]
    return numbers


def main() -> None:
    """Learn the sentence, then say it from its first letters."""
    options = argparse.ArgumentParser(description="a transformer learns a sentence")
    options.add_argument("--steps", type=int, default=60)
    Tensor.manual_seed(0)
    letters = sorted(set(TEXT))
    numbers = [letters.index(letter) for letter in TEXT]
    model = Transformer(len(letters))
    losses = train(model, numbers, options.parse_args().steps)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    said = continued(model, numbers[:CONTEXT], len(TEXT) - CONTEXT)
    print("".join([letters[number] for number in said]))


if __name__ == "__main__":
    main()
