"""Neural language models: small torch networks, and the one adapter that makes language models of them.

In reading order:

    networks/      the architectures: token ids in, features out
    windows.py     the tokens that a network with a window still sees, and how the window slides
    inference/     any network as a language model
    gpu/           sampling from a Transformer by Triton kernels and CUDA graphs
    traces.py      a forward pass that keeps states, gates and attention weights, for `chainrule diagnose`
"""
