"""python measure.py MODEL... FILE.jsonl prints, for each model, how close its replies are to those of a file.

ROUGE-1, ROUGE-2 and ROUGE-L are F-scores of words, pairs of words and longest common subsequences, by the package
rouge-score; the exact match is the share of replies that are the same. A model that translates reads the prompt as
its source. The first row, for comparison, replies with the first sentence of the prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rouge_score.rouge_scorer import RougeScorer

import chainrule as cr
from chainrule.decode import reply_many

KINDS = ("rouge1", "rouge2", "rougeL")


def replies(folder: str, prompts: Sequence[str]) -> list[str]:
    lm = cr.load(folder)
    if lm.needs_source:
        return cr.translate(lm, prompts)
    return [one.continuation for one in reply_many(lm, prompts, cr.Greedy())]


def row(name: str, written: Sequence[str], right: Sequence[str]) -> str:
    scorer = RougeScorer(KINDS, use_stemmer=False)
    found = [scorer.score(b, a) for a, b in zip(written, right, strict=True)]
    means = [100 * sum(one[kind].fmeasure for one in found) / len(found) for kind in KINDS]
    exact = 100 * sum(a == b for a, b in zip(written, right, strict=True)) / len(right)
    return "\t".join([name, *(f"{value:.1f}" for value in [*means, exact])])


def main(*given: str) -> None:
    prompts, right = zip(*cr.Pairs.open(Path(given[-1]), fields=("prompt", "reply")), strict=True)
    print("model", *KINDS, "exact", sep="\t")
    print(row("first sentence", [prompt.partition(".")[0] for prompt in prompts], right))
    for folder in given[:-1]:
        print(row(folder, replies(folder, prompts), right))


if __name__ == "__main__":
    main(*sys.argv[1:])
