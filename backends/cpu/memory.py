"""Memory of the CPU: blocks that are handed out, and used again when they come back.

Owns: allocation, where in a page blocks begin, the pool of free blocks. Does not own: what is in them.

A fresh 64 MB block costs about as much to touch as a memory-bound kernel takes on a used one
(measured: 21 against 6.5 ms), so freed blocks are kept up to a limit; beyond it those of the size
that was given back least recently make room.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import threading
from typing import Any

from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.compile.machine.target import Borrowed

ALIGNMENT_BYTES = LINE_BYTES  # stores past the caches rely on it
LARGE_BYTES = 1 << 18  # from here on a block is mapped: pages are made when first touched
# From here on pages of this size are asked for: 512 times fewer to make, and to look up (Linux).
HUGE_PAGE_BYTES = 1 << 21
POOL_LIMIT_BYTES = 1 << 29
# Blocks of so many pages begin at another line of a page each, so many lines further: all lines of a page in turn, neighbours far from each other.
PAGES_TO_SPREAD, FAR_APART = 16, 37


class Region:
    """Bytes that blocks use one after the other, and where their aligned part begins."""

    __slots__ = ("address", "offset", "owner", "size")

    def __init__(self, size: int) -> None:
        apart = _lines_apart(size) * LINE_BYTES
        self.owner, self.size = _fresh(size, apart), size
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.owner))
        self.address = -(-start // ALIGNMENT_BYTES) * ALIGNMENT_BYTES + apart
        self.offset = self.address - start


class Block:
    """A piece of memory; goes back to its pool when dropped."""

    __slots__ = ("__weakref__", "_pool", "_region", "address", "nbytes")

    def __init__(self, pool: Pool, region: Region, nbytes: int) -> None:
        self.address, self.nbytes = region.address, nbytes
        self._pool, self._region = pool, region

    @property
    def view(self) -> memoryview:
        """The bytes, writable."""
        region = self._region
        return memoryview(region.owner)[region.offset : region.offset + self.nbytes]

    def __del__(self) -> None:
        self._pool.give_back(self._region)


class Adopted(Borrowed):
    """Memory that belongs to somebody else, with what keeps it alive."""

    __slots__ = ("__weakref__", "_keep", "address", "nbytes", "view")

    def __init__(self, address: int, nbytes: int, keep: object) -> None:
        self.address, self.nbytes, self._keep = address, nbytes, keep
        self.view = memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")


class Part(Borrowed):
    """The memory of another handle from some byte on."""

    __slots__ = ("_offset", "address", "whole")
    address: int

    def __init__(self, whole: Block | Adopted | Part, offset_bytes: int) -> None:
        self.address = whole.address + offset_bytes
        self.whole: Block | Adopted = whole.whole if isinstance(whole, Part) else whole
        self._offset = self.address - self.whole.address

    @property
    def view(self) -> memoryview:
        """The bytes from there to the end."""
        return self.whole.view[self._offset :]


class Pool:
    """Free blocks by size."""

    def __init__(self, limit_bytes: int = POOL_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.free_bytes = 0
        self._free: dict[int, list[Region]] = {}
        self._lock = threading.RLock()  # a block may be dropped by the collector inside of `take`

    def take(self, nbytes: int) -> Block:
        """A block of at least `nbytes`; its contents are unspecified. Raises: MemoryError."""
        size = _rounded(nbytes)
        with self._lock:
            waiting = self._free.get(size)
            region = waiting.pop() if waiting else None
            if region is not None:
                self.free_bytes -= size
        return Block(self, region or self._made(size), nbytes)

    def _made(self, size: int) -> Region:
        """A new block. If there is no memory for it, what is free here is given back first."""
        try:
            return Region(size)
        except MemoryError:
            self.clear()
        return Region(size)

    def give_back(self, region: Region) -> None:
        """Take a region for later use; beyond the limit, free regions of the sizes that were least recently given back."""
        size, none = region.size, list[Region]()
        if size > self.limit_bytes:
            return
        with self._lock:  # which the collector may come back through wherever something is made
            self._free[size] = waiting = self._free.pop(size, none)  # now the last of the sizes
            waiting.append(region)
            self.free_bytes += size
            while self.free_bytes > self.limit_bytes:
                oldest, regions = next(iter(self._free.items()))
                if regions:
                    regions.pop()
                    self.free_bytes -= oldest
                else:
                    self._free.pop(oldest, None)

    def clear(self) -> None:
        """Give everything that is free to the operating system."""
        with self._lock:
            self._free.clear()
            self.free_bytes = 0


_regions = itertools.count()


def _lines_apart(size: int) -> int:
    """How many lines into a page a block begins, others for each of those that follow each other.

    A core takes a load for one of what was just stored where both are as far in their pages, and waits (measured: running sums of rows of 1025 floats take 9
    times as long if their results begin where they do in a page); and elements of blocks that begin alike share the sets of a cache.
    """
    if size < PAGES_TO_SPREAD * mmap.PAGESIZE:
        return 0
    return next(_regions) * FAR_APART % (mmap.PAGESIZE // LINE_BYTES)


def _rounded(nbytes: int) -> int:
    unit = mmap.PAGESIZE if nbytes >= LARGE_BYTES else ALIGNMENT_BYTES
    return max(1, -(-nbytes // unit)) * unit


def _fresh(size: int, apart: int) -> Any:
    """Memory for so many bytes from some byte on. Raises: MemoryError."""
    if size < LARGE_BYTES:
        return bytearray(size + apart + ALIGNMENT_BYTES)
    try:
        return _mapped(size + apart)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryError(f"cannot allocate {size} bytes: {error}") from error


def _mapped(size: int) -> mmap.mmap:
    """Pages of this process alone: a process that is forked off gets copies of what it writes."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, size)
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # an operating system without huge pages
            region.madvise(mmap.MADV_HUGEPAGE)
    return region
