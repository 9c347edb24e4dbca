"""Automatic differentiation from scratch, in NumPy: modules that know forward and backward, and a tape of them.

Read tape.py first, then modules.py, losses.py and moves.py; gradcheck.py holds every one of them against finite
differences. Of these network.py, feedforward.py and recurrent.py build language models, which optim.py and
training.py train and model.py puts under the contract.
"""

from __future__ import annotations

from chainrule.autodiff.gradients import Array, Part, SparseRows
from chainrule.autodiff.losses import CrossEntropy, Softmax, SoftmaxCrossEntropy
from chainrule.autodiff.modules import (
    Add,
    Embedding,
    LayerNorm,
    Linear,
    MatMul,
    Mean,
    Multiply,
    ReLU,
    Scale,
    ScaledDotProductAttention,
    Sigmoid,
    Sum,
    Tanh,
)
from chainrule.autodiff.moves import Concat, Reshape, Slice, Stack, Transpose
from chainrule.autodiff.nodes import Node, Parameter, Value
from chainrule.autodiff.tape import Module, Stage, Tape, current_tape, no_grad, tape_bwd

__all__ = [
    "Add",
    "Array",
    "Concat",
    "CrossEntropy",
    "Embedding",
    "LayerNorm",
    "Linear",
    "MatMul",
    "Mean",
    "Module",
    "Multiply",
    "Node",
    "Parameter",
    "Part",
    "ReLU",
    "Reshape",
    "Scale",
    "ScaledDotProductAttention",
    "Sigmoid",
    "Slice",
    "Softmax",
    "SoftmaxCrossEntropy",
    "SparseRows",
    "Stack",
    "Stage",
    "Sum",
    "Tanh",
    "Tape",
    "Transpose",
    "Value",
    "current_tape",
    "no_grad",
    "tape_bwd",
]
