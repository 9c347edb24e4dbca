"""Twenty questions: the model finds the word that the player thinks of, by as few yes-no questions as it can."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from chainrule.contract.lm import LanguageModel
from chainrule.decode.suggest import suggest
from chainrule.errors import ModelError
from chainrule.evaluation.metrics import entropy, yes_no_questions
from chainrule.system.display import Part, PlainResult
from chainrule.tasks.games.lines import Ask, Tell

Tree: TypeAlias = "str | tuple[Tree, Tree]"
"""A word, or a question: is the word in the first tree? If not, it is in the second."""


def question_tree(probabilities: Mapping[str, float]) -> Tree:
    """Return the yes-no questions that need the fewest answers in the mean: Huffman's tree.

    >>> question_tree({"fish": 0.5, "pizza": 0.3, "soup": 0.2})
    ('fish', ('soup', 'pizza'))
    """
    number = count()
    heap: list[tuple[float, int, Tree]] = [(p, next(number), name) for name, p in probabilities.items()]
    heapq.heapify(heap)
    while len(heap) > 1:
        (p, _, first), (q, _, second) = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (p + q, next(number), (first, second)))
    return heap[0][2]


def leaves(tree: Tree, depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yield the words of a tree, each with the number of questions that find it."""
    if isinstance(tree, str):
        yield tree, depth
    else:
        for branch in tree:
            yield from leaves(branch, depth + 1)


@dataclass(frozen=True)
class Questions(PlainResult):
    """The result of twenty questions: what was thought of, and how many questions it took."""

    word: str
    questions: int
    expected: float
    """The mean number of questions over the words, by their probabilities."""
    entropy: float
    """The entropy of the words, in bits: no way to ask needs fewer questions in the mean."""

    def parts(self) -> list[Part]:
        """Return the number of questions beside the expected one."""
        asked = f"{self.questions} question{'s' * (self.questions != 1)}"
        return [f"{asked}, {self.expected:.3f} expected; the entropy is {self.entropy:.3f} bits"]


def twenty_questions(lm: LanguageModel, prompt: str, ask: Ask, tell: Tell, *, words: int = 8) -> Questions | None:
    """Find the next word that the player thinks of, one of the model's most likely, by yes-no questions.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs"], order=3, smoothing="mle", tokenizer="word")
    >>> said = []
    >>> found = twenty_questions(lm, "i love", lambda question: "y", said.append)
    >>> found.questions, found.entropy, said[-1]
    (1, 1.0, 'it is cats')
    """
    likely = suggest(lm, f"{prompt.rstrip()} ", words)
    total = sum(one.probability for one in likely)
    p = {one.word: one.probability / total for one in likely}
    if len(p) < 2:
        raise ModelError("after this prompt the model knows fewer than two words: give another --prompt")
    tell(f"{prompt} … think of one of these words:")
    for word, share in p.items():
        tell(f"  {word}  {share:.3f}")
    tree, asked = question_tree(p), 0
    while not isinstance(tree, str):
        yes = [word for word, _ in leaves(tree[0])]
        answer = ask(f"is it {' or '.join(map(repr, yes))}? (y/n) ")
        if answer is None:
            return None
        if answer.strip().lower()[:1] not in ("y", "n"):
            tell("answer y or n")
            continue
        asked, tree = asked + 1, tree[0] if answer.strip().lower().startswith("y") else tree[1]
    tell(f"it is {tree}")
    shares = [*p.values()]
    return Questions(tree, asked, yes_no_questions(shares), float(entropy(shares)))
