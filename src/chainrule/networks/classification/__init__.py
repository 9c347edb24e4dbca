"""Networks that classify texts: an encoder reads the tokens, a pool makes one vector of them, a head gives labels.

In reading order:

    config.py      the settings of classifiers, without torch
    classifier.py  the encoders, the pool and the head
"""
