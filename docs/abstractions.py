"""The seven forms of one program, from Tensor to machine code, each made by hand from the one before.

Run: python docs/abstractions.py

The compiler does this in core/compile/compiler.py; here every step is spelt out.
"""

from __future__ import annotations

from proofgrad import Device, Tensor, UOp
from proofgrad.core.compile.lowering.kernel_names import kernel_name
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.passes.stages import run_stages
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run

x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
program = (x * 2 + 1).sum(axis=1)

# 1. TensorGraph: methods of Tensor made it. Its buffers are numbered, so equal programs are equal.
graph = graph_to_run([program.uop], "CPU")
check_form(Form.TENSOR_GRAPH, graph)
print("TensorGraph:", [node.op.name for node in graph.toposort()])

# 2. KernelGraph: what gets a buffer was decided; one CALL a kernel.
target = Device["CPU"].target
kernels = run_stages(compiler().graph_stages, graph, compiler().library, target)
check_form(Form.KERNEL_GRAPH, kernels)
body = kernels.src[0].src[0]
print("KernelGraph:", len(kernels.src), "kernel")

# 3. to 5. Kernel, Program, Linear: index terms, roles of axes, registers, running order.
seen: dict[Form, tuple[str, UOp]] = {}
made = run_stages(
    compiler().kernel_stages,
    body,
    compiler().library,
    target,
    observe=lambda stage, root, _: seen.update({stage.makes: (stage.name, root)}),
)
for form, (stage, root) in seen.items():
    print(f"{form.value}: {len(root.toposort())} nodes after the stage '{stage}'")
linear = made.src[-1] if made.op is Ops.SINK else made

# 6. Source: text of the machine's language.
source = Device["CPU"].emit(linear, kernel_name(linear))
print("Source:", source.language, len(source.text.splitlines()), "lines, entry", source.entry)

# 7. Binary: what the machine loads.
binary = Device["CPU"].compile(source)
print("Binary:", len(binary.data) > 0)
print("values:", program.tolist())
