"""Training a model of any kind: from a corpus to a model.

In reading order:

    prepare.py    the tokenizer, the split of held-out text, and each text as ids
    record.py     run.json: the description of a training in its run folder
    train.py      `chainrule.train`: a corpus in, a model out; `chainrule.resume` continues what was stopped
"""
