"""N-gram models without a bound on the length: any suffix of the text that occurs in training text is a context.

In reading order:

    suffixes.py       the sorted contexts of a text, from which the counts of any context are read
    walk.py           walking text through them: the contexts that end at each token, and their counts
    model.py          the language model: smoothing and training
    loading.py        a model from its folder
    kernels.py        the Numba kernels of suffixes.py and walk.py
    write_kernels.py  those that write text, from sorted lists of the words seen after each context
    writer.py         their call
    draft_kernels.py  those that guess the next words, for another model to check
    drafter.py        their call
    likeliest.py      the commonest token after each short context, for a device that guesses by itself
"""
