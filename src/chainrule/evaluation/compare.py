"""Comparison: a ladder of models, trained on the same split with the same tokenizer, measured on one scale."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from chainrule import settings as settings_of
from chainrule.decode.generate import sample_text
from chainrule.devices import choose_device
from chainrule.disk import LOCK, holding, remove_folder, scratch_folder, sweep
from chainrule.errors import ChainruleError, FolderError, MissingExtraError, PluginError
from chainrule.evaluation.comparison import FORMAT, RESULTS, Comparison, Result, read_comparison
from chainrule.evaluation.measure import measure
from chainrule.folder import MANIFEST, megabytes, to_json
from chainrule.kinds import Kind, Rung, TrainingData, find_kind, kind_names
from chainrule.lm import Context
from chainrule.pipeline.prepare import TokenizerChoice, encode_parts, split_off
from chainrule.progress import SILENT, Progress, Reports, as_progress
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer

Ladder: TypeAlias = Sequence[tuple[Kind, Rung]]

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


def rungs(kinds: Sequence[str] | None = None, progress: Progress = SILENT) -> Iterator[tuple[Kind, Rung]]:
    """The rungs of every kind, or of the named ones; a kind whose library is missing is noted and left out."""
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
        for rung in kind.ladder:
            yield kind, rung
    for (library, extra), names in missing.items():
        what = f"the kind {names[0]}" if len(names) == 1 else f"each of the kinds {', '.join(names)}"
        left_out = MissingExtraError(library, extra, what)
        progress.note(f"left out: {left_out}")


def compare(
    corpus: Text,
    out: str | Path,
    *,
    valid: Text | None = None,
    test: Text | None = None,
    kinds: Sequence[str] | None = None,
    tokenizer: TokenizerChoice | None = None,
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
    instead of the time in the settings of its rung.
    """
    out, device, progress = Path(out), choose_device(device), as_progress(progress)
    ladder = [(kind, _within(rung, minutes)) for kind, rung in rungs(kinds, progress)]
    names = [_folder_name(rung) for _, rung in ladder]
    for name in names:
        if names.count(name) > 1:
            raise ChainruleError(f"two models of the ladder would be called {name}: choose kinds by --kind")
    for kind, rung in ladder:
        kind.check(settings_of.parse(kind.settings, rung.settings), device)
    if not ladder:
        raise ChainruleError("there is no model to compare: no kind adds a rung to the ladder (is torch missing?)")
    earlier = _check_destination(out, overwrite)
    with holding(out), scratch_folder() as scratch:
        given = {"valid": valid, "test": test}
        parts = split_off(as_corpus(corpus), given, SHARES, scratch, seed=seed, progress=progress)
        the_tokenizer, encoded = encode_parts(parts, tokenizer or TokenizerChoice("bpe"), scratch, progress)
        data = TrainingData(the_tokenizer, encoded["train"], encoded["valid"], context, seed, progress, device)
        comparison = Comparison(
            format=FORMAT,
            tokenizer=the_tokenizer.name,
            vocab_size=the_tokenizer.vocab_size,
            context=context,
            parts={n: {"lines": e.lines, "tokens": e.tokens, "bytes": e.bytes} for n, e in encoded.items()},
            results=[],
            identity=_identity(the_tokenizer, encoded, context, seed, ladder),
        )
        if earlier is not None:
            comparison.results.extend(_taken_up(earlier, comparison, out, progress))
        else:
            _clear(out)
        comparison.write(out)
        done = {result.name for result in comparison.results}
        with progress.task("models", len(ladder), "models") as task:
            task.advance(len(done))
            for kind, rung in ladder:
                if rung.name not in done:
                    comparison.results.append(_climb(kind, rung, data, encoded["test"], out))
                    comparison.write(out)
                    task.advance(1)
    return comparison


def _identity(
    tokenizer: Tokenizer, encoded: Mapping[str, Encoded], context: Context, seed: int, ladder: Ladder
) -> dict[str, Any]:
    """What must be the same for a comparison to go on, as plain values."""
    return {
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


def _climb(kind: Kind, rung: Rung, data: TrainingData, test: Encoded, out: Path) -> Result:
    """Train one rung, measure it on `test`, and save the model in a folder of `out`."""
    began = time.perf_counter()
    lm = kind.train(settings_of.parse(kind.settings, rung.settings), data)
    seconds = time.perf_counter() - began
    measured = measure(lm, test)
    lm.provenance = data.provenance()
    lm.metrics = {"training_seconds": round(seconds, 3), **lm.metrics, **measured.to_json()}
    sample = sample_text(lm, data.seed, lines=8)
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
