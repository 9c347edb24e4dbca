"""One prediction of a model, explained: its probability step by step, and the values and gradients of a network.

In reading order:

    reading.py       the text that is explained, as token ids
    explanation.py   `explain`: how a model predicts one token, as an `Explanation`
    ngrams.py        the explanation of an n-gram model: contexts, weights, and the product or sum that gives p
    mixtures.py      the explanation of a mixture: the weight of each model, and the probability by each of them
    networks.py      the explanation of a network: its graph, and the gradients that flow back
    pictures/        one prediction drawn as a graph, with the gradients that flow back
    following.py     one token on its way through a Transformer
    attention.py     the attention of one token by one head, number by number
    trace.py         the gradients through time, gates and attention weights of one prediction on the tape
    diagnosis.py     `diagnose`: a trace as tables, records and a picture
    weights.py       rows of a weight matrix as a picture
    positions.py     encodings of positions as tables, and how good they are
    growth.py        operations and time of a network by the length of the text
    torch_trace.py   the diagnosis of a torch network that the tape does not compute
    neighbours.py    `neighbours`: the tokens whose vectors in a network's table are most alike
"""

from __future__ import annotations

from chainrule.explanation.diagnosis import Diagnosis
from chainrule.explanation.explanation import Explanation

__all__ = ["Diagnosis", "Explanation"]
