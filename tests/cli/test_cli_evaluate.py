"""`chainrule evaluate` and `chainrule score`: what models make of a text."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from chainrule.cli.output import results_table, show_table

from .running import HELD_OUT, TRAIN_NGRAM, Fails, Run, on_terminal, strict_json

MODELS = ["model", "stream_model", "bpe_model"]


@pytest.fixture(params=MODELS)
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def mice(tmp_path: Path) -> Path:
    """A sentence whose words the toy corpus has, though not in this order."""
    path = tmp_path / "mice.txt"
    path.write_text("i love mice\n", encoding="utf-8")
    return path


def test_the_figures_belong_together(run: Run, folder: Path, held_out: Path) -> None:
    figures = run("evaluate", folder, held_out, "--json").json
    assert {"perplexity", "nats", "bits", "bits_per_byte", "tokens", "oov"} <= figures.keys()
    assert figures["perplexity"] == pytest.approx(math.exp(figures["nats"]), rel=1e-12)
    assert figures["bits"] == pytest.approx(figures["nats"] / math.log(2), rel=1e-12)
    size = held_out.stat().st_size
    assert figures["bits_per_byte"] == pytest.approx(figures["bits"] * figures["tokens"] / size, rel=1e-12)
    assert math.isfinite(figures["perplexity"])


def test_words_line_ends_and_unknown_words_are_counted(run: Run, model: Path, held_out: Path) -> None:
    figures = run("evaluate", model, held_out, "--json").json
    assert figures["tokens"] == len(HELD_OUT.split()) + HELD_OUT.count("\n")
    assert figures["oov"] == 1 / figures["tokens"]  # zebras


def test_several_folders_give_a_list_in_order(run: Run, model: Path, bpe_model: Path, held_out: Path) -> None:
    both = run("evaluate", bpe_model, model, held_out, "--json").json
    assert [figures["folder"] for figures in both] == [str(bpe_model), str(model)]
    alone = run("evaluate", model, held_out, "--json").json
    assert both[1]["nats"] == alone["nats"]


def test_the_table_has_a_row_per_model(run: Run, model: Path, bpe_model: Path, held_out: Path) -> None:
    ran = run("evaluate", model, bpe_model, held_out)
    assert (ran.code, ran.err) == (0, "")
    figures = run("evaluate", model, held_out, "--json").json
    assert "bits/byte" in ran.out
    assert [str(folder) in ran.out for folder in (model, bpe_model)] == [True, True]
    assert f"{figures['tokens']:,}" in ran.out
    assert f"{figures['oov']:.2%}" in ran.out


def test_a_folder_name_in_the_table_is_as_it_is(
    run: Run, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Square brackets mean something to the library that prints."""
    monkeypatch.chdir(tmp_path)
    assert run(*TRAIN_NGRAM, toy, "--out", "m[bold]", "--json").code == 0
    assert "m[bold]" in run("evaluate", "m[bold]", toy).out


def test_the_impossible_is_infinite_and_said_so(run: Run, mle_model: Path, mice: Path) -> None:
    ran = run("evaluate", mle_model, mice)
    assert (ran.code, ran.err) == (0, "")
    assert "∞" in ran.out
    assert "probability 0" in ran.out
    assert "infinite" in ran.out


def test_infinity_is_standard_json(run: Run, mle_model: Path, mice: Path) -> None:
    figures = run("evaluate", mle_model, mice, "--json").json
    assert [figures[key] for key in ("perplexity", "nats", "bits", "bits_per_byte")] == [math.inf] * 4
    assert figures["impossible"] == 1
    (line,) = map(strict_json, run("score", mle_model, mice, "--json").out.splitlines())
    assert (line["log_prob"], line["perplexity"]) == (-math.inf, math.inf)


