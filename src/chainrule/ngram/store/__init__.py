"""Storage: an n-gram model as a compact trie, walked as an automaton.

In reading order:

    codes.py              numbers for words that are evenly spread after any context, and search among them
    trie.py               the n-grams as a compact trie
    values.py             log-probabilities and log-backoffs, plain or quantised
    automaton.py          scoring: the trie walked word by word, backing off where an n-gram is missing
    normalise.py          backoffs that make the probabilities after every context sum to one; models in fewer bits
    parts.py              automata taken apart and put together
    bitstream.py          integers of a few bits each, packed into 32-bit words
    compiled.py           the options by which kernels that allocate nothing are compiled
    kernels.py            Numba kernels: reading and searching the trie, its hash index, packing bit streams
    scoring_kernels.py    Numba kernels that score a text, and compute ln p of every word after a context
"""
