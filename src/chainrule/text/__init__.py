"""Text: how it is read and cleaned, and how it is split into parts for training, validation and test.

files.py     files of any supported form, as blocks of clean UTF-8
corpus.py    `Corpus`: text from any source, in blocks or document by document
split.py     train, validation and test parts, split by document
"""
