"""Right answers to lesson 10, for any student."""

import math

import numpy as np

import chainrule as cr
from chainrule.autodiff import Module
from chainrule.autodiff.tape.gradcheck import check


class MySigmoid(Module):
    def forward(self, a):
        return 1 / (1 + np.exp(-a))

    def backward(self, a, b, g):
        return g * b * (1 - b)


class MyLinear(Module):
    def forward(self, a, W):
        return W @ a

    def backward(self, a, W, b, g):
        return W.T @ g, np.outer(g, a)


class MySoftmax(Module):
    def forward(self, a):
        return np.exp(a) / np.exp(a).sum()

    def backward(self, a, b, g):
        return (np.diag(b) - np.outer(b, b)) @ g


def gradients(tape):
    found = dict.fromkeys([name for value, inputs in tape for name in (value, *inputs)], 0.0)
    found[tape[-1][0]] = 1.0
    for value, inputs in tape[::-1]:
        for name, slope in inputs.items():
            found[name] += slope * found[value]
    return found


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(10, student).data
    x = np.array([0.3, -1.2, 2.0])
    reports = {
        name: check(lambda x, one=one: one().apply_fwd(x), {"x": x}) for name, one in data["suspects"].items()
    }
    b = 1 / (1 + math.exp(-data["a_value"]))
    return {
        "answer_1": data["g_value"] * b * (1 - b),
        "MySigmoid": MySigmoid,
        "MyLinear": MyLinear,
        "MySoftmax": MySoftmax,
        "answer_5": next(name for name, report in reports.items() if not report.passed),
        "gradients": gradients,
    }
