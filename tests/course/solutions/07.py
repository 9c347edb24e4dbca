"""Right answers to lesson 7, for any student."""

import heapq
import math

import chainrule as cr


def divided(p):
    total = sum(p.values())
    return {word: value / total for word, value in p.items()}


def choices(p, T, k, nucleus):
    tempered = divided({word: math.exp(math.log(value) / T) for word, value in p.items()})
    top_k = divided({word: tempered[word] for word in heapq.nlargest(k, tempered, key=tempered.__getitem__)})
    kept = {}
    for word, value in top_k.items():
        if sum(kept.values()) < nucleus:
            kept[word] = value
    return {"tempered": tempered, "top_k": top_k, "top_p": divided(kept)}


def beam_search(table, width):
    beam, finished = {(): 0.0}, {}
    while beam:
        longer = {}
        for words, score in beam.items():
            for word, p in table[words[-1] if words else "<s>"].items():
                (finished if word == "</s>" else longer)[(*words, word)] = score + math.log(p)
        beam = {words: longer[words] for words in heapq.nlargest(width, longer, key=longer.__getitem__)}
    best = max(finished, key=finished.__getitem__)
    return {"sentence": " ".join(best[:-1]), "log_prob": finished[best]}


def answers(student: str) -> dict[str, object]:
    """Return the answers under the names of the blanks."""
    data = cr.lesson(7, student).data
    row, nucleus = data["row"], []
    while sum(row[word] for word in nucleus) < data["top_p"]:
        nucleus.append(max(set(row) - set(nucleus), key=row.__getitem__))
    tokens = data["long_length"] / data["short_length"]
    return {
        "answer_1": divided({word: p ** (1 / data["temperature"]) for word, p in row.items()}),
        "answer_2": nucleus,
        "choices": choices,
        "answer_4": cr.generate(cr.Table(data["trap"]), "", cr.Beam(2, length_power=0)),
        "beam_search": beam_search,
        "answer_6": math.log(data["long_log_prob"] / data["short_log_prob"], tokens),
    }
