"""Which instructions of a GPU the loop of a product has, by kind: read from what ptxas makes of the PTX, without a GPU.

    python benchmarks/sass_loops.py [4096]

Needs `ptxas`, and `nvdisasm` (pip install nvidia-cuda-nvdisasm), which prints the machine's own instructions (SASS). Owns: which
products, the count. Does not own: the printer for sm_90 (ptx_kernels.py).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ptx_kernels

from proofgrad import Context
from proofgrad.core.tensor.runtime.realize import compile_only

INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_.]+)"
)  # none under @!PT, which never runs
KINDS = {
    "products": ("HMMA", "IMMA", "DMMA"), "LDSM": ("LDSM",), "LDS": ("LDS",), "moves": ("MOV", "UMOV", "PRMT", "IMAD.MOV"),
    "copies": ("LDGSTS", "LDG", "STS"),
}  # fmt: skip


def nvdisasm() -> str | None:
    """On the path, or from NVIDIA's wheel."""
    wheels = Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/nvdisasm")
    return shutil.which("nvdisasm") or next(map(str, wheels), None)


def instructions(text: str, folder: Path) -> str:
    """The SASS of a kernel."""
    ptx, cubin = folder / "kernel.ptx", folder / "kernel.cubin"
    ptx.write_text(text)
    architecture = f"-arch=sm_{ptx_kernels.ARCHITECTURE}"
    subprocess.run([str(ptx_kernels.ptxas()), architecture, str(ptx), "-o", str(cubin)], check=True)
    command = [str(nvdisasm()), "-c", str(cubin)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def blocks(sass: str) -> Iterator[list[str]]:
    """The instructions between labels and branches."""
    block: list[str] = []
    for line in sass.splitlines():
        found = INSTRUCTION.search(line)
        if found:
            block.append(found[1])
        if line.startswith(".L_") or (found and found[1].startswith("BRA")):
            yield block
            block = []
    yield block


def kinds(block: list[str]) -> dict[str, int]:
    """How many instructions of each kind, and of all others."""
    counts, left = Counter[str](), len(block)
    for kind, names in KINDS.items():
        ours = [x for x in block if any(x == n or x.startswith(f"{n}.") for n in names)]
        counts[kind], left = len(ours), left - len(ours)
    return {**counts, "other": left, "all": len(block)}


def main(size: int) -> None:
    """A row for each product: of matrices, the first or the second of them transposed."""
    print("| product | registers | " + " | ".join([*KINDS, "other", "all"]) + " |")
    print("|---" * (len(KINDS) + 4) + "|")
    if ptx_kernels.ptxas() is None or nvdisasm() is None:
        print("ptxas and nvdisasm are needed")
        return
    with ptx_kernels.printer() as machine, tempfile.TemporaryDirectory() as folder:
        for dtype in ("bfloat16", "int8", "float32"):
            for name in ("A B", "A B.T", "A.T B", "A.T B.T"):
                x, y = [ptx_kernels.ones(size, size, dtype) for _ in range(2)]
                x, y = x.T if "A.T" in name else x, y.T if "B.T" in name else y
                machine.printed.clear()
                with Context(ALLOW_TF32=1), compile_only():
                    x.matmul(y, dtype="int32" if dtype == "int8" else None).realize()
                (source,) = machine.printed
                sass = instructions(source.text, Path(folder))
                loop = max(map(kinds, blocks(sass)), key=lambda found: found["products"])
                registers = ptx_kernels.assembled(source).registers
                numbers = " | ".join(map(str, loop.values()))
                print(f"| {name}, {dtype} | {registers} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4096)
