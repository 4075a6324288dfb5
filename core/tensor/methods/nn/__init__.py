"""Functions of neural networks: `NeuralNetwork` joins `Layers`, `Windows` and `Losses`.

Owns: activations, dropout, convolutions, pools, losses, attention. Does not own: layers with weights (proofgrad/nn).
"""

from proofgrad.core.tensor.methods.nn.losses import Losses
from proofgrad.core.tensor.methods.nn.windows import Windows


class NeuralNetwork(Losses, Windows):
    """Activations, windows over images, losses."""

    __slots__ = ()
