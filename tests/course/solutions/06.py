"""Right answers to lesson 6, for any student."""

import heapq
import math
from itertools import pairwise

import chainrule as cr
from chainrule.course.own_model import OwnModel


class Bigrams(OwnModel):
    def probabilities(self, words):
        texts = [["<s>", *text.split(), "</s>"] for text in self.texts]
        following = [b for text in texts for a, b in pairwise(text) if a == words[-1]]
        size = len(self.vocabulary)
        return {word: (following.count(word) + 0.1) / (len(following) + 0.1 * size) for word in self.vocabulary}


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(6, student).data
    names, heap, questions = data["names"], sorted(data["four"]), 0.0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        questions += joined
        heapq.heappush(heap, joined)

    def divergence(p, q):
        entropy = sum(a * math.log2(1 / a) for a in p)
        cross_entropy = sum(a * math.log2(1 / b) for a, b in zip(p, q, strict=True))
        return {"entropy": entropy, "cross_entropy": cross_entropy, "kl": cross_entropy - entropy}

    return {
        "answer_1": -sum(p * math.log2(p) for p in data["probabilities"]),
        "answer_2": questions,
        "answer_3": 2 ** (3 / 4 * math.log2(4) + 1 / 4 * math.log2(4 * names)),
        "perplexity": lambda p: 2 ** (-sum(math.log2(one) for one in p) / len(p)),
        "divergence": divergence,
        "mine": Bigrams,
    }
