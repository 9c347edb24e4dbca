"""Names of options: one name for one thing, earlier names still taken, and settings told from options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chainrule.cli.main import verbs
from chainrule.cli.options.unknown import _ALSO_CALLED

from .running import TRAIN_NGRAM, Fails, Run, sets


def options() -> dict[str, dict[str, Any]]:
    """The names that help shows for the options of each verb."""
    return {
        str(verb.name): {parameter.opts[0]: parameter for parameter in verb.params if parameter.opts[0][0] == "-"}
        for verb in verbs()
    }


def test_one_thing_has_one_name() -> None:
    every = options()
    assert not [verb for verb, names in every.items() if "--valid" in names]
    assert [verb for verb, names in every.items() if "--text" in names] == ["predict"]
    reading = (
        "scale sweep train compare mix evaluate score tag classify tokenize translate filter predict anomalies"
    )
    for option, having in (
        ("--held-out", "train resume compare mix sweep tokenize"),
        ("--prompt", "generate inspect suggest predict diagnose explain report"),
        ("--minutes", "train compare scale"),
        *((option, f"{reading} correct") for option in ("--field", "--files", "--encoding-errors")),
    ):
        assert {verb for verb, names in every.items() if option in names} == set(having.split())


def test_options_of_one_name_take_the_same_values() -> None:
    kinds: dict[str, set[tuple[str, str | None]]] = {}
    for names in options().values():
        for name, parameter in names.items():
            kinds.setdefault(name, set()).add((parameter.type.name, parameter.metavar))
    differing = {name for name, found in kinds.items() if len(found) > 1}
    # --out is a folder; of diagnose, whose figures are lines of JSON, and of filter, a file. --keep keeps what it
    # takes to resume a training, and of a corpus that is filtered a share. --vocab-size of count, which reads no
    # text, is a number and never a share.
    assert differing == {"--out", "--keep", "--vocab-size"}


def test_earlier_names_are_taken_and_not_shown(
    run: Run, corpus: Path, held_out: Path, tmp_path: Path, fails: Fails
) -> None:
    assert run(*TRAIN_NGRAM, corpus, "--valid", held_out, "--out", tmp_path / "m").code == 0
    assert "--valid" not in run("train", "--help").out + run("compare", "--help").out


def test_words_are_added_by_a_setting_of_another_name_than_the_closed_vocabulary(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("zebras\n", encoding="utf-8")
    plain = run(*TRAIN_NGRAM, corpus, "--out", tmp_path / "plain", "--json").json["vocab_size"]
    for setting in ("extra_words", "vocabulary"):  # the second is its earlier name
        words = ["--set", f"{setting}={tmp_path / 'words.txt'}", "--out", tmp_path / setting, "--json"]
        assert run(*TRAIN_NGRAM, corpus, *words).json["vocab_size"] == plain + 1
    closed = ["--vocabulary", tmp_path / "words.txt", "--out", tmp_path / "closed", "--json"]
    assert run(*TRAIN_NGRAM, corpus, *closed).json["vocab_size"] == 3 + 1


def test_minutes_are_short_for_the_setting(run: Run, fails: Fails, corpus: Path, tmp_path: Path) -> None:
    words = ["train", "elman", "--tokenizer", "word", corpus, *sets("hidden=8", "embedding=8", "engine=tape")]
    assert run(*words, "--out", tmp_path / "m", "--minutes", "0.01").code == 0
    assert '"minutes": 0.01' in (tmp_path / "m" / "manifest.json").read_text(encoding="utf-8")
    words += ["--out", tmp_path / "n"]
    assert "choose one of --minutes and --set minutes=M" in fails(*words, "--minutes", 1, "--set", "minutes=1")
    ngram = [*TRAIN_NGRAM, corpus, "--out", tmp_path / "n"]
    assert "the kind ngram has no setting minutes" in fails(*ngram, "--minutes", 1)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([*TRAIN_NGRAM, "c", "--order", "5"], "No such option '--order': order is a setting, --set order=5 (see"),
        ([*TRAIN_NGRAM, "c", "--order=7"], "--set order=7 (see"),
        (
            ["train", "lstm", "--tokenizer", "word", "c", "--learning-rate", "--out", "m"],
            "--set learning_rate=VALUE (see",
        ),
        ([*TRAIN_NGRAM, "c", "--dropout", "0.1"], "dropout is a setting of feedforward, bagofwords, transformer,"),
        (["compare", "c", "--order", "3"], "for chainrule train KIND ... --set order=VALUE (see"),
        (
            ["train", "lstm", "--tokenizer", "word", "c", "--lr", "0.1"],
            "learning_rate is a setting, --set learning_rate=0.1 (see",
        ),
        ([*TRAIN_NGRAM, "c", "-n", "3"], "order is a setting, --set order=3 (see"),
        (["resume", "m.run", "--minutes", "3"], "minutes is a setting, --set minutes=3 (see"),
        (
            ["explain", "m", "a b", "--device", "auto"],
            "No such option '--device': this verb computes on the CPU (see",
        ),
        (["generate", "m", "--gpu"], "use --device (see"),
        (["generate", "m", "My lord"], '(My lord): give a text as --prompt "TEXT" (see'),
        (["score", "m", "--prompt", "to be"], "No such option '--prompt': give the TEXT itself, in quotes (see"),
        (["evaluate", "m", "--prompt", "to be"], "give the TEXT itself, in quotes (see"),
        (["help"], "No such command 'help': use chainrule --help (see"),
        (["anomalies", "m", "app.log", "--mask"], "the model decides, by chainrule train --mask or --no-mask (see"),
    ],
)
def test_a_setting_that_is_given_as_an_option(fails: Fails, words: list[str], hint: str) -> None:
    assert hint in fails(*words)


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["generate", "m", "--length", "20"], "--max-tokens"),  # also a setting of networks, which is not meant
        (["generate", "m", "--max-new-tokens=20"], "--max-tokens"),
        (["generate", "m", "--n", "2"], "-n"),
        (["generate", "m", "--temp", "0.5"], "--temperature"),
        (["anomalies", "m", "log", "-k", "5"], "--top"),  # k is a setting of ngram, too
        (["filter", "m", "c", "--threshold", "5"], "--max-perplexity"),
        (["explain", "m", "--prompt", "a", "--token", "b"], "--next"),
        (["mix", "a", "b", "--dev", "v"], "--held-out"),
        ([*TRAIN_NGRAM, "c", "--output", "m"], "--out"),
    ],
)
def test_an_option_by_the_name_that_others_give_it(fails: Fails, words: list[str], ours: str) -> None:
    name = words[-2] if words[-1][0] != "-" else words[-1].partition("=")[0]
    assert f"No such option '{name}': use {ours} (see chainrule {words[0]} --help)" in fails(*words)


def test_every_option_that_a_hint_names_is_one_of_some_verb() -> None:
    options = {option for verb in verbs() for parameter in verb.params for option in parameter.opts}
    assert set(_ALSO_CALLED) <= options


def test_an_option_that_is_no_setting_is_only_unknown(fails: Fails) -> None:
    message = fails(*TRAIN_NGRAM, "c", "--oot", "m")
    assert "No such option '--oot'" in message and "setting" not in message


def test_the_settings_of_a_kind_come_in_groups(run: Run) -> None:
    shown = run("kinds", "lstm", "--all").out
    places = [
        shown.index(f"\n{group}\n") for group in ("size", "regularisation", "duration", "optimisation", "hardware")
    ]
    assert min(places) > 0
    size = shown.partition("\nsize\n")[2].partition("\n\n")[0]
    assert [line.split("=")[0].strip() for line in size.splitlines()] == ["embedding", "hidden", "layers", "last"]
    groups = {entry["group"] for entry in run("kinds", "lstm", "--json").json[0]["settings"]}
    assert {"size", "regularisation", "optimisation", "schedule", "hardware"} <= groups


def test_the_list_of_verbs_says_what_each_does_in_whole_sentences(run: Run) -> None:
    lines = run("--help").out.partition("Commands:\n")[2].splitlines()
    assert len(lines) == len(verbs())
    assert all(line.endswith(".") and not line.endswith("...") and len(line) <= 80 for line in lines)


@pytest.mark.parametrize("verb", ["correct", "explain", "fill", "tag", "classify"])
def test_a_text_without_quotes(fails: Fails, verb: str) -> None:
    assert "(cat sat): a text of several words goes in quotes (see" in fails(verb, "model", "Teh", "cat", "sat")
    assert "in quotes" not in fails("inspect", "model", "Teh", "cat", "--prompt", "a")


def test_train_shows_its_common_options_and_all_of_them(run: Run) -> None:
    brief, full = run("train", "--help").out, run("train", "--help-all").out
    assert "--out DIR" in brief and "--help-all" in brief and "--encoding-errors" not in brief
    common, _, more = full.partition("More options:")
    assert "--out DIR" in common and "--encoding-errors" in more
    shown = [name for name in options()["train"] if f" {name} " in brief]
    assert len(shown) <= 19  # two of them, --field and --label-field, in the text


def test_kinds_lists_common_settings_and_all_of_them(run: Run) -> None:
    common, every = (run("kinds", "lstm", *more).out.splitlines() for more in ((), ("--all",)))
    listed = [line for line in common if line.startswith("  ")]
    assert listed and set(listed) <= set(every)
    assert len(run("kinds", "lstm", "--json").json[0]["settings"]) >= len(listed)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["perplexity", "model", "text"], "use chainrule evaluate MODEL TEXT"),
        (["sample", "model"], "use chainrule generate MODEL"),
        (["train", "rnn", "corpus.txt", "--out", "m"], "did you mean 'elman' or 'lstm' or 'gru'?"),
        (["train", "gpt", "corpus.txt", "--out", "m"], "did you mean 'transformer'?"),
    ],
)
def test_names_of_other_programs_point_to_the_verb_or_kind(fails: Fails, words: list[str], meant: str) -> None:
    assert meant in fails(*words)
