"""Right answers to lesson 3, for any student."""

import math
from collections import Counter

import chainrule as cr


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(3, student).data
    corpus, sentence, who, whom = data["corpus"], data["sentence"], data["who"], data["whom"]
    size = data["vocabulary_size"]

    def ngram_counts(lines, n):
        counts = {}
        for line in lines:
            tokens = ["<s>"] * (n - 1) + line.split() + ["</s>"]
            for end in range(n, len(tokens) + 1):
                *context, word = tokens[end - n : end]
                counts.setdefault(tuple(context), Counter())[word] += 1
        return counts

    def score(counts, sentence):
        tokens = ["<s>", "<s>", *sentence.split(), "</s>"]
        contexts = [tuple(tokens[i - 2 : i]) for i in range(2, len(tokens))]
        probabilities = []
        for context, word in zip(contexts, tokens[2:], strict=True):
            row = counts.get(context, {})
            probabilities.append(row.get(word, 0) / sum(row.values()) if row else 0)
        log_probs = [math.log(p) if p else -math.inf for p in probabilities]
        return {
            "contexts": contexts,
            "probabilities": probabilities,
            "log_probs": log_probs,
            "total": sum(log_probs),
        }

    lm = cr.train("ngram", corpus, order=3, smoothing="mle", tokenizer="word")
    row = ngram_counts(corpus, 3)["the", whom]
    return {
        "answer_1": sum(line.split()[1] == who for line in corpus) / len(corpus),
        "answer_2": math.exp(lm.log_prob(sentence)),
        "answer_3": {word: count / row.total() for word, count in row.items()},
        "ngram_counts": ngram_counts,
        "answer_5": size**2 * (size - 1),
        "score": score,
    }
