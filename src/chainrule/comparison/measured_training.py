"""One rung of a comparison: a model is trained, measured, saved, and what it cost is written down."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from chainrule import settings as settings_of
from chainrule.comparison.ladder import folder_name
from chainrule.comparison.results import Point, Result, loss_of
from chainrule.comparison.surprisals import Surprisals, token_ends, write_surprisals
from chainrule.contract.kinds import Figures, HeldOut, Kind, Rung, TrainingData, find_kind, load
from chainrule.contract.lm import LanguageModel
from chainrule.contract.model import Model
from chainrule.decode.generate import generate_many, sample_text
from chainrule.evaluation.measure import Measured, measure
from chainrule.folder import megabytes
from chainrule.mixtures.mix import mix
from chainrule.networks.settings import NeuralSettings
from chainrule.system.memory import peak_memory
from chainrule.system.plugins import import_object
from chainrule.system.progress import Progress
from chainrule.text.corpus import Corpus
from chainrule.tokens.ids import Encoded

Measure: TypeAlias = Callable[[Any, HeldOut, Progress], Measured | Figures]
"""What measures a model: a `Measured` of a language model, `Figures` of one of another task (`Kind.measure`)."""

MIXTURE = "mixture"
"""The name of the last model of a comparison: its best network mixed with its best model that counts."""

_SAMPLE_LINES = 8
_loaded: set[str] = set()  # kinds whose compiled loops are loaded: compiling them is no part of a model's speed
_WRITING_SECONDS, _WRITING_TOKENS = 0.1, 2000


@dataclass(frozen=True)
class Climb:
    """What all rungs of a comparison share: the data, the test text, and the folder for the models."""

    data: TrainingData
    test: HeldOut
    out: Path
    text: bytes
    """The test text, each line ended."""

    def up(self, kind: Kind, rung: Rung) -> Result:
        """Train one rung, measure it on the test text, and save the model in a folder of its own."""
        began = time.perf_counter()
        settings: Any = settings_of.parse(kind.settings, rung.settings)
        kind.check(settings, self.data.device)
        with peak_memory(self.data.device) as memory:
            model: Any = kind.train(settings, self.data)
        trained = time.perf_counter() - began
        seen = model.metrics.get("tokens_seen")
        result = self._measured(kind, rung, model, trained)
        return replace(
            result,
            seconds=time.perf_counter() - began,
            training_tokens_per_second=(seen or self.data.train.tokens) / trained if trained else None,
            peak_megabytes=memory.megabytes,
        )

    def point(self, kind: Kind, rung: Rung, share: float, part: Encoded) -> Point:
        """Train one rung on a part of the training text and measure it on the test text; the model is not kept."""
        began = time.perf_counter()
        settings: Any = settings_of.parse(kind.settings, rung.settings)
        model = kind.train(settings, replace(self.data, train=part))
        trained = time.perf_counter() - began
        found = measure(model, self.test.encoded)
        return Point(
            name=rung.name,
            kind=kind.name,
            settings=dict(rung.settings),
            share=share,
            tokens=part.tokens,
            bytes=part.bytes,
            bits_per_byte=found.bits_per_byte,
            perplexity=found.perplexity,
            training_seconds=trained,
            seconds=time.perf_counter() - began,
        )

    def mixture(self, results: Sequence[Result], valid: Corpus) -> Result | None:
        """The best network mixed with the best model that counts, tuned on `valid`; None if there are not both.

        Its training is that of both, and the tuning.
        """
        began, found = time.perf_counter(), []
        for computes in (True, False):
            fitting = [
                (loss, number)
                for number, one in enumerate(results)
                if (one.flops_per_token is not None) is computes
                and (loss := loss_of(one)) is not None
                and math.isfinite(loss)
            ]
            if not fitting:
                return None
            found.append(results[min(fitting)[1]])
        models = [load(self.out / one.folder, device=self.data.device) for one in found]
        mixed = mix(models, valid, progress=self.data.progress)
        names = [one.name for one in found]
        trained = sum(one.training_seconds for one in found) + time.perf_counter() - began
        result = self._measured(find_kind("mixture"), Rung(MIXTURE, {"models": names}), mixed, trained)
        flops = next((one.flops_per_token for one in found if one.flops_per_token is not None), None)
        return replace(result, seconds=time.perf_counter() - began, flops_per_token=flops)

    def _measured(self, kind: Kind, rung: Rung, model: Any, trained: float) -> Result:
        """What a model gives on the test text; it is saved in a folder of its own."""
        folder = self.out / folder_name(rung.name)
        found: Measured | Figures
        writes: float | None = None
        if kind.measure is None:
            found, writes = self._measure_language(model, folder.name)
            sample = sample_text(model, self.data.seed, lines=_SAMPLE_LINES)
        else:
            by: Measure = import_object(kind.measure)
            found = by(model, self.test, self.data.progress)
            sample = found.sample if isinstance(found, Figures) else ""
        model.provenance = self.data.provenance()
        model.metrics = {"training_seconds": round(trained, 3), **model.metrics, **found.to_json()}
        model.save(folder, overwrite=True)  # compare.json does not list a model whose comparison was stopped here
        return Result(
            name=rung.name,
            kind=kind.name,
            settings=dict(rung.settings),
            folder=folder.name,
            test=found,
            training_seconds=trained,
            megabytes=megabytes(folder),
            sample=sample,
            steps=model.metrics.get("steps"),
            tokens_seen=model.metrics.get("tokens_seen"),
            writing_tokens_per_second=writes,
            parameters=_parameters(model),
            flops_per_token=_flops_per_token(model),
        )

    def _measure_language(self, lm: LanguageModel, name: str) -> tuple[Measured, float]:
        """What the model gives the test text, kept token by token; and how fast it writes."""
        pieces: list[np.ndarray] = []
        if lm.capabilities.is_compiled and lm.kind not in _loaded:
            _loaded.add(lm.kind)
            measure(lm, self.test.encoded)
        found = measure(lm, self.test.encoded, keep=pieces.append)
        nats = -np.concatenate(pieces).astype(np.float64)
        ends = token_ends(lm.tokenizer, self.text, np.asarray(self.test.encoded.ids))
        write_surprisals(self.out, name, Surprisals(nats.astype(np.float32), ends))
        return found, writing_speed(lm, self.data.seed)


def writing_speed(lm: LanguageModel, seed: int = 0) -> float:
    """The tokens that a model writes per second, one text at a time, after a first one that does not count."""
    generate_many(lm, [""], max_tokens=20, seed=seed)
    began, written, number = time.perf_counter(), 0, 0
    while (passed := time.perf_counter() - began) < _WRITING_SECONDS and written < _WRITING_TOKENS:
        number += 1
        (text,) = generate_many(lm, [""], max_tokens=100, seed=seed + number)
        written += text.tokens
        if number >= 50 and not written:  # a model of empty lines
            break
    return written / passed if passed else 0.0


def _parameters(model: Model) -> int:
    """The numbers that a model is made of."""
    counted = model.metrics.get("parameters")
    own = int(counted) if counted is not None else sum(int(array.size) for array in model.tensors().values())
    return own + sum(_parameters(part) for part in model.parts().values())


def _flops_per_token(model: Model) -> float | None:
    """Floating-point operations to predict a token, a third of those to learn from one; None: it only looks up."""
    settings = model.settings
    if not isinstance(settings, NeuralSettings):
        return None
    vocabulary = next(iter(model.tokenizers.values())).vocab_size
    return settings.cost(vocabulary).flops / 3
