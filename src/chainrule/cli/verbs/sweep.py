"""`chainrule sweep`: one kind of model with several values of its settings, in one table."""

from __future__ import annotations

from typing import Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.options.declaring import names_from
from chainrule.cli.output import emit, terminal_progress
from chainrule.errors import SettingsError


@click.command(short_help="Train a kind with several values of its settings, in one table.")
@click.argument("kind", shell_complete=names_from("chainrule.contract.kinds:kind_names"))
@texts.corpus_argument
@opt.options(
    """
    --vary KEY=VALUE,... required
        The values of a setting, or of vocab_size or min_count; given several times, every combination is trained.
    --set KEY=VALUE... as settings       A setting that all models have; repeatable.
    --held-out FILE... formerly --valid  Text to measure on; repeatable. [default: 10 % of CORPUS]
    """,
    vary={"multiple": True},
)
@texts.tokenizer_options("word")
@texts.context_option()
@opt.seed
@opt.device
@texts.corpus_options
@opt.json
def sweep(kind: str, corpus: tuple[str, ...], vary: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Train KIND on CORPUS with several values of its settings, and measure each model on held-out text.

    The table has a row for each combination; the models are not kept. It shows how perplexity depends on k, on the
    order of n-grams or on the size of the vocabulary.

    \b
    chainrule sweep ngram corpus.txt --set smoothing=add-k --vary order=1,2,3 --vary k=0.01,0.1,1
    chainrule sweep ngram corpus.txt --set smoothing=laplace --set order=2 --vary vocab_size=100,1000,5000
    """
    from chainrule.comparison.sweep import sweep, sweep_parts
    from chainrule.contract.kinds import find_kind
    from chainrule.contract.tasks import LANGUAGE
    from chainrule.settings import split_words

    the_kind = find_kind(kind)
    if wrong := [word for word in vary if "=" not in word]:
        raise click.UsageError(f"--vary takes KEY=VALUE,VALUE,..., not {wrong[0]!r}")
    if the_kind.task != LANGUAGE.name:
        raise SettingsError(f"a sweep measures perplexity: take a kind that predicts text, not {kind}")
    text, held_out = texts.open_corpora(options, corpus, options["held_out"] or None)
    assert text is not None
    found = sweep(
        the_kind,
        text,
        # vocab-size, too, as the option is written
        {name.replace("-", "_"): values.split(",") for name, values in split_words(vary).items()},
        split_words(options["settings"]),
        held_out=held_out,
        tokenizer=texts.tokenizer_choice(options, "word"),
        context=options["context"],
        seed=options["seed"],
        device=options["device"],
        progress=terminal_progress(),
    )
    emit(as_json, [one.to_json() for one in found], *sweep_parts(found), style="bold green")
