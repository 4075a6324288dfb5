"""The Tensors of a model by name, and files of them.

Owns: the names under `proofgrad.nn.state`. No reader here runs code that a file brings.
"""

from __future__ import annotations

from proofgrad.nn.state.archive import tar_extract, zip_extract
from proofgrad.nn.state.checkpoint import torch_load
from proofgrad.nn.state.files import FormatError, accept_filename
from proofgrad.nn.state.ggml import ggml_data_to_tensor
from proofgrad.nn.state.gguf import gguf_load
from proofgrad.nn.state.model import get_parameters, get_state_dict, load_state_dict
from proofgrad.nn.state.npz import npz_load, npz_save
from proofgrad.nn.state.safe import (
    inverse_safe_dtypes,
    safe_dtypes,
    safe_load,
    safe_load_metadata,
    safe_save,
)
from proofgrad.nn.state.tensor_io import TensorIO
from proofgrad.nn.state.training import resume_training, save_training

__all__ = [
    "FormatError",
    "TensorIO",
    "accept_filename",
    "get_parameters",
    "get_state_dict",
    "ggml_data_to_tensor",
    "gguf_load",
    "inverse_safe_dtypes",
    "load_state_dict",
    "npz_load",
    "npz_save",
    "resume_training",
    "safe_dtypes",
    "safe_load",
    "safe_load_metadata",
    "safe_save",
    "save_training",
    "tar_extract",
    "torch_load",
    "zip_extract",
]
