"""Neural language models on the tape, with the same parameters as their torch counterparts.

In reading order:

    network.py        `TapeNetwork`: the interface and the parts that all networks share
    feedforward.py    hidden layers over the last n-1 tokens, or over the mean of all tokens read
    cells.py          one step of an Elman, LSTM, GRU or QRNN cell
    recurrent.py      recurrent networks, made of layers of cells; quasi-recurrent ones
    transformer.py    the Transformer decoder: blocks, attention, positions
    cache.py          keys and values that it has computed
"""
