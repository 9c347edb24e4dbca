"""`chainrule generate`: text from a model."""

from __future__ import annotations

from pathlib import Path

import pytest

import chainrule as cr
from chainrule.system import devices

from .running import SENTENCES, TOY, Fails, Run, strict_json


def texts(run: Run, *words: object) -> list[str]:
    return [entry["text"] for entry in run("generate", *words, "--json").json]


def test_the_same_seed_writes_the_same_text(run: Run, model: Path) -> None:
    first = run("generate", model, "-n", "5", "--seed", "1")
    assert (first.code, first.err) == (0, "")
    assert run("generate", model, "-n", "5", "--seed", "1").out == first.out
    assert run("generate", model, "-n", "5", "--seed", "2").out != first.out


def test_n_texts_are_written_and_chance_tells_them_apart(run: Run, model: Path) -> None:
    written = run("generate", model, "-n", "12").out.splitlines()
    assert len(written) == 12
    assert len(set(written)) > 6
    assert texts(run, model, "-n", "12") == written


def test_json_has_what_was_written_and_how_likely_it_was(run: Run, model: Path, tmp_path: Path) -> None:
    (entry,) = run("generate", model, "--strategy", "greedy", "--json").json
    assert entry.keys() == {"text", "prompt", "tokens", "log_prob", "finished"}
    assert entry["finished"]
    line = tmp_path / "line.txt"
    line.write_text(entry["text"] + "\n", encoding="utf-8")
    scored = strict_json(run("score", model, line, "--json").out)
    assert entry["tokens"] == scored["tokens"]
    assert entry["log_prob"] == pytest.approx(scored["log_prob"], rel=1e-6)


def test_text_goes_on_from_the_prompt(run: Run, model: Path) -> None:
    (text,) = texts(run, model, "--prompt", "you chase", "--strategy", "greedy")
    assert text in SENTENCES
    assert text.startswith("you chase ")


@pytest.mark.parametrize(
    "option", [["--temperature", "0"], ["--top-k", "1"], ["--top-p", "1e-9"], ["--min-p", "1"]]
)
def test_the_narrowest_choice_is_greedy(run: Run, model: Path, option: list[str]) -> None:
    # a prompt after which one word is likeliest
    prompt = ["--prompt", "the café"]
    greedy = texts(run, model, *prompt, "--strategy", "greedy")
    assert greedy == ["the café is closed"]
    assert texts(run, model, *prompt, *option, "--seed", "7") == greedy


@pytest.mark.parametrize("penalty", ["--repetition-penalty", "--presence-penalty", "--frequency-penalty"])
def test_a_penalty_is_felt(run: Run, stream_model: Path, penalty: str) -> None:
    options = ["--strategy", "greedy", "--max-tokens", "30"]
    (plain,) = texts(run, stream_model, *options)
    (varied,) = texts(run, stream_model, *options, penalty, "3")
    assert len(set(varied.split())) > len(set(plain.split()))


def test_a_prompt_may_stop_inside_a_word(run: Run, model: Path) -> None:
    (text,) = texts(run, model, "--prompt", "you cha", "--strategy", "greedy")
    assert text.startswith("you chase ")
    (text,) = texts(run, model, "--prompt", "you cha", "--strategy", "greedy", "--no-heal")
    assert not text.startswith("you chase ")
    ran = run("generate", model, "--prompt", "you cha")
    assert "unknown" not in ran.err
    assert "unknown to the model" in run("generate", model, "--prompt", "you cha", "--no-heal").err


def test_a_beam_of_one_that_ends_as_usual_is_greedy(run: Run, model: Path) -> None:
    options = ["--strategy", "beam", "--beams", "1", "--ending", "best"]
    assert texts(run, model, *options) == texts(run, model, "--strategy", "greedy")


def test_beams_give_different_texts_the_likeliest_first(run: Run, model: Path) -> None:
    found = run("generate", model, "--strategy", "beam", "--beams", "6", "-n", "3", "--json").json
    assert len({entry["text"] for entry in found}) == 3
    means = [entry["log_prob"] / entry["tokens"] for entry in found]
    assert means == sorted(means, reverse=True)


