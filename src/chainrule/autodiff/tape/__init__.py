"""The tape: modules with a forward and a backward pass, and reverse-mode automatic differentiation over them.

In reading order:

    tape.py         `Module` and `Tape`: the forward pass is recorded, the backward pass replays it in reverse
    pool.py         arrays that a tape uses again
    nodes.py        `Node`, the leaves of a graph, `Value` (data) and `Parameter`, and sparse gradients
    modules.py      modules that do arithmetic: products, functions of one and of two numbers, sums, means, norms
    convolution.py  convolution, and pooling by maximum or mean
    recurrence.py   whole recurrent layers as single modules
    attention.py    heads, rotary positions, scaled dot-product attention
    losses.py       softmax and cross-entropy
    moves.py        modules that only rearrange numbers: concatenate, stack, slice, reshape, transpose
    shapes.py       checks of shapes, and the gradient of broadcasting
    gradcheck.py    gradients compared with finite differences
"""
