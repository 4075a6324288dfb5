"""What users hold: Tensors, derivatives, recordings, and running what was compiled.

Owns: `Tensor` (tensor.py), its gradients (gradients.py) and derivatives (autograd.py). Each other part is a folder with an owner of its own.
"""
