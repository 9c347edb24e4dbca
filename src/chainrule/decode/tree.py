"""The tree of a beam search: every hypothesis that was looked at, and which of them were kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from chainrule.arrays import PAD, refuse_nan, to_numpy
from chainrule.contract.lm import LanguageModel, State
from chainrule.decode.generate import context_of, end_of, prompt_ids
from chainrule.decode.top import top_k
from chainrule.system.pictures import Branch, Picture, tree_picture


def grow_tree(
    lm: LanguageModel, state: State, read: Sequence[int], width: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Yield the tree after each step of a beam search with the ending "best" (beam.py); `state` has read the ids.

    A node has the number of its parent, its token and the text that it adds, ln p of the whole hypothesis, its
    step, and whether it was kept: the `width` best of each step are. A node whose token ends the text is finished.
    """
    end, never = end_of(lm), () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
    nodes: list[dict[str, Any]] = []
    finished: list[dict[str, Any]] = []
    live: list[tuple[dict[str, Any] | None, list[int]]] = [(None, [])]  # the last node of each, and its tokens
    for step in range(steps):
        log_probs_BV = to_numpy(lm.next_log_probs(state)).astype(np.float64)
        refuse_nan(log_probs_BV)
        log_probs_BV[:, list(never)] = -math.inf
        values, tokens = map(to_numpy, top_k(log_probs_BV, min(width, log_probs_BV.shape[1])))
        found = []
        for row, (parent, ids) in enumerate(live):
            total = 0.0 if parent is None else parent["log_prob"]
            for value, token in zip(values[row].tolist(), tokens[row].tolist(), strict=True):
                if token == PAD or value == -math.inf:
                    continue
                text = lm.tokenizer.continuation([*read, *ids], [token])
                node: dict[str, Any] = {
                    "id": len(nodes),
                    "parent": None if parent is None else parent["id"],
                    "step": step,
                    "token": token,
                    "text": "" if token == end else text,
                    "log_prob": total + value,
                    "kept": False,
                    "finished": token == end,
                }
                nodes.append(node)
                found.append((node, ids, row))
        found.sort(key=lambda one: -one[0]["log_prob"])
        rows, live = [], []
        for node, ids, row in found[:width]:
            node["kept"] = True
            if node["finished"]:
                finished.append(node)
            else:
                rows.append(row)
                live.append((node, [*ids, node["token"]]))
        ends = [*finished, *(node for node, _ in live if node is not None)]
        best = sorted(ends, key=lambda node: -node["log_prob"] / (node["step"] + 1))
        yield {"nodes": nodes, "best": [node["id"] for node in best]}
        if not live or len(finished) >= width:
            break
        last_BT = np.asarray([ids[-1:] for _, ids in live], dtype=np.int64)
        state = lm.extend(state.select(np.asarray(rows)), last_BT)


def beam_picture(lm: LanguageModel, prompt: str, width: int, steps: int) -> Picture:
    """Return a picture of the tree, with p of each hypothesis; those that were dropped are pale.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"], order=2, smoothing="mle", tokenizer="word")
    >>> picture = beam_picture(lm, "i love", width=1, steps=2)
    >>> picture.count('class="edge'), picture.count('class="edge weak"')
    (2, 0)
    """
    read = prompt_ids(lm, context_of(lm, prompt))
    state = lm.extend(lm.start(1), np.asarray([read], dtype=np.int64))
    *_, tree = grow_tree(lm, state, read, width, steps)
    below: dict[int | None, list[dict[str, Any]]] = {}
    for node in sorted(tree["nodes"], key=lambda node: -node["log_prob"]):
        below.setdefault(node["parent"], []).append(node)

    def branches(number: int | None) -> list[Branch]:
        return [
            Branch(
                "■ end" if node["finished"] else node["text"] or f"#{node['token']}",
                f"{math.exp(node['log_prob']):.3g}",
                branches(node["id"]),
                not node["kept"],
            )
            for node in below.get(number, [])
        ]

    return tree_picture(f"Beam search, width {width}", [Branch(prompt or "<s>", "1", branches(None))])
