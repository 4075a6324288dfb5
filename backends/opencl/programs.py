"""Kernels as programs of OpenCL: many in one, for a driver takes as long to begin with one text as for dozens of kernels.

Owns: one text of several, the names of kernels in it, and which kernel is in which program, between processes too. Does not
own: building (runtime.py), compiled kernels on the disk, which the driver keeps by the text of their program.

PoCL reads its own header for each program: 0.13 s of processor time. A kernel that was built with others is looked for where
it is: under a text of its own the driver would know nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from proofgrad.core.compile.machine.target import Source
from proofgrad.core.disk_cache import DiskCache

_PARAGRAPH = re.compile(r"\n\n(?=\S)")  # between definitions, as emit.py prints them


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel is: the text of its program, and its name there."""

    program: str
    entry: str


@dataclass(slots=True)
class Programs:
    """The programs of a device. `build` makes one of a text, `identity` is what else decides what it becomes."""

    build: Callable[[str], Any]
    identity: str
    files: DiskCache
    _built: dict[str, Any] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)

    def add(self, sources: Sequence[Source]) -> None:
        """Build those that are in no program yet, as one. Raises: what `build` does."""
        new = list({s.text: s for s in sources if self._place(s.text) is None}.values())
        if not new:
            return
        program, entries = joined([(source.entry, source.text) for source in new])
        self._built[program] = self.build(program)
        for source, entry in zip(new, entries, strict=True):
            self._places[source.text] = Place(program, entry)
            if program != source.text:
                self.files.put(self._key(source.text), f"{entry}\n{self._key(program)}".encode())
        if len(new) > 1:
            self.files.put(self._key(program), program.encode())

    def kernel(self, source: Source) -> tuple[Any, str]:
        """The program that a kernel is in, and its name there. Raises: what `build` does."""
        self.add([source])
        place = self._places[source.text]
        return self._built[place.program], place.entry

    def _place(self, text: str) -> Place | None:
        """Where a kernel is; of a program that another process built, it is built here as well."""
        place = self._places.get(text) or self._kept(text)
        if place is not None:
            if place.program not in self._built:
                self._built[place.program] = self.build(place.program)
            self._places[text] = place
        return place

    def _kept(self, text: str) -> Place | None:
        found = self.files.get(self._key(text))
        entry, _, key = (found or b"").decode().partition("\n")
        program = self.files.get(key) if key else None
        return None if program is None else Place(program.decode(), entry)

    def _key(self, text: str) -> str:
        return sha256(f"{self.identity}\n{text}".encode()).hexdigest()


def joined(kernels: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """One text of several, each with its entry, and the names that their entries have there: what two define alike is there once."""
    if len(kernels) == 1:
        return kernels[0][1], [kernels[0][0]]
    found: dict[str, None] = {}
    entries: list[str] = []
    for entry, text in kernels:
        same = sum(other == entry for other, _ in kernels[: len(entries)])
        entries.append(f"{entry}_n{same}" if same else entry)
        renamed = re.sub(rf"\bkernel void {entry}\(", f"kernel void {entries[-1]}(", text)
        found.update(dict.fromkeys(_PARAGRAPH.split(renamed.strip())))
    return "\n\n".join(found) + "\n", entries
