"""Sampling from a network on a GPU, token by token: steps captured as CUDA graphs and replayed.

In reading order:

    step.py             one token a row through a Transformer, by Triton kernels
    step_kernels.py     the kernels of a step: norms, matrix products, attention
    recurrent_step.py   one token a row through a recurrent decoder that has a source
    recurrent_kernels.py  its kernels: attention to the source, and what rows keep
    choice.py           the choice of the next token, by kernels
    choice_kernels.py   the kernels of the choice: the best tokens, strategies, sampling
    fixed_memory.py     the memory of any network at fixed addresses
    graph_sampling.py   a whole step of sampling, or the reading of several tokens, as a CUDA graph
    guess_table.py      a hash table of contexts and the tokens that may follow them
    draft_kernels.py    the kernels of drafting: guesses, and those that are kept
    graph_drafting.py   drafting, reading, choosing and keeping as one CUDA graph
    search_kernels.py   the kernels of a beam: the best continuations, and the keys and values they go on with
    graph_search.py     ranking, moving and reading of a beam search as one CUDA graph
    captured.py         the graphs of one model, captured when they are first used
"""
