"""Templates: how a prompt is written for a model that is tuned to reply.

    User: {prompt} Assistant:        the template of a prompt; a space, the reply and the end of the line follow

An example of training, a message to a server and a question in an evaluation are all written here, so that a model
reads what it was tuned on. A prompt is one line, as a side of a pair is.
"""

from __future__ import annotations

from collections.abc import Iterable

from chainrule.errors import SettingsError

PROMPT = "{prompt}"
"""What stands in a template for the prompt."""
TEMPLATE = f"User: {PROMPT} Assistant:"
"""The template of a model for which no other was chosen."""
ASSISTANT = "assistant"
"""The role of the messages that are replies."""


def check_template(template: str) -> None:
    """Refuse a template that has no single place for the prompt, or is more than a line."""
    if template.count(PROMPT) != 1 or len(template.splitlines()) != 1 or template != template.strip():
        raise SettingsError(
            f"template should be one line with {PROMPT} in it once, without spaces around it, not {template!r}"
        )


def prompted(template: str, prompt: str) -> str:
    """Return a prompt in its template.

    >>> prompted("Q: {prompt} A:", "Who  is\\nthere?")
    'Q: Who is there? A:'
    """
    return template.replace(PROMPT, _line(prompt))


def replied(template: str, prompt: str, reply: str) -> str:
    """Return a prompt in its template, and the reply after it.

    >>> replied("Q: {prompt} A:", "Who is there?", "Me.")
    'Q: Who is there? A: Me.'
    """
    return f"{prompted(template, prompt)} {_line(reply)}"


def conversation(template: str, messages: Iterable[tuple[str, str]]) -> str:
    """Return messages, each a role and a text, as the text that the next reply continues.

    Messages before a reply are one prompt. A conversation that ends in a reply asks for the rest of it.

    >>> turns = [("system", "Be brief."), ("user", "Who is there?"), ("assistant", "Me."), ("user", "Who?")]
    >>> conversation("Q: {prompt} A:", turns)
    'Q: Be brief. Who is there? A: Me. Q: Who? A:'
    """
    written: list[str] = []
    asked: list[str] = []
    for role, text in messages:
        if role != ASSISTANT:
            asked.append(text)
            continue
        written += [prompted(template, " ".join(asked))] if asked else []
        written.append(_line(text))
        asked = []
    return " ".join([*written, prompted(template, " ".join(asked))] if asked else written)


def _line(text: str) -> str:
    return " ".join(text.split())
