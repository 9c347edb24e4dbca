"""Tasks: language models put to work, each with the field's metric.

filtering.py   the fluent part of a corpus: documents of low perplexity
    prediction.py  suggestions as one types: the keystrokes that they save
    anomalies.py   the least likely lines of a log, and the tokens that make them so
"""
