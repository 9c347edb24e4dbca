"""Sampling with n-gram models, many thousand tokens a second, without computing the probability of every token.

In reading order:

    cut_kernels.py      a distribution as sorted lists, cut down to its most likely tokens
    draw_kernels.py     drawing from the tokens that are kept
    walk_kernels.py     the nodes of a text's last words, moved on word by word
    level_kernels.py    the lists of the words seen after a context, built at its first visit and kept
    penalty_kernels.py  the counts of the text, and the lists of tokens that occurred, for penalties
    stack_kernels.py    the lists of one distribution, together with words that are gathered at each visit
    sample_kernels.py   sampling: locate the contexts, stack the lists, apply the strategy, draw, move on
    workspace.py        the arrays that a thread keeps between calls
    sampler.py          the plan of a strategy, and the calls of the kernels
    drafts.py           guesses at the next words, for another model to check
    best_tokens.py      the most likely word after each context, for a device that drafts by itself
    beam_kernels.py     beam search: rank, finish hypotheses, continue the best, move on
    beam.py             the calls of these kernels, and the results of a search
"""
