"""Faults of kernels of work items: planted where a kernel is put in order, or where it is printed as PTX.

Owns: the faults, running a program with one on an emulated GPU. Does not own: what finds each (test_gpu_faults.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Tensor, schedule
from proofgrad.backends.ptx.dialect import PTXDialect
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.matrix_units import write_product
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.passes.stages import Procedure
from proofgrad.core.compile.plan.known_kernels import KnownKernels
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

load_matrices, exchange_words = PTXDialect.load_matrices, PTXDialect.word_across
ROWS, LENGTH, GROUP = 3, 300, 64
AHEAD = 2  # blocks of a sum that are on their way while one is multiplied
DEVICE = "CUDA"
Change = Callable[[UOp], UOp]


# -- in the order of a kernel -----------------------------------------------------------------------


def _ranges(linear: UOp, role: AxisRole) -> list[UOp]:
    return [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is role]


def _with(linear: UOp, changes: dict[UOp, UOp]) -> UOp:
    """The kernel with other nodes, each new one after what it needs."""
    made = linear.substitute(changes)
    nodes: list[UOp] = []
    for node in made.src:
        fresh = [n for n in node.toposort() if n not in made.src and n not in nodes]
        nodes += [*fresh, node]
    return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))


def _of_memory(linear: UOp, op: Ops, kind: Ops) -> list[UOp]:
    """The positions of stores, or loads, in memory of a kind."""
    found = [n.src[0] for n in linear.src if n.op is op]
    return [n for n in dict.fromkeys(found) if n.src[0].op is kind]


def _moved(positions: list[UOp], by: Callable[[UOp], UOp]) -> dict[UOp, UOp]:
    return {n: n.with_src((n.src[0], by(n.src[1]), *n.src[2:])) for n in positions}


def neighbour(linear: UOp) -> UOp:
    """Each item loads what its neighbour should."""
    return _with(linear, _moved(_of_memory(linear, Ops.LOAD, Ops.PARAM), lambda at: at + 1))


def overlapping(linear: UOp) -> UOp:
    """Two items store to one position."""
    return _with(linear, _moved(_of_memory(linear, Ops.STORE, Ops.PARAM), lambda at: at // 2))


def one_group_more(linear: UOp) -> UOp:
    """There is one group of items, or one item, more than results."""
    (loop,) = _ranges(linear, AxisRole.BLOCK) or _ranges(linear, AxisRole.GLOBAL)
    size = loop.src[0]
    return _with(linear, {loop: loop.with_src((size.const_like(int(size.arg) + 1),))})


def short_lane(linear: UOp) -> UOp:
    """The items of a group leave out the last element."""
    loop = _ranges(linear, AxisRole.LANE)[0]
    size = loop.src[0]
    return _with(linear, {loop: loop.with_src((size.const_like(int(size.arg) - 1),))})


def early_reading(linear: UOp) -> UOp:
    """Local memory counts as full before all items have stored: the barrier stands inside of the loop that fills it."""
    nodes = list(linear.src)
    for kept in [n for n in nodes if n.op is Ops.FILLED]:
        nodes.remove(kept)
        nodes.insert(nodes.index(kept.src[0]) + 1, kept)
    return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))


def last_early_reading(linear: UOp) -> UOp:
    """As `early_reading`, of the last of several local memories alone."""
    *_, last = [n for n in linear.src if n.op is Ops.FILLED]
    nodes = [n for n in linear.src if n is not last]
    nodes.insert(nodes.index(last.src[0]) + 1, last)
    return UOp(Ops.LINEAR, dtypes.void, tuple(nodes))


def wrong_partner(linear: UOp) -> UOp:
    """Items add the sum of an item that is one nearer to them than it should be."""
    distances = [n.src[0] for n in linear.src if n.op is Ops.AND and n.src[0].op is Ops.ADD]
    return _with(linear, {n: n - 1 for n in distances})


def overlapping_parts(linear: UOp) -> UOp:
    """The parts of a sum that items add up share an element with the next part, and others are in none."""
    lane = _ranges(linear, AxisRole.LANE)[0]
    return _with(linear, _moved(_of_memory(linear, Ops.LOAD, Ops.PARAM), lambda at: at - lane))


def small_local_memory(linear: UOp) -> UOp:
    """Local memory has one element less than is stored there."""
    scratch = [n for n in linear.src if n.op is Ops.SCRATCH]
    return _with(linear, {n: n.replace(arg=(n.arg[0], n.arg[1] - 1)) for n in scratch})


def one_position(linear: UOp) -> UOp:
    """All items of a group store to the first element of local memory."""
    return _with(linear, _moved(_of_memory(linear, Ops.STORE, Ops.SCRATCH), lambda at: at * 0))


def element_further(linear: UOp) -> UOp:
    """What is read from local memory lies an element before that."""
    return _with(linear, _moved(_of_memory(linear, Ops.LOAD, Ops.FILLED), lambda at: at + 1))


def one_block(linear: UOp) -> UOp:
    """The blocks of a sum that are on their way are stored over each other."""
    stores = _of_memory(linear, Ops.STORE, Ops.SCRATCH)
    sizes = {n.src[1]: int(n.src[0].arg[1]) // (AHEAD + 1) for n in stores}
    return _with(linear, _moved(stores, lambda at: at % sizes[at]))


def _other_products(linear: UOp, change: Callable[[tuple[UOp, ...]], tuple[UOp, ...]]) -> UOp:
    return _with(linear, {n: n.with_src(change(n.src)) for n in linear.src if n.op is Ops.MMA})


def rows_exchanged(linear: UOp) -> UOp:
    """Each item has its first row for its last one in a product of matrices, and the other way round."""
    return _other_products(linear, lambda src: (*src[:3], *src[3:][::-1]))


def neighbours_column(linear: UOp) -> UOp:
    """Each item holds the column of its neighbour for a product of matrices."""

    def change(src: tuple[UOp, ...]) -> tuple[UOp, ...]:
        item, before, column, *rows = src
        other = item ^ item.const_like(1)
        return (item, before, column.substitute({item: other}), *rows)

    return _other_products(linear, change)


def row_as_column(linear: UOp) -> UOp:
    """What an item holds of the rows stands for its column too in a product of matrices."""
    return _other_products(linear, lambda src: (*src[:2], src[3], *src[3:]))


def rows_as_they_are(linear: UOp) -> UOp:
    """A product of matrices takes rows of float32 that nothing has rounded."""
    return _other_products(linear, lambda src: (*src[:3], *[row.src[0] for row in src[3:]]))


ORDER: dict[str, tuple[str, Change]] = {
    "an item loads its neighbour's element": ("map", neighbour),
    "two items store to one position": ("map", overlapping),
    "one item more than results": ("map", one_group_more),
    "one group more than results": ("rows", one_group_more),
    "the items of a group leave out an element": ("rows", short_lane),
    "a barrier inside of the loop before it": ("rows", early_reading),
    "a barrier inside of the last of several loops": ("rows", last_early_reading),
    "items add the sum of another item than their partner": ("rows", wrong_partner),
    "the parts of a sum overlap": ("rows", overlapping_parts),
    "local memory of one element less": ("rows", small_local_memory),
    "all items store to one position of local memory": ("rows", one_position),
    "the rows of an item are exchanged in a product of matrices": ("product", rows_exchanged),
    "an item holds its neighbour's column in a product of matrices": ("product", neighbours_column),
    "an item holds its neighbour's column where it is read across the steps": (
        "columns",
        neighbours_column,
    ),
    "a product of matrices takes a row for its column": ("columns", row_as_column),
    "a product of matrices takes rows that are not rounded": ("rounded", rows_as_they_are),
    "a tile that is turned is read an element further": ("turned", element_further),
    "blocks of a sum that are copied ahead lie over each other": ("ahead", one_block),
}

# -- in the printer -----------------------------------------------------------------------------


def _no_wait(self: PTXDialect) -> str:
    return "; no barrier"


def _item_after(self: PTXDialect, let: Callable[[str], str]) -> str:
    return let(f"add i32 {let('call i32 @llvm.nvvm.read.ptx.sreg.tid.x()')}, 1")


def _first_group(self: PTXDialect, let: Callable[[str], str]) -> str:
    return let("add i32 0, 0")


def _wrong_item(self: PTXDialect, let: Callable[[str], str], is_wide: bool) -> str:
    number = let("call i32 @llvm.nvvm.read.ptx.sreg.tid.x()")
    return let(f"zext i32 {number} to i64") if is_wide else number


def _half_memory(self: PTXDialect, name: str, array: str) -> str:
    half = re.sub(r"\[(\d+) x", lambda found: f"[{int(found[1]) // 2} x", array)
    return f"{name} = internal addrspace(3) global {half} undef, align 16"


def _words_exchanged(self: PTXDialect, let: Callable[[str], str], *given: Any) -> str:
    *others, rows, steps = given
    return write_product(let, *others, rows[::-1], steps)


def _not_rounded(self: PTXDialect, let: Callable[[str], str], *given: Any) -> str:
    """The bits of a float32 go to the unit, which does not look at the last of them."""

    def bits(text: str) -> str:
        return let(re.sub(r"call i32 @\S*tf32\S*\(float (\S+)\)", r"bitcast float \1 to i32", text))

    return write_product(bits, *given)


def _other_rows(
    self: PTXDialect, let: Callable[[str], str], address: str, is_across: bool
) -> list[str]:
    """Each item gives the address of the row behind its own."""
    there = let(f"getelementptr i8, ptr addrspace(3) {address}, i64 16")
    return load_matrices(self, let, there, is_across)


def _other_way(
    self: PTXDialect, let: Callable[[str], str], address: str, is_across: bool
) -> list[str]:
    """Small matrices are turned around where they shall not be, or are not."""
    return load_matrices(self, let, address, not is_across)


def _early_copies(self: PTXDialect, on_their_way: int = 0) -> str:
    """One group of copies more than should may be on its way."""
    return f"call void @llvm.nvvm.cp.async.wait.group(i32 {on_their_way + 1})"


def _other_partner(self: PTXDialect, let: Callable[[str], str], word: str, bits: int) -> str:
    return exchange_words(self, let, word, bits ^ 1)


PRINTED: dict[str, tuple[str, str, Callable[..., str]]] = {
    "a barrier is not printed": ("rows", "wait_for_group", _no_wait),
    "the number of an item in its block is one too large": ("rows", "item_of_group", _item_after),
    "the number of a block is always 0": ("rows", "group", _first_group),
    "the number of an item is that in its block": ("map", "work_item", _wrong_item),
    "shared memory is half as large": ("rows", "memory_of_group", _half_memory),
    "registers of a fragment are exchanged": ("product", "product_of_fragments", _words_exchanged),
    "registers of a rounded fragment are exchanged": (
        "rounded",
        "product_of_fragments",
        _words_exchanged,
    ),
    "a fragment is not rounded": ("rounded", "product_of_fragments", _not_rounded),
    "rows that items give lie further behind": ("columns", "load_matrices", _other_rows),
    "rows along the sum that items give lie further behind": (
        "product",
        "load_matrices",
        _other_rows,
    ),
    "rows along the sum are read as if they lay across it": (
        "product",
        "load_matrices",
        _other_way,
    ),
    "copies ahead are not waited for": ("ahead", "wait_for_copies", _early_copies),
    "words are exchanged with another item than the partner": (
        "rows",
        "word_across",
        _other_partner,
    ),
}

# -- running ------------------------------------------------------------------------------------


@contextmanager
def emulated(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """CUDA is an emulated GPU, and nothing that was compiled before is used."""
    for name, empty in (("_kernels", KnownKernels(9)), ("_plans", {})):
        patch.setattr(compiler(), name, empty)
    patch.setitem(Device._devices, DEVICE, _fresh_gpu())
    yield


def _fresh_gpu() -> PTXBackend:
    return PTXBackend(Driver(EmulatedDriver(devices=1)))


def plant_in_order(patch: pytest.MonkeyPatch, change: Change) -> None:
    """From now on kernels are put in order as `change` says."""
    old = next(s for s in KERNEL_STAGES if s.name == "linearize")
    new = replace(old, step=Procedure(lambda program: change(linearize(program))))
    stages = tuple([new if s is old else s for s in KERNEL_STAGES])
    patch.setattr(compiler(), "kernel_stages", stages)


def computed(program: str) -> tuple[np.ndarray, np.ndarray]:
    """What a program gives on the GPU, and what it should."""
    x = np.random.default_rng(5).integers(-9, 9, (ROWS, LENGTH)).astype(np.float32)
    given = Tensor(x, device=DEVICE).realize()
    if program == "columns":
        y = given.cast(dtypes.float16).realize()
        with schedule("warps=1x1x1x1"):
            product = (y[:, :64].T @ y[:, :64]).realize()
        return product.cast(dtypes.float32).numpy(), x[:, :64].T @ x[:, :64]
    if program == "product":
        y = given.cast(dtypes.float16).realize()
        with schedule("warps=1x1x1x1"):
            product = (y @ y.T).realize()
        return product.cast(dtypes.float32).numpy(), (x @ x.T).astype(np.float16)
    if (
        program == "rounded"
    ):  # to 1025 / 1024, of which all sums are exact; of few, for of many nothing is known
        signs, x = np.where(x < 0, np.float32(-1), np.float32(1))[:, :32], x[:, :32]
        y = Tensor(signs * np.float32(1 + 2**-11), device=DEVICE).realize()
        with schedule("warps=1x1x1x1"), Context(ALLOW_TF32=1):
            product = (y @ given[:, :32].T).realize()
        return product.numpy(), (signs * np.float32(1 + 2**-10)) @ x.T
    if program == "turned":
        with schedule("transposed=32x32"):
            return given.T.contiguous().numpy(), x.T
    if program == "ahead":
        with schedule(f"shared=8x8x8 ahead={AHEAD}"):
            return (given @ given.T).numpy(), x @ x.T
    if program == "map":
        return (given * 3 + 1).numpy(), x * 3 + 1
    with schedule(f"group={GROUP}"):
        return (given.sum(1)).numpy(), x.sum(1)


def found_by(program: str) -> list[str]:
    """Which of PROVE=1, CHECK=1 and a run in the emulator refuse the program, or show it to be wrong."""
    said = {name: _outcome(program, name) for name in ("PROVE", "CHECK", "")}
    found = ["PROVE=1"] if said["PROVE"] == "ProofError" else []
    found += ["CHECK=1"] if said["CHECK"] == "CheckError" else []
    return found + ([f"the emulator: {said['']}"] if said[""] else [])


def _outcome(program: str, asked: str) -> str:
    """The class of what a run raises with a check, or "other values"; "" where all is well."""
    compiler().forget()
    Device._devices[DEVICE] = _fresh_gpu()  # the last one may be lost
    with Context(PLANS=0, PROVE=int(asked == "PROVE"), CHECK=int(asked == "CHECK")):
        try:
            found, expected = computed(program)
        except Exception as error:
            return type(error).__name__
    return "" if (found == expected).all() else "other values"
