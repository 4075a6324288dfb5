"""LLVM IR -> object code -> an address in this process, through llvmlite.

Owns: the target machine of LLVM, code generation without IR passes, linking. Does not own: the
cache of object code (cache.py), what the IR says (backends/llvm).
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Collection
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from proofgrad.backends.cpu.processors import Processor
from proofgrad.core.compile.machine.target import CompileError

# The parts of object code that this file decides. Raise the number when they change.
FORMAT = 1
# 0 spills every register; 1 to 3 cost the same time and give the same speed (measured).
OPTIMISATION_LEVEL = 2


class Host:
    """The machine that code is for: the one that this process runs on, or a `processor` by name.

    `without` names features to leave unused.
    """

    def __init__(self, without: Collection[str] = (), processor: Processor | None = None) -> None:
        self.processor = processor
        if processor is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            self.triple = llvm.get_process_triple()
            self.cpu = "generic" if without else llvm.get_host_cpu_name()
            self.features = llvm.get_host_cpu_features()
            self.features.update(dict.fromkeys(without, False))
        else:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            self.triple, self.cpu = processor.triple, processor.name
            self.features = dict.fromkeys(processor.features, True)
        self._lock = threading.Lock()
        self._numbers = itertools.count()  # the name of a library that failed is gone

    @property
    def identity(self) -> str:
        """Everything beside the IR that object code depends on."""
        return f"{FORMAT} {llvmlite.__version__} {self.triple} {self.cpu} {self._flags}"

    @property
    def is_arm(self) -> bool:
        """Whether the code is for a 64-bit ARM processor."""
        return str(self.triple).startswith(("aarch64", "arm64"))

    def has(self, feature: str) -> bool:
        """Whether the code may use the instructions of `feature`, by LLVM's name."""
        return bool(self.features.get(feature))

    @functools.cached_property
    def _flags(self) -> str:
        """For LLVM, which knows those of a processor by its name."""
        return str(self.features.flatten()) if isinstance(self.features, llvm.FeatureMap) else ""

    @functools.cached_property
    def _machine(self) -> Any:
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu,
            features=self._flags,
            opt=OPTIMISATION_LEVEL,
            reloc="pic",
            codemodel="small",
            jit=False,
        )

    @functools.cached_property
    def _jit(self) -> Any:
        return llvm.create_lljit_compiler(use_jit_link=True)

    def object_code(self, ir: str) -> bytes:
        """Raises: CompileError, with LLVM's message and the line that it is about."""
        with self._lock:
            try:
                module = llvm.parse_assembly(ir)
                module.verify()
            except RuntimeError as error:
                raise CompileError(f"LLVM refused the IR: {error}\n{ir}") from error
            return bytes(self._machine.emit_object(module))

    def assembly(self, ir: str) -> str:
        """The machine's instructions as text, for people."""
        with self._lock:
            return str(self._machine.emit_assembly(llvm.parse_assembly(ir)))

    def link(self, code: bytes, *entries: str) -> Any:
        """A library: `library[entry]` is an address, good as long as the library is held.

        Raises: CompileError for code that cannot be linked.
        """
        with self._lock:
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for entry in entries:
                builder.export_symbol(entry)
            try:
                return builder.link(self._jit, f"{entries[0]}.{next(self._numbers)}")
            except RuntimeError as error:
                names = ", ".join(entries)
                raise CompileError(f"object code of {names} cannot be linked: {error}") from error
