"""A GPT that generates letter by letter: kernels compiled for each token, and the time of a token beside fixed shapes.

    python benchmarks/generate.py            # 4 blocks of width 256
    python benchmarks/generate.py --gpt2     # the sizes of GPT-2 small

The position in the text is a Variable, so one recording serves all positions. Beside it the same model is recorded for some positions as
numbers: then every size is known, as for a text of that length. Both are timed by turns, in one process; the fastest counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from proofgrad import Tensor, TinyJit, Variable, nn
from proofgrad.core.tensor.runtime.realize import compiler

Token = Callable[[Tensor, Any], Tensor]


class Block:
    """Attention over what is in the cache, and two layers."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.cache = Tensor.zeros(2, 1, heads, length, width // heads).contiguous().realize()

    def __call__(self, x: Tensor, at: Any) -> Tensor:
        n, t, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(n, t, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        self.cache[:, :, :, at : at + t].assign(Tensor.stack(key, value)).realize()
        keys, values = self.cache[0, :, :, : at + t], self.cache[1, :, :, : at + t]
        seen = query.scaled_dot_product_attention(keys, values)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, width))
        return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
    """Blocks between an embedding and the scores of the next token; the embedding's weight is both."""

    def __init__(self, letters: int, width: int, heads: int, blocks: int, length: int) -> None:
        self.letters, self.positions = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = [Block(width, heads, length) for _ in range(blocks)]
        self.norm = nn.LayerNorm(width)

    def __call__(self, letter: Tensor, at: Any) -> Tensor:
        x = self.letters(letter) + self.positions.weight[at : at + 1]
        for block in self.blocks:
            x = block(x, at)
        return (self.norm(x) @ self.letters.weight.transpose()).argmax(-1).realize()


def main() -> None:
    """Print kernels compiled for each token, and both times."""
    asked = _arguments()
    sizes = (50257, 768, 12, 12) if asked.gpt2 else (1000, 256, 4, asked.blocks)
    Tensor.manual_seed(0)
    model = GPT(*sizes, asked.tokens)
    Tensor.realize(*nn.state.get_parameters(model))
    at = Variable("at", 0, asked.tokens - 1)
    token = TinyJit(model)
    letters, compiled = _generated(token, at, asked.tokens)
    later = sum(compiled[2:])
    print(f"kernels compiled: {compiled[0]} by the first token, {compiled[1]} when it is recorded,"
          f" {later} by the {asked.tokens - 2} after")  # fmt: skip
    print(f"launches a token: {token.kernel_count}")
    again, _ = _generated(token, at, asked.tokens)
    print(f"the same text again: {again == letters}")
    for position in sorted({1, asked.tokens // 2, asked.tokens - 1}):
        _beside_fixed(model, token, at, position, asked.rounds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpt2", action="store_true", help="the sizes of GPT-2 small")
    parser.add_argument("--blocks", type=int, default=4, help="of the smaller model")
    parser.add_argument("--tokens", type=int, default=64, help="how many are generated")
    parser.add_argument("--rounds", type=int, default=50, help="turns that are timed")
    return parser.parse_args()


def _generated(token: Token, at: Variable, count: int) -> tuple[list[int], list[int]]:
    """The text after letter 0, and how many kernels each of its tokens compiled."""
    letter = Tensor([[0]], dtype="int32").realize()
    letters, compiled = [], []
    for position in range(count):
        before = compiler().kernels_compiled
        letter = token(letter, at.bind(position))
        letters.append(int(letter.item()))
        compiled.append(compiler().kernels_compiled - before)
    return letters, compiled


def _beside_fixed(model: GPT, token: Token, at: Variable, position: int, rounds: int) -> None:
    """Print the time of a token at a position that varies, and at the same position as a number."""
    letter = Tensor([[0]], dtype="int32").realize()
    fixed = TinyJit(lambda letter: model(letter, position))
    calls: dict[str, Callable[[], Tensor]] = {
        "varying": lambda: token(letter, at.bind(position)),
        "fixed": lambda: fixed(letter),
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(3):
        for call in calls.values():
            call().item()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call().item()
            found[name].append(time.perf_counter() - start)
    assert calls["varying"]().item() == calls["fixed"]().item(), "both give the same letter"
    varying, same = [min(found[name]) * 1e3 for name in ("varying", "fixed")]
    print(
        f"token {position:>3}: {varying:.3f} ms, with fixed shapes {same:.3f} ms, {varying / same:.2f} of it"
    )


if __name__ == "__main__":
    main()
