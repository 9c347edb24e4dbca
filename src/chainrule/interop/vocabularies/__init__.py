"""Tokenizers to and from the files of other programs.

ours.py            our tokenizers as a tokenizer.json of the `tokenizers` library
encoders.py        those of masked models and encoder-decoders, which put tokens around a text
definitions.py     the parts that a tokenizer.json is put together from
files.py           tokenizer.json, GPT-2's encoder.json and vocab.bpe, .tiktoken files
sentencepiece.py   .model files of SentencePiece, and tokenizer.bin files of llama2.c
"""
