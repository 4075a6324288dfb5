"""A machine of one's own in three parts: Allocator, Compiler, Runner; put together by Compiled.

Owns: these classes under the names that tutorials use, and how they make a backend. Does not own: the
contract of backends (core/compile/machine/target.py), which a backend may also meet directly.

    class MyDevice(Compiled):
        def __init__(self, device):
            super().__init__(device, MyAllocator(), CStyleLanguage(), MyCompiler(), MyRunner)

    Device._devices["MY"] = MyDevice
"""

from __future__ import annotations

import inspect
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from proofgrad.core.compile.machine.target import Backend, Binary, Launch, Source, Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp
from proofgrad.renderer.cstyle import CStyleLanguage

ONE_RUN = (1, 1, 1)  # a kernel in C has all its loops, so it is started once


class Allocator(ABC):
    """Memory of a machine. `_alloc` and `_free` may leave the argument `options` out."""

    @abstractmethod
    def _alloc(self, size: int, options: Any = None) -> Any:
        """A handle to `size` bytes."""

    def _free(self, buf: Any, options: Any = None) -> None:
        """Give the memory of a handle back."""

    @abstractmethod
    def copyin(self, dst: Any, src: memoryview) -> None:
        """Bytes from the host to the start of a buffer."""

    @abstractmethod
    def copyout(self, dst: memoryview, src: Any) -> None:
        """The first bytes of a buffer to the host."""


class Compiler(ABC):
    """Source text to what the Runner loads."""

    @abstractmethod
    def compile(self, src: str) -> bytes:
        """The binary of a source. Raises: what the machine's compiler says."""


class Runner(ABC):
    """A loaded kernel."""

    @abstractmethod
    def __init__(self, name: str, lib: bytes) -> None:
        """Load the function `name` of a binary."""

    @abstractmethod
    def __call__(
        self,
        *bufs: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
        wait: bool = False,
    ) -> Any:
        """Run it on handles of the Allocator, in the order of its parameters."""


class _Handle:
    """Memory of an Allocator, given back when nobody holds it."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, memory: Any) -> None:
        self.memory = memory


class Compiled(Backend):
    """A backend made of three parts and a renderer. Registered as a class, it is made when first used."""

    def __init__(
        self,
        device: str,
        allocator: Allocator,
        renderer: CStyleLanguage,
        compiler: Compiler,
        runtime: Callable[[str, bytes], Runner],
    ) -> None:
        self.name = device
        self.allocator, self.renderer = allocator, renderer
        self.compiler, self.runtime = compiler, runtime
        self.target: Target = renderer.target
        self._alloc_takes_options = _takes(allocator._alloc, 2)
        self._free_takes_options = _takes(allocator._free, 2)

    def emit(self, linear: UOp, name: str) -> Source:
        """The kernel in the renderer's language."""
        return self.renderer.emit(linear, name)

    def compile(self, source: Source) -> Binary:
        """The binary of a kernel, by the Compiler."""
        return Binary(source.entry, self.compiler.compile(source.text), source)

    def load(self, binary: Binary) -> Launch:
        """The kernel, by the Runner."""
        runner = self.runtime(binary.entry, binary.data)
        used = [k for k, dtype in enumerate(binary.source.params) if dtype is not dtypes.void]

        def launch(buffers: Sequence[Any]) -> None:
            handles = [buffers[slot].memory for slot in used]
            runner(*handles, global_size=ONE_RUN, local_size=ONE_RUN)

        return launch

    def alloc(self, nbytes: int) -> Any:
        """A handle to fresh memory; it goes back to the Allocator with the handle."""
        options = (None,) if self._alloc_takes_options else ()
        try:
            handle = _Handle(self.allocator._alloc(nbytes, *options))
        except (MemoryError, OverflowError) as error:
            told = f": {error}" if str(error) else ""
            raise MemoryError(f"cannot allocate {nbytes} bytes on {self.name}{told}") from None
        also = (None,) if self._free_takes_options else ()
        weakref.finalize(handle, self.allocator._free, handle.memory, *also)
        return handle

    def copyin(self, handle: Any, data: memoryview) -> None:
        """Bytes to the buffer."""
        self.allocator.copyin(handle.memory, data)

    def copyout(self, data: memoryview, handle: Any) -> None:
        """Bytes from the buffer."""
        self.allocator.copyout(data, handle.memory)

    def synchronize(self) -> None:
        """Runners have run when they return; one that has not overrides this."""


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a bound method takes `count` arguments."""
    return len(inspect.signature(function).parameters) >= count
