"""One model of a comparison: it is trained, measured and saved, and its costs are recorded."""

from __future__ import annotations

import math
import statistics
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule import settings as settings_of
from chainrule.comparison.advice import second_half
from chainrule.comparison.ladder import folder_name
from chainrule.comparison.results import Point, Result, seed_name
from chainrule.comparison.surprisals import Surprisals, token_ends, write_surprisals
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Figures, HeldOut, Kind, LadderEntry, find_kind, load
from chainrule.contract.lm import LanguageModel
from chainrule.contract.model import Model
from chainrule.decode.generate import generate_many, sample_text
from chainrule.errors import ChainruleError, Interrupted, ModelError
from chainrule.evaluation.measure import Measured, measure
from chainrule.evaluation.metrics import perplexity_of
from chainrule.folder import megabytes
from chainrule.mixtures.mix import mix
from chainrule.networks.settings import NeuralSettings
from chainrule.system.devices import peak_memory_inside
from chainrule.system.plugins import import_object
from chainrule.system.progress import SILENT
from chainrule.text.corpus import Corpus
from chainrule.text.overlap import shared
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded, encode_corpus
from chainrule.tokens.registry import dump_tokenizer
from chainrule.training.checkpoints.run_folder import HISTORY

MIXTURE = "mixture"
"""The name of the last model of a comparison: its best network mixed with its best counted model."""

LEAST_STEPS = 20
"""A network that takes fewer steps is no result."""

_SAMPLE_LINES = 8
_SAMPLING_SECONDS, _SAMPLING_TOKENS = 0.1, 2000
_LONG_TRAINING = 10.0  # seconds of CPU time; a model of counts that takes less is trained twice, to time the second
_FEW_TOKENS = 500  # whole lines of at most this many tokens are read before anything is timed
_TIMES, _LONG_SECONDS = 3, 0.5  # a text is scored so often for its speed, unless it takes long
_UNUSUAL = 0.02  # a share of the test text that a model was trained on, beyond what the training text has of it
_COMPILING = 60.0  # seconds; compiling loops beside other work may take so long, and a first scoring with it


@contextmanager
def going_on() -> Iterator[list[str]]:
    """Go on with the other models after an error of the one in the block; the list then has its message."""
    errors: list[str] = []
    try:
        yield errors
    except Interrupted:
        raise
    except (ChainruleError, RuntimeError, MemoryError) as error:
        errors.append(str(error) or type(error).__name__)


