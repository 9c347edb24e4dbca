"""Text: how it is read and cleaned, and how it is split into parts for training, validation and test.

sources.py   the files that a name, a pattern or a folder stands for
remote.py    files at addresses, such as s3://bucket/books/*.txt
hub.py       datasets of the Hugging Face hub, hf://OWNER/NAME
files.py     files as blocks of clean UTF-8, decompressed
records.py   the text in fields of jsonl, CSV and parquet files
corpus.py    `Corpus`: text from any source, in blocks or document by document
given.py     text as callers give it: strings are text, paths are files
shards.py    a corpus in shards, which workers read by themselves
batches.py   a corpus as records to be scored, many at a time
pairs.py     sources and their targets, a pair on each line
tagged.py    sentences with a tag for each word, from CoNLL-U or word/TAG lines
split.py     train, validation and test parts, split by document
"""
