"""`python -m recipes NAME --data DIR --out DIR`: train the model of a recipe, save it, and measure it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import recipes
from chainrule.cli.output import terminal_progress
from chainrule.errors import ChainruleError
from chainrule.seq2seq.evaluate import TranslationMeasured
from chainrule.settings import split_words
from chainrule.tagging.evaluate import TaggingMeasured
from chainrule.training.checkpoints.run_folder import check_output, remove_checkpoints


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes", description=recipes.__doc__)
    parser.add_argument("name", nargs="?", help="the recipe [default: list them]")
    parser.add_argument("--data", type=Path, default=Path("data"), help="where the texts are [default: data]")
    parser.add_argument("--out", type=Path, help="the model folder to write")
    parser.add_argument("--device", default="auto", help="cpu, cuda, ... [default: an accelerator if there is one]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting")
    parser.add_argument("--overwrite", action="store_true", help="replace a model folder that exists")
    parser.add_argument("--keep", action="store_true", help="keep checkpoints, to make the training longer later")
    parser.add_argument("--resume", action="store_true", help="go on with a training that was stopped")
    options = parser.parse_args(arguments)
    if options.name is None:
        for name in recipes.names():
            print(f"{name}: {recipes.find(name).reaches}")
        return
    try:
        recipe = recipes.find(options.name)
        if options.out is None:
            parser.error("--out is missing: the model folder to write")
        _run(recipe, options)
    except ChainruleError as error:
        sys.exit(f"error: {error}")


def _run(recipe: recipes.Recipe, options: argparse.Namespace) -> None:
    settings = split_words(options.set)
    recipe.check(**settings)
    run_folder = options.out.with_name(f"{options.out.name}.run")
    check_output(options.out, run_folder, overwrite=options.overwrite, resume=options.resume)
    if options.overwrite and not options.resume:
        remove_checkpoints(run_folder)
    lm, measured = recipes.run(
        recipe,
        options.data,
        device=options.device,
        settings=settings,
        run_folder=run_folder,
        resume=options.resume,
        progress=terminal_progress(),
    )
    lm.metrics = {**lm.metrics, "test": measured.to_json()}
    lm.save(options.out, overwrite=options.overwrite)
    if not options.keep:
        remove_checkpoints(run_folder)  # the model is there: nothing is left to resume
    print(
        f"{options.out}: {lm.metrics['parameters'] / 1e6:,.1f} M parameters, "
        f"{lm.metrics['training_seconds']:,.0f} s; {_figures(measured)}"
    )


def _figures(measured: Any) -> str:
    if isinstance(measured, TaggingMeasured):
        return (
            f"accuracy {measured.accuracy:.2%}, of unknown words {measured.unknown_accuracy:.2%}; the most "
            f"frequent tag {measured.baseline:.2%}; {measured.count:,} words"
        )
    quality = ""
    if isinstance(measured, TranslationMeasured):
        quality = f"BLEU {measured.bleu:.1f} (copying: {measured.copied_bleu:.1f}), chrF {measured.chrf:.1f}, "
    loss = f"perplexity {measured.perplexity:,.2f}, {measured.nats:.4f} nats a token"
    return f"{quality}{loss}, {measured.tokens:,} tokens"


if __name__ == "__main__":
    main(sys.argv[1:])
