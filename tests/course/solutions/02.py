"""Right answers to lesson 2, for any student."""

import math
from collections import Counter
from itertools import pairwise

import chainrule as cr
from chainrule.tokens.subwords.merges import merge_steps

TALK = "henry is giving a lecture on language models a model of words is a language model"


def cut(word, merges):
    tokens = list(word)
    for left, right in merges:
        i = 0
        while i < len(tokens) - 1:
            if tokens[i : i + 2] == [left, right]:
                tokens[i : i + 2] = [left + right]
            i += 1
    return tokens


def learn_bpe(text, count):
    merges = []
    while len(merges) < count:
        words = [cut(word, merges) for word in text.split()]
        counts = Counter(pair for tokens in words for pair in pairwise(tokens))
        if not counts:
            break
        most = max(counts.values())
        merges.append(min(pair for pair in counts if counts[pair] == most))
    return merges


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(2, student).data
    typed = data["typed"].lower().split()
    steps = merge_steps(Counter(data["text"].split()))
    ranked = [next(steps).ranked()[0] for _ in range(3)]
    return {
        "answer_1": sum(word not in TALK.split() for word in typed) / len(typed),
        "answer_2": [left + right for left, right, _ in ranked],
        "cut": cut,
        "learn_bpe": learn_bpe,
        "answer_5": math.floor(data["budget"] / (2 * data["width"] + 1)),
        "answer_6": (data["as_characters"] / data["as_pieces"]) ** 2,
    }
