"""How one kernel shall run, as a value: heuristics choose it, a search or a person may give it.

Owns: the value, and its text. Does not own: choosing (tiles.py, operands.py, axes.py), searching
(search.py). The same procedures apply every choice, so none can be wrong: it can only be slow.

    tile=8x3x16 blocks=16x4 staged=rows+columns depth=2 threads=on
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, fields

from proofgrad.core import settings

MOST_LANES = 64
MOST_COPIES = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` x (`vectors` x `lanes`) elements, held in registers."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True)
class Blocks:
    """How many tiles a work item has along each side."""

    row_tiles: int
    column_tiles: int


@dataclass(frozen=True, slots=True)
class Staged:
    """Which operands of a contraction are copied into tables."""

    rows: bool
    columns: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is asked of one kernel. None: what the heuristic takes.

    The first nine are of contractions (`slab` also of sums of rows), the next three of other kernels.
    """

    tiled: bool | None = None  # whether a contraction runs in tiles
    rows: int | None = None  # the number of the loop that is the rows of the tile
    columns: int | None = None  # and of the one that is its columns
    tile: Tile | None = None
    blocks: Blocks | None = None
    staged: Staged | None = None
    packed: bool | None = None  # whether columns without a table are kept by each item
    slab: int | None = None  # steps of a sum that go into memory at once; 0: the whole sum
    depth: int | None = None  # steps of the innermost loop of the sum at once
    lanes: int | None = None  # of a vector; 1: none
    vectors: int | None = None  # at once
    copies: int | None = None  # of an output loop, side by side in a reduction
    along: int | None = None  # which loops run as vectors and tiles: 0 the best, 1 the next, ...
    threads: bool | None = None  # whether threads share the outermost loop

    def __str__(self) -> str:
        """As `read_schedule` takes it: only what is asked."""
        asked = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return " ".join([f"{name}={_written(value)}" for name, value in asked if value is not None])


AUTOMATIC = Schedule()


def forced_schedule() -> Schedule:
    """What the environment asks of every kernel. Raises: ValueError for a text that is no choice."""
    return read_schedule(settings.choices_text())


@functools.lru_cache(maxsize=64)
def read_schedule(text: str) -> Schedule:
    """The choices of a text as above. Raises: ValueError, saying what may stand there."""
    given: dict[str, object] = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition("=")
        if name not in _READERS:
            known = ", ".join(_READERS)
            raise ValueError(f"CHOICES={text!r}: there is no choice {name!r}; there are {known}")
        read, form = _READERS[name]
        given[name] = read(value)
        if given[name] is None:
            raise ValueError(f"CHOICES={text!r}: {name} must be {form}, not {value!r}")
    return Schedule(**given)  # type: ignore[arg-type]


def _written(value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case Tile(rows, vectors, lanes):
            return f"{rows}x{vectors}x{lanes}"
        case Blocks(row_tiles, column_tiles):
            return f"{row_tiles}x{column_tiles}"
        case Staged(rows, columns):
            names = [name for name, is_so in (("rows", rows), ("columns", columns)) if is_so]
            return "+".join(names) or "none"
        case _:
            return str(value)


def _numbers(text: str, count: int) -> list[int] | None:
    """`count` positive numbers with an x between."""
    if re.fullmatch(r"[1-9]\d{0,8}" + r"x[1-9]\d{0,8}" * (count - 1), text) is None:
        return None
    return [int(part) for part in text.split("x")]


def _tile(text: str) -> Tile | None:
    numbers = _numbers(text, 3)
    if numbers is None or not _is_lanes(numbers[2]) or numbers[0] * numbers[1] > MOST_COPIES:
        return None
    return Tile(*numbers)


def _blocks(text: str) -> Blocks | None:
    numbers = _numbers(text, 2)
    return None if numbers is None else Blocks(*numbers)


def _staged(text: str) -> Staged | None:
    kinds = {"none": (False, False), "rows": (True, False), "columns": (False, True)}
    kinds["rows+columns"] = (True, True)
    return Staged(*kinds[text]) if text in kinds else None


def _switch(text: str) -> bool | None:
    return {"on": True, "off": False}.get(text)


def _lanes(text: str) -> int | None:
    numbers = _numbers(text, 1)
    return numbers[0] if numbers is not None and _is_lanes(numbers[0]) else None


def _copies(text: str) -> int | None:
    numbers = _numbers(text, 1)
    return numbers[0] if numbers is not None and numbers[0] <= MOST_COPIES else None


def _slab(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


def _place(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,3}", text) else None


def _loop_number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


def _is_lanes(number: int) -> bool:
    return number <= MOST_LANES and number & (number - 1) == 0


_SWITCH = (_switch, "on or off")
_COPIES = (_copies, f"a number from 1 to {MOST_COPIES}")
_READERS = {
    "tiled": _SWITCH,
    "rows": (_loop_number, "the number of a loop"),
    "columns": (_loop_number, "the number of a loop"),
    "tile": (_tile, f"ROWSxVECTORSxLANES, LANES a power of two, ROWS * VECTORS <= {MOST_COPIES}"),
    "blocks": (_blocks, "ROWTILESxCOLUMNTILES"),
    "staged": (_staged, "none, rows, columns or rows+columns"),
    "packed": _SWITCH,
    "slab": (_slab, "a number of steps, 0 for the whole sum"),
    "depth": _COPIES,
    "lanes": (_lanes, f"a power of two up to {MOST_LANES}"),
    "vectors": _COPIES,
    "copies": _COPIES,
    "along": (_place, "a number from 0"),
    "threads": _SWITCH,
}
