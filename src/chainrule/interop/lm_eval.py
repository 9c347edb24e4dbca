"""A model folder in lm-evaluation-harness: `loglikelihood`, `loglikelihood_rolling` and `generate_until`.

The harness has no plug-ins for models, so a class is known to it once its module is imported. On the command line
this module is run in place of `lm_eval`, and passes everything on:

    python -m chainrule.interop.lm_eval run --model chainrule --model_args path=DIR --tasks blimp

In Python an object is enough:

    lm_eval.simple_evaluate(ChainruleLM("DIR"), tasks=["lambada_openai"])

What is scored is what `chainrule.evaluate` scores: every line ends in </s>, each token is predicted once, and a
long text is not cut into windows by the harness, since models here read texts of any length. So bits_per_byte of a
text is that of `chainrule evaluate`. In `loglikelihood` no </s> is added: a continuation may go on.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.contract.kinds import load
from chainrule.contract.lm import LanguageModel, tokens_at_once
from chainrule.decode.strategies import Greedy, MinP, Strategy, Temperature, TopK, TopP
from chainrule.errors import ChainruleError, SettingsError, importing
from chainrule.evaluation.measure import score_ids
from chainrule.evaluation.surprisal import score
from chainrule.interop.continuations import score_continuations, write_until
from chainrule.tokens.base import encode_in_parallel, utf8

with importing("lm_eval", "harness", "an adapter to lm-evaluation-harness"):
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model

DEFAULT_TOKENS = 256
"""The tokens to write where a task sets no limit: that of the harness's own models."""
_DEFAULT_DEVICE = "cuda:0"
_ROWS_TO_WRITE = 64
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # in the harness's order
_CHOOSING = ("do_sample", "temperature", "top_k", "top_p", "min_p")


