"""How a torch engine computes steps: the precision, whether to compile, whether to capture a CUDA graph."""

from __future__ import annotations

import torch

from chainrule.errors import TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.devices import has_fast_bfloat16
from chainrule.training.engines.base import Timer
from chainrule.training.layouts import Layout
from chainrule.training.run_state import Mode

WORTH_TRYING_PRECISIONS = 60.0
"""The shortest run, in seconds, for which it pays to time both precisions on a CPU."""

WORTH_COMPILING = {"cuda": 300.0, "cpu": 1800.0}
"""The shortest run, in seconds, that repays a minute or so of compiling; a CPU gains a tenth from it at best."""

_CLEARLY_FASTER = 0.95


def choose_mode(settings: TrainingSettings, device: torch.device, layout: Layout, timer: Timer) -> Mode:
    """Return the mode of the settings; steps are timed to choose what they leave open."""
    mode = _with_precision(Mode(), settings, device, timer)
    mode = _with_compiling(mode, settings, device, timer)
    return _with_graph(mode, device, layout, timer)


def _with_precision(mode: Mode, settings: TrainingSettings, device: torch.device, timer: Timer) -> Mode:
    small = mode._replace(bfloat16=True)
    if settings.precision != "auto":
        return mode if settings.precision == "float32" else small
    if device.type == "cuda":
        return small if torch.cuda.is_bf16_supported() else mode
    if (
        device.type != "cpu"
        or timer.expected(mode) < WORTH_TRYING_PRECISIONS
        or not (timer.team.agree(has_fast_bfloat16()))
    ):
        return mode
    seconds, in_bfloat16 = timer.seconds(mode), timer.seconds(small)
    timer.note({"float32_step_seconds": seconds, "bfloat16_step_seconds": in_bfloat16})
    return small if in_bfloat16 < _CLEARLY_FASTER * seconds else mode


def _with_compiling(mode: Mode, settings: TrainingSettings, device: torch.device, timer: Timer) -> Mode:
    wanted, compiled = settings.compile, mode._replace(compiled=True)
    if wanted == "no" or (wanted == "auto" and not _is_worth_compiling(mode, settings, device, timer)):
        return mode
    return compiled if wanted == "yes" else _faster(mode, compiled, timer, ("eager", "compiled", "compile"))


def _is_worth_compiling(mode: Mode, settings: TrainingSettings, device: torch.device, timer: Timer) -> bool:
    if device.type == "cuda":
        return timer.expected(mode) >= WORTH_COMPILING["cuda"]
    # a CPU gains so little that timing steps, just to learn how long the run is, does not pay
    return device.type == "cpu" and 60 * (settings.minutes or 0) >= WORTH_COMPILING["cpu"]


def _with_graph(mode: Mode, device: torch.device, layout: Layout, timer: Timer) -> Mode:
    is_one_part = layout.size.rows <= layout.size.rows_at_once
    if device.type != "cuda" or not layout.one_shape or not is_one_part or timer.team.size > 1:
        return mode
    return _faster(mode, mode._replace(recorded=True), timer, ("asked", "recorded", "record"))


def _faster(mode: Mode, other: Mode, timer: Timer, names: tuple[str, str, str]) -> Mode:
    """Return the other mode if its steps are clearly faster; note the times, or the error of the other mode."""
    seconds, (one, two, attempt) = timer.seconds(mode), names
    try:
        others = timer.seconds(other)
    except (RuntimeError, TrainingError) as error:  # no compiler, code that cannot be captured, too little memory
        timer.note({f"{attempt}_error": str(error).partition("\n")[0]})
        return mode
    timer.note({f"{one}_step_seconds": seconds, f"{two}_step_seconds": others})
    return other if others < _CLEARLY_FASTER * seconds else mode
