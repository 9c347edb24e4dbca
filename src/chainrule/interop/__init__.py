"""Interoperation: models and texts of chainrule in other programs, and theirs here.

continuations.py  ln p of a continuation after a context, and text written until a stop string
lm_eval.py        lm-evaluation-harness: an `LM` over any model folder
sklearn.py        scikit-learn: `PerplexityClassifier`, one language model for each class
"""
