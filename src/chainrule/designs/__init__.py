"""Designs of networks, independent of the engine: shared by torch, the tape and the kinds, without importing torch.

In reading order:

    networks.py       configurations of feed-forward, bag-of-words and recurrent networks; sizes of their tables
    transformer.py    the configuration of a Transformer, and presets known by name
    seq2seq.py        the configuration of encoder-decoders, and the settings of their kind
    masked.py         the settings of masked models
    tagging.py        the configuration and the settings of taggers
    training.py       the settings of the training loop
    settings.py       the settings of each kind: a configuration and its training
    defaults.py       values for settings that are left open
    memory.py         the memory that a network keeps of the rows it has read
    word_vectors.py   word vectors read from a file, to initialise an embedding table
"""
