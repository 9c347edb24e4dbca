"""Right answers to lesson 1, for any student."""

import math

import chainrule as cr


def score(table, sentence):
    factors, before = [], "<s>"
    for word in [*sentence.split(), "</s>"]:
        factors.append(table.get(before, {}).get(word, 0))
        before = word
    logs = [math.log(p) if p > 0 else -math.inf for p in factors]
    return {"factors": factors, "logs": logs, "total": sum(logs)}


def total(table, longest):
    here, ended = {"<s>": 1.0}, 0.0
    for _ in range(longest + 1):
        there: dict[str, float] = {}
        for word, p in here.items():
            for after, share in table[word].items():
                if after == "</s>":
                    ended += p * share
                else:
                    there[after] = there.get(after, 0) + p * share
        here = there
    return ended


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(1, student).data
    joint, prior, first, second = (data[name] for name in ("joint", "prior", "p_first", "p_second"))
    factors = 0
    while data["factor"] ** factors > 0:
        factors += 1
    return {
        "answer_1": math.exp(cr.Table(data["table"]).log_prob(data["sentence"])),
        "answer_2": joint["dogs sleep"] / (joint["dogs bark"] + joint["dogs sleep"]),
        "score": score,
        "answer_4": factors,
        "answer_5": prior * first / (prior * first + (1 - prior) * second),
        "total": total,
    }
