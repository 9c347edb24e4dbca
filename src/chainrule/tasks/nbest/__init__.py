"""Re-ranking of n-best lists, such as those of speech recognition or translation.

lists.py      lists of hypotheses with their scores and references, read from JSON
errors.py     word errors: edit distance between words, and rates with bootstrap confidence intervals
weights.py    minimum error rate training: the weights of scores with the fewest errors
rerank.py     `rerank`: lists re-ranked by given scores and a language model
"""
