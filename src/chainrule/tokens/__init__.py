"""Tokens: text as a sequence of small integers.

base.py          `Tokenizer`: the interface of all tokenizers, and helpers that they share
byte.py          bytes as tokens: nothing to learn
vocabulary.py    limits on a vocabulary: which items are kept
char.py          characters as tokens
words/           words as tokens
subwords/        subwords as tokens: BPE, WordPiece and Unigram
published.py     tokenizers of published models, by their own tokenizer.json
spelling.py      the bytes that each token spells, for texts that stop inside a token
spans.py         where the tokens of a text stand in it
ids.py           a corpus as ids in one memory-mapped file, written by threads or by the workers of an engine
registry.py      tokenizers by name, and their tokenizer.json
"""
