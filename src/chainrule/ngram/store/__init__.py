"""Storage: an n-gram model as a compact trie, walked as an automaton.

In reading order:

    codes.py                numbers for words that are evenly spread after any context
    trie.py                 the n-grams as a compact trie
    values.py               log-probabilities and log-backoffs, plain or quantised
    automaton.py            scoring: the trie walked word by word, backing off where an n-gram is missing
    normalise.py            backoffs that make the probabilities after every context sum to one
    quantised.py            automata in fewer bits
    parts.py                automata taken apart and put together
    index.py                an optional hash index, for faster lookups
    bitstream.py            integers of a few bits each, packed into 32-bit words
    search.py               binary search in many sorted ranges at once
    struct.py               the arrays of a model as named tuples, as kernels take them
    kernels.py              Numba kernels: reading the trie, and search
    index_kernels.py        Numba kernels of the hash index
    scoring_kernels.py      Numba kernels that score a text
    next_kernels.py         Numba kernels: the nodes of a context, and ln p of every word after it
    bitstream_kernels.py    Numba kernels that pack bit streams
"""