@dataclass(frozen=True)
class MeasuredTraining:
    """Trains and measures models on the same data; each is saved in a folder of its own."""

    data: TrainingData
    test: HeldOut
    out: Path
    text: bytes
    """The test text; every line has its line end."""
    seeds: int = 1
    """How often each network is trained, each time from another seed."""

    @cached_property
    def _token_ends(self) -> NDArray[np.int64]:
        """The byte at which each token of the test text ends: all models share the tokenizer."""
        return token_ends(self.data.tokenizer, self.text, np.asarray(self.test.encoded.ids))

    def train(self, kind: Kind, entry: LadderEntry) -> Result:
        """Train a model, measure it on the test text, and save it."""
        began, cpu_began = time.perf_counter(), time.process_time()
        settings: Any = settings_of.parse(kind.settings, entry.settings)
        kind.check(settings, self.data.device)
        with peak_memory_inside(self.data.device) as memory:
            model: Any = kind.train(settings, self.data)
            trained = time.perf_counter() - began
            # the first time compiles its loops, which takes long where others have the cores
            if not kind.keeps_run and time.process_time() - cpu_began < _LONG_TRAINING:
                began_again = time.perf_counter()
                model = kind.train(settings, replace(self.data, progress=SILENT))
                trained = time.perf_counter() - began_again
        check_steps(entry, model.metrics.get("steps"), trained)
        seen = int(model.metrics.get("tokens_seen") or self.data.train.tokens)
        result = self._measured(kind, entry, model, trained)
        if result.flops_per_token is not None:
            flops: float | None = 3 * result.flops_per_token * seen
            half = second_half(model.metrics.get(HISTORY, []))
            if isinstance(result.test, Measured) and half is not None:
                result = replace(result, second_half=half * result.test.bits_per_byte / result.test.nats)
            result = self._with_more_seeds(result, kind, settings)
        else:
            flops = order * seen if (order := getattr(settings, "order", None)) is not None else None
        return replace(
            result,
            tokens=None if entry.tokenizer is None else described(self.data.tokenizer),
            seconds=time.perf_counter() - began,
            tokens_seen=seen,
            epochs=seen / self.data.train.tokens,
            training_flops=flops,
            training_tokens_per_second=seen / trained if trained else None,
            peak_megabytes=memory.megabytes,
        )

    def _with_more_seeds(self, result: Result, kind: Kind, settings: Any) -> Result:
        """Train a network from the other seeds too; return its result with the means of all trainings."""
        found = [result.test]
        for number in range(1, self.seeds):
            model = kind.train(settings, replace(self.data, seed=self.data.seed + number))
            found.append(self._measure_on_text(model, seed_name(result.folder, number)))
        texts = [one for one in found if isinstance(one, Measured)]
        if len(texts) < 2:
            return result
        nats = statistics.fmean(one.nats for one in texts)
        test = replace(
            texts[0],
            nats=nats,
            bits=nats / math.log(2),
            perplexity=perplexity_of(nats),
            bits_per_byte=statistics.fmean(one.bits_per_byte for one in texts),
        )
        return replace(result, test=test, seeds=[one.bits_per_byte for one in texts])

    def train_on_part(self, kind: Kind, entry: LadderEntry, share: float, part: Encoded) -> Point:
        """Train a model on a part of the training text and measure it on the test text; the model is not kept."""
        began = time.perf_counter()
        settings: Any = settings_of.parse(kind.settings, entry.settings)
        model = kind.train(settings, replace(self.data, train=part))
        trained = time.perf_counter() - began
        found = measure(model, self.test.encoded)
        return Point(
            name=entry.name,
            kind=kind.name,
            settings=dict(entry.settings),
            share=share,
            tokens=part.tokens,
            bytes=part.bytes,
            bits_per_byte=found.bits_per_byte,
            perplexity=found.perplexity,
            training_seconds=trained,
            seconds=time.perf_counter() - began,
        )

    def mix(self, results: Sequence[Result], valid: Corpus, scratch: Path) -> list[Result]:
        """Mix the best network with the best counted model of the same tokens; empty if one of them is missing.

        It is tuned on `valid`. The time of its training is that of both models and of the tuning.
        """
        began = time.perf_counter()
        every = [one for one in results if one.has_finite_loss]
        networks = [one for one in every if one.flops_per_token is not None]
        counted = [one for one in every if one.flops_per_token is None]
        pairs = [[one, other] for one in networks for other in counted if one.tokens == other.tokens]
        if not pairs:
            return []
        found = min(pairs, key=lambda pair: sum(one.rank for one in pair))
        models = [_loaded(self.out / one.folder, self.data.device) for one in found]
        mixed = mix(models, valid, progress=self.data.progress)
        mixed.provenance = {}  # what the training text shares with the test text is said of all models
        names = [one.name for one in found]
        trained = sum(one.training_seconds for one in found) + time.perf_counter() - began
        own = self if found[0].tokens is None else self.with_tokens(models[0].tokenizer, scratch)
        result = own._measured(find_kind("mixture"), LadderEntry(MIXTURE, {"models": names}), mixed, trained)
        seconds = time.perf_counter() - began
        return [replace(result, seconds=seconds, flops_per_token=found[0].flops_per_token, tokens=found[0].tokens)]

    def include(self, folder: Path, name: str, scratch: Path) -> Result:
        """Measure a model that stands already, with its own tokenizer; the comparison keeps a copy of it."""
        began = time.perf_counter()
        lm = _loaded(folder, self.data.device)
        other = self.with_tokens(lm.tokenizer, scratch)
        trained = float(lm.metrics.get("training_seconds", math.inf))
        entry = LadderEntry(name, {"included": str(folder)})
        result = other._measured(find_kind(lm.kind), entry, lm, trained)
        assert isinstance(result.test, Measured)
        # lines that the training text of the comparison has too, such as licences of files, were read by all models
        own, sketch, share = self.data.train.sketch, other.test.encoded.sketch, result.test.trained_on
        usual = 0.0 if own is None or sketch is None else shared(sketch, [own]) or 0.0
        share = share if share is not None and share > usual + _UNUSUAL else None
        seconds = time.perf_counter() - began
        tokens = described(lm.tokenizer, self.data.tokenizer)
        return replace(result, test=replace(result.test, trained_on=share), seconds=seconds, tokens=tokens)

    def with_tokens(self, tokenizer: Tokenizer, scratch: Path) -> MeasuredTraining:
        """Return the same for models with another tokenizer, to measure them."""
        encoded = encode_corpus(Corpus.from_text(self.text.decode()), tokenizer, scratch / "others.ids")
        data, test = replace(self.data, tokenizer=tokenizer), replace(self.test, encoded=encoded)
        return replace(self, data=data, test=test)

    def _measured(self, kind: Kind, entry: LadderEntry, model: Any, trained: float) -> Result:
        """Measure a model on the test text, and save it."""
        folder = self.out / folder_name(entry.name)
        found: Measured | Figures
        speed: float | None = None
        if kind.measure is None:
            found, speed = self._measure_on_text(model, folder.name), sampling_speed(model, self.data.seed)
            # models of counts would begin alike if they had the same draws
            sample = sample_text(model, self.data.seed + zlib.crc32(entry.name.encode()), lines=_SAMPLE_LINES)
        else:
            figures: Figures = import_object(kind.measure)(model, self.test, self.data.progress)
            found, sample = figures, figures.sample
        if "included" not in entry.settings:
            model.provenance = self.data.provenance()
            model.metrics = {"training_seconds": round(trained, 3), **model.metrics, **found.to_json()}
        model.save(folder, overwrite=True)  # compare.json does not list a model whose comparison was stopped here
        return Result(
            name=entry.name,
            kind=kind.name,
            settings=dict(entry.settings),
            folder=folder.name,
            test=found,
            training_seconds=trained,
            megabytes=megabytes(folder),
            sample=sample,
            steps=model.metrics.get("steps"),
            tokens_seen=model.metrics.get("tokens_seen"),
            writing_tokens_per_second=speed,
            loading_seconds=_loading_seconds(folder, self.data.device) if kind.measure is None else None,
            memory_megabytes=sum(a.nbytes for one in _with_parts(model) for a in one.tensors().values()) / 1e6,
            parameters=sum(map(_parameters, _with_parts(model))),
            flops_per_token=_flops_per_token(model),
        )

    def _measure_on_text(self, lm: LanguageModel, name: str) -> Measured:
        """Measure a language model on the test text, and write the surprisal of each token to a file."""
        pieces: list[np.ndarray] = []
        encoded = self.test.encoded
        ends = np.flatnonzero(encoded.ids[:_FEW_TOKENS] == encoded.ids[-1])  # of lines
        measure(lm, replace(encoded, ids=encoded.ids[: ends[-1] + 1]) if len(ends) else encoded)
        found = measure(lm, encoded, keep=pieces.append)
        seconds = [found.seconds]
        is_counted = _flops_per_token(lm) is None  # its loops may be compiled for a long text only
        while len(seconds) < _TIMES and min(seconds) < (
            _COMPILING if is_counted and len(seconds) == 1 else _LONG_SECONDS
        ):
            seconds.append(measure(lm, encoded).seconds)
        median = statistics.median_low(seconds)
        found = replace(found, seconds=median, tokens_per_second=found.tokens / max(median, 1e-9))
        nats = -np.concatenate(pieces).astype(np.float64)
        write_surprisals(self.out, name, Surprisals(nats.astype(np.float32), self._token_ends))
        return found


