"""Tokens: text as a sequence of small integers.

base.py          `Tokenizer`: the interface of all tokenizers, and helpers that they share
vocabulary.py    limits on a vocabulary: which items are kept
char.py          characters, or bytes, as tokens
words/           words as tokens
subwords/        subwords as tokens: BPE, WordPiece and Unigram
lowercase.py     any of these tokenizers, for text in lower case
published.py     tokenizers of published models, by their own tokenizer.json
spelling.py      the bytes that each token spells, and where the tokens of a text stand in it
ids.py           a corpus as ids in one memory-mapped file, written by threads or by the workers of an executor
registry.py      tokenizers by name, and their tokenizer.json
"""
