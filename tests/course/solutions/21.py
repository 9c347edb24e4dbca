"""Right answers to lesson 21, for any student."""

import numpy as np

import chainrule as cr
from chainrule.autodiff import Module
from chainrule.evaluation.metrics import yes_no_questions


class Bias(Module):
    def forward(self, x, beta):
        return x + beta[:, None, None]

    def backward(self, x, beta, y, g):
        return g, g.sum(axis=2).sum(axis=1)


def hidden_gradient(U, slopes, direct, t):
    # the recursion, from the last step back
    gradient = np.zeros(len(U))
    for k in range(len(direct) - 1, t, -1):
        gradient = U.T @ (slopes[k] * (direct[k] + gradient))
    return direct[t] + gradient


def strided(x, alpha, s):
    return [sum(x[h + m] * alpha[m] for m in range(len(alpha))) for h in range(0, len(x) - len(alpha) + 1, s)]


def bounds(U, g, n):
    smallest, largest = 1 / np.linalg.norm(np.linalg.inv(U), 2), np.linalg.norm(U, 2)
    return {"lower": smallest**n * np.linalg.norm(g), "upper": largest**n * np.linalg.norm(g)}


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(21, student).data
    return {
        "answer_1": data["probability"] ** (-1 / data["tokens"]),
        "answer_2": yes_no_questions([*data["words"].values()]),
        "answer_3": data["length"] + 1,
        "hidden_gradient": hidden_gradient,
        "Bias": Bias,
        "strided": strided,
        "bounds": bounds,
    }