def test_smoothing_makes_it_finite(run: Run, toy: Path, mice: Path, tmp_path: Path) -> None:
    settings = ["--set", "order=3", "--set", "smoothing=laplace"]
    assert run(*TRAIN_NGRAM, toy, *settings, "--out", tmp_path / "m").code == 0
    # by hand, with 8 words that can follow: 3/11 · 3/10 · 1/10 · 1/8
    expected = (3 / 11 * 3 / 10 * 1 / 10 * 1 / 8) ** (-1 / 4)
    assert run("evaluate", tmp_path / "m", mice, "--json").json["perplexity"] == pytest.approx(expected, rel=1e-6)


def test_lines_sum_to_the_whole(run: Run, folder: Path, held_out: Path) -> None:
    whole = run("evaluate", folder, held_out, "--json").json
    lines = [strict_json(line) for line in run("score", folder, held_out, "--json").out.splitlines()]
    assert [line["text"] for line in lines] == HELD_OUT.splitlines()
    assert sum(line["tokens"] for line in lines) == whole["tokens"]
    assert -sum(line["log_prob"] for line in lines) == pytest.approx(whole["nats"] * whole["tokens"], rel=1e-9)


def test_tokens_sum_to_their_line(run: Run, folder: Path, held_out: Path) -> None:
    ran = run("score", folder, held_out, "--per-token", "--json")
    for line in map(strict_json, ran.out.splitlines()):
        assert len(line["per_token"]) == line["tokens"]
        assert line["per_token"][-1]["token"] == "</s>"
        assert sum(token["log_prob"] for token in line["per_token"]) == pytest.approx(line["log_prob"], rel=1e-9)
        mean = line["log_prob"] / line["tokens"]
        assert line["perplexity"] == pytest.approx(math.exp(-mean), rel=1e-9)


def test_scores_are_columns(run: Run, model: Path, held_out: Path) -> None:
    ran = run("score", model, held_out)
    assert (ran.code, ran.err) == (0, "")
    _, *rows = [row.split("\t") for row in ran.out.splitlines()]
    objects = [strict_json(line) for line in run("score", model, held_out, "--json").out.splitlines()]
    for (number, mean, total, tokens, perplexity, text), line in zip(rows, objects, strict=True):
        assert int(number) == line["id"]
        assert float(mean) == pytest.approx(line["bits_per_token"], abs=1e-4)
        assert float(total) == pytest.approx(line["bits"], abs=1e-4)
        assert line["bits"] == pytest.approx(-line["log_prob"] / math.log(2), rel=1e-12)
        assert int(tokens) == line["tokens"]
        assert float(perplexity) == pytest.approx(line["perplexity"], abs=1e-4)
        assert text == line["text"]


def test_tokens_are_shown_a_line_each_with_a_gap_between_lines(run: Run, model: Path, held_out: Path) -> None:
    names, _, found = run("score", model, held_out, "--per-token").out.partition("\n")
    *lines, rest = found.split("\n\n")
    assert (names, rest) == ("ln_p\ttoken\tngram", "")
    shown = [[row.split("\t")[1] for row in line.splitlines()] for line in lines]
    assert shown == [
        ["i", "love", "mice", "</s>"],
        ["we", "chase", "<unk>", "</s>"],
        ["</s>"],
        ["you", "love", "cats", "</s>"],
    ]


def test_a_token_that_is_a_control_character_stays_on_its_line(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"a\tb\x1bc\n")
    assert run("train", "ngram", text, "--tokenizer", "char", "--out", tmp_path / "m").code == 0
    lines = run("score", tmp_path / "m", text, "--per-token").out.splitlines()
    assert [line.split("\t")[1] for line in lines[1:6]] == ["a", r"\t", "b", r"\u001b", "c"]


