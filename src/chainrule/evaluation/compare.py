"""Comparison: a ladder of models, trained on the same split with the same tokenizer, measured on one scale."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from chainrule import settings as settings_of
from chainrule.decode.generate import sample_text
from chainrule.errors import ChainruleError, FolderError, MissingExtraError, PluginError
from chainrule.evaluation.comparison import FORMAT, RESULTS, Comparison, Result, read_comparison
from chainrule.evaluation.measure import Measured, measure
from chainrule.folder import MANIFEST, megabytes, to_json
from chainrule.kinds import Figures, HeldOut, Kind, Rung, Sources, Task, TrainingData, find_kind, kind_names
from chainrule.lm import Context
from chainrule.pipeline.prepare import TokenizerChoice, split_off
from chainrule.pipeline.train import as_examples, encode_examples, lines_of
from chainrule.progress import SILENT, Progress, Reports, as_progress
from chainrule.system.devices import choose_device
from chainrule.system.disk import LOCK, holding, remove_folder, scratch_folder, sweep
from chainrule.system.plugins import import_object
from chainrule.text.given import Text
from chainrule.text.pairs import GivenPairs
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer

Ladder: TypeAlias = Sequence[tuple[Kind, Rung]]
Measure: TypeAlias = Callable[[Any, HeldOut, Progress], Measured | Figures]
"""What measures a model: a `Measured` of a language model, `Figures` of one of another task (`Kind.measure`)."""

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


def rungs(
    kinds: Sequence[str] | None = None, progress: Progress = SILENT, task: Task = "language"
) -> Iterator[tuple[Kind, Rung]]:
    """The rungs of every kind of a task, or of the named ones: kinds of other tasks share no scale with these.

    A kind whose library is missing is noted and left out.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(kinds or kind_names()):
        try:
            kind = find_kind(name)
        except MissingExtraError as error:
            if kinds:
                raise
            missing.setdefault((error.library, error.extra), []).append(name)
            continue
        except PluginError as error:
            if kinds:
                raise
            progress.note(f"left out: {error}")
            continue
        if kind.task != task:
            if kinds:
                raise ChainruleError(f"the kind {name} is for another task: compare it with --task {kind.task}")
            continue
        for rung in kind.ladder:
            yield kind, rung
    for (library, extra), names in missing.items():
        what = f"the kind {names[0]}" if len(names) == 1 else f"each of the kinds {', '.join(names)}"
        left_out = MissingExtraError(library, extra, what)
        progress.note(f"left out: {left_out}")


def compare(
    corpus: Text | GivenPairs,
    out: str | Path,
    *,
    task: Task = "language",
    valid: Text | GivenPairs | None = None,
    test: Text | GivenPairs | None = None,
    kinds: Sequence[str] | None = None,
    tokenizer: TokenizerChoice | None = None,
    source_tokenizer: TokenizerChoice | None = None,
    context: Context = "line",
    device: str = "cpu",
    minutes: float | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Reports = False,
) -> Comparison:
    """Train the ladder and measure every rung on the same held-out text; the models stay in folders of `out`.

    Where `valid` or `test` is not given, it is split off the corpus. compare.json grows with every rung; a
    comparison that was stopped goes on when it is asked for again. `minutes` is the time to train a network,
    instead of the time in the settings of its rung. A `task` other than language has a ladder and a measure of its
    own: translation takes pairs.
    """
    out, device, progress = Path(out), choose_device(device), as_progress(progress)
    ladder = [(kind, _within(rung, minutes)) for kind, rung in rungs(kinds, progress, task)]
    names = [_folder_name(rung) for _, rung in ladder]
    for name in names:
        if names.count(name) > 1:
            raise ChainruleError(f"two models of the ladder would be called {name}: choose kinds by --kind")
    for kind, rung in ladder:
        kind.check(settings_of.parse(kind.settings, rung.settings), device)
    if not ladder:
        raise ChainruleError(
            f"there is no model to compare: no kind adds a rung to the ladder of {task} (is torch missing?)"
        )
    first = ladder[0][0]
    measure_model = _measure_of(first)
    earlier = _check_destination(out, overwrite)
    with holding(out), scratch_folder() as scratch:
        lines, *given = (
            None if one is None else lines_of(as_examples(first, one)) for one in (corpus, valid, test)
        )
        assert lines is not None
        of_own = dict(zip(("valid", "test"), given, strict=True))
        parts = split_off(lines, of_own, SHARES, scratch, seed=seed, progress=progress)
        chosen = tokenizer or TokenizerChoice("bpe" if task == "language" else first.tokenizer)
        the_tokenizer, encoded, sources = encode_examples(first, parts, chosen, source_tokenizer, scratch, progress)
        data = TrainingData(
            the_tokenizer, encoded["train"], encoded["valid"], context, seed, progress, device, sources=sources
        )
        held_out = HeldOut(parts["test"], encoded["test"])
        comparison = Comparison(
            format=FORMAT,
            tokenizer=the_tokenizer.name,
            vocab_size=the_tokenizer.vocab_size,
            context=context,
            parts={n: {"lines": e.lines, "tokens": e.tokens, "bytes": e.bytes} for n, e in encoded.items()},
            results=[],
            identity=_identity(the_tokenizer, encoded, sources, context, seed, ladder),
            task=task,
        )
        if earlier is not None:
            comparison.results.extend(_taken_up(earlier, comparison, out, progress))
        else:
            _clear(out)
        comparison.write(out)
        done = {result.name for result in comparison.results}
        with progress.task("models", len(ladder), "models") as climbing:
            climbing.advance(len(done))
            for kind, rung in ladder:
                if rung.name not in done:
                    comparison.results.append(_climb(kind, rung, data, held_out, measure_model, out))
                    comparison.write(out)
                    climbing.advance(1)
    return comparison


