"""The way from a corpus to a model, for every kind of model.

In reading order:

    prepare.py    the tokenizer, held-out text split off the corpus, and each text as ids
    train.py      `chainrule.train`: a corpus in, a model out
    record.py     what a run folder knows of its training: run.json
    resume.py     `chainrule.resume`: a training that was stopped goes on
"""
