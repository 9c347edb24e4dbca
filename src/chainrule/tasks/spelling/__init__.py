"""Spelling correction by a noisy channel: which word was meant, given the one that was typed and its context.

    argmax_w  p(w | context) p(typed | w)

words.py        the words of a line, with case and punctuation apart
channel.py      p(typed | w): the probabilities of edits, by default or learned from pairs
candidates.py   the words of a vocabulary within two edits
correct.py      `correct`: a beam search over each line, scored by any language model of words
measure.py      accuracy on misspelled words, beside a baseline, and false corrections of clean text
"""
