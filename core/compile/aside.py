"""Kernels' texts compiled by another thread, while this one makes the next ones.

Owns: that thread, waiting for it, its errors. Does not own: what is compiled (compiler.py).

LLVM takes a third of the time of a first call and holds no lock of Python. The thread ends with the
plan that it compiles for, so that no fork can find it at work.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from proofgrad.core.compile.target import Backend, Binary, Source

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class Aside:
    """`with Aside() as aside`: what `aside.compile` gives is compiled when the block ends.

    Raises: at the end, what the first text that cannot be compiled raises.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[Future[Binary]] = []

    def __enter__(self) -> Self:
        return self

    def compile(self, backend: Backend, source: Source) -> Binary | Future[Binary]:
        """The binary of a text, later where the backend's compiler may run beside the rest."""
        if not getattr(backend, "compiles_aside", False):
            return backend.compile(source)
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "proofgrad-compile")
        self._begun.append(self._pool.submit(backend.compile, source))
        return self._begun[-1]

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if kind is None:
            for future in self._begun:
                future.result()
