"""The tape: modules with a forward and a backward pass, and reverse-mode automatic differentiation over them.

In reading order:

    tape.py         `Module` and `Tape`: the forward pass is recorded, the backward pass replays it in reverse
    nodes.py        `Node`, and the leaves of a graph: `Value` (data) and `Parameter`
    gradients.py    sparse gradients: rows of a table, or a slice of an array
    modules.py      modules that do arithmetic: products, activations, sums, means
    norms.py        layer norm and root-mean-square norm
    attention.py    heads, rotary positions, scaled dot-product attention
    losses.py       softmax and cross-entropy
    moves.py        modules that only rearrange numbers: concatenate, stack, slice, reshape, transpose
    shapes.py       checks of shapes, and the gradient of broadcasting
    pool.py         large arrays, reused from step to step
    gradcheck.py    gradients compared with finite differences
    cases.py        small inputs on which every module is checked
"""
