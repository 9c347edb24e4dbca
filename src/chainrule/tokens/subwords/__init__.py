"""Subwords as tokens: byte-level BPE, WordPiece and Unigram.

merges.py          how BPE learns its vocabulary, slowly and obviously
sections.py        long pieces and long lines, cut
library.py         the `tokenizers` library: pieces, learning, definitions
tokenizer.py       `SubwordTokenizer`, on top of the library
fast_encoder.py    a much faster BPE encoder, used as long as it gives the same ids
dropout.py         BPE that leaves out merges at random, for training
dropout_kernel.py  the same for all words of a text, compiled
"""
