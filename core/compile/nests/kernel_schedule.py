"""How one kernel shall run, as a value: heuristics choose it, a search or a person may give it.

Owns: the value, and its text. Does not own: choosing (choose_schedule.py), searching (search.py). The same tactics
apply every schedule by proven steps, so none can be wrong: it can only be slow, or be refused.

    tiled=on rows=0 columns=1 tile=8x3x16 blocks=16x4 staged=rows+columns depth=2 threads=on
    tiled=off vectors=1x16x4 copies=0x2 threads=off
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from proofgrad.core import settings

MOST_LANES = 64
MOST_COPIES = 64
MOST_ITEMS = 1024
MOST_WARPS = 32
MOST_MATRICES = 16  # of results, that a unit sums at once
LINES = "/lines"  # of matrices that each lie in a line of columns
WINDOWS = "/windows"  # of such that are read from a copy of the image
MOST_AHEAD = 5  # blocks of steps, that are copied while one is multiplied
MOST_STEPS = 256  # of a sum, whose operands a group keeps
MOST_SIDE = 256  # of a tile that goes through memory of a group
ANY = "*"  # in text: the loop that the heuristic takes


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` x (`vectors` x `lanes`) elements, held in registers: of one lane each element is a vector, whose lanes are summed in the end."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """The number of columns: `vectors` times `lanes`."""
        return self.vectors * self.lanes

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors}x{self.lanes}"


@dataclass(frozen=True, slots=True)
class Blocks:
    """How many tiles a work item has along each side."""

    row_tiles: int
    column_tiles: int

    def __str__(self) -> str:
        return f"{self.row_tiles}x{self.column_tiles}"


@dataclass(frozen=True, slots=True)
class SharedTile:
    """`rows` x `columns` work items of a group compute a tile, each `steps` steps of the sum from memory of the group."""

    rows: int
    columns: int
    steps: int

    @property
    def items(self) -> int:
        """Work items of a group; 0: none share a tile."""
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.steps}" if self.items else "none"


NO_SHARED_TILE = SharedTile(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Group:
    """The work items of a group compute rows together: so many `rows`, each of them `items`.

    `results`: of one row it stores so many, and other groups the others; 0: all of them.
    """

    rows: int
    items: int
    results: int = 0

    def __str__(self) -> str:
        if self.results:
            return f"{self.rows}x{self.items}x{self.results}"
        return str(self.items) if self.rows == 1 else f"{self.rows}x{self.items}"


NO_GROUP = Group(1, 0)


@dataclass(frozen=True, slots=True)
class Transposed:
    """A tile that goes through memory of a group: so many elements `along` the loop that is read, and `across` it."""

    along: int
    across: int

    def __str__(self) -> str:
        return f"{self.along}x{self.across}" if self.along else "none"


NO_TRANSPOSED = Transposed(0, 0)


@dataclass(frozen=True, slots=True)
class WarpTile:
    """`row_warps` x `column_warps` warps of a group multiply by matrix units, each so many tiles of the unit along both sides."""

    row_warps: int
    column_warps: int
    row_tiles: int
    column_tiles: int

    @property
    def warps(self) -> int:
        """Warps of a group; 0: no unit is used."""
        return self.row_warps * self.column_warps

    def __str__(self) -> str:
        sizes = self.row_warps, self.column_warps, self.row_tiles, self.column_tiles
        return "x".join(map(str, sizes)) if self.warps else "none"


NO_WARP_TILE = WarpTile(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Matrices:
    """A core's unit sums so many matrices of results at once, side by side along the rows and along the columns.

    `lines`: no matrix goes over the end of a line of columns, as of the pixels of an image, so that its columns lie side by side.
    `windows`: and they are read from a copy of the image that has each pixel once, not from a table of all steps of the sum.
    """

    rows: int
    columns: int
    lines: bool = False
    windows: bool = False

    def __str__(self) -> str:
        form = WINDOWS if self.windows else LINES if self.lines else ""
        return f"{self.rows}x{self.columns}{form}" if self.rows else "none"


NO_MATRICES = Matrices(0, 0)


@dataclass(frozen=True, slots=True)
class Staged:
    """Which operands of a contraction are copied into tables."""

    rows: bool
    columns: bool

    def __str__(self) -> str:
        names = [name for name, is_so in (("rows", self.rows), ("columns", self.columns)) if is_so]
        return "+".join(names) or "none"


@dataclass(frozen=True, slots=True)
class Vectors:
    """A loop runs as vectors of `lanes`, `at_once` of them in one iteration. `loop`: its number; None: any."""

    loop: int | None
    lanes: int
    at_once: int = 1

    def __str__(self) -> str:
        return f"{ANY if self.loop is None else self.loop}x{self.lanes}x{self.at_once}"


@dataclass(frozen=True, slots=True)
class Copies:
    """So many iterations of a loop run side by side. `loop`: its number; None: any."""

    loop: int | None
    count: int

    def __str__(self) -> str:
        return f"{ANY if self.loop is None else self.loop}x{self.count}"


NO_COPIES = Copies(None, 1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a kernel does. None: nothing overrides the heuristics, or the kernel has no such thing.

    `rows` to `depth` are of contractions (`reduction_block` also of sums of rows), `vectors` to `deinterleaved` of other kernels.
    """

    buffered: bool | None = None  # whether what several loops over a row compute alike is kept
    tiled: bool | None = None  # whether a contraction runs in tiles
    rows: int | None = None  # the number of the loop that is the rows of the tile
    columns: int | None = None  # and of the one that is its columns
    tile: Tile | None = None
    blocks: Blocks | None = None
    shared: SharedTile | None = None  # items of a group that share operands in memory of the group
    warps: WarpTile | None = None  # warps of a group that multiply by matrix units
    windows: bool | None = None  # whether they keep what their tile reads of an image once
    ahead: int | None = (
        None  # blocks of steps whose operands a group copies while it multiplies one
    )
    matrices: Matrices | None = None  # that a core's unit sums at once
    staged: Staged | None = None
    packed: bool | None = None  # whether columns without a table are kept by each item
    reduction_block: int | None = (
        None  # steps of a sum that go into memory at once; 0: the whole sum
    )
    depth: int | None = None  # steps of the innermost loop of the sum at once
    vectors: tuple[Vectors, ...] | None = None  # no loop: each that the heuristic takes
    copies: Copies | None = None  # of an output loop, side by side in a reduction
    unroll: int | None = None  # reductions of so few values have no loop
    deinterleaved: bool | None = None  # whether what vectors read in steps is copied first
    group: Group | None = None  # items of a group that compute rows together; no items: none do
    transposed: Transposed | None = None  # what is stored along another loop than it is read
    threads: bool | None = None  # whether threads share the outermost loop

    @property
    def is_of_groups(self) -> bool:
        """Whether the items of a group compute a tile together."""
        shares = self.shared is not None and self.shared.items
        return bool(shares or (self.warps is not None and self.warps.warps))

    @property
    def says_how_tiles_run(self) -> bool:
        """Whether it names anything of contractions, or of sums in blocks."""
        return any([getattr(self, name) is not None for name in _OF_CONTRACTIONS])

    def __str__(self) -> str:
        """As `read_schedule` takes it: only what is set."""
        values = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return " ".join(
            [f"{name}={_written(value, name)}" for name, value in values if value is not None]
        )


