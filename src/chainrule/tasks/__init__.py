"""Tasks: language models put to work, each with the field's metric.

spelling/      spelling correction: a noisy channel and a language model
nbest/         n-best lists ordered anew: word error rates, weights of scores
pairs.py       minimal pairs: which of two sentences a model prefers
filtering/     the fluent part of a corpus: documents of low perplexity
prediction.py  suggestions as one types: the keystrokes that they save
anomalies.py   the least likely lines of a log, and the tokens that make them so
objects.py     JSON objects of a file, each with the place that errors name
"""
