"""Right answers to lesson 5, for any student."""

import numpy as np

import chainrule as cr
from chainrule.course.own_model import OwnModel

LADDER = """
[[model]]
kind = "ngram"
name = "laplace"
settings = { order = 3, smoothing = "laplace" }
[[model]]
kind = "ngram"
name = "interpolated"
settings = { order = 3, smoothing = "jelinek-mercer" }
"""


class Mixed(OwnModel):
    def probabilities(self, words):
        tokens = [["<s>", "<s>", *text.split(), "</s>"] for text in self.texts]
        grams = [one[i : i + 3] for one in tokens for i in range(len(one) - 2)]
        context = ["<s>", *words][-2:]
        size = len(self.vocabulary)
        rows = [
            [gram[2] for gram in grams if gram[:2] == context],
            [gram[2] for gram in grams if gram[1] == context[1]],
            [gram[2] for gram in grams],
        ]
        p, weight, left = dict.fromkeys(self.vocabulary, 0.0), [0.2, 0.97, 0.95], 1.0
        for row, stop in zip(rows, weight, strict=True):
            if row:
                for word in row:
                    p[word] += left * stop / len(row)
                left *= 1 - stop
        return {word: value + left / size for word, value in p.items()}


def em_step(p, weights):
    products = p * weights
    responsibilities = products / products.sum(axis=1)[:, None]
    return {"responsibilities": responsibilities, "weights": responsibilities.sum(axis=0) / len(p)}


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(5, student).data
    weights = data["lambdas"]

    lm = cr.train(
        "ngram",
        data["corpus"],
        order=3,
        smoothing="jelinek-mercer",
        lambdas=",".join(map(str, weights)),
        tokenizer="word",
    )
    (suggested,) = [one for one in cr.suggest(lm, f"the cat {data['verb']} the ", 50) if one.word == data["noun"]]

    def claim(folder):
        folder.mkdir(parents=True)
        ladder = folder / "ladder.toml"
        ladder.write_text(LADDER)
        tokenizer = cr.TokenizerChoice("word")
        found = cr.compare(data["more_stories"], folder / "out", ladder=ladder, tokenizer=tokenizer)
        return found, "interpolated"

    return {
        "answer_1": suggested.probability,
        "answer_2": em_step(np.array(data["tokens"]), np.array(weights))["weights"].tolist(),
        "mixture_perplexity": lambda p, weights: float(np.prod(p @ weights) ** (-1 / len(p))),
        "em_step": em_step,
        "claim": claim,
        "mixed": Mixed,
    }
