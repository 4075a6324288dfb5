"""Whether this process may use the tile registers of x86: Linux gives their memory to who asks for it.

Owns: asking, once. Source: Linux, Documentation/arch/x86/xstate.rst. What is permitted holds for all threads of a process, and is
inherited.
"""

from __future__ import annotations

import ctypes
import functools
import platform

_ARCH_PRCTL = 158  # the number of the system call, x86-64
_REQUEST_PERMISSION, _TILE_DATA = 0x1023, 18


@functools.cache
def may_use_tiles() -> bool:
    """Whether Linux permits it; False where the system is another."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)
