"""N-gram models: counted, smoothed, stored as a compact trie, walked as an automaton.

In reading order:

    settings.py     the settings of an n-gram model
    estimate/       from a text to the probabilities of its n-grams: counting, smoothing, tuning, pruning
    store/          the model as a compact trie, and the automaton that walks it to score and sample
    sampling/       sampling by kernels, without computing the probability of every token
    tables.py       n-grams, counts and bigrams of a model as tables
    ngram_model.py  `NgramModel`: an automaton as a language model
    table_model.py  `Table`: probabilities that are written, not counted, as a language model
    train.py        training: count, smooth, prune, quantise, index; and the kinds `ngram` and `anygram`
    mix.py          two models interpolated into one
    arpa/           ARPA files, the text format in which n-gram toolkits exchange models
    infinite/       models without a bound on the length of n-grams
    loading.py      the model of a folder, checked
    evidence.py     one prediction, context by context: what `chainrule explain` shows
    segments.py     sums over segments of arrays, and <s> inserted before sequences
    workspace.py    large arrays in memory, or in temporary files under a memory cap
"""

from __future__ import annotations

from chainrule.ngram.mix import interpolate

__all__ = ["interpolate"]
