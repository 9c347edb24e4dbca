"""Scaling laws: how the loss falls with the size of a network and the amount of text, and what that says.

In reading order:

    law.py    L(N, D) = E + A/N^a + B/D^b: its fit, and the size that suits a budget
    sizes.py  the sizes of networks and shares of the text, as they are given
    grid.py   `scale`: a grid of Transformers trained and measured, and the law fitted to it
"""
