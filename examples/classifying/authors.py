"""Classify functions by their module: three modules of Python's library; half of the functions are for training."""

import argparse
import inspect
import re
import statistics
import tarfile

import chainrule as cr

functions = [
    (text, module.__name__)
    for module in (argparse, statistics, tarfile)
    for text in re.split(r"\n *def ", inspect.getsource(module))
]
classifier = cr.train("bayes", functions[::2], tokenizer="char", lm_settings="order=4")
found = cr.classification.evaluate_classifier(classifier, functions[1::2])
low, high = found.intervals["accuracy"]
print(f"{found.accuracy:.1%} of {found.count} functions (95 % interval {low:.1%} to {high:.1%})")
