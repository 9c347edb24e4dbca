"""The contract: what a language model promises, and how models are found.

In reading order:

    model.py          `Model`: what every trained model has, whatever it does
    lm.py             `LanguageModel` and `State`: five methods
    capabilities.py   what a model can do beyond the five methods, and what that costs: declared by the model
    chain.py          the slow reference: the chain rule, one token at a time
    tasks.py          what models do: tasks by name
    data.py           what a kind is trained on
    confusion.py      the counts that taggers and classifiers share
    kinds.py          the kinds of model by name; `load`
    counting.py       the number of a model's parameters, with formulas, before it is trained

The laws that hold for every model are in `chainrule.testing`.
"""
