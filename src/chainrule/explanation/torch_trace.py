"""The gradients of a torch network that the tape does not compute: those of the embeddings, by hooks on a copy."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from chainrule.errors import DiagnosisError
from chainrule.explanation.trace import Trace
from chainrule.inference.neural_model import NeuralModel


def trace_embeddings(lm: NeuralModel, ids: list[int], target: int) -> Trace:
    """Return the loss of the target after the ids, and the gradients of their embeddings, in double precision."""
    network = copy.deepcopy(lm.network).to("cpu", torch.float64).requires_grad_(False).eval()
    if not isinstance(getattr(network, "embedding", None), nn.Module):
        raise DiagnosisError(f"a model of the kind {lm.kind} has no layer `embedding` to differentiate by")
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, embedded: Tensor) -> Tensor:
        kept.append(embedded.detach().requires_grad_())
        return kept[-1]

    network.embedding.register_forward_hook(keep)
    logits_V = network.head(network(torch.tensor([ids])).features_BTD[0, -1])
    # -ln p(y) = ln Σ e^z - z_y, where <s> is never predicted
    possible_V = torch.arange(len(logits_V)) != lm.tokenizer.bos
    loss = logits_V[possible_V].logsumexp(dim=0) - logits_V[target]
    (gradient,) = torch.autograd.grad(loss, kept)
    log_probs_V = torch.where(possible_V, logits_V - logits_V[target] - loss, -torch.inf).detach().numpy()
    return Trace(loss.item(), gradient.flatten(0, -2)[-len(ids) :].norm(dim=-1).numpy(), log_probs_V=log_probs_V)
