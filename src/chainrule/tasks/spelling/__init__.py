"""Spelling correction by a noisy channel: the word that was meant, given the typed one and its context.

    argmax_w  p(w | context) p(typed | w)

words.py        the words of a line, with case and punctuation apart; words of a vocabulary within two edits
kernels.py      the search for near words, and their costs, compiled
forms.py        words that the vocabulary lacks and makes likely
channel.py      p(typed | w): the probabilities of edits, by default or learned from pairs
correct.py      `correct`: a beam search over each line, scored by any language model of words
measure.py      accuracy on misspelled words, beside a baseline, and wrong corrections of clean text
"""
