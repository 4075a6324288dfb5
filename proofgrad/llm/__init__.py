"""Files of language models under the names of programs for tinygrad; models are written in proofgrad.nn."""
