"""Models made of models: mixtures, caches of what was just read, and weights that follow the text.

In reading order:

    caches.py    the tokens read lately as a distribution: by their counts, or by the likeness of their contexts
    gates.py     weights that depend on the context: on its length, on what an n-gram model knows of it, on entropy
    tuning.py    the weights under which held-out text is most likely
    settings.py  what a mixture is made of
    mixture.py   a mixture of models and caches as a language model
    dynamic.py   dynamic evaluation: networks that learn from a text while it is scored
    mix.py       from models and held-out text to a mixture
    kind.py      the kind `mixture`, and its model folder
"""

from __future__ import annotations

from chainrule.mixtures.dynamic import Dynamic

__all__ = ["Dynamic"]
