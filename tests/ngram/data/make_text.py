"""The text behind the golden files: made-up sentences, the same every time.

python make_text.py > text.txt
lmplz -o 3 --discount_fallback < text.txt > trigram.arpa
lmplz -o 3 --discount_fallback --prune 0 0 1 < text.txt > pruned.arpa
head -n 40 text.txt | lmplz -o 5 --discount_fallback > fivegram.arpa
"""

from __future__ import annotations

import random

NOUNS = ["cat", "dog", "mouse", "farmer", "river", "baker", "ship", "stone", "letter", "king", "garden", "owl"]
VERBS = ["sees", "likes", "follows", "paints", "finds", "forgets", "hears"]
PLACES = ["at night", "in the garden", "by the river", "near the old mill", "again and again"]


def sentence(chance: random.Random) -> str:
    def thing() -> str:
        # the earlier in the list, the likelier
        noun = NOUNS[min(int(chance.expovariate(0.35)), len(NOUNS) - 1)]
        return f"{chance.choice(('the', 'the', 'a', 'every'))} {'old ' * (chance.random() < 0.2)}{noun}"

    words = [thing(), chance.choice(VERBS), thing()]
    if chance.random() < 0.4:
        words.append(chance.choice(PLACES))
    if chance.random() < 0.15:
        words += ["and", thing(), chance.choice(VERBS), "it"]
    if chance.random() < 0.05:
        words.append(f"word{chance.randrange(1000)}")
    return " ".join(words)


if __name__ == "__main__":
    source = random.Random(11)
    for number in range(240):
        print("" if number % 60 == 59 else sentence(source))
