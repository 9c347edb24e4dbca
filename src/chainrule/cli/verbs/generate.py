"""`chainrule generate`: text from a model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.decoding import chosen_strategy, strategy_options
from chainrule.cli.output import console, echo, print_json, show, terminal_progress
from chainrule.errors import MissingExtraError
from chainrule.system.display import ResultTable

if TYPE_CHECKING:
    from chainrule.decode.drafts import Draft
    from chainrule.decode.generate import Generation


@click.command()
@opt.model
@opt.options("""
    --prompt TEXT  What the text begins with.
    --chat
        Take --prompt for a message to a model that was tuned to reply: put it into the model's template, and
        print the reply alone.
""")
@opt.heal
@strategy_options("sample", beams=4, ending="any")
@opt.options("""
    --max-tokens N : int = 100  Maximum number of tokens.
    -n N : int = 1 as count     Number of texts.
    --draft DIR|context... as drafts
        Let a faster model of the same tokenizer guess tokens, which the model then checks several at a time; or
        copy guesses from the text itself. Repeatable: the first that has a guess.
    --draft-tokens K : int      With --draft: how many tokens are guessed at once. [default: 5]
    --draft-sampled             With --draft: draw the guesses at random, as the text is drawn.
    --figures                   Then say how much the texts repeat themselves and vary.
""")
@opt.group(opt.compute, opt.seed, opt.json)
def generate(folder: str, count: int, as_json: bool, drafts: tuple[str, ...], **options: Any) -> None:
    """Generate text with the model in DIR.

    The same seed and prompt give the same text. A model of lines writes one line; one whose context flows across
    lines writes --max-tokens tokens. Options that narrow the choice apply in the order: penalties, temperature,
    top-k, top-p, min-p.

    A model that was tuned on prompts and replies (chainrule train, pretrained=DIR) replies with --chat.

    With --draft, the text is the same as without it, and comes faster where guesses are right; at the end a line
    on standard error says how many are. (With --draft-sampled it is another text of the same
    distribution.)

    The columns of --figures, for the words of all -n texts together, without the prompt:

    \b
    distinct-1, -2    different words, different pairs of words, as a share of all
    repeated 4-grams  the share of the runs of four words that stand earlier in any of the texts
    loops             the share that stand earlier in the same text
    self-BLEU         BLEU of each text with the others as references: 100 if all are equal
    """
    from chainrule.decode.drafts import DraftTally
    from chainrule.decode.generate import stream_many
    from chainrule.decode.replies import expect_template, reply_many
    from chainrule.system import parallel
    from chainrule.text.templates import prompted

    note = terminal_progress().note
    parallel.listeners.append(note)
    click.get_current_context().call_on_close(lambda: parallel.listeners.remove(note))
    strategy, prompt = chosen_strategy(options), options["prompt"] or ""
    if options["strategy"] == "greedy" and count > 1:
        raise click.UsageError("greedy always gives the same text: -n needs --strategy sample or beam")
    lm = opt.load_model(folder, options, "language", writes=not drafts)
    draft = _draft(drafts, options["draft_tokens"], options["draft_sampled"])
    if draft is not None:
        draft.check(lm, strategy)
    is_chat = options["chat"]
    asked = prompted(expect_template(lm), prompt) if is_chat else prompt
    opt.note_unknown_prompt(lm, asked, options["heal"] and not is_chat)
    tally, began = DraftTally(), time.perf_counter()
    how: Any = {name: options[name] for name in ("max_tokens", "seed", "heal")}
    how |= {"n": count, "draft": draft, "tally": tally}
    if not isinstance(strategy, cr.Beam) and not (as_json or is_chat or options["figures"]):
        _print_pieces(stream_many(lm, prompt, strategy, **how), lm, prompt, count, options["max_tokens"])
    else:
        texts = (reply_many if is_chat else cr.generate_many)(lm, [prompt], strategy, **how)
        if as_json:
            names = ["text", "prompt", "tokens", "log_prob", "finished", *(["steps", "drafted"] if draft else [])]
            objects = [{name: getattr(text, name) for name in names} for text in texts]
            for one, text in zip(objects, texts, strict=True):
                one |= {"text": text.continuation, "prompt": prompt} if is_chat else {}
            print_json({"texts": objects, "figures": _figures(texts)} if options["figures"] else objects)
        elif is_chat:
            for text in texts:
                echo(text.continuation)
        else:
            pieces = ((number, text.continuation) for number, text in enumerate(texts))
            _print_pieces(pieces, lm, prompt, count, options["max_tokens"])
        if options["figures"] and not as_json:
            found = _figures(texts)
            shares = [f"{found[name]:.3f}" for name in ("distinct_1", "distinct_2")]
            shares += [f"{found[name]:.1%}" for name in ("repeated_4grams", "loops")]
            bleu = "" if found["self_bleu"] is None else f"{found['self_bleu']:.1f}"
            headings = ["texts", "words", "distinct-1", "distinct-2", "repeated 4-grams", "loops", "self-BLEU"]
            row = [f"{found['texts']:,}", f"{found['words']:,}", *shares, bleu]
            show(console(), ["", ResultTable(headings, [row])])
    if draft is not None:
        note(
            f"drafts: {tally.tokens / max(tally.steps, 1):.2f} tokens a step, "
            f"{tally.accepted:,} of {tally.drafted:,} drafted tokens accepted; "
            f"{tally.tokens / max(time.perf_counter() - began, 1e-9):,.0f} tokens/s"
        )


def _draft(drafts: tuple[str, ...], tokens: int | None, sampled: bool) -> Draft | None:
    """Return the models that guess tokens, or None."""
    from chainrule.decode.drafts import CONTEXT, DRAFT_TOKENS, Draft

    if not drafts:
        if tokens is not None or sampled:
            raise click.UsageError(f"--draft-{'sampled' if tokens is None else 'tokens'} needs --draft")
        return None
    # on the CPU, where counting models are fast, beside a model on any device
    sources = tuple(name if name == CONTEXT else cr.load(name, tasks=["language"]) for name in drafts)
    return Draft(sources, tokens=DRAFT_TOKENS if tokens is None else tokens, sampled=sampled)


def _figures(texts: Sequence[Generation]) -> dict[str, Any]:
    """Return how much texts repeat themselves and vary; self-BLEU is None without sacrebleu, or for one text."""
    from chainrule.evaluation.variety import self_bleu, variety_of

    written = [text.continuation for text in texts]
    try:
        bleu = self_bleu(written)
    except MissingExtraError as error:
        terminal_progress().note(str(error))
        bleu = None
    return {"texts": len(written), **asdict(variety_of(written)), "self_bleu": bleu}


def _print_pieces(
    pieces: Iterator[tuple[int, str]], lm: cr.LanguageModel, prompt: str, count: int, max_tokens: int
) -> None:
    """Print texts as their pieces come, each after the prompt; each piece appears at once, in a pipe too."""
    last, is_empty = -1, True
    for number, piece in pieces:
        if number > last:
            echo("\n" * (number > 0), nl=False)
            if count > 1 and lm.context == "stream":  # whose texts contain line ends
                echo(f"--- {number + 1}")
            echo(prompt, nl=False)
        echo(piece, nl=False)
        last, is_empty = number, is_empty and not piece.strip()
    echo()
    if is_empty and max_tokens:
        where = "a line of the training text ends where the prompt does" if prompt.strip() else "empty lines do"
        which, other = (
            "the text" if count == 1 else "each text",
            "another --prompt" if prompt.strip() else "--prompt",
        )
        terminal_progress().note(f"{which} ended at once, as {where}: give {other}, or another --seed")
