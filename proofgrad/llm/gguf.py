"""`from proofgrad.llm.gguf import gguf_load`, as programs for tinygrad write it."""

from proofgrad.nn.state.ggml import ggml_data_to_tensor
from proofgrad.nn.state.gguf import gguf_load

__all__ = ["ggml_data_to_tensor", "gguf_load"]
