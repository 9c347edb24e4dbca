"""Writing with n-gram models, many thousand tokens a second, without computing the probability of every token.

In reading order:

    cut_kernels.py      a distribution as sorted lists, cut down to its most likely tokens
    draw_kernels.py     drawing from what is left
    walk_kernels.py     the nodes of a text's last words, moved on word by word
    past_kernels.py     the tokens that occurred in the text, for penalties
    level_kernels.py    the lists of the words seen after a context, made at its first visit and kept
    occurred_kernels.py the lists of words that occurred, beside those of a context
    stack_kernels.py    the lists of one distribution, together with words that are gathered at each visit
    step_kernels.py     writing: locate the contexts, stack the lists, apply the strategy, draw, walk on
    draft_kernels.py    guesses at the next words, for another model to check
    drafter.py          their call
    likeliest.py        the likeliest word after each context, for a device that guesses by itself
    rank_kernels.py     the most likely next tokens of a hypothesis
    search_kernels.py   beam search: rank, finish hypotheses, continue the best, walk on
    desk.py             what is kept between calls: lists, and arrays for one step
    writer.py           the call of the kernels
    searcher.py         those of a beam search, and its results
    compiled.py         how the kernels are compiled
"""
