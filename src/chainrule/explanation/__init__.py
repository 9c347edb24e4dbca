"""One prediction of a model looked into: how its probability comes about, and what goes on inside a network.

In reading order:

    reading.py       the text that is looked at, as token ids
    explain.py       `explain`: how a model predicts one token
    explanation.py   `Explanation`: what the explanations of all kinds have in common
    ngrams.py        the explanation of an n-gram model: contexts, weights, and the product or sum that gives p
    mixtures.py      the explanation of a mixture: the weight of each model, and what each of them says
    formulas.py      the equation of each smoothing method, written out with its numbers
    networks.py      the explanation of a network: its graph, and the gradients that flow back
    torch_trace.py   one prediction of a torch network, of which states, gates and gradients are kept
    tape_trace.py    the same of a network on the tape
    pictures/        one prediction drawn as a graph, with the gradients that flow back
    diagnosis.py     `diagnose`: gradients through time, gates and attention weights of a network
    neighbours.py    `neighbours`: the tokens whose vectors in a network's table are most alike
"""

from __future__ import annotations

from chainrule.explanation.diagnosis import Diagnosis
from chainrule.explanation.explanation import Explanation

__all__ = ["Diagnosis", "Explanation"]
