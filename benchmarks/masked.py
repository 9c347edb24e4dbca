"""Masked models beside transformers' BertForMaskedLM of the same size: `python -m benchmarks masked [options]`.

The table has tokens per second of training on random ids, in turns. Both sides read the same batches, which our
objective makes, and train by AdamW without dropout. Our side computes logits of masked tokens only; BERT has one
more layer in its head. Without transformers our side runs alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Side, is_installed, new_parser, race
from chainrule.arrays import PAD
from chainrule.masked.masking import MaskedExamples, Masking
from chainrule.networks.transformer.masked import MaskedTransformer
from chainrule.networks.transformer.settings import MaskedSettings
from chainrule.settings import closed
from chainrule.system.devices import choose_device
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.objectives import Feed, NextToken
from chainrule.training.run_state import Mode, Place

_IGNORED = -100  # the label that transformers' losses ignore


def main(arguments: list[str]) -> None:
    parser = new_parser("masked", __doc__)
    parser.add_argument("--device", default="auto", help="torch's name of the device [default: auto]")
    parser.add_argument("--width", type=int, default=128, help="features of a token [128]")
    parser.add_argument("--layers", type=int, default=4, help="layers [4]")
    parser.add_argument("--heads", type=int, default=4, help="heads of each [4]")
    parser.add_argument("--window", type=int, default=128, help="tokens of a row [128]")
    parser.add_argument("--vocab-size", type=int, default=8192, help="tokens of the vocabulary [8192]")
    parser.add_argument("--batch", type=int, default=2048, help="tokens of a step [2048]")
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn [10]")
    parser.add_argument("--rounds", type=int, default=5, help="turns [5]")
    options = parser.parse_args(arguments)
    device = choose_device(options.device)
    on_gpu = device.startswith("cuda")
    ids = np.random.default_rng(0).integers(3, options.vocab_size, 64 * options.batch).astype(np.uint32)
    examples = MaskedExamples(ids, 2, "stream", Masking(NextToken(2, None), options.vocab_size, seed=0))
    designs: dict[str, dict[str, Any]] = {
        "chainrule, BERT's design": {"preset": "gpt2", "placement": "post", "optimiser": "adamw"},
        "chainrule, fast": {"preset": "fast", "optimiser": "adamw"},
    }
    sides, read = [], 0
    for name, design in designs.items():
        engine, feed = _ours(options, examples, design, device)
        steps = _full_steps(feed)
        read = sum(int(rows.lengths_B.sum()) for step in steps[: options.steps] for rows in step.parts)
        modes = {name: Mode(bfloat16=on_gpu), **({f"{name}, captured": Mode(True, False, True)} if on_gpu else {})}
        for title, mode in modes.items():
            engine.start(mode)
            sides.append(Side(title, _stepping(engine, feed, steps[: options.steps]), read))
            engine, feed = _ours(options, examples, design, device)
    if (peer := _bert(options, device)) is not None:
        engine, feed = _ours(options, examples, {}, device)
        batches = [feed.gatherer.batch(step.parts[0]) for step in _full_steps(feed)[: options.steps]]
        sides.append(Side("transformers, BertForMaskedLM", lambda: peer(batches), read))
    race(f"masked training, {options.batch} tokens a step", "tokens", sides, options.rounds)


def _ours(
    options: argparse.Namespace, examples: MaskedExamples, design: dict[str, Any], device: str
) -> tuple[TorchEngine, Feed]:
    sizes = {name: getattr(options, name) for name in ("width", "layers", "heads", "window", "batch")}
    settings = closed(MaskedSettings(learning_rate=1e-4, dropout=0.0, **sizes, **design))
    engine = TorchEngine(MaskedTransformer(settings, options.vocab_size), settings, device)
    return engine, examples.feed(engine, settings, 0)


def _full_steps(feed: Feed) -> list[Any]:
    """Return the steps without padding."""
    epoch = feed.layout.epoch(0)
    found = [epoch[number] for number in range(len(epoch))]
    width = max(len(step.parts[0].starts_B) for step in found)
    return [step for step in found if step.parts[0].is_full and len(step.parts[0].starts_B) == width]


def _stepping(engine: TorchEngine, feed: Feed, steps: list[Any]) -> Callable[[], None]:
    def work() -> None:
        for number, step in enumerate(steps):
            engine.take_step(feed, step, 1.0, Place(number + 1, 0, number))
        engine.read_figures()  # waits for the device

    return work


def _bert(options: argparse.Namespace, device: str) -> Callable[[list[Any]], None] | None:
    """Return a function that trains transformers' model on batches; None if the library is missing."""
    if not is_installed("transformers", "transformers"):
        return None
    import transformers

    config = transformers.BertConfig(
        vocab_size=options.vocab_size + 1,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
        max_position_embeddings=options.window,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model: Any = transformers.BertForMaskedLM(config)
    model = model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.startswith("cuda"))

    def steps(batches: list[Any]) -> None:
        for inputs_BS, targets_BT in batches:
            labels_BS = torch.nn.functional.pad(targets_BT, (1, 0), value=PAD)
            labels_BS = torch.where(labels_BS == PAD, _IGNORED, labels_BS)
            with torch.autocast("cuda", torch.bfloat16, enabled=device.startswith("cuda")):
                loss = model(input_ids=inputs_BS, labels=labels_BS).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
        float(loss.detach())  # waits for the device

    return steps
