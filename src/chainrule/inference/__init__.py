"""Networks at work, once they are trained.

In reading order:

    torch_model.py   what models of torch share: the device and precision of their weights
    state.py         what a network remembers of the tokens it has read
    model.py         any network as a language model: <s>, padding, sliding windows, probabilities
    windows.py       the window of tokens that a network reads, and how it slides
    cutting.py       caches cut where the tokens end that are kept of those read ahead
    by_graph.py      writing and reading by CUDA graphs
    loading.py       networks from stored arrays
    gpu/             sampling from a Transformer on a GPU by kernels and captured steps
"""
