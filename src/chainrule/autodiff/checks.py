"""The checks that `chainrule gradcheck` runs: the gradients of every module, and of small networks."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from chainrule.arrays import PAD
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.networks.weights import Design, make_network, shapes
from chainrule.autodiff.tape.cases import Case, all_cases
from chainrule.autodiff.tape.gradcheck import GradientReport, check_parameters
from chainrule.autodiff.tape.gradients import Array
from chainrule.errors import AutodiffError
from chainrule.networks.config import BagOfWordsConfig, FeedforwardConfig, RecurrentConfig
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.system.progress import Reports, as_progress

_VOCABULARY = 7


@dataclass(frozen=True)
class NetworkCase:
    """A whole network, and a batch of text on which its loss is differentiated."""

    name: str
    title: str
    network: TapeNetwork
    inputs_BT: Array
    targets_BT: Array

    def check(self, *, eps: float = 1e-6, tolerance: float = 1e-6) -> GradientReport:
        return check_parameters(
            lambda: self.network.loss(self.inputs_BT, self.targets_BT).module,
            list(self.network.parameters.values()),
            name=self.title,
            eps=eps,
            tolerance=tolerance,
        )


def every_check(
    names: Sequence[str] = (),
    *,
    eps: float = 1e-6,
    tolerance: float = 1e-6,
    seed: int = 0,
    progress: Reports = False,
) -> list[GradientReport]:
    """Run the checks of all modules and networks, or of those in `names`, and report on each."""
    known = check_names()
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise AutodiffError(f"there is no module {name!r}{hint} (there are: {', '.join(known)})")
    cases = [case for case in _all(seed) if not names or case.name in names]
    reports = []
    with as_progress(progress).task("checking", len(cases), "modules") as task:
        for case in cases:
            task.show(case.name)
            reports.append(case.check(eps=eps, tolerance=tolerance))
            task.advance(1)
    return reports


def _all(seed: int) -> list[Case | NetworkCase]:
    return [*all_cases(seed), *network_cases(seed)]


def check_names() -> list[str]:
    """The names of all modules and networks that `every_check` knows."""
    return list(dict.fromkeys(case.name for case in _all(seed=0)))


def network_cases(seed: int = 0) -> Iterator[NetworkCase]:
    """Cases for each kind of network, small enough to check every weight."""
    rng = np.random.default_rng(seed % 2**64)
    small = RecurrentConfig(embedding=3, hidden=4, layers=1)
    block = TransformerConfig(preset="gpt2", layers=1, width=4, heads=2, hidden=3, window=3)
    designs: list[tuple[str, str, Design]] = [
        ("feedforward", "", FeedforwardConfig(order=4, embedding=3, hidden=4, activation="tanh")),
        ("bagofwords", ", two layers", BagOfWordsConfig(embedding=3, hidden=4, layers=2, activation="tanh")),
        ("elman", ", not tied", replace(small, cell="elman", tied=False)),
        ("lstm", ", two layers", replace(small, cell="lstm", layers=2)),
        ("gru", ", learned start", replace(small, cell="gru", learned_start=True)),
        ("transformer", ", gpt2", block),
        (
            "transformer",
            ", rotary, rmsnorm, swiglu, shared keys",
            replace(block, positions="rotary", norm="rmsnorm", activation="swiglu", kv_heads=1),
        ),
    ]
    # the second row ends in padding, so that masks are checked too
    text_BT = np.array([[1, 4, 2, 6], [1, 5, 3, PAD]])
    for name, variant, design in designs:
        # larger weights than training starts with: gradients near zero would pass any check
        tensors = {key: rng.normal(0, 0.5, shape) for key, shape in shapes(design, _VOCABULARY).items()}
        network = make_network(design, _VOCABULARY, 1, tensors)
        yield NetworkCase(name, name + variant, network, text_BT[:, :-1], text_BT[:, 1:])