class ChainruleLM(LM):  # type: ignore[misc]
    """A language model of chainrule, as the harness calls models."""

    def __init__(
        self,
        path: str | Path | LanguageModel,
        *,
        device: str = "auto",
        dtype: str = "float32",
        seed: int = 0,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        """The model of a folder, or one that is already loaded, which stays on its device.

        A `batch_size` above 1 bounds the texts that are read or written at once. Otherwise, also with the harness's
        own default of 1 and with "auto", their number follows from their length. The device cuda:0, the default of
        the harness's command line, is the CPU where there is no GPU, as for the harness's own models.
        """
        super().__init__()
        if isinstance(path, LanguageModel):
            self.lm, self.path = path, None
        else:
            device = "auto" if device == _DEFAULT_DEVICE else device
            self.lm, self.path = load(path, device=device, dtype=dtype, tasks=["language"]), str(path)
        self.seed = seed
        self.rows = _rows(batch_size, max_batch_size)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Return ln p of each continuation after its context, and whether greedy decoding writes it.

        White space at the end of a context is scored with the continuation, as by the harness's own models. After
        an empty context one space at the beginning of a continuation is left out: it is the delimiter that the
        harness puts between a text and its target, and there is no text.
        """
        pairs = [_divided(*request.args) for request in requests]
        scored = score_continuations(self.lm, pairs, rows=self.rows)
        return [self._cached("loglikelihood", *found) for found in zip(requests, map(tuple, scored), strict=True)]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Return ln p of each text, every line of which ends in </s>; texts are independent of each other."""
        texts = [request.args[0] for request in requests]
        found = self._log_probs(texts)
        return [self._cached("loglikelihood_rolling", *pair) for pair in zip(requests, found.tolist(), strict=True)]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Return a continuation of each context up to a stop string, by the settings of its request."""
        texts = [""] * len(requests)
        alike: dict[str, list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            alike[repr(request.args[1])].append(place)  # requests of one setting are written in one batch
        at_once = self.rows or _ROWS_TO_WRITE
        for places in alike.values():
            for first in range(0, len(places), at_once):
                some = [requests[place] for place in places[first : first + at_once]]
                written = self._written([request.args[0] for request in some], some[0].args[1])
                for place, text in zip(places[first : first + at_once], written, strict=True):
                    texts[place] = self._cached("generate_until", requests[place], text)
        return texts

    def get_model_info(self) -> dict[str, Any]:
        """Return what the harness records about the model in its results."""
        return {
            "chainrule_path": self.path,
            "chainrule_model": repr(self.lm),
            "chainrule_context": self.lm.context,
        }

    def _log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """Return ln p of each text; one that is too long to be read at once is read in pieces."""
        lm, long = self.lm, tokens_at_once(self.lm)
        found = np.zeros(len(texts))
        # a token has a byte at least: a text of fewer bytes is surely short
        is_short = np.asarray([lm.context == "line" or len(utf8(text)) < long for text in texts], dtype=bool)
        if is_short.any():
            found[is_short] = score(
                lm, [text for text, short in zip(texts, is_short, strict=True) if short]
            ).log_prob
        for place in np.flatnonzero(~is_short).tolist():
            block = utf8(texts[place]).replace(b"\r\n", b"\n")
            found[place] = sum(
                float(piece.sum()) for piece in score_ids(lm, encode_in_parallel(lm.tokenizer, block))
            )
        return found

    def _written(self, prompts: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
        until = settings.get("until") or []
        length = next((int(settings[name]) for name in _LENGTHS if settings.get(name) is not None), DEFAULT_TOKENS)
        return write_until(
            self.lm,
            prompts,
            [until] if isinstance(until, str) else until,
            strategy_of(settings),
            max_tokens=length,
            seed=self.seed,
        )

    def _cached(self, method: str, request: Any, answer: Any) -> Any:
        """Return the answer, which is kept for a run that was interrupted, if the harness keeps answers."""
        self.cache_hook.add_partial(method, request.args, answer)
        return answer


def _divided(context: str, continuation: str) -> tuple[str, str]:
    """Return a context and its continuation, divided where the harness divides them."""
    if not context:
        return context, continuation.removeprefix(" ")
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def strategy_of(settings: Mapping[str, Any]) -> Strategy:
    """Return the strategy that a task's settings of generation ask for; one that is not known is an error.

    As in the harness, text is written greedily unless `do_sample` is true, or a temperature above 0 says so.
    """
    known = {"until", *_LENGTHS, *_CHOOSING}
    if unknown := sorted(settings.keys() - known):
        raise SettingsError(
            f"generation_kwargs: unknown setting {unknown[0]!r} (there are: {', '.join(sorted(known))})"
        )
    temperature = settings.get("temperature")
    is_sampled = settings.get("do_sample")
    if is_sampled is None:
        is_sampled = bool(temperature)
    if not is_sampled or temperature == 0:
        return Greedy()
    strategy: Strategy = Temperature(1.0 if temperature is None else float(temperature))
    if settings.get("top_k"):
        strategy = strategy | TopK(int(settings["top_k"]))
    if settings.get("top_p") not in (None, 1, 1.0):
        strategy = strategy | TopP(float(settings["top_p"]))
    if settings.get("min_p"):
        strategy = strategy | MinP(float(settings["min_p"]))
    return strategy


def _rows(batch_size: int | str | None, most: int | None) -> int | None:
    """Return the most texts to read at once: `batch_size`, or `most` if that is 1 or auto."""
    wanted = str(1 if batch_size is None else batch_size)
    if not wanted.isdecimal() and not wanted.startswith("auto"):
        raise SettingsError(f"batch_size should be a whole number or auto, not {batch_size!r}")
    return int(wanted) if wanted.isdecimal() and int(wanted) > 1 else most


def main() -> None:
    """Run the command line of the harness, in which the model `chainrule` is known."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except ChainruleError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    # Run as a script, this file is the module __main__; the harness gets the module that others import.
    from chainrule.interop.lm_eval import main as run_harness

    run_harness()
else:
    register_model("chainrule")(ChainruleLM)
