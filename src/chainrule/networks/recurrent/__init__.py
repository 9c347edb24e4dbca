"""Recurrent networks: Elman networks, LSTMs and GRUs.

In reading order:

    cells.py         the equations of a cell, one time step at a time
    fused_layer.py   a layer of cells over whole sequences, computed fast
    rnn.py           the network: embeddings, layers, head
    both_ways.py     layers over whole sequences, in one direction or in both
"""
