"""Text for people and for sources: units, wrapping, names.

Owns: these functions. Does not own: colours and progress (terminal.py).
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from proofgrad.helpers.terminal import PARTS, ansilen, ansistrip, colored

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def time_to_str(t: float, w: int = 8) -> str:
    """Seconds in the unit that leaves two digits or more before the point: s, ms or us; `w` positions wide."""
    if t > 10:
        return f"{t:{w}.2f}s "
    if t > 0.01:
        return f"{t * 1e3:{w}.2f}ms"
    return f"{t * 1e6:{w}.2f}us"


def size_to_str(s: int) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if s >= unit:
            return f"{s / unit:.2f} {name}"
    return f"{s} B"


def colorize_float(x: float) -> str:
    """A ratio to what was before: green where it is less than 0.75, red where more than 1.15."""
    return colored(f"{x:7.2f}x", "green" if x < 0.75 else "red" if x > 1.15 else "yellow")


def pluralize(st: str, cnt: int) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{cnt} {st}{'' if cnt == 1 else 's'}"


def word_wrap(x: str, wrap: int = 80) -> str:
    """Text with lines of at most `wrap` shown characters; longer ones are cut, wherever that is."""
    lines: list[str] = []
    for line in x.splitlines() if "\n" in x else [x]:
        lines += _cut(line, wrap)
    return "\n".join(lines)


def _cut(line: str, wrap: int) -> list[str]:
    """A line in pieces of `wrap` shown characters; the codes behind one stay with it."""
    if wrap < 1 or ansilen(line) <= wrap:
        return [line]
    pieces, shown = [""], 0
    for part in PARTS.findall(line):
        if len(part) == 1:
            if shown == wrap:
                pieces.append("")
                shown = 0
            shown += 1
        pieces[-1] += part
    return pieces


def to_function_name(s: str) -> str:
    """A name for C: what it may not have becomes its code in hexadecimal digits."""
    return "".join([c if c in _NAME else f"{ord(c):02X}" for c in ansistrip(s)])


def strip_parens(fst: str) -> str:
    """Text without the pair of brackets around it, if the first belongs to the last."""
    if len(fst) < 2 or fst[0] != "(" or fst[-1] != ")":
        return fst
    depth = 0
    for character in fst[1:-1]:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return fst
    return fst if depth else fst[1:-1]


def pad_bytes(b: bytes, align: int) -> bytes:
    """Bytes and zeros up to a multiple of `align`."""
    return b + bytes(-len(b) % align)


def fromimport(mod: str, frm: str) -> Any:
    """`from mod import frm`, as a value."""
    return getattr(import_module(mod), frm)


def stderr_log(msg: str) -> None:
    """Print to standard error, now, without a line's end."""
    print(msg, end="", file=sys.stderr, flush=True)
