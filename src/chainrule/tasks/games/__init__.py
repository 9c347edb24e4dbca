"""Games with a language model, which a terminal, a pipe or a test can play.

shannon.py    Shannon's game: guess the next letters or words of a line
questions.py  twenty questions: the model finds the word that the player thinks of
quiz.py       which of two texts is real, and which did a model generate?
lines.py      the functions by which a game asks and reports, and the lines that it draws
"""

from __future__ import annotations

from chainrule.tasks.games.lines import drawn_lines
from chainrule.tasks.games.questions import twenty_questions
from chainrule.tasks.games.quiz import real_or_written
from chainrule.tasks.games.shannon import guessing_game

__all__ = ["drawn_lines", "guessing_game", "real_or_written", "twenty_questions"]
