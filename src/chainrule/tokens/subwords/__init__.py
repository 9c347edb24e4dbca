"""Subwords as tokens: byte-level BPE, WordPiece and Unigram.

merges.py          how BPE learns its vocabulary, slowly and obviously
tokenizer.py       `SubwordTokenizer`, on top of the `tokenizers` library
fast_encoder.py    a much faster BPE encoder, used as long as it gives the same ids
"""
