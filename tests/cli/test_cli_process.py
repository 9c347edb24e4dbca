"""The command line as a process: how it starts, what it leaves to pipes, what it keeps from files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.cli.main import verbs

from .running import TRAIN_NGRAM, Run, on_terminal

HEAVY = {"torch", "numba", "numpy", "rich", "tokenizers", "safetensors", "pyarrow"}
TRAIN = [sys.executable, "-m", "chainrule", *TRAIN_NGRAM]


def imported_modules(*words: object) -> set[str]:
    """The modules that a Python imports on the way."""
    command = [sys.executable, "-X", "importtime", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def imported(*words: object) -> set[str]:
    """The top-level packages that a Python imports on the way."""
    return {name.partition(".")[0] for name in imported_modules(*words)}


def test_help_waits_for_nothing_heavy() -> None:
    packages = imported("-m", "chainrule", "--help")
    assert "click" in packages
    assert not packages & HEAVY


def test_the_library_imports_nothing_heavy_until_it_is_used() -> None:
    packages = imported("-c", "import chainrule")
    assert "chainrule" in packages
    assert not packages & HEAVY


def test_no_verb_loads_anything_heavy_to_explain_itself() -> None:
    explain = "from chainrule.cli.main import cli, verbs\n"
    explain += "for verb in verbs():\n    cli.main([verb.name, '--help'], standalone_mode=False)\n"
    packages = imported("-c", explain)
    assert "click" in packages
    assert not packages & HEAVY


def test_ngram_models_never_wait_for_torch(model: Path, toy: Path) -> None:
    packages = imported("-m", "chainrule", "evaluate", model, toy)
    assert "numpy" in packages
    assert "torch" not in packages


def test_a_verb_imports_no_other_verb_and_reads_no_entry_points(model: Path) -> None:
    run = "import sys\nfrom chainrule.cli.main import cli\n"
    run += "cli.main(['suggest', sys.argv[1], '--prompt', 'the'], standalone_mode=False)\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", run, model], capture_output=True, text=True, check=True)
    modules = set(ran.stdout.splitlines()[-1].split())
    assert {name for name in modules if name.startswith("chainrule.cli.verbs.")} == {"chainrule.cli.verbs.suggest"}
    assert "chainrule.ngram.ngram_model" in modules and "importlib.metadata" not in modules


def test_help_comes_at_once(run_alone: Run) -> None:
    """What it takes is what it imports: few modules, and of ours none but those of the verbs."""
    modules = imported_modules("-m", "chainrule", "--help")
    ours = {name for name in modules if name.partition(".")[0] == "chainrule"}
    needed = {"chainrule", *(f"chainrule.{name}" for name in ["_renamed", "_version", "errors", "system"])}
    needed |= {"chainrule.system.signals", "chainrule.system.display"}
    assert ours >= needed and all(name.startswith("chainrule.cli") for name in ours - needed)
    assert len(modules - ours) < 250
    ran = run_alone("--help")
    assert ran.code == 0
    for verb in verbs():
        assert f"\n  {verb.name} " in ran.out


def test_the_version_is_that_of_the_library(run_alone: Run) -> None:
    ran = run_alone("--version")
    assert (ran.code, ran.out) == (0, f"chainrule {cr.__version__}\n")


def test_away_from_a_terminal_there_are_no_bars(run_alone: Run, big: Path, tmp_path: Path) -> None:
    assert big.stat().st_size > 1_000_000
    ran = run_alone(*TRAIN_NGRAM, big, "--set", "smoothing=witten-bell", "--out", tmp_path / "m")
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert ran.out.count("\n") == 1


def test_on_a_terminal_there_are_bars(big: Path, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [*TRAIN, str(big), "--out", str(tmp_path / "m")]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 1 << 16):
                seen += piece
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(ours)
        assert process.stdout is not None
        out = process.stdout.read()
    assert process.returncode == 0
    assert seen.startswith("chainrule: starting …\r\x1b[2K".encode())  # before any library is imported
    assert b"encoding" in seen
    assert b"MB" in seen
    assert b"\x1b" not in out


def test_a_reader_that_leaves_is_no_error(model: Path, big: Path) -> None:
    """As `chainrule score DIR big.txt | head -2`."""
    command = [sys.executable, "-m", "chainrule", "score", str(model), str(big)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        header, first = process.stdout.readline(), process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert header.startswith(b"id\t") and first.rstrip().endswith(b"\tline 0 of a long text")
    assert err == b""
    assert process.returncode == 0


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_standard_stream_is_like_the_null_device(model: Path, toy: Path, closed: str) -> None:
    """What the other streams get is what they get when the closed one is the null device."""
    for words, code in ((f"score {model} {toy}", 0), (f"score {model} -", 0), ("score nowhere -", 2)):
        command = f"exec {sys.executable} -m chainrule {words} "
        ran, expected = (
            subprocess.run(["sh", "-c", command + how], capture_output=True, input=b"", check=False)
            for how in (closed, closed.replace("&-", "/dev/null"))
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (code, expected.stdout, expected.stderr)


def test_text_is_read_as_it_is_written_and_a_reader_that_leaves_ends_it(stream_model: Path) -> None:
    """As `chainrule generate DIR --max-tokens 100000000 | head -2`: it would not end in any time one can wait."""
    command = [sys.executable, "-m", "chainrule", "generate", str(stream_model), "--max-tokens", "100000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().endswith(b"\n")
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        err = process.stderr.read()
    assert (err, process.returncode) == (b"", 0)


def test_text_that_is_being_written_is_stopped_at_once(stream_model: Path) -> None:
    command = [sys.executable, "-m", "chainrule", "generate", str(stream_model), "--max-tokens", "100000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(b"\n")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert err.decode().strip().endswith("stopped")
    assert process.returncode in (130, -signal.SIGINT)


def test_a_reader_that_leaves_before_a_table_is_no_error(model: Path) -> None:
    """Rich, which draws the tables, has a mind of its own about this."""
    command = [sys.executable, "-m", "chainrule", "inspect", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert (err, process.returncode) == (b"", 0)


def test_standard_input_is_scored_where_no_text_is_named(run_alone: Run, model: Path, held_out: Path) -> None:
    piped = run_alone("score", model, stdin=held_out.read_bytes())
    assert piped.out == run_alone("score", model, held_out).out
    assert piped.out.count("\n") == 5  # with the header
    assert (piped.code, piped.err) == (0, "")


def test_a_failure_is_one_line(run_alone: Run, model: Path) -> None:
    ran = run_alone("evaluate", model, "-", stdin=b"good\nb\xffd\n")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("chainrule: error: standard input: line 2, byte 2: ")
    assert ran.err.count("\n") == 1


def test_debug_shows_the_traceback(run_alone: Run, tmp_path: Path, toy: Path) -> None:
    ran = run_alone("--debug", "evaluate", tmp_path / "m", toy)
    assert ran.code != 0
    assert ran.err.startswith("Traceback (most recent call last):")
    assert "no such model folder" in ran.err.splitlines()[-1]


def test_an_output_that_knows_few_letters_is_no_failure(
    run_alone: Run, mle_model: Path, held_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ran = run_alone("evaluate", mle_model, held_out)
    assert ran.code == 0, ran.err
    assert "perplexity" in ran.out


def test_nothing_stays_in_the_temporary_folder(
    run_alone: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    assert run_alone(*TRAIN_NGRAM, "-", "--out", tmp_path / "m", stdin=corpus.read_bytes()).code == 0
    assert run_alone("evaluate", tmp_path / "m", "-", stdin=b"").code == 2
    assert list(temporary.iterdir()) == []


def test_a_run_that_is_ended_from_outside_leaves_nothing_behind(tmp_path: Path) -> None:
    """The text of standard input is kept in a temporary file, which goes even on SIGTERM."""
    command = [*TRAIN, "-", "--out", str(tmp_path / "m")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        # more than a pipe holds: once all is written, most of it was read, and kept
        process.stdin.write(b"i love cats\n" * 20_000)
        process.stdin.flush()
        assert any(tmp_path.iterdir()), "it has begun"
        process.terminate()
        # Python hears a signal that comes between two reads only after the second, for which there is nothing more
        process.stdin.close()
        assert process.wait(timeout=600) == 143
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("chainrule train ngram c", "file,c"),
        ("chainrule generate m", "file,m"),
        ("chainrule compare b", "builtin:python"),
    ],
)
def test_the_shell_completes_files_too(words: str, expected: str) -> None:
    environment = {
        **os.environ,
        "_CHAINRULE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    program = Path(sys.executable).parent / "chainrule"
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert expected in done.stdout


def test_what_comes_through_a_pipe_is_called_standard_input(tmp_path: Path) -> None:
    for content, message in (
        (b"%PDF-1.7\n", ": expected text, found a PDF"),
        (b"caf\xe9\n", ": line 1, byte 4"),
        (b"", " is empty"),
    ):
        command = [*TRAIN, "-", "--out", str(tmp_path / "m")]
        done = subprocess.run(command, input=content, capture_output=True, check=False)
        assert done.returncode == 2
        assert done.stderr.decode().startswith(f"chainrule: error: standard input{message}")


def test_help_and_completion_come_without_a_waiting_line() -> None:
    pty = pytest.importorskip("pty")
    for words in (["train", "--help"], ["completion", "bash"]):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "chainrule", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True)
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):  # nothing was written
            os.read(ours, 1)
        os.close(theirs)
        os.close(ours)
        assert done.stdout


def test_text_goes_to_pipes_as_it_is_and_harms_no_terminal(model: Path, tmp_path: Path, run_alone: Run) -> None:
    text = "i love \x1b[31mcats\x1b[0m \x1b]0;title\x07 \x9b5n"
    (tmp_path / "text.txt").write_text(text + "\n")
    assert run_alone("correct", model, tmp_path / "text.txt").out == text + "\n"
    for words in (("correct",), ("anomalies",), ("filter", "--keep", "1")):
        verb = words[0], model, tmp_path / "text.txt", *words[1:]
        assert "\x1b]0;title\x07" in run_alone(*verb).out
        shown = on_terminal(200, *verb)
        assert "title" in shown
        assert not any(harm in shown for harm in ("\x07", "\x9b", "\x1b]", "\x1b[31m"))
