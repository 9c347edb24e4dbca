"""The loss on held-out text: by it the best weights are chosen. It is not the figure that evaluation publishes."""

from __future__ import annotations

import torch

from chainrule.errors import TrainingError
from chainrule.training.batches import Source
from chainrule.training.layouts import Layout
from chainrule.training.step import Memories, Stepper, is_out_of_memory


def validate(stepper: Stepper, layout: Layout, source: Source, most_steps: int | None = None) -> float:
    """Mean nats per token of the text, or of its first steps, in the layout of training but without chance."""
    try:
        return _mean_nats(stepper, layout, source, most_steps)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    epoch = layout.epoch(None)
    parts = (part for number in range(len(epoch)) for part in epoch[number].parts)
    rows, width = max(((len(part.starts_B), part.width) for part in parts), key=lambda size: size[0] * size[1])
    smaller = f"device_batch={rows * width // 2}" if rows > 1 else "a smaller length"
    raise TrainingError(
        f"the held-out text: {rows * width:,} tokens at once do not fit into the memory of {stepper.device}; "
        f"set {smaller}"
    )


@torch.no_grad()
def _mean_nats(stepper: Stepper, layout: Layout, source: Source, most_steps: int | None) -> float:
    network = stepper.network
    network.eval()
    epoch = layout.epoch(None)
    nats = torch.zeros(
        (), device=stepper.device, dtype=torch.float32 if stepper.device.type == "mps" else torch.float64
    )
    tokens = 0
    memories: Memories = []
    try:
        for number in range(len(epoch) if most_steps is None else min(most_steps, len(epoch))):
            step = epoch[number]
            after: Memories = []
            for part, rows in enumerate(step.parts):
                with stepper.autocast():
                    # not the compiled one: code for validation would have to be compiled as well
                    found = network.loss(*source.batch(rows), memories[part] if memories else None)
                nats += found.nats
                after.append(found.memory)
            memories = after if layout.carries else []
            tokens += step.targets
    finally:
        network.train()
    return float(nats) / tokens
