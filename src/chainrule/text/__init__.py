"""Text: reading and cleaning it, and splitting it into parts for training, validation and test.

builtin/     the texts that come with the package
sources.py   the files of a name, a pattern or a folder
remote.py    files at addresses, such as s3://bucket/books/*.txt
hub.py       datasets of the Hugging Face hub, hf://OWNER/NAME
files.py     files as blocks of clean UTF-8, decompressed
masking.py   zeros for the times, numbers and addresses of logs
records.py   the text in fields of jsonl, CSV and parquet files
corpus.py    `Corpus`: text from any source, in blocks or document by document
given.py     text as callers of functions give it: strings are text, paths are files
shards.py    a corpus in shards, each read by a worker
batches.py   the records of a corpus in batches
pairs.py     sources and their targets, a pair on each line
labelled.py  texts with a label for each, from records or LABEL TAB TEXT lines
templates.py prompts and conversations, as a model that is tuned to reply reads them
tagged.py    sentences with a tag for each word, from CoNLL-U or word/TAG lines
split.py     train, validation and test parts, split by document
overlap.py   which lines of a text another text has too
"""