@pytest.mark.parametrize("strategy", ["greedy", "sample", "beam"])
def test_no_tokens_leave_the_prompt(run: Run, model: Path, strategy: str) -> None:
    options = ["--strategy", strategy, "--max-tokens", "0", "--prompt", "we love"]
    (entry,) = run("generate", model, *options, "--json").json
    assert (entry["text"], entry["tokens"], entry["finished"]) == ("we love", 0, False)


def test_a_text_is_cut_off_after_max_tokens(run: Run, stream_model: Path) -> None:
    (entry,) = run("generate", stream_model, "--max-tokens", "7", "--json").json
    assert (entry["tokens"], entry["finished"]) == (7, False)


def test_pieces_make_the_texts_that_are_written_in_one_go(run: Run, model: Path, stream_model: Path) -> None:
    for folder in (model, stream_model):
        options = [folder, "--prompt", "we", "--seed", "3", "-n", "3", "--max-tokens", "30"]
        whole = texts(run, *options)
        heads = [f"--- {i}\n" if folder == stream_model else "" for i in (1, 2, 3)]
        expected = "".join(f"{head}{text}\n" for head, text in zip(heads, whole, strict=True))
        assert run("generate", *options).out == expected


@pytest.mark.parametrize("options", [["--beams", "6"], ["--ending", "any"]])
def test_options_of_a_search_choose_it(run: Run, model: Path, options: list[str]) -> None:
    chosen = run("generate", model, *options, "-n", "2", "--json").json
    assert chosen == run("generate", model, "--strategy", "beam", *options, "-n", "2", "--json").json


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--strategy", "sample", "--beams", "3"], "--beams"),
        (["--strategy", "greedy", "--beams", "3"], "--beams"),
        (["--strategy", "sample", "--ending", "best"], "--ending"),
        (["--beams", "3", "--top-p", "0.5"], "beam"),
        (["--strategy", "beam", "--top-p", "0.5"], "beam"),
        (["--strategy", "beam", "--repetition-penalty", "2"], "beam"),
        (["--strategy", "greedy", "--temperature", "0.5"], "greedy"),
        (["--strategy", "greedy", "-n", "2"], "-n"),
        (["--strategy", "beam", "-n", "9"], "beams"),
    ],
)
def test_options_that_exclude_each_other_are_refused(run: Run, model: Path, options: list[str], named: str) -> None:
    ran = run("generate", model, *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.lower().count("error: ") == 1
    assert named in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("seed", [-1, 0, 2**63])
def test_any_whole_number_is_a_seed(run: Run, model: Path, seed: int) -> None:
    first = run("generate", model, "--seed", seed)
    assert first.code == 0
    assert run("generate", model, "--seed", seed).out == first.out


def test_a_cpu_that_is_slow_in_bfloat16_is_noted(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = tmp_path / "network"
    cr.train("feedforward", cr.Corpus.from_text(TOY), steps=1, embedding=4, hidden=4, tokenizer="word").save(
        network
    )
    for is_fast, folder, said in ((False, network, True), (True, network, False), (False, model, False)):
        monkeypatch.setattr(devices, "has_fast_bfloat16", lambda is_fast=is_fast: is_fast)
        ran = run("generate", folder, "--dtype", "bfloat16")
        assert (ran.code, "this CPU is slow in bfloat16" in ran.err) == (0, said)


def test_drafts_leave_the_text_as_it_is_and_are_reported(run: Run, model: Path) -> None:
    plain = run("generate", model, "--prompt", "you", "--seed", "3")
    for drafts in (["--draft", model], ["--draft", "context"], ["--draft", "context", "--draft", model]):
        drafted = run("generate", model, "--prompt", "you", "--seed", "3", *drafts, "--draft-tokens", "3")
        assert (drafted.code, drafted.out) == (0, plain.out)
        assert "tokens a step" in drafted.err and "drafted tokens accepted" in drafted.err
    (entry,) = run("generate", model, "--strategy", "greedy", "--draft", model, "--json").json
    assert 0 < entry["steps"] <= entry["tokens"] and entry["drafted"] > 0


def test_drafted_text_is_printed_as_it_is_written(
    run: Run, stream_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["generate", stream_model, "--prompt", "you love", "--max-tokens", "40"]
    plain = run(*words).out
    printed: list[str] = []

    def echo(text: str = "", nl: bool = True) -> None:
        printed.append(text + "\n" * nl)

    monkeypatch.setattr("chainrule.cli.verbs.generate.echo", echo)
    drafted = run(*words, "--draft", stream_model, "--draft-tokens", "2")
    assert drafted.code == 0 and "".join(printed) == plain
    # 40 tokens, at most 3 a step: the prompt, a piece for each of 14 steps or more, and the end of the last line
    assert len([piece for piece in printed if piece]) >= 14
    # the line of figures tells the same as those of --json
    (entry,) = run(*words, "--draft", stream_model, "--draft-tokens", "2", "--json").json
    accepted = f"{40 - entry['steps']} of {entry['drafted']} drafted tokens accepted"
    assert accepted in drafted.err and f"drafts: {40 / entry['steps']:.2f} tokens a step" in drafted.err


def test_drafts_that_make_no_sense_are_refused_in_one_line(run: Run, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    cr.train("ngram", ["x y", "y x"], order=2, tokenizer="word").save(other)
    for words, message in (
        (["--draft", model, "--strategy", "beam"], "not with a beam search"),
        (["--draft", other], "a draft needs the vocabulary of the model"),
        (["--draft", tmp_path / "none"], "none"),
        (["--draft-tokens", "3"], "--draft-tokens needs --draft"),
        (["--draft", model, "--draft-tokens", "0"], "from 1 to 64"),
        (["--draft", "context", "--draft-sampled"], "come from one model"),
    ):
        found = run("generate", model, *words)
        assert found.code == 2 and message in found.err and len(found.err.splitlines()) == 1


def test_a_beam_by_the_sum_takes_the_shorter_text(run: Run, tmp_path: Path) -> None:
    """p(a) = 0.25 for the line a, 0.2 for a b c d: the sum prefers the first, the mean the second."""
    lines = ["a"] * 5 + ["x b c d"] * 4 + [f"z{i}" for i in range(11)]
    cr.train("ngram", lines, order=4, smoothing="mle", tokenizer="word").save(tmp_path / "model")
    options = ["--beams", "20", "--length-power"]
    assert texts(run, tmp_path / "model", *options, "0") == ["a"]
    assert texts(run, tmp_path / "model", *options, "1") == ["x b c d"]


def test_a_length_power_needs_a_beam(fails: Fails, model: Path) -> None:
    assert "--length-power needs --strategy beam" in fails(
        "generate", model, "--length-power", "0", "--strategy", "greedy"
    )
    assert "between 0 and 10" in fails("generate", model, "--length-power", "-1")


def test_figures_tell_loops_from_varied_text(run: Run, stream_model: Path) -> None:
    length = ["--max-tokens", "40", "--figures"]
    greedy = run("generate", stream_model, "--strategy", "greedy", *length, "--json").json["figures"]
    drawn = run("generate", stream_model, "-n", "3", *length, "--json").json["figures"]
    assert greedy["texts"] == 1
    assert greedy["self_bleu"] is None
    assert greedy["loops"] > drawn["loops"]
    assert greedy["distinct_2"] < drawn["distinct_2"]
    table = run("generate", stream_model, "-n", "3", *length).out
    assert f"{drawn['self_bleu']:.1f}" in table.splitlines()[-1]
    assert f"{drawn['loops']:.1%}" in table.splitlines()[-1]


def test_texts_that_end_at_once_are_explained(run: Run, tmp_path: Path) -> None:
    cr.train("ngram", ["ROMEO:", "", "", "", "Ay me"] * 20, order=3, tokenizer="word").save(tmp_path / "lm")

    def note(*options: object) -> str:
        return run("generate", tmp_path / "lm", "--strategy", "greedy", *options).err

    a_line = "a line of the training text ends where the prompt does: give another --prompt, or another --seed"
    assert note("--prompt", "ROMEO:") == f"note: the text ended at once, as {a_line}\n"
    assert note("--prompt", "ROMEO:", "--max-tokens", 0) == ""
    assert note("--prompt", "Ay m") == ""
    assert "each text ended at once, as empty lines do: give --prompt" in note(
        "--strategy", "sample", "-n", 2, "--top-k", 1
    )
