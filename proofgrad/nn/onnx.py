"""Where scripts look for ONNX: an error that says what to do instead.

Owns: that error. ONNX is not read here.
"""

from __future__ import annotations

from typing import Never

_NAMES = frozenset(
    {"OnnxRunner", "onnx_load", "OnnxDataType", "OnnxPBParser", "OnnxNode", "onnx_ops"}
)


def __getattr__(name: str) -> Never:
    if name not in _NAMES:
        raise AttributeError(f"module 'proofgrad.nn.onnx' has no attribute {name!r}")
    raise ImportError(
        f"proofgrad reads no ONNX, so there is no {name}: write the model in proofgrad.nn, and load its"
        f" weights from safetensors (proofgrad.nn.state.safe_load), a torch checkpoint (torch_load) or"
        f" arrays (onnx.numpy_helper.to_array of each initializer, then Tensor(array))"
    )
