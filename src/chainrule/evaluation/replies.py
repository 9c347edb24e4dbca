"""How well a model replies to prompts: the perplexity of the replies, and how many it gives word for word."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from chainrule.contract.data import TrainingData
from chainrule.contract.lm import LanguageModel, score_in_pieces
from chainrule.decode.replies import reply_many, template_of
from chainrule.decode.strategies import Greedy
from chainrule.evaluation.metrics import perplexity_of
from chainrule.runs.prepare import encode_pairs
from chainrule.system.disk import scratch_folder
from chainrule.system.display import Measurements, number
from chainrule.system.progress import Reports, as_progress
from chainrule.text.pairs import GivenPairs, as_pairs
from chainrule.text.templates import TEMPLATE
from chainrule.training.tuning import ReplyExamples


@dataclass(frozen=True)
class RepliesMeasured(Measurements):
    """The measurements of a model on prompts and their replies."""

    perplexity: float
    """Per token of the replies, their ends included, given the prompts."""
    nats: float
    """Cross-entropy per token, natural logarithm."""
    bits: float
    """Cross-entropy per token, base 2."""
    pairs: int
    tokens: int
    """Tokens of replies, ends included."""
    exact: float
    """Exact match: the share of the prompts to which the most likely tokens, one by one, are the given reply."""
    seconds: float
    """The time to reply to all prompts."""

    def figures(self) -> dict[str, str]:
        shown = {name: number(getattr(self, name), 4) for name in ("perplexity", "nats", "bits")}
        return {
            **shown,
            "exact match": f"{self.exact:.1%}",
            "pairs": f"{self.pairs:,}",
            "tokens": f"{self.tokens:,}",
        }


def evaluate_replies(lm: LanguageModel, pairs: GivenPairs, *, progress: Reports = False) -> RepliesMeasured:
    """Measure a model on prompts and their replies, by its template, or the usual one if it has none."""
    LanguageModel.expect(lm)
    progress, examples = as_progress(progress), as_pairs(pairs)
    with scratch_folder() as folder:
        template = template_of(lm) or TEMPLATE
        _, encoded, sources = encode_pairs({"train": examples}, lm.tokenizer, folder, progress, template=template)
        data = TrainingData(lm.tokenizer, encoded["train"], None, lm.context, sources=sources)
        texts = ReplyExamples.of(data, encoded["train"], sources.train)
        starts, ends, skips = texts.targets.starts, texts.targets.ends, texts.skips
        scores = np.concatenate(list(score_in_pieces(lm, encoded["train"].ids, starts, ends)))
    sums = np.concatenate([np.zeros(1), np.cumsum(scores)])
    nats = -float((sums[ends] - sums[starts + skips]).sum())
    began, mean = time.perf_counter(), nats / texts.tokens
    asked, given = zip(*examples, strict=True)
    most = int((texts.targets.lengths - skips).max())
    with progress.task("replying", len(asked), "prompts"):
        written = [one.continuation for one in reply_many(lm, asked, Greedy(), max_tokens=most)]
    return RepliesMeasured(
        perplexity=perplexity_of(mean),
        nats=mean,
        bits=mean / math.log(2),
        pairs=len(asked),
        tokens=texts.tokens,
        exact=float(np.mean([one == other for one, other in zip(written, given, strict=True)])),
        seconds=time.perf_counter() - began,
    )
