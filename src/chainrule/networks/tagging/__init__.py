"""Networks that tag words: each word becomes features, layers read them in both directions, a head gives the tags.

In reading order:

    config.py   configurations and settings of taggers, without torch
    words.py    the features of a word: its vector, its spelling, and those of a pretrained encoder
    tagger.py   recurrent layers or Transformer blocks over them
"""