def described(tokenizer: Tokenizer, usual: Tokenizer | None = None) -> str | None:
    """Return the name of a tokenizer and the size of its vocabulary; None if it is the usual one."""
    if usual is not None and dump_tokenizer(tokenizer) == dump_tokenizer(usual):
        return None
    return f"({tokenizer.name}, {tokenizer.vocab_size:,})"


def check_steps(entry: LadderEntry, steps: int | None, seconds: float) -> None:
    """Refuse a network that had time for a few steps only: its figures would say nothing of its kind."""
    if "minutes" in entry.settings and "steps" not in entry.settings and steps is not None and steps < LEAST_STEPS:
        raise ModelError(
            f"it took {steps} step{'s' * (steps != 1)} in {seconds:.0f} s, and {LEAST_STEPS} are the least to "
            "judge a network by: give the comparison more minutes, or fewer networks"
        )


def sampling_speed(lm: LanguageModel, seed: int = 0) -> float:
    """Return the tokens that a model samples per second, one text at a time; a first text is not counted."""
    generate_many(lm, [""], max_tokens=20, seed=seed)
    began, sampled, number = time.perf_counter(), 0, 0
    while (passed := time.perf_counter() - began) < _SAMPLING_SECONDS and sampled < _SAMPLING_TOKENS:
        number += 1
        (text,) = generate_many(lm, [""], max_tokens=100, seed=seed + number)
        sampled += text.tokens
        if number >= 50 and not sampled:  # a model of empty lines
            break
    return sampled / passed if passed else 0.0


def _loaded(folder: Path, device: str) -> LanguageModel:
    """Load a network onto the device of a comparison, and other models onto the CPU."""
    lm: LanguageModel = load(folder, device="cpu" if device == "cpu" else "auto", tasks=["language"])
    return lm if lm.device == "cpu" else lm.on(device)


def _loading_seconds(folder: Path, device: str) -> float:
    """Return the time to load a model and to predict a first token."""
    began = time.perf_counter()
    lm = _loaded(folder, device)
    generate_many(lm, [""], max_tokens=1)
    return time.perf_counter() - began


def _with_parts(model: Model) -> Iterator[Model]:
    """Yield a model, its parts, and theirs."""
    yield model
    for part in model.parts().values():
        yield from _with_parts(part)


def _parameters(model: Model) -> int:
    """Return the number of values in the arrays of a model itself."""
    counted = model.metrics.get("parameters")
    return int(counted) if counted is not None else sum(int(array.size) for array in model.tensors().values())


def _flops_per_token(model: Model) -> float | None:
    """Return the operations to predict a token, a third of those to learn from it; None: it looks up counts."""
    settings = model.settings
    if not isinstance(settings, NeuralSettings):
        return None
    vocabulary = next(iter(model.tokenizers.values())).vocab_size
    return settings.cost(vocabulary).flops / 3
