"""Right answers to lesson 9, for any student."""

import numpy as np

import chainrule as cr
from chainrule.autodiff import Module


class Sigmoid(Module):
    """b = σ(x), db/dx = b (1 - b)."""

    def forward(self, x):
        return 1 / (1 + np.exp(-x))

    def backward(self, g):
        return (g * self.out_tensor * (1 - self.out_tensor),)


def softmax(z):
    return np.exp(z) / np.exp(z).sum()


def backward(E, W, b, U, c, context, y):
    x = np.concatenate([E[w] for w in context])
    h = np.tanh(W @ x + b)
    dz = softmax(U @ h + c)
    dz[y] -= 1
    dU, dc, dh = np.outer(dz, h), dz, U.T @ dz
    da = dh * (1 - h**2)
    dW, db, dx = np.outer(da, x), da, W.T @ da
    dE = np.zeros_like(E)
    np.add.at(dE, context, dx.reshape(3, -1))
    return {"dz": dz, "dU": dU, "dc": dc, "dh": dh, "da": da, "dW": dW, "db": db, "dx": dx, "dE": dE}


def numeric_gradient(f, x, eps):
    return np.array([(f(x + step) - f(x - step)) / (2 * eps) for step in eps * np.eye(len(x))])


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(9, student).data
    p = softmax(data["logits"])
    return {
        "answer_1": (p - np.eye(3)[data["target"]]).round(3).tolist(),
        "answer_2": (np.diag(p) - np.outer(p, p)).round(3).tolist(),
        "answer_3": data["vocabulary"] ** 2 * data["units"],
        "backward": backward,
        "numeric_gradient": numeric_gradient,
        "Sigmoid": Sigmoid,
    }
