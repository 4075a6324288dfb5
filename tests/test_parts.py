"""Launches in a row that run part by part: which may, and that they compute the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit
from proofgrad.backends.cpu.parts import Job, in_parts
from proofgrad.core.compile.lowering.own_bytes import own_bytes
from proofgrad.core.compile.text.reader import read_nest

LINEAR = """linear, indices i64
  out: f32[{out}] = param 0
  a: f32[{size}] = param 1
  for r0 < {n} as thread
    for r1 < {m}
      out[{stored}] = a[{read}]:f32x4
"""
# What the program stores and reads with, and the bytes that an iteration of the shared loop has to itself of each.
CASES = [
    ("r0 * 32 + r1 * 4", "r0 * 32 + r1 * 4", (128, 128)),
    ("r0 * 32 + r1 * 4", "r0 * 32 + (28 + r1 * -4)", (128, 128)),
    ("r0 * 32 + r1 * 4", "r1 * 4", (128, 0)),
    ("r0 * 32 + r1 * 4", "r0 * 32 + (r1 * 4 + 1)", (128, 0)),
    ("r0 * 32 + r1 * 4", "r0 * 4 + r1 * 32", (128, 0)),
    ("r0 * 32 + r1 * 4", "(r0 >> 1) * 32 + r1 * 4", (128, 0)),
    ("r0 * 32 + r1 * 4", "i64x4(r0 * 32 + r1) + [0, 8, 16, 24]", (128, 128)),
    ("r0 * 30 + r1 * 4", "r0 * 32 + r1 * 4", (0, 128)),
    ("r0 * 30 + r1 * 4 if i64x4(r1 * 4) + [0, 1, 2, 3] < 30", "r0 * 32 + r1 * 4", (120, 128)),
    ("r0 * 30 + r1 * 4 if i64x4(r1 * 4) + [0, 1, 2, 3] < 31", "r0 * 32 + r1 * 4", (0, 128)),
    ("r0 * 30 + r1 * 4 if i64x4(r0 * 4) + [0, 1, 2, 3] < 30", "r0 * 32 + r1 * 4", (0, 128)),
    ("r0 * 28 + r1 * 4 if r1 < 7", "r0 * 32 + r1 * 4", (112, 128)),
    ("r0 * 28 + r1 * 4 if r1 * 2 < 13", "r0 * 32 + r1 * 4", (112, 128)),
]


@pytest.mark.parametrize(("stored", "read", "expected"), CASES)
def test_own_bytes_of_positions(stored: str, read: str, expected: tuple[int, int]) -> None:
    text = LINEAR.format(out=10**4, size=10**4, n=6, m=8, stored=stored, read=read)
    assert own_bytes(read_nest(text)) == expected


def test_own_bytes_without_a_shared_loop_are_none() -> None:
    text = LINEAR.format(out=99, size=99, n=2, m=8, stored="r1 * 4", read="r1 * 4")
    assert own_bytes(read_nest(text.replace(" as thread", ""))) == ()


def _drawn_access(draw: random.Random) -> tuple[str, Callable[[int, int, int], int | None]]:
    """A position in text, and where a lane of it is in iterations of r0 and r1; None where it is masked."""
    own, inner = draw.choice((8, 12, 20, 24, 30)), draw.choice((-4, 0, 1, 4, 7))
    first = draw.choice((0, 0, 1, -inner * 4))
    lanes = draw.choice(((0, 1, 2, 3), (0, 5, 10, 15), (3, 2, 1, 0), (0, -1, 1, 2)))
    by_row, by_step, end = draw.choice((0, 0, 1)), draw.choice((-1, 1, 2, 4)), draw.randint(1, 24)
    is_masked = draw.random() < 0.6
    mask = f" if i64x4(r0 * {by_row} + r1 * {by_step}) + {[*lanes]} < {end}" if is_masked else ""

    def at(row: int, step: int, lane: int) -> int | None:
        is_off = is_masked and row * by_row + step * by_step + lanes[lane] >= end
        return None if is_off else row * own + step * inner + first + lanes[lane]

    return f"i64x4(r0 * {own} + (r1 * {inner} + {first})) + {[*lanes]}{mask}", at


@pytest.mark.parametrize("seed", range(4))
def test_own_bytes_of_drawn_positions_are_touched_by_one_iteration_alone(seed: int) -> None:
    draw, found = random.Random(seed), 0
    for _ in range(200):
        read, at = _drawn_access(draw)
        rows, steps = draw.randint(1, 4), draw.randint(1, 5)
        text = LINEAR.format(
            out=10**4, size=10**4, n=rows, m=steps, stored="r0 * 32 + r1 * 4", read=read
        )
        own = own_bytes(read_nest(text))[1] // 4
        found += own > 0
        for row, step, lane in product(range(rows if own else 0), range(steps), range(4)):
            place = at(row, step, lane)
            assert place is None or own * row <= place < own * (row + 1), text
    assert found > 20


class Groups:
    """Stands for the native loop: remembers what each group was made of."""

    def __init__(self) -> None:
        self.jobs: dict[int, Sequence[tuple[Job, int]]] = {}

    def __call__(self, jobs: Sequence[tuple[Job, int]]) -> tuple[int, int]:
        number = -1 - len(self.jobs)
        self.jobs[number] = jobs
        return 0, number

    def of(self, job: Job) -> list[tuple[int, int]]:
        """The tables of the jobs in a group, with their iterations in a part."""
        return [(one.table, own) for one, own in self.jobs[job.table]]


def job(
    number: int, size: int, writes: str, own: int, is_shared: bool = False, **reads: int
) -> Job:
    return Job(1, number, size, {**reads, writes: own}, frozenset({writes}), is_shared)


def test_jobs_run_in_parts_that_a_cache_holds() -> None:
    groups = Groups()
    first, second = job(1, 64, "b", 100, a=0), job(2, 16, "c", 400, b=400)
    (found,) = in_parts([first, second], 3300, 1, groups)
    assert found.size == 4
    assert groups.of(found) == [(1, 16), (2, 4)]
    assert found.pieces == {"a": 0, "b": 1600, "c": 1600}
    assert found.written == {"b", "c"}


def test_last_part_is_shorter_where_sizes_do_not_divide() -> None:
    groups = Groups()
    first, second = job(1, 41, "b", 100), job(2, 39, "c", 100, b=100)
    (found,) = in_parts([first, second], 2000, 1, groups)
    assert (found.size, groups.of(found)) == (5, [(1, 9), (2, 9)])


@pytest.mark.parametrize(
    "second",
    [
        job(2, 64, "c", 100, b=0),  # reads what others have written
        job(2, 64, "c", 100, b=7),  # so many iterations are no whole number for one
        job(2, 1, "c", 6400, b=6400),  # all at once
    ],
)
def test_job_that_reads_other_pieces_runs_by_itself(second: Job) -> None:
    jobs = [job(1, 64, "b", 100), second]
    assert in_parts(jobs, 1000, 1, Groups()) == jobs


def test_job_that_writes_what_others_read_elsewhere_runs_by_itself() -> None:
    jobs = [job(1, 64, "b", 100, a=0), job(2, 64, "a", 100, b=100)]
    assert in_parts(jobs, 1000, 1, Groups()) == jobs


def test_jobs_that_a_cache_holds_run_one_after_the_other() -> None:
    jobs = [job(1, 64, "b", 100), job(2, 64, "c", 100, b=100)]
    assert in_parts(jobs, 1 << 20, 1, Groups()) == jobs


def test_threads_take_parts_of_all_jobs_at_once() -> None:
    jobs = [job(1, 64, "b", 100, True), job(2, 64, "c", 100, True, b=100)]
    (found,) = in_parts(jobs, 1 << 20, 2, groups := Groups())
    assert (found.size, found.is_shared, groups.of(found)) == (8, True, [(1, 8), (2, 8)])


def touched(entry: Job, first: int, last: int, groups: Groups) -> list[tuple[str, bool, int, int]]:
    """Memory that iterations touch, whether they write it, and between which bytes; all of it, where nothing is known."""
    if entry.table >= 0:
        return [
            (memory, memory in entry.written, *((first * own, last * own) if own else (0, 10**9)))
            for memory, own in entry.pieces.items()
        ]
    found = []
    for p in range(first, last):
        for one, own in groups.jobs[entry.table]:
            begin, end = own * p, min(own * (p + 1), one.size)
            found += touched(one, begin, end, groups) if begin < end else []
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_part_writes_what_another_one_touches(seed: int) -> None:
    """Drawn jobs, in parts and in parts of parts; of one job alone iterations may run in any order."""
    rng, groups = random.Random(seed), Groups()
    jobs = []
    for k in range(8):
        own = rng.choice([16, 32, 48, 64, 96])
        reads = {m: rng.choice([0, own, own, own, own // 2]) for m in rng.sample("abcd", 2)}
        jobs.append(job(k, rng.choice([24, 48, 96, 7]), rng.choice("abcd"), own, **reads))
    threads = rng.choice([1, 2])
    found = in_parts(in_parts(jobs, 700, threads, groups), 2500, threads, groups)
    order = [leaf for entry in found for leaf in leaves(entry, groups)]
    assert order == list(range(8))
    for number in groups.jobs:
        group = next(e for e in all_entries(found, groups) if e.table == number)
        parts = [touched(group, p, p + 1, groups) for p in range(group.size)]
        users = {m: sum(m in one.pieces for one, _ in groups.jobs[number]) for m in "abcd"}
        for p, one in enumerate(parts):
            for other in parts[p + 1 :]:
                for memory, writes, begin, end in one:
                    for same, also, low, high in other:
                        if memory == same and (writes or also) and users[memory] > 1:
                            assert end <= low or high <= begin


def leaves(entry: Job, groups: Groups) -> list[int]:
    inside = groups.jobs.get(entry.table)
    if inside is None:
        return [entry.table]
    return [leaf for one, _ in inside for leaf in leaves(one, groups)]


def all_entries(found: Sequence[Job], groups: Groups) -> list[Job]:
    inside = [one for entry in found for one, _ in groups.jobs.get(entry.table, ())]
    return [*found, *all_entries(inside, groups)] if inside else list(found)


@pytest.mark.parametrize("shape", [(64, 250), (213, 237), (1661, 67), (3, 20011)])
def test_recorded_sorts_in_parts_are_those_of_numpy(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    values[0, :3] = np.nan, -np.inf, np.inf
    step = TinyJit(lambda x: x.sort()[0].realize())
    for k in range(4):
        x = np.roll(values, k, 0)
        np.testing.assert_array_equal(step(Tensor(x).realize()).numpy(), np.sort(x, -1))


def test_recorded_chain_of_kernels_in_parts_is_what_its_kernels_compute() -> None:
    """Rows that each kernel has to itself, then columns, which none has; the sizes divide nothing."""

    def chain(x: Tensor) -> Tensor:
        y = (x * 3 + 1).contiguous()
        z = (y.flip(1) - y).contiguous()
        w = (z.softmax(1) + y).contiguous()
        return (w - w.sum(0)).contiguous().cumsum(1).realize()

    values = np.random.default_rng(0).standard_normal((331, 509)).astype(np.float32)
    step = TinyJit(chain)
    expected = chain(Tensor(values).realize()).numpy()
    for _ in range(4):
        np.testing.assert_array_equal(step(Tensor(values).realize()).numpy(), expected)
