"""Words as tokens.

splitting.py    where words begin and end
table.py        distinct words, numbered and counted
kernels.py      the Numba kernels behind the table
learning.py     a vocabulary and the ids of its text, learned in one pass
tokenizer.py    `WordTokenizer`, and vocabularies read from a file
"""
