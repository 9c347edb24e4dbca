"""Automatic differentiation from scratch, in NumPy, and the neural language models built on it.

In reading order:

    tape/          modules with a forward and a backward pass, and the tape that records them
    networks/      feed-forward, bag-of-words, recurrent and Transformer language models, made of these modules
    checks.py      the gradients of every module and network, checked against finite differences
    optim.py       optimisers: from gradients to updates of the parameters
    tape_model.py  a trained network as a `LanguageModel`
"""

from __future__ import annotations

from chainrule.autodiff.tape.attention import MergeHeads, Rotate, ScaledDotProductAttention, SplitHeads
from chainrule.autodiff.tape.convolution import Convolution, MaxPool, MeanPool
from chainrule.autodiff.tape.losses import CrossEntropy, Softmax, SoftmaxCrossEntropy
from chainrule.autodiff.tape.modules import (
    GELU,
    Add,
    Divide,
    Embedding,
    ErfGELU,
    Exp,
    LayerNorm,
    LeakyReLU,
    Linear,
    Log,
    MatMul,
    Maximum,
    Mean,
    Multiply,
    Power,
    ReLU,
    RMSNorm,
    RunningMean,
    Scale,
    Sigmoid,
    Subtract,
    Sum,
    Tanh,
)
from chainrule.autodiff.tape.moves import Concat, Reshape, Slice, Stack, Transpose
from chainrule.autodiff.tape.nodes import Array, Node, Parameter, Part, SparseRows, Value
from chainrule.autodiff.tape.tape import Module, Stage, Tape, current_tape, no_grad, tape_bwd

__all__ = ["Array", "Module", "Node", "Parameter", "Part", "SparseRows", "Stage", "Tape", "Value"]
__all__ += ["current_tape", "no_grad", "tape_bwd"]
__all__ += ["Embedding", "Linear", "MatMul", "Mean", "RunningMean", "Scale", "Sum"]
__all__ += ["GELU", "ErfGELU", "Exp", "LeakyReLU", "Log", "ReLU", "Sigmoid", "Tanh"]
__all__ += ["Add", "Divide", "Maximum", "Multiply", "Power", "Subtract"]
__all__ += ["Convolution", "LayerNorm", "MaxPool", "MeanPool", "RMSNorm"]
__all__ += ["MergeHeads", "Rotate", "ScaledDotProductAttention", "SplitHeads"]
__all__ += ["Concat", "Reshape", "Slice", "Stack", "Transpose"]
__all__ += ["CrossEntropy", "Softmax", "SoftmaxCrossEntropy"]
