"""Instructions at which threads wait for each other: barriers, shuffles, votes.

Owns: what is exchanged and who waits. Does not own: running others meanwhile (grid.py), products of fragments (matrices.py).

Each exchange is two meetings: values are laid down before the first and read between the two, so that nobody lays down the
next value before all have read.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.ptx.emulator.function import FRAME, WARP, Function, Operation
from proofgrad.backends.ptx.emulator.parse import Instruction, Refused

ALL_LANES = ("-1", "0xffffffff", "0xFFFFFFFF", "4294967295")


def _barrier(f: Function, ins: Instruction) -> None:
    if "warp" in ins.parts:
        require_all_lanes(ins.operands[0])
        f.meet(warp=True)
        return
    if len(ins.operands) != 1 or "red" in ins.parts or "arrive" in ins.parts:
        raise Refused("only barriers of all threads of a block")
    f.meet(warp=False)


def require_all_lanes(mask: str) -> None:
    """Raises: Refused for a mask that names other lanes than all."""
    if mask not in ALL_LANES:
        raise Refused(f"the mask {mask}: only all lanes of a warp, -1")


def lay_down(f: Function, words: Sequence[str]) -> int:
    """Words of this thread where others of its warp can read them; the offset in each frame. To be ended by `taken_up`."""
    offset = f.take(4 * len(words), 8)
    for k, word in enumerate(words):
        f.do(
            f"store i32 {word}, ptr {f.let(f'getelementptr i8, ptr %frame, i64 {offset + 4 * k}')}"
        )
    f.meet(warp=True)
    return offset


def word_of(f: Function, lane: str, offset: int) -> str:
    """What another lane of the warp has laid down."""
    thread = f.let(f"or i32 {f.let(f'and i32 %tid, {-WARP}')}, {lane}")
    start = f.let(f"mul i64 {f.resized(thread, 32, 64)}, {FRAME}")
    position = f.let(f"add i64 {start}, {offset}")
    return f.let(f"load i32, ptr {f.let(f'getelementptr i8, ptr %frames, i64 {position}')}")


def taken_up(f: Function) -> None:
    """All have read what was laid down."""
    f.meet(warp=True)


def _shuffle(f: Function, ins: Instruction) -> None:
    """Source: PTX ISA, "shfl.sync", its pseudo-code."""
    target, _, truth = ins.operands[0].partition("|")
    require_all_lanes(ins.operands[4])
    offset = lay_down(f, [f.read(ins.operands[1], 32)])
    amount, limits = f.read(ins.operands[2], 32), f.read(ins.operands[3], 32)
    lane = f.let(f"and i32 %tid, {WARP - 1}")
    segment = f.let(f"and i32 {f.let(f'lshr i32 {limits}, 8')}, 31")
    outside = f.let(f"xor i32 {segment}, -1")
    first = f.let(f"and i32 {lane}, {segment}")
    clamp = f.let(f"and i32 {limits}, 31")
    last = f.let(f"or i32 {first}, {f.let(f'and i32 {clamp}, {outside}')}")
    amount = f.let(f"and i32 {amount}, 31")
    mode = next(part for part in ins.parts if part in ("up", "down", "bfly", "idx"))
    texts = {
        "up": f"sub i32 {lane}, {amount}",
        "down": f"add i32 {lane}, {amount}",
        "bfly": f"xor i32 {lane}, {amount}",
        "idx": f"or i32 {first}, {f.let(f'and i32 {amount}, {outside}')}",
    }
    source = f.let(texts[mode])
    is_in = f.let(f"icmp {'sge' if mode == 'up' else 'sle'} i32 {source}, {last}")
    found = word_of(f, f.let(f"select i1 {is_in}, i32 {source}, i32 {lane}"), offset)
    f.write(target, found, "b32")
    if truth:
        f.write(truth, is_in, "pred")
    taken_up(f)


def _vote(f: Function, ins: Instruction) -> None:
    require_all_lanes(ins.operands[2])
    mine = f.resized(f.read(ins.operands[1], 1), 1, 32)
    offset = lay_down(f, [mine])
    ballot = "0"
    for lane in range(WARP):
        bit = f.let(f"shl i32 {word_of(f, str(lane), offset)}, {lane}")
        ballot = f.let(f"or i32 {ballot}, {bit}")
    if "ballot" in ins.parts:
        f.write(ins.operands[0], ballot, "b32")
    elif "any" in ins.parts:
        f.write(ins.operands[0], f.let(f"icmp ne i32 {ballot}, 0"), "pred")
    elif "all" in ins.parts:
        f.write(ins.operands[0], f.let(f"icmp eq i32 {ballot}, -1"), "pred")
    else:
        raise Refused("this vote")
    taken_up(f)


def _reduce(f: Function, ins: Instruction) -> None:
    """`redux.sync`: integers of all lanes combined."""
    require_all_lanes(ins.operands[2])
    offset = lay_down(f, [f.read(ins.operands[1], 32)])
    total = word_of(f, "0", offset)
    name = next(part for part in ins.parts if part in _COMBINED)
    for lane in range(1, WARP):
        other = word_of(f, str(lane), offset)
        if name in ("min", "max"):
            function = f"llvm.{ins.parts[-1][0]}{name}.i32"
            total = f.call("i32", function, ("i32", total), ("i32", other))
        else:
            total = f.let(f"{name} i32 {total}, {other}")
    f.write(ins.operands[0], total, "b32")
    taken_up(f)


_COMBINED = frozenset({"add", "min", "max", "and", "or", "xor"})
MEETING = {
    "bar": Operation(_barrier, frozenset({"sync", "warp", "cta"})),
    "barrier": Operation(_barrier, frozenset({"sync", "aligned", "cta"})),
    "shfl": Operation(_shuffle, frozenset({"sync", "up", "down", "bfly", "idx"})),
    "vote": Operation(_vote, frozenset({"sync", "all", "any", "ballot"})),
    "redux": Operation(_reduce, _COMBINED | {"sync"}),
}
