"""Training a model of any kind: from a corpus to a model.

In reading order:

    prepare.py    the tokenizer, the split of held-out text, and each text as ids
    train.py      `chainrule.train`: a corpus in, a model out
    record.py     run.json: the description of a training in its run folder
    resume.py     `chainrule.resume`: continues a training that was stopped
"""
