"""Right answers to lesson 4, for any student."""

import math
from collections import Counter

import numpy as np

import chainrule as cr
from chainrule.course.own_model import OwnModel


def pairs(lines):
    return [pair for line in lines for pair in zip(["<s>", *line.split()], [*line.split(), "</s>"], strict=True)]


class MyModel(OwnModel):
    """0.7 of the bigram, 0.25 of the unigram, 0.05 of the uniform distribution."""

    def __init__(self, texts):
        super().__init__(texts)
        self.bigrams = Counter(pairs(self.texts))
        self.contexts = Counter(a for a, _ in self.bigrams.elements())
        self.words = Counter(b for _, b in self.bigrams.elements())

    def probabilities(self, words):
        seen, found = self.contexts[words[-1]], {}
        for word in self.vocabulary:
            rest = 0.25 * self.words[word] / self.words.total() + 0.05 / len(self.vocabulary)
            found[word] = 0.7 * self.bigrams[words[-1], word] / seen + rest if seen else rest / 0.3
        return found


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(4, student).data
    train, size, before = data["train"], data["size"], data["before"]
    laplace = cr.train("ngram", train, order=2, smoothing="laplace", tokenizer="word")

    def best_k(train, test, size, ks):
        bigrams = Counter(pairs(train))
        contexts = Counter(a for a, _ in bigrams.elements())
        found = [
            np.exp(-np.mean([np.log((bigrams[a, b] + k) / (contexts[a] + k * size)) for a, b in pairs(test)]))
            for k in ks
        ]
        return {"perplexities": found, "best": ks[int(np.argmin(found))]}

    def discounted(counts, lower, d):
        total = sum(counts.values())
        kept = {word: max(counts.get(word, 0) - d, 0) / total for word in lower}
        free = 1 - math.fsum(kept.values())
        return {"kept": kept, "free": free, "p": {word: kept[word] + free * p for word, p in lower.items()}}

    def comparison(folder):
        described = folder.parent / "ladder.toml"
        described.write_text(data["ladder"])
        words = cr.TokenizerChoice("word", vocab_size=1000)
        return cr.compare(data["plays"], folder, ladder=described, tokenizer=words), "bigram"

    return {
        "answer_1": 1 / (sum(a == before for a, _ in pairs(train)) + size),
        "answer_2": 1 / size,
        "answer_3": laplace.perplexity(data["sentence"]),
        "best_k": best_k,
        "discounted": discounted,
        "MyModel": MyModel,
        "comparison": comparison,
    }