def test_a_line_can_look_like_what_infinity_was_spelled_with(run: Run, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\ue000infinity\ue000\n", encoding="utf-8")
    assert strict_json(run("score", model, text, "--json").out)["text"] == "\ue000infinity\ue000"


def test_replaced_bytes_are_counted_by_every_verb_that_reads(run: Run, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"i love \xff cats\n")
    for verb in ("evaluate", "score"):
        ran = run(verb, model, text, "--encoding-errors", "replace")
        assert ran.code == 0
        assert "U+FFFD" in ran.err, verb


def test_scores_that_are_no_probabilities_are_marked(run: Run, toy: Path, tmp_path: Path) -> None:
    assert run(*TRAIN_NGRAM, toy, "--set", "smoothing=stupid-backoff", "--out", tmp_path / "m").code == 0
    table = run("evaluate", tmp_path / "m", toy)
    assert "not from probabilities" in table.out
    assert table.out.count("(") >= 4  # perplexity, nats, bits, bits per byte
    assert '"normalised": false' in run("evaluate", tmp_path / "m", toy, "--json").out


def test_runs_beside_models_are_left_out(run: Run, model: Path, held_out: Path, tmp_path: Path) -> None:
    runs = tmp_path / "m.run"
    runs.mkdir()
    (runs / "metrics.jsonl").touch()
    found = run("evaluate", model, runs, held_out, "--json")
    assert f"left out, as they are runs and not models: {runs}" in found.err
    assert found.json == {**run("evaluate", model, held_out, "--json").json, "seconds": found.json["seconds"]} | {
        "tokens_per_second": found.json["tokens_per_second"]
    }
    alone = run("evaluate", runs, held_out)
    assert alone.code == 2 and "not a model folder" in alone.err


@pytest.mark.parametrize("columns", [60, 80])
def test_the_table_fits_a_narrow_terminal(model: Path, bpe_model: Path, held_out: Path, columns: int) -> None:
    """Names of folders are cut at their start, between parts, and a narrow table goes without nats and bits."""
    shown = re.sub(r"\x1b\[\d*m", "", on_terminal(columns, "evaluate", model, bpe_model, held_out)).splitlines()
    assert max(map(len, shown)) <= columns
    assert ("nats" in shown[0]) == (columns == 80)
    assert [line.split()[0].rpartition("/")[2].lstrip("…") for line in shown[2:4]] == [model.name, "bpe-model"]


def test_a_table_in_a_pipe_is_as_wide_as_it_needs_to_be() -> None:
    table = results_table("model", "nats")
    table.add_row("a/long/path/" * 20 + "m", "12.345678")
    screen = Console(file=io.StringIO(), width=120)
    show_table(screen, table)
    assert isinstance(screen.file, io.StringIO)
    assert "a/long/path/" * 20 + "m" in screen.file.getvalue()


def test_figures_are_never_cut(model: Path) -> None:
    table = results_table("model", "perplexity", "nats")
    table.add_row("a name that is long enough to fold", "1,234,567.89", "12.345678")
    screen = Console(file=io.StringIO(), width=20, force_terminal=True, color_system=None)
    show_table(screen, table)
    assert isinstance(screen.file, io.StringIO)
    assert {"1,234,567.89", "12.345678", "perplexity", "nats"} <= set(screen.file.getvalue().split())
    assert screen.width == 20


def shown_on(columns: int, table: Table) -> list[str]:
    screen = Console(file=io.StringIO(), width=columns, force_terminal=True, color_system=None)
    show_table(screen, table)
    assert isinstance(screen.file, io.StringIO)
    assert screen.width == columns
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def test_a_figure_with_spaces_is_never_cut() -> None:
    """The width of a column of figures is that of all it has, not of its longest word."""
    table = results_table("lists", "words", "95 % interval")
    table.add_row("tuned on", "4,572", "11.8% - 23.1%")
    # 8 + 5 + 13 and 3 between two make 32; with 1 between two 28
    assert shown_on(32, table)[-1] == "tuned on   4,572   11.8% - 23.1%"
    assert shown_on(28, table)[-1] == "tuned on 4,572 11.8% - 23.1%"


def test_a_table_too_wide_for_the_terminal_comes_in_blocks() -> None:
    """Each has the names, whole words of them, and the figures that there is room for; none is lost or wraps."""
    headings = [f"figure {place}" for place in range(8)]
    table = results_table("model", *headings)
    table.add_row("trigram, modified-kneser-ney", *(f"{place},000,000" for place in range(8)))
    shown = shown_on(60, table)
    assert max(map(len, shown)) <= 60
    text = " ".join(" ".join(shown).split())
    assert all(heading in text for heading in headings)
    assert [word for word in text.split() if word.endswith(",000,000")] == [f"{p},000,000" for p in range(8)]
    # 19 letters of modified-kneser-ney, and three columns of 9 with 3 before each, are 55
    assert text.count("modified-kneser-ney") == 3 and "…" not in text


def test_a_text_can_be_given_itself(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("i love mice\n")
    for verb in ("evaluate", "score"):
        given, in_file = (
            strict_json(run(verb, model, text, "--json").out) for text in ("i love mice", tmp_path / "text")
        )
        assert given["perplexity"] == in_file["perplexity"]


def test_a_name_of_a_file_is_no_text(fails: Fails, model: Path) -> None:
    for verb in ("evaluate", "score"):
        assert "my test.txt: no such file" in fails(verb, model, "my test.txt")
    assert "a text of a single word is read from standard input" in fails("score", model, "hello")


def test_several_texts_are_rows_of_one_table(
    run: Run, model: Path, mle_model: Path, corpus: Path, toy: Path
) -> None:
    found = run("evaluate", model, corpus, toy, "i love mice", "--json").json
    assert [one["text"] for one in found] == [str(corpus), str(toy), "i love mice"]
    alone = run("evaluate", model, toy, "--json").json
    assert found[1]["perplexity"] == alone["perplexity"] > found[0]["perplexity"]  # unlike the training text
    shown = run("evaluate", model, corpus, toy).out
    assert [line.split()[0] for line in shown.splitlines()[2:4]] == [str(corpus), str(toy)]
    assert f"{mle_model} on {toy}" in run("evaluate", model, mle_model, corpus, toy).out


def test_hits_say_how_long_the_known_ngrams_are(run: Run, mle_model: Path, toy: Path, mice: Path) -> None:
    assert run("evaluate", mle_model, toy, "--json").json["hits"] == [0.0, 0.0, 1.0]
    # i love mice </s>: <s> <s> i, <s> i love, mice, mice </s>
    assert run("evaluate", mle_model, mice, "--json").json["hits"] == [0.25, 0.25, 0.5]
    shown = run("evaluate", mle_model, mice).out
    assert "n-gram hits" in shown and [line.split()[1:] for line in shown.splitlines() if "50.0%" in line] == [
        ["25.0%", "25.0%", "50.0%"]
    ]


def test_a_token_after_an_unseen_context_shows_its_shorter_ngram(run: Run, mle_model: Path) -> None:
    """The lecture's p(</s> | love mice) is 0/0: the model takes p(</s> | mice) = 1."""
    ran = run("score", mle_model, "i love mice", "--per-token")
    assert [line.split("\t") for line in ran.out.splitlines()[1:5]] == [
        ["-0.405465", "i", "3"],
        ["0.000000", "love", "3"],
        ["-inf", "mice", "1"],
        ["0.000000", "</s>", "2"],
    ]
    assert "4 tokens (</s> is one, <s> is none): ln p = -inf, p = 0" in ran.err


def test_a_product_too_small_for_a_float_is_said(run: Run, model: Path, tmp_path: Path) -> None:
    assert "p = 0.0" in (said := run("score", model, "i love cats", "--per-token").err) and "float" not in said
    long = tmp_path / "long.txt"
    long.write_text("i love mice\n" * 400)
    said = run("score", model, long, "--per-token").err
    assert "1,600 tokens" in said and "as a float p is 0.0, too small to hold" in said
