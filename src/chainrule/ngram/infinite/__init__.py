"""N-gram models without a bound on the length: any suffix of the text that occurs in training text is a context.

In reading order:

    suffixes.py        the sorted contexts of a text, from which the counts of any context are read
    walk.py            walking text through them: the contexts that end at each token, and their counts
    any_length_model.py  the language model: smoothing and training
    kernels.py         the Numba kernels of suffixes.py and walk.py
    sample_kernels.py  those that sample and draft, from sorted lists of the words seen after each context
    sampler.py         their calls
"""