AUTOMATIC = Schedule()
_OF_CONTRACTIONS = (
    "tiled", "rows", "columns", "tile", "blocks", "staged", "packed", "reduction_block", "depth",
)  # fmt: skip


class ScheduleError(ValueError):
    """A kernel cannot do what its schedule, written by hand, says."""


def what_is_not_done(override: Schedule, decided: Sequence[Schedule]) -> list[str]:
    """The fields of `override` that none of these schedules has, as text."""
    missing = []
    for field in fields(Schedule):
        wanted = getattr(override, field.name)
        if wanted is not None and not any(
            [_is_done(wanted, getattr(one, field.name)) for one in decided]
        ):
            missing.append(f"{field.name}={_written(wanted, field.name)}")
    return missing


def _is_done(wanted: object, done: object) -> bool:
    match wanted, done:
        case (Vectors(None, lanes, at_once),), tuple():
            return any([one.lanes == lanes and one.at_once == at_once for one in done])
        case Copies(None, count), Copies():
            return done.count == count
    return wanted == done


def forced_schedule() -> Schedule:
    """What the environment asks of every kernel. Raises: ValueError for a text that is no schedule."""
    return read_schedule(settings.choices_text(), "CHOICES")


@functools.lru_cache(maxsize=64)
def read_schedule(text: str, where: str = "schedule") -> Schedule:
    """The schedule of a text as above. Raises: ValueError, saying what may stand there."""
    given: dict[str, object] = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition("=")
        if name not in _READERS:
            known = ", ".join(_READERS)
            raise ValueError(f"{where}={text!r}: there is no choice {name!r}; there are {known}")
        if name in given:
            raise ValueError(f"{where}={text!r}: {name} is given twice")
        read, form = _READERS[name]
        given[name] = read(value)
        if given[name] is None:
            raise ValueError(f"{where}={text!r}: {name} must be {form}, not {value!r}")
    return Schedule(**given)  # type: ignore[arg-type]


