"""Filtering: the fluent part of a corpus.

In reading order:

    filter.py      the perplexity of documents, which of them are kept, and counts of both
    documents.py   the documents of a corpus, in batches
    writing.py     kept documents, written in their own format
"""
