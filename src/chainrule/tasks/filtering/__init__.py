"""Filtering: the fluent part of a corpus.

In reading order:

    filter.py      what a document's perplexity is, and which documents are kept
    documents.py   the documents of a corpus, in batches
    writing.py     what is written of them
    counts.py      what is counted
"""