def _measure_of(kind: Kind) -> Measure:
    """How the models of a kind's task are measured."""
    if kind.measure is None:
        return lambda model, held_out, progress: measure(model, held_out.encoded)
    found: Measure = import_object(kind.measure)
    return found


def _identity(
    tokenizer: Tokenizer,
    encoded: Mapping[str, Encoded],
    sources: Sources | None,
    context: Context,
    seed: int,
    ladder: Ladder,
) -> dict[str, Any]:
    """What must be the same for a comparison to go on, as plain values."""
    of_sources = {} if sources is None else {"sources": sources.train.fingerprint}
    return {
        **of_sources,
        "texts": {name: part.fingerprint for name, part in encoded.items()},
        "tokenizer": hashlib.sha256(dump_tokenizer(tokenizer).encode()).hexdigest(),
        "context": context,
        "seed": seed,
        "ladder": [
            {"kind": kind.name, "name": rung.name, "settings": dict(rung.settings)} for kind, rung in ladder
        ],
    }


def _taken_up(earlier: Comparison, now: Comparison, out: Path, progress: Progress) -> list[Result]:
    """The results of a comparison that was stopped; another one than that of now is left alone."""
    if earlier.identity != json.loads(to_json(now.identity)):
        raise FolderError(
            f"{out} holds another comparison, which was stopped; choose another folder, or overwrite it "
            "(--overwrite)"
        )
    kept = [result for result in earlier.results if (out / Path(result.folder).name / MANIFEST).is_file()]
    total = len(now.identity["ladder"])
    progress.note(f"{out}: {len(kept)} of {total} models are there from before; going on with the others")
    return kept


def _folder_name(rung: Rung) -> str:
    """The name of the folder of a rung's model."""
    return re.sub(r"[^\w.-]+", "-", rung.name)


def _within(rung: Rung, minutes: float | None) -> Rung:
    """The rung with `minutes` of training time, if its settings have one."""
    if minutes is None or "minutes" not in rung.settings:
        return rung
    return Rung(rung.name, {**rung.settings, "minutes": minutes})


def _check_destination(out: Path, overwrite: bool) -> Comparison | None:
    """Refuse a folder with anything but an earlier comparison; returns one that was stopped, and can go on."""
    sweep(out / RESULTS)
    if not out.exists() or (out.is_dir() and all(path.name == LOCK for path in out.iterdir())):
        return None
    found = read_comparison(out) if out.is_dir() else None
    if found is None:
        raise FolderError(f"{out} exists, is not empty and is no comparison; choose another folder")
    if overwrite:
        return None
    if found.is_finished:
        raise FolderError(f"{out} exists and is not empty; choose another folder, or overwrite it (--overwrite)")
    return found


def _clear(out: Path) -> None:
    """Remove an earlier comparison's models, and nothing else that may lie beside them."""
    found = read_comparison(out)
    for result in found.results if found is not None else ():
        folder = out / Path(result.folder).name
        sweep(folder)
        if (folder / MANIFEST).is_file():
            remove_folder(folder)


def _climb(kind: Kind, rung: Rung, data: TrainingData, test: HeldOut, measure_model: Measure, out: Path) -> Result:
    """Train one rung, measure it on `test`, and save the model in a folder of `out`."""
    began = time.perf_counter()
    lm = kind.train(settings_of.parse(kind.settings, rung.settings), data)
    seconds = time.perf_counter() - began
    measured = measure_model(lm, test, data.progress)
    lm.provenance = data.provenance()
    lm.metrics = {"training_seconds": round(seconds, 3), **lm.metrics, **measured.to_json()}
    sample = measured.sample if isinstance(measured, Figures) else sample_text(lm, data.seed, lines=8)
    folder = out / _folder_name(rung)
    lm.save(folder, overwrite=True)  # compare.json does not list a model whose comparison was stopped here
    return Result(
        name=rung.name,
        kind=kind.name,
        settings=dict(rung.settings),
        folder=folder.name,
        test=measured,
        training_seconds=seconds,
        megabytes=megabytes(folder),
        sample=sample,
        steps=lm.metrics.get("steps"),
        tokens_seen=lm.metrics.get("tokens_seen"),
    )
