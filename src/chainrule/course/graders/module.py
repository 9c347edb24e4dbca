"""An exercise whose answer is a module of the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autodiff import Parameter, Tape
from chainrule.autodiff.tape.gradcheck import check
from chainrule.course.graders.difference import difference, place_in_words, shape_in_words
from chainrule.course.graders.grader import CodeGrader, Verdict


@dataclass(frozen=True, kw_only=True)
class TapeModule(CodeGrader):
    """A subclass of `Module`: its value by a function of arrays, its gradients by finite differences.

    `reference` is that function, and `inputs` an expression for a dict of arrays, which draws from `rng`. A known
    wrong answer is a class too, and an answer is like it if one wrong gradient is the same.
    """

    reference: str
    inputs: str
    tolerance: float = 1e-6

    def grade_code(self, answer: Any) -> Verdict:
        """Check forward, then backward."""
        tensors: dict[str, np.ndarray] = self.value(self.inputs, rng=np.random.default_rng(0))
        expected = self.value(self.reference)(*tensors.values())
        results = _results(answer, tensors)
        wrong = ["forward"]
        said = difference(results["forward"], expected, self.tolerance, "forward")
        if not said:
            # another seed than that of the inputs: were dL/d(value) equal to an input, outer products would commute
            report = check(lambda *inputs: answer().apply_fwd(*inputs), tensors, tolerance=self.tolerance, seed=1)
            if report.passed:
                return Verdict("right", f"gradients within {report.error:.0e} of finite differences")
            worst = report.worst
            wrong = [one.name for one in report.inputs if not one.passed]
            said = (
                f"backward: the gradient of {worst.name}, {shape_in_words(worst.shape)}, is {worst.analytic:.6g} "
                f"at {place_in_words(worst.where)}, and a small step gives {worst.numeric:.6g}"
            )

        def is_known(known: Any, of: Callable[[Iterable[bool]], bool] = all) -> bool:
            others = _results(known, tensors)
            return of(not difference(results[name], others[name], self.tolerance) for name in wrong)

        return self.wrong_verdict(is_known, said, lambda known: is_known(known, any))


def _results(module: Any, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the value of a module, and its gradients for a fixed random dL/d(value)."""
    nodes = [Parameter(name, np.array(tensor, np.float64)) for name, tensor in tensors.items()]
    with Tape() as tape:
        last = module().apply_fwd(*nodes)
        tape.backward(np.random.default_rng(1).normal(size=last.out_tensor.shape))
    return {"forward": last.out_tensor} | {node.name: node.dense_gradient() for node in nodes}
