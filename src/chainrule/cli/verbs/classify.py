"""`chainrule classify`: the label of each text."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_options, open_text, text_argument
from chainrule.cli.output import echo, echo_json

_AT_ONCE = 256  # texts


@click.command()
@opt.model
@text_argument
@opt.options("""
    --format [text|label|json] = text as form
        LABEL, its probability and the text, separated by tabs; the label alone; or a JSON object for each text.
""")
@opt.group(corpus_options, opt.compute)
def classify(folder: str, text: str, form: str, **options: Any) -> None:
    """Give each text of TEXT a label, by the classifier in DIR.

    Each line of TEXT, or the --field of each of its records, is a text; empty ones are left out. TEXT is a file, a
    folder, a pattern in quotes, - for standard input, or a text of several words itself.

    With --format json: an object per line, with text, label, probability and log_probs, ln p of every label.

    \b
    chainrule classify model "Where is the station?"
    chainrule classify model reviews.jsonl --field text --format json
    """
    from chainrule.classification.contract import Classifier
    from chainrule.text.labelled import single_texts

    classifier = Classifier.expect(opt.load_model(folder, options, "classification"))
    texts = single_texts(open_text(options, text))
    while some := list(islice(texts, _AT_ONCE)):
        for found in classifier.classify(some):
            if form == "json":
                log_probs = {label: round(value, 6) for label, value in found.log_probs.items()}
                shown = {"text": found.text, "label": found.label, "probability": round(found.probability, 6)}
                echo_json({**shown, "log_probs": log_probs})
            else:
                echo(found.label if form == "label" else str(found))
