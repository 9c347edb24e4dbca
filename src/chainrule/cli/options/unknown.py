"""Hints for an option that a verb does not have: the option or setting that was probably meant."""

from __future__ import annotations

from contextlib import suppress

import click

from chainrule.errors import ChainruleError

_LENGTHS = ("length", "max_length", "max_new_tokens", "num_tokens", "n_tokens", "tokens", "words", "max_words")
_NUMBERS = ("n", "num", "number", "samples", "num_samples", "num_return_sequences", "k", "limit", "head")
_ALSO_CALLED = {
    "--max-tokens": _LENGTHS,
    "-n": _NUMBERS,
    "-k": _NUMBERS,
    "--top": _NUMBERS,
    "--temperature": ("temp", "t"),
    "--top-k": ("topk", "k"),
    "--top-p": ("topp", "nucleus", "p"),
    "--beams": ("beam", "num_beams", "beam_size", "beam_width"),
    "--next": ("token", "word", "target", "next_token", "next_word"),
    "--prompt": ("text", "input", "prefix", "context"),
    "--max-perplexity": ("threshold", "perplexity", "max_ppl", "ppl", "limit"),
    "--threshold": ("min_bits", "bits", "cutoff"),
    "--keep": ("share", "fraction", "ratio", "percent", "quantile"),
    "--held-out": ("validation", "dev", "val", "eval"),
    "--minutes": ("time", "max_time", "max_minutes"),
    "--out": ("output", "o", "output_dir", "save"),
    "--overwrite": ("force", "f", "exist_ok"),
    "--field": ("column", "key", "text_field", "text_column", "fields"),
    "--device": ("gpu", "cuda"),
    "--weight": ("weights", "lambda", "lambdas"),
    "--weights": ("weight", "lambda", "lambdas"),
}
"""The names of these options in other programs, with _ between words; the first that a verb has is meant."""

_ON_CPU, _BY_MODEL = "this verb computes on the CPU", "the model decides, by chainrule train --mask or --no-mask"
_NOT_HERE = {"device": _ON_CPU, "gpu": _ON_CPU, "cuda": _ON_CPU, "mask": _BY_MODEL, "no_mask": _BY_MODEL}
"""The hints for options that only other verbs have."""


_VERBS_ALSO_CALLED = {
    "evaluate MODEL TEXT": ("perplexity", "ppl", "eval", "test", "measure", "entropy"),
    "generate MODEL": ("sample", "write", "continue", "run"),
    "suggest MODEL --prompt TEXT": ("complete", "autocomplete", "next"),
    "score MODEL TEXT": ("surprisal", "surprisals", "logprob", "log_prob", "probability"),
    "train KIND CORPUS": ("fit", "learn", "finetune", "ngram", "lstm", "transformer"),
    "convert MODEL FILE": ("export_arpa", "arpa"),
    "kinds": ("models", "list", "architectures"),
    "--help": ("help", "man", "usage"),
    "correct MODEL TEXT": ("spell", "spellcheck", "spelling"),
}
"""The names of these verbs in other programs."""


def verb_hint(name: str) -> str | None:
    """Say which verb was probably meant; None if the name is not known.

    >>> verb_hint("perplexity")
    'use chainrule evaluate MODEL TEXT'
    """
    found = next((verb for verb, others in _VERBS_ALSO_CALLED.items() if name.replace("-", "_") in others), None)
    return None if found is None else f"use chainrule {found}"


def hint(error: click.NoSuchOption, arguments: list[str]) -> str | None:
    """Say what to give instead of an unknown option; None if its name is not known."""
    name = error.option_name.lstrip("-").replace("-", "_")
    command = error.ctx.command if error.ctx is not None else None
    options = (
        {option for parameter in command.params for option in parameter.opts} if command is not None else set()
    )
    meant = next((ours for ours, others in _ALSO_CALLED.items() if ours in options and name in others), None)
    use = None if meant is None else f"use {meant}"
    if use is not None and "--set" not in options:
        return use
    if use is None and name in _NOT_HERE:
        return _NOT_HERE[name]
    if name == "prompt" and command is not None and any("TEXT" in (one.metavar or "") for one in command.params):
        return "give the TEXT itself, in quotes"
    return _as_setting(error.option_name, name, arguments) or use  # a verb that takes settings means one of them


def _as_setting(option: str, name: str, arguments: list[str]) -> str | None:
    """Say how to give a setting that was given as an option; None if there is no setting of that name."""
    from dataclasses import fields

    from chainrule.contract.kinds import find_kind, kind_names
    from chainrule.settings import ALSO_CALLED

    settings = {}
    for kind in kind_names():
        with suppress(ChainruleError):  # a kind whose library is missing
            settings[kind] = [field.name for field in fields(find_kind(kind).settings)]
    others = [ours for ours, theirs in ALSO_CALLED.items() if name in theirs]
    name = next((one for one in (name, *others) if any(one in names for names in settings.values())), name)
    having = [kind for kind, names in settings.items() if name in names]
    if not having:
        return None
    chosen = next((word for word in arguments if word in kind_names()), None)
    if "train" in arguments and chosen is not None and chosen not in having:
        return f"{name} is a setting of {', '.join(having)}, not of {chosen}"
    if "train" in arguments or "resume" in arguments:
        return f"{name} is a setting, --set {name}={_value_of(option, arguments)}"
    return f"{name} is a setting of {', '.join(having)}, for chainrule train KIND ... --set {name}=VALUE"


def _value_of(option: str, arguments: list[str]) -> str:
    """Return the value that the command line gives to an option, or the word VALUE."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and following and not following.startswith("-"):
            return following
    return "VALUE"
