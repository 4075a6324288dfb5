"""Workloads that nobody tuned for: kinds, shapes and options, drawn by a seed.

Owns: what is drawn. Does not own: arrays and the workload in ours (drawn_ours.py), in peers (drawn_peers.py).

A case is data that travels to other processes as JSON. Sizes are drawn evenly by their logarithm, so few of them are round,
and a case is drawn again until it is neither over at once nor long. Case n of a seed is the same whichever others are asked for.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Random = random.Random
# Operations of a case, an element of memory counted as so many.
LEAST_WORK, MOST_WORK = 2e6, 1e9
ELEMENT_WORK = 32
TRIES = 100_000


@dataclass(frozen=True, slots=True)
class Operand:
    """An array: of normal floats, or of integers `below` a number, or of truths."""

    shape: tuple[int, ...]
    below: int = 0
    is_mask: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One workload: `what` of a `kind`, with the names of options that each framework's function takes."""

    kind: str
    what: str
    operands: tuple[Operand, ...]
    options: dict[str, Any] = field(default_factory=dict)
    work: float = 0.0  # operations; 0: by the elements of the operands

    @property
    def operations(self) -> float:
        """An estimate: products by their multiply-adds, all others by what they read."""
        return self.work or ELEMENT_WORK * sum([math.prod(o.shape) for o in self.operands])

    @property
    def text(self) -> str:
        """For people."""
        shapes = " ".join(["x".join(map(str, operand.shape)) or "()" for operand in self.operands])
        options = " ".join([f"{name}={_short(value)}" for name, value in self.options.items()])
        return f"{self.kind}: {self.what} {shapes} {options}".strip()

    def to_json(self) -> dict[str, Any]:
        """As `case_from_json` reads it."""
        return asdict(self)


def case_from_json(read: dict[str, Any]) -> Case:
    """What `to_json` wrote, in this process or another."""
    operands = tuple(
        [Operand(tuple(o["shape"]), o["below"], o["is_mask"]) for o in read["operands"]]
    )
    return Case(read["kind"], read["what"], operands, read["options"], read["work"])


