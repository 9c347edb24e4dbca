"""Classify functions by their module: three modules of Python's library; half of the functions are for training."""

import argparse
import inspect
import re
import statistics
import tarfile

from chainrule.interop.sklearn import PerplexityClassifier

functions = {
    module.__name__: re.split(r"\n *def ", inspect.getsource(module)) for module in (argparse, statistics, tarfile)
}
texts = [text for some in functions.values() for text in some]
authors = [name for name, some in functions.items() for _ in some]

classifier = PerplexityClassifier().fit(texts[::2], authors[::2])
print(f"{classifier.score(texts[1::2], authors[1::2]):.1%} of {len(texts[1::2])} functions")