def _written(value: object, name: str) -> str:
    if name == "ahead" and value in (0, 1):
        value = bool(value)
    match value:
        case bool():
            return "on" if value else "off"
        case ():
            return "none"
        case tuple():
            return "+".join(map(str, value))
        case Copies(count=1):
            return "none"
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


def _shared(text: str) -> SharedTile | None:
    if text == "none":
        return NO_SHARED_TILE
    numbers = _numbers(text, 3)
    made = SharedTile(*numbers) if numbers is not None else NO_SHARED_TILE
    return made if 1 < made.items <= MOST_ITEMS and made.steps <= MOST_STEPS else None


def _transposed(text: str) -> Transposed | None:
    if text == str(NO_TRANSPOSED):
        return NO_TRANSPOSED
    numbers = _numbers(text, 2)
    is_tile = numbers is not None and 1 < min(numbers) <= max(numbers) <= MOST_SIDE
    return Transposed(*numbers) if numbers is not None and is_tile else None


def _warps(text: str) -> WarpTile | None:
    if text == "none":
        return NO_WARP_TILE
    numbers = _numbers(text, 4)
    made = WarpTile(*numbers) if numbers is not None else NO_WARP_TILE
    copies = made.row_tiles * made.column_tiles
    return made if 0 < made.warps <= MOST_WARPS and copies <= MOST_COPIES else None


def _matrices(text: str) -> Matrices | None:
    if text == "none":
        return NO_MATRICES
    windows = text.endswith(WINDOWS)
    numbers = _numbers(text.removesuffix(WINDOWS if windows else LINES), 2)
    rows, columns = numbers or (0, 0)
    made = Matrices(rows, columns, windows or text.endswith(LINES), windows)
    return made if 0 < made.rows * made.columns <= MOST_MATRICES else None


def _staged(text: str) -> Staged | None:
    kinds = [Staged(rows, columns) for rows in (False, True) for columns in (False, True)]
    return next((kind for kind in kinds if str(kind) == text), None)


def _switch(text: str) -> bool | None:
    return {"on": True, "off": False}.get(text)


def _ahead(text: str) -> int | None:
    if (switch := _switch(text)) is not None:
        return int(switch)
    number = _number(text)
    return number if number is not None and number <= MOST_AHEAD else None


def _vectors(text: str) -> tuple[Vectors, ...] | None:
    if text == "none":
        return ()
    found = [_one_vector(part) for part in text.split("+")]
    made = tuple([one for one in found if one is not None])
    loops = [one.loop for one in made]
    is_one_each = len(set(loops)) == len(loops) and (len(made) == 1 or None not in loops)
    return made if is_one_each and len(made) == len(found) else None


