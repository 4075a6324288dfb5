"""A program of its own: which processors LLVM knows, and what one of them can do.

Usage: python ask_llvm.py TRIPLE [NAME FEATURE ...]

LLVM says the names on standard error, and ends the process where it cannot make code for a name: so not inside of ours.
Which of the features NAME has is printed on standard output. LLVM does not list them; but it puts a function into another
only if the processor of the other has all the features that the first asks for.
"""

from __future__ import annotations

import sys

from llvmlite import binding


def names(triple: str) -> None:
    """LLVM's list of processors, on standard error."""
    binding.Target.from_triple(triple).create_target_machine(cpu="help")


def features_of(triple: str, name: str, features: list[str]) -> list[str]:
    """Those of the features that a processor has."""
    lines = [f'target triple = "{triple}"']
    for k, feature in enumerate(features):
        lines += [
            f"define internal i32 @asks{k}(i32 %x) #{2 * k} {{",
            "  %y = add i32 %x, 1",
            "  ret i32 %y",
            "}",
            f"define i32 @has{k}(i32 %x) #{2 * k + 1} {{",
            f"  %y = call i32 @asks{k}(i32 %x)",
            "  ret i32 %y",
            "}",
            f'attributes #{2 * k} = {{ "target-features"="+{feature}" }}',
            f'attributes #{2 * k + 1} = {{ "target-cpu"="{name}" }}',
        ]
    module = binding.parse_assembly("\n".join(lines))
    machine = binding.Target.from_triple(triple).create_target_machine()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    text = str(module)
    return [feature for k, feature in enumerate(features) if f"@asks{k}(" not in text]


if __name__ == "__main__":
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    names(sys.argv[1])
    if len(sys.argv) > 2:
        print(*features_of(sys.argv[1], sys.argv[2], sys.argv[3:]))
