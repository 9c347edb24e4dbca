"""Recurrent networks: Elman networks, LSTMs, GRUs and QRNNs.

In reading order:

    settings.py        the settings of each kind, without torch
    cells.py           the equations of a cell, one time step at a time
    fused_layer.py     a layer of cells over whole sequences, computed fast
    stream.py          a few long sequences on a GPU, with the recurrent weights in its registers
    stream_kernels.py  its Triton kernel
    rnn.py             the network: embeddings, layers, head
    scan.py            y_t = a_t ⊙ y_{t-1} + b_t for all times at once
    qrnn.py            quasi-recurrent networks: a convolution and such a scan
    both_ways.py       layers over whole sequences, in one direction or in both
"""
