"""chainrule: every family of language model behind one small interface.

A language model gives every text a probability, one token at a time: ln p(x) = Σ ln p(x_t | x_<t).
This docstring is a lesson, and it runs.

>>> import chainrule as cr

A string is text, and a list of strings is several texts; a file is a `pathlib.Path`. Here are three sentences of a
famous toy. A model is trained on them: a trigram model that knows only what it has counted (maximum likelihood).

>>> corpus = ["i love cats", "i love dogs", "cats chase mice"]
>>> lm = cr.train("ngram", corpus, order=3, smoothing="mle", tokenizer="word")

Its tokenizer turns text into small integers and back. 0, 1 and 2 are <unk>, <s> and </s>, which no text becomes.

>>> lm.tokenizer.encode("i love cats").tolist()
[4, 5, 3]
>>> lm.tokenizer.decode([4, 5, 3])
'i love cats'

The chain rule at work. Two of three sentences begin with "i"; "love" always follows; then it is cats or dogs, half
and half; and then the line ends. So p = 2/3 · 1 · 1/2 · 1.

>>> import math
>>> round(math.exp(lm.log_prob("i love cats")), 6)
0.333333

What was never counted is impossible, and a perplexity that has to cover it is infinite. Smoothing mends that.

>>> lm.perplexity("i love mice")
inf
>>> smooth = cr.train("ngram", corpus, order=3, smoothing="laplace", tokenizer="word")
>>> round(smooth.perplexity("i love mice"), 2)
5.59

Every model has the same small contract. A state stands for what was read; it is a value, and can be extended in
several ways without being changed.

>>> after_i = lm.extend(lm.start(1), lm.tokenizer.encode("i")[None])
>>> after_love = lm.extend(after_i, lm.tokenizer.encode("love")[None])
>>> p = cr.to_numpy(lm.next_log_probs(after_love))[0]
>>> {lm.tokenizer.token(i): float(round(math.exp(p[i]), 3)) for i in range(len(p)) if p[i] > -math.inf}
{'cats': 0.5, 'dogs': 0.5}

Decoding needs nothing but that contract: how to choose is a small value, and values compose.

>>> cr.generate(lm, "cats", cr.Greedy())
'cats chase mice'
>>> cr.generate(smooth, "i", cr.Temperature(0.8) | cr.TopP(0.9), seed=3)
'i love dogs'

So does help for someone who writes: a prompt is text, which may stop inside a word.

>>> [(s.word, round(s.probability, 3)) for s in cr.suggest(lm, "i love c")]
[('cats', 1.0)]

And so does evaluation.

>>> measured = cr.evaluate(smooth, corpus)
>>> measured.tokens, round(measured.perplexity, 2)
(12, 4.28)
>>> cr.score(smooth, ["i love cats", "mice love cats"]).perplexity.round(2).tolist()
[4.07, 7.5]
"""

from __future__ import annotations

import sys

import lazy_loader

from chainrule._renamed import RenamedModules, renamed_name
from chainrule._version import __version__ as __version__

# `__init__.pyi` lists the public names. They are imported when they are first used, so that `chainrule --help`
# waits for none of them.
_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
sys.meta_path.append(RenamedModules())


def __getattr__(name: str) -> object:
    return renamed_name(name) or _public(name)