def _one_vector(text: str) -> Vectors | None:
    loop, _, rest = text.partition("x")
    numbers = _numbers(rest if "x" in rest else f"{rest}x1", 2)
    if numbers is None or not _is_lanes(numbers[0]) or numbers[1] > MOST_COPIES:
        return None
    return Vectors(_loop(loop), *numbers) if _is_loop(loop) else None


def _copies(text: str) -> Copies | None:
    if text == "none":
        return NO_COPIES
    loop, _, rest = text.partition("x")
    numbers = _numbers(rest, 1)
    if numbers is None or numbers[0] > MOST_COPIES or not _is_loop(loop):
        return None
    return Copies(_loop(loop), numbers[0]) if numbers[0] > 1 else NO_COPIES


def _is_loop(text: str) -> bool:
    return text == ANY or _number(text) is not None


def _loop(text: str) -> int | None:
    return None if text == ANY else int(text)


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else None


def _at_once(text: str) -> int | None:
    numbers = _numbers(text, 1)
    return numbers[0] if numbers is not None and numbers[0] <= MOST_COPIES else None


def _group(text: str) -> Group | None:
    if text == str(NO_GROUP):
        return NO_GROUP
    numbers = _numbers(text if "x" in text else f"1x{text}", 3 if text.count("x") == 2 else 2)
    if numbers is None or numbers[0] * numbers[1] > MOST_ITEMS:
        return None
    is_of_one = len(numbers) == 2 or numbers[0] == 1
    return Group(*numbers) if is_of_one and all([n & (n - 1) == 0 for n in numbers]) else None


def _is_lanes(number: int) -> bool:
    return number <= MOST_LANES and number & (number - 1) == 0


_SWITCH = (_switch, "on or off")
_READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "buffered": _SWITCH,
    "tiled": _SWITCH,
    "rows": (_number, "the number of a loop"),
    "columns": (_number, "the number of a loop"),
    "tile": (_tile, f"ROWSxVECTORSxLANES, LANES a power of two, ROWS * VECTORS <= {MOST_COPIES}"),
    "blocks": (_blocks, "ROWTILESxCOLUMNTILES"),
    "shared": (
        _shared,
        f"none, or ROWITEMSxCOLUMNITEMSxSTEPS, up to {MOST_ITEMS} items, up to {MOST_STEPS} steps",
    ),
    "matrices": (
        _matrices,
        f"none, or ROWSxCOLUMNS, up to {MOST_MATRICES}, or ROWSxCOLUMNS{LINES}, or ROWSxCOLUMNS{WINDOWS}",
    ),
    "warps": (
        _warps,
        f"none, or ROWWARPSxCOLUMNWARPSxROWTILESxCOLUMNTILES, up to {MOST_WARPS} warps, up to {MOST_COPIES} tiles",
    ),
    "windows": _SWITCH,
    "ahead": (_ahead, f"on, off or a number of blocks up to {MOST_AHEAD}"),
    "staged": (_staged, "none, rows, columns or rows+columns"),
    "packed": _SWITCH,
    "reduction_block": (_number, "a number of steps, 0 for the whole sum"),
    "depth": (_at_once, f"a number from 1 to {MOST_COPIES}"),
    "vectors": (
        _vectors,
        f"none, or LOOPxLANESxATONCE with + between, LOOP a number or {ANY} alone, LANES a power of two up to"
        f" {MOST_LANES}, ATONCE <= {MOST_COPIES}",
    ),
    "copies": (_copies, f"none, or LOOPxCOUNT, LOOP a number or {ANY}, COUNT <= {MOST_COPIES}"),
    "unroll": (_number, "a number of values"),
    "deinterleaved": _SWITCH,
    "group": (
        _group,
        f"0, ITEMS or ROWSxITEMS, or 1xITEMSxRESULTS, powers of two, of up to {MOST_ITEMS} items together",
    ),
    "transposed": (_transposed, f"none, or ALONGxACROSS, each from 2 to {MOST_SIDE}"),
    "threads": _SWITCH,
}
