"""All operations by name, and the names of Tensor that are none, with the reason."""

from __future__ import annotations

from proofgrad.testing.fuzz import (
    choosing,
    creation,
    elementwise,
    joining,
    movement,
    products,
    reductions,
    windows,
)
from proofgrad.testing.fuzz.operation import Operation

# Of each family, how often one of it is drawn.
FAMILIES = {
    elementwise: 30,
    reductions: 15,
    movement: 17,
    joining: 8,
    choosing: 8,
    products: 8,
    windows: 12,
    creation: 4,
}
TABLE: dict[str, Operation] = {
    operation.name: operation for family in FAMILIES for operation in family.OPERATIONS
}
_OFTEN = (
    "conv2d",
    "__getitem__",
    "sum",
    "pad",
    "reshape",
    "permute",
    "scatter_reduce",
    "where",
    "cast",
)
WEIGHTS: dict[str, float] = {
    operation.name: weight / len(family.OPERATIONS) * (3 if operation.name in _OFTEN else 1)
    for family, weight in FAMILIES.items()
    for operation in family.OPERATIONS
}

_RANDOM = "random: which numbers is no matter of meaning; tests/test_tensor_random.py"
_READS = "reads a Tensor's type or size and computes nothing"
_DATA = (
    "gives or takes elements of other libraries: each comparison does; tests/test_tensor_interop.py"
)
_MODE = "a mode, not an operation"
_GRAPH = "the graph as a value"
EXCEPTIONS: dict[str, str] = {
    **dict.fromkeys(
        ("rand", "rand_like", "randn", "randn_like", "randint", "randperm", "normal", "uniform",
         "scaled_uniform", "glorot_uniform", "kaiming_uniform", "kaiming_normal", "multinomial",
         "dropout", "manual_seed", "get_rng_state", "set_rng_state", "random_bits", "threefry"), _RANDOM),
    **dict.fromkeys(
        ("shape", "dtype", "device", "ndim", "numel", "nbytes", "element_size", "size", "max_shape",
         "max_numel", "is_floating_point", "__len__", "view_info", "st", "grad"), _READS),
    **dict.fromkeys(
        ("numpy", "tolist", "item", "data", "__array__", "__array_interface__", "__array_priority__",
         "__array_function__", "__array_ufunc__", "__dlpack__", "__dlpack_device__", "__buffer__", "__float__", "__int__",
         "__bool__", "__index__", "from_blob", "from_dlpack", "from_url"), _DATA),
    **dict.fromkeys(
        ("training", "train", "test", "no_grad", "inference_mode", "requires_grad", "requires_grad_",
         "is_param", "is_param_", "zero_grad"), _MODE),
    **dict.fromkeys(("uop", "lazydata", "schedule", "kernelize", "callify", "as_param", "call", "alu"), _GRAPH),
    **dict.fromkeys(("backward", "gradient"), "programs of the kind `gradient` end with it"),
    **dict.fromkeys(
        ("assign", "__setitem__", "realize", "__iadd__", "__isub__", "__imul__", "__iand__", "__ior__",
         "__ixor__", "__ifloordiv__", "__imod__", "__itruediv__", "__ipow__", "__ilshift__",
         "__irshift__", "__imatmul__"), "a statement, of the kinds `writes` and `recorded`"),
    "hash": "against hashlib; tests/test_hashing.py",
    "keccak": "as hash",
    "custom_kernel": "takes a function that writes a kernel; tests/test_custom_kernel.py",
    "replace": "names another Tensor; tests/test_assign.py",
    "to": "one device a program, of which the settings name one",
    "to_": "as `to`",
    "__iter__": "as __getitem__ with each number",
    "__delitem__": "only refuses",
    "__getattr__": "only refuses",
    "__rpow__": "",
    "ufix": "the operand of a scalar",
    "invalids": "elements that nobody is meant to read",
    "sequential": "calls functions",
    "__rmatmul__": "of arrays, which have their own operator",
    "qr": "no unique result; tests/test_numerics.py multiplies the factors",
    "svd": "as qr",
    **dict.fromkeys(
        ("solve", "inverse", "det", "slogdet", "cholesky", "lstsq", "eigh", "pinv"),
        "the error is that of the matrix's condition; tests/test_linalg.py",
    ),
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft"), "pairs have no type of numpy; tests/test_fourier.py"),
    "newton_schulz": "an iteration whose error grows by design",
    "__annotations__": "Python's", "__slots__": "Python's",
}  # fmt: skip
del EXCEPTIONS["__rpow__"]
