"""PTX by hand on the emulator: what a launch needs, in one call."""

from __future__ import annotations

import numpy as np

from proofgrad.backends.ptx.emulator.grid import Launch, run
from proofgrad.backends.ptx.emulator.module import compiled

HEAD = ".version 7.8\n.target sm_90\n.address_size 64\n"


def entry(parameters: int, registers: str, body: str, outside: str = "") -> str:
    """A kernel `k` with so many pointers, which are in %a0, %a1, ... when its body begins; %t is the thread's number."""
    names = ",\n".join([f".param .u64 p{k}" for k in range(parameters)])
    loads = "\n".join([f"ld.param.u64 %a{k}, [p{k}];" for k in range(parameters)])
    return (
        f"{HEAD}{outside}\n.visible .entry k(\n{names}\n)\n{{\n.reg .b64 %a<{max(1, parameters)}>;\n.reg .b32 %t;\n"
        f"{registers}\n{loads}\nmov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )


def launch(
    text: str,
    blocks: int | tuple[int, int, int],
    threads: int | tuple[int, int, int],
    *arrays: np.ndarray,
    backwards: bool = False,
) -> None:
    """Run the only kernel of a text over arrays; what it writes is in them."""
    (kernel,) = compiled(text).values()
    parameters = bytearray(kernel.parameter_bytes)
    for (offset, nbytes), array in zip(kernel.parameters, arrays, strict=True):
        parameters[offset : offset + nbytes] = array.ctypes.data.to_bytes(8, "little")

    def bounds(address: int) -> tuple[int, int]:
        for array in arrays:
            if array.ctypes.data <= address < array.ctypes.data + array.nbytes:
                return array.ctypes.data, array.ctypes.data + array.nbytes
        return 0, 0

    grid = (blocks, 1, 1) if isinstance(blocks, int) else blocks
    block = (threads, 1, 1) if isinstance(threads, int) else threads
    run(Launch(kernel, grid, block, bytes(parameters)), bounds, backwards)