def _short(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def seed_of_month() -> int:
    """Another one each month, such as 202612: nobody tunes for it for long."""
    today = datetime.date.today()
    return 100 * today.year + today.month


def cases(
    seed: int,
    count: int,
    kinds: Sequence[str] = (),
    least: float = LEAST_WORK,
    most: float = MOST_WORK,
) -> list[Case]:
    """The first `count` cases of a seed, kinds in turn; of those only the ones of `kinds`, if some are named."""
    names = list(KINDS)
    drawn = [(names[n % len(names)], n // len(names)) for n in range(count)]
    return [
        draw(kind, Random(f"{seed} {kind} {number}"), least, most)
        for kind, number in drawn
        if not kinds or kind in kinds
    ]


def draw(kind: str, rng: Random, least: float = LEAST_WORK, most: float = MOST_WORK) -> Case:
    """One case. Raises: ValueError where none has so little or so much work."""
    for _ in range(TRIES):
        case = KINDS[kind](rng)
        if least <= case.operations <= most:
            return case
    raise ValueError(f"no case of kind {kind} has between {least:g} and {most:g} operations")


def size(rng: Random, low: int, high: int) -> int:
    """A size between the two, as many small ones as large ones, seldom a round one."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def shape(rng: Random, low_rank: int, high_rank: int, elements: int = 1 << 22) -> tuple[int, ...]:
    """Sizes, 1 among them, of at most so many elements."""
    rank = rng.randint(low_rank, high_rank)
    while True:
        found = tuple([size(rng, 1, 4000 if rank < 3 else 600) for _ in range(rank)])
        if math.prod(found) <= elements:
            return found


# -- the kinds ------------------------------------------------------------------------------------


def _product(rng: Random) -> Case:
    rows, depth, columns = [size(rng, 1, 2000) for _ in range(3)]
    turned = [rng.random() < 0.25, rng.random() < 0.25]
    return _of_matrices("product", (), (), (rows, depth, columns), turned)


def _batch(rng: Random) -> Case:
    """Some of the batches are of one operand alone, as weights are shared."""
    batches = tuple([size(rng, 1, 24) for _ in range(rng.randint(1, 2))])
    turned = [rng.random() < 0.25, rng.random() < 0.4]
    second = batches if rng.random() < 0.75 else ()
    sizes = [size(rng, 1, 300) for _ in range(3)]
    return _of_matrices("batch", batches, second, sizes, turned)


def _of_matrices(
    kind: str,
    first: tuple[int, ...],
    second: tuple[int, ...],
    sizes: Sequence[int],
    turned: list[bool],
) -> Case:
    rows, depth, columns = sizes
    one = (depth, rows) if turned[0] else (rows, depth)
    other = (columns, depth) if turned[1] else (depth, columns)
    operands = (Operand((*first, *one)), Operand((*second, *other)))
    work = 2.0 * math.prod(first) * rows * depth * columns
    return Case(kind, "matmul", operands, {"turned": turned}, work)


def _convolution(rng: Random) -> Case:
    axes = rng.choice([1, 2, 2, 2, 2, 3])
    groups, per_group, outputs = 1, size(rng, 1, 128), size(rng, 1, 128)
    match rng.randrange(4):
        case 0:
            groups, per_group = size(rng, 2, 8), size(rng, 1, 32)
        case 1:  # depthwise
            groups, per_group = size(rng, 4, 128), 1
    if groups > 1:
        outputs = groups * rng.choice([1, 1, 2, 3])
    windows = [rng.choice([1, 2, 3, 3, 3, 5, 7][: 7 if axes < 3 else 4]) for _ in range(axes)]
    stride, dilation = rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 1, 1, 2])
    reach = [dilation * (window - 1) + 1 for window in windows]
    padding = [rng.choice([0, r // 2, r // 2]) for r in reach]
    pixels = [size(rng, max(r, 4), (4000, 120, 32)[axes - 1]) for r in reach]
    images = size(rng, 1, 12)
    out = [(p + 2 * e - r) // stride + 1 for p, e, r in zip(pixels, padding, reach)]
    work = 2.0 * images * outputs * per_group * math.prod(windows) * math.prod(out)
    image = Operand((images, groups * per_group, *pixels))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return Case(
        "convolution", "conv", (image, Operand((outputs, per_group, *windows))), options, work
    )


def _reduction(rng: Random) -> Case:
    operand = Operand(shape(rng, 1, 4))
    rank = len(operand.shape)
    what = rng.choice(["sum", "sum", "mean", "max", "std", "argmax"])
    axes = sorted(rng.sample(range(rank), rng.randint(1, rank)))
    if what == "argmax":
        return Case("reduction", what, (operand,), {"axis": axes[0]})
    return Case("reduction", what, (operand,), {"axes": axes})


def _elementwise(rng: Random) -> Case:
    """Three operands, some axes of some of which are 1 and broadcast."""
    whole = shape(rng, 1, 4)
    operands = [Operand(whole)]
    for _ in range(2):
        kept = [n if rng.random() < 0.65 else 1 for n in whole]
        operands.append(Operand(tuple(kept[rng.choice([0, 0, len(kept) - 1]) :])))
    return Case("elementwise", rng.choice(list(ELEMENTWISE)), tuple(operands))


ELEMENTWISE = ("affine", "gelu", "ratio", "exp_log", "where", "gate")


def _softmax(rng: Random) -> Case:
    operand = Operand(shape(rng, 1, 4))
    options = {"axis": rng.randrange(len(operand.shape))}
    return Case("softmax", rng.choice(["softmax", "softmax", "log_softmax"]), (operand,), options)


def _norm(rng: Random) -> Case:
    match rng.choice(["layer_norm", "layer_norm", "rms_norm", "group_norm", "batch_norm"]):
        case "group_norm":
            groups = size(rng, 1, 32)
            sizes = (size(rng, 1, 16), groups * size(rng, 1, 8), size(rng, 2, 90), size(rng, 2, 90))
            return Case("norm", "group_norm", (Operand(sizes),), {"groups": groups})
        case "batch_norm":
            sizes = (size(rng, 2, 64), size(rng, 1, 200), size(rng, 2, 90), size(rng, 2, 90))
            return Case("norm", "batch_norm", (Operand(sizes),))
        case what:
            return Case("norm", what, (Operand(shape(rng, 2, 3)),))


def _gather(rng: Random) -> Case:
    if rng.random() < 0.6:
        rows, width = size(rng, 2, 20_000), size(rng, 1, 1200)
        positions = tuple([size(rng, 1, 3000) for _ in range(rng.randint(1, 2))])
        work = float(ELEMENT_WORK * width * math.prod(positions) + rows * width)
        operands = (Operand((rows, width)), Operand(positions, below=rows))
        return Case("gather", "rows", operands, {}, work)
    given = shape(rng, 2, 3)
    axis = rng.randrange(len(given))
    taken = [size(rng, 1, n) for n in given]
    taken[axis] = size(rng, 1, 600)
    operands = (Operand(given), Operand(tuple(taken), below=given[axis]))
    work = float(ELEMENT_WORK * math.prod(taken) + math.prod(given))
    return Case("gather", "gather", operands, {"axis": axis}, work)


def _scan(rng: Random) -> Case:
    operand = Operand(shape(rng, 1, 3))
    options = {"axis": rng.randrange(len(operand.shape))}
    return Case("scan", rng.choice(["cumsum", "cumsum", "cumprod", "cummax"]), (operand,), options)


def _sort(rng: Random) -> Case:
    rows, length = size(rng, 1, 2000), size(rng, 2, 5000)
    work = float(ELEMENT_WORK * rows * length * math.log2(length))
    operand, what = Operand((rows, length)), rng.choice(["sort", "argsort", "topk"])
    options = {"count": size(rng, 1, length)} if what == "topk" else {}
    return Case("sort", what, (operand,), options, work)


def _pool(rng: Random) -> Case:
    window = [rng.choice([2, 2, 3, 3, 5, 7]) for _ in range(2)]
    stride, padding = rng.choice([1, 2, 2, 3]), rng.choice([0, 0, min(window) // 2])
    pixels = [size(rng, max(window), 160) for _ in range(2)]
    operand = Operand((size(rng, 1, 16), size(rng, 1, 160), *pixels))
    options = {"window": window, "stride": stride, "padding": padding}
    work = float(ELEMENT_WORK // 8 * math.prod(window) * math.prod(operand.shape) / stride**2)
    return Case("pool", rng.choice(["max_pool", "avg_pool"]), (operand,), options, work)


def _attention(rng: Random) -> Case:
    images, heads = size(rng, 1, 4), size(rng, 1, 16)
    mask = rng.choice(["none", "none", "causal", "padded"])
    queries, width = size(rng, 1, 1200), 8 * size(rng, 2, 16)
    keys = queries if mask == "causal" else size(rng, 1, 1200)
    operands = [Operand((images, heads, n, width)) for n in (queries, keys, keys)]
    if mask == "padded":
        operands.append(Operand((images, 1, 1, keys), is_mask=True))
    work = 4.0 * images * heads * queries * keys * width
    return Case("attention", "attention", tuple(operands), {"mask": mask}, work)


def _loss(rng: Random) -> Case:
    what = rng.choice(["cross_entropy", "cross_entropy", "mse", "bce"])
    rows, columns = size(rng, 1, 4000), size(rng, 2, 40_000)
    if what == "cross_entropy":
        return Case("loss", what, (Operand((rows, columns)), Operand((rows,), below=columns)))
    return Case("loss", what, (Operand((rows, columns)), Operand((rows, columns))))


KINDS: dict[str, Callable[[Random], Case]] = {
    "product": _product, "convolution": _convolution, "reduction": _reduction, "elementwise": _elementwise,
    "softmax": _softmax, "batch": _batch, "norm": _norm, "gather": _gather, "scan": _scan, "sort": _sort, "pool": _pool,
    "attention": _attention, "loss": _loss,
}  # fmt: skip
