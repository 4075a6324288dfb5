"""The machines that come with proofgrad: names, aliases and modules, opened when first used.

Other backends are found through the entry point group `proofgrad.backends`.
"""

# The first one is the default device. Aliases are names that users know from elsewhere.
BUILT_IN: dict[str, tuple[str, tuple[str, ...]]] = {
    "CPU": ("proofgrad.backends.cpu", ("CLANG", "LLVM")),
    "CL": ("proofgrad.backends.opencl", ("GPU", "OPENCL")),
    "CUDA": ("proofgrad.backends.ptx", ("PTX", "NV")),
    "WEBGPU": ("proofgrad.backends.webgpu", ("WGPU",)),
    "AMD": ("proofgrad.backends.amdgpu", ("HIP", "AMDGPU")),
    "METAL": ("proofgrad.backends.metal", ()),
    "REFERENCE": ("proofgrad.backends.reference", ("REF",)),
}
NUMBERED = frozenset(
    {"CL", "CUDA", "WEBGPU"}
)  # CUDA:1 is the second GPU; of the others there is one
ELSEWHERE = ("HSA", "QCOM")
# Opened when somebody asks for the default device, to be it where they answer and are tuned, each with a package without which it does
# not answer. A machine joins with the table of docs/performance.md that shows what its schedules reach there.
PREFERRED: dict[str, str] = {"CUDA": "cuda"}
