"""Pictures of a computation: one prediction of a network as a graph of values and gradients, drawn as SVG.

In reading order:

    prediction.py    the prediction, computed token by token under the symbols of the lectures
    graph.py         `Graph`: the nodes and edges recorded on a tape, with the norms of their gradients
    layout.py        the place of each box and the path of each arrow
    drawing.py       the SVG
"""
