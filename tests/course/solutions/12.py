"""Right answers to lesson 12, for any student."""

import numpy as np

import chainrule as cr
from chainrule.autodiff import Module


def gru(x, h, W, U, b):
    z = 1 / (1 + np.exp(-(W["z"] @ x + U["z"] @ h + b["z"])))
    r = 1 / (1 + np.exp(-(W["r"] @ x + U["r"] @ h + b["r"])))
    n = np.tanh(W["n"] @ x + U["n"] @ (r * h) + b["n"])
    return {"z": z, "r": r, "n": n, "h": (1 - z) * n + z * h}


def clip(gradients, limit):
    norm = np.linalg.norm(np.concatenate([g.ravel() for g in gradients]))
    return [g * limit / norm for g in gradients] if norm > limit else gradients


class Carousel(Module):
    def forward(self, f, c, i, g):
        return f * c + i * g

    def backward(self, f, c, i, g, new, d):
        return d * c, d * f, d * g, d * i


def state_norms(U, states, gradient):
    found = [np.linalg.norm(gradient)]
    for h in states[:0:-1]:
        gradient = (gradient * (1 - h * h)) @ U
        found.append(np.linalg.norm(gradient))
    return np.array(found)


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(12, student).data
    return {
        "answer_1": data["rho"] ** data["distance"],
        "answer_2": data["arrives"] * float(np.prod(data["gates"][1:])),
        "gru": gru,
        "clip": clip,
        "Carousel": Carousel,
        "state_norms": state_norms,
    }
