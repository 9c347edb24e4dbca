"""The fields of requests, and their bounds. Fields of features that are not offered are refused, others ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from chainrule.decode import strategies
from chainrule.decode.strategies import Strategy
from chainrule.errors import DecodingError

MOST_TEXTS = 8
"""The most texts of a prompt."""
MOST_PROMPTS = 128
MOST_TOKENS = 4096
"""The most new tokens of a text."""
MOST_ALTERNATIVES = 20
MOST_BIASES = 1024
LONGEST_STUDENT = 64

TokenId = Annotated[int, Field(ge=0, le=2**31)]
Text = Annotated[str, Field(max_length=1_000_000)]
Sentence = Annotated[str, Field(max_length=100_000)]
TaggedText = Annotated[str, Field(max_length=20_000)]
"""A network reads all of it in one go, which cannot be given up."""
Texts = Annotated[list[Text], Field(min_length=1, max_length=MOST_PROMPTS)]
# one error is enough: to describe half a million of them would take seconds
Tokens = Annotated[list[TokenId], Field(min_length=1, max_length=500_000, fail_fast=True)]
Prompt = str | tuple[int, ...]
"""A text, or its tokens."""
Given = (
    Text | Texts | Tokens | Annotated[list[Tokens], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
)
"""One text or several, each as text or as tokens."""
Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
_WITHOUT_EFFECT = {"repetition_penalty": 1, "temperature": 1, "top_p": 1}
"""The values of sampling options that change nothing; that of the others is 0."""


def one_by_one(given: Any) -> list[Prompt]:
    """Return the prompts that are `Given` as a list: a text is a string, tokens are a tuple."""
    every = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    return [one if isinstance(one, str) else tuple(one) for one in every]


class Asked(BaseModel):
    """The fields of all requests."""

    model: str | None = None
    user: str | None = None


class Form(BaseModel):
    """The form of an answer, of which text is offered."""

    type: str = "text"

    @field_validator("type")
    @classmethod
    def _refuse_others(cls, given: str) -> str:
        if given != "text":
            raise ValueError(f"{given[:40]!r} is not offered: these models write text")
        return given


class TextForm(BaseModel):
    """How the text of an answer is formed."""

    format: Form | None = None


def _not_too_many(given: Any) -> Any:
    """Refuse a long object before its entries are looked at, each of which may be an error."""
    if isinstance(given, dict) and len(given) > MOST_BIASES:
        raise ValueError(f"expected at most {MOST_BIASES:,} tokens")
    return given


class Sampling(Asked):
    """How the next token is chosen."""

    temperature: Annotated[float, Field(ge=0, le=100)] | None = 1.0
    top_p: Annotated[float, Field(ge=0, le=1)] | None = 1.0
    top_k: Annotated[int, Field(ge=-1, le=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-100, le=100)] | None = 0.0
    frequency_penalty: Annotated[float, Field(ge=-100, le=100)] | None = 0.0
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = 1.0
    logit_bias: Annotated[
        dict[str, Annotated[float, Field(ge=-100, le=100)]] | None, BeforeValidator(_not_too_many)
    ] = None
    seed: Seed | None = None

    def strategy(self, vocab_size: int) -> Strategy:
        """Return the strategy of these values; they apply in the same order as on the command line."""
        given = {name: getattr(self, name) for name in strategies.SAMPLING} | {"top_k": max(self.top_k or 0, 0)}
        if self.top_p == 0:  # nobody wants no token at all: 0 leaves the most likely one, as elsewhere
            given |= {"top_k": 1, "top_p": None}
        chosen = {name: value for name, value in given.items() if value != _WITHOUT_EFFECT.get(name, 0)}
        strategy = strategies.sampling(**chosen)
        if self.logit_bias:
            bias = tuple((_token(name, vocab_size), value) for name, value in self.logit_bias.items())
            return strategies.Bias(bias) | strategy
        return strategy


def _token(name: str, vocab_size: int) -> int:
    if not (name.isascii() and name.isdecimal() and int(name) < vocab_size):
        raise DecodingError(f"logit_bias: {name[:20]!r} is no token: tokens are numbers below {vocab_size}")
    return int(name)


class Writing(Sampling):
    """A request for text; other things than text, and text of a certain form, are refused."""

    response_format: Form | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_is_no_text(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for name in _NO_TEXT:
                if given.get(name):
                    raise ValueError(f"{name} is not offered: these models write text")
            for name in ("tool_choice", "function_call"):
                if given.get(name) not in (None, "none", "auto"):
                    raise ValueError(f"{name} other than 'none' is not offered: these models write text")
        return given


_NO_TEXT = (
    *("audio", "functions", "tools", "web_search_options"),
    # the form of a text, as vLLM and the server of llama.cpp are asked for it
    *("guided_choice", "guided_grammar", "guided_json", "guided_regex", "structured_outputs"),
    *("grammar", "json_schema"),
)
"""The fields that ask for something other than text, or for text of a certain form."""


class StreamOptions(BaseModel):
    """What a stream sends beside the text."""

    include_usage: bool = False


Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class Generation(Writing):
    """A request for texts."""

    n: Annotated[int, Field(ge=1, le=MOST_TEXTS)] | None = 1
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts at which to stop."""
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def sends_usage(self) -> bool:
        """True if a stream ends with the numbers of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(Generation):
    """The body of /v1/completions."""

    prompt: Given = ""
    max_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = 16
    best_of: Annotated[int, Field(ge=1, le=MOST_TEXTS)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | bool | None = None
    echo: bool | None = False
    suffix: str | None = None

    @model_validator(mode="after")
    def _agree(self) -> CompletionRequest:
        if self.suffix:
            raise ValueError("suffix is not offered: these models write from left to right; /v1/fill fills gaps")
        if self.best_of is not None and self.best_of < (self.n or 1):
            raise ValueError(f"best_of should be at least n, which is {self.n}")
        if self.best_of is not None and self.best_of > (self.n or 1) and self.stream:
            raise ValueError("best_of above n cannot be streamed: which texts are best is known at the end")
        return self

    @property
    def alternatives(self) -> int | None:
        """The number of alternatives of each token to send with their ln p; None sends no ln p at all."""
        if self.logprobs is None or self.logprobs is False:
            return None
        return 1 if self.logprobs is True else self.logprobs


class Part(BaseModel):
    """A part of a message."""

    type: Literal["text", "input_text", "output_text"]
    text: Text


class Message(BaseModel):
    """A message of a conversation."""

    role: Annotated[str, Field(pattern="^(system|developer|user|assistant)$")]
    content: Text | Annotated[list[Part], Field(max_length=64)]

    @property
    def text(self) -> str:
        """The message as one text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Generation):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=256)]
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    modalities: list[str] | None = None

    @model_validator(mode="after")
    def _agree(self) -> ChatRequest:
        if self.modalities not in (None, [], ["text"]):
            raise ValueError("modalities other than text are not offered")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs goes with logprobs=true")
        return self


class ResponseRequest(Writing):
    """The body of /v1/responses, of which text in and text out are offered."""

    input: Text | Annotated[list[Message], Field(min_length=1, max_length=256)]
    instructions: Text | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    stream: bool | None = False
    prompt: Any = None
    """A template that is kept by the server, which this one does not do."""
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = False
    text: TextForm | None = None

    @model_validator(mode="after")
    def _agree(self) -> ResponseRequest:
        if self.background:
            raise ValueError("background is not offered")
        for name in ("prompt", "previous_response_id", "conversation"):
            if getattr(self, name):
                raise ValueError(f"{name} is not offered: give the whole conversation as input")
        return self


class EmbeddingRequest(Asked):
    """The body of /v1/embeddings."""

    input: Given
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """The number of features of a vector, if given; only that of the model is offered."""


class TokenizeRequest(Asked):
    """The body of /tokenize: `prompt`, or `content` as llama.cpp's server has it."""

    prompt: Text | None = None
    content: Text | None = None
    add_special_tokens: bool = False

    @property
    def text(self) -> str:
        """The text."""
        return self.prompt if self.prompt is not None else self.content or ""


class MergesRequest(Asked):
    """The body of /v1/merges."""

    text: Annotated[str, Field(max_length=200)]


class DetokenizeRequest(Asked):
    """The body of /detokenize."""

    tokens: Annotated[list[TokenId], Field(max_length=500_000, fail_fast=True)]


class ScoreRequest(Asked):
    """The body of /v1/score."""

    text: Text
    top: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] = 0
    """How many alternatives of each token to send."""


class NextRequest(Sampling):
    """The body of /v1/next: the distribution of the next token, before and after the strategy."""

    prompt: Text = ""
    top: Annotated[int, Field(ge=1, le=200)] = 20


class BeamRequest(Asked):
    """The body of /v1/beam."""

    prompt: Text = ""
    width: Annotated[int, Field(ge=1, le=16)] = 4
    max_tokens: Annotated[int, Field(ge=1, le=64)] = 16


class OfTexts(Asked):
    """A request about one text or several, each of which is read as a whole."""

    text: Sentence | Annotated[list[Sentence], Field(min_length=1, max_length=MOST_PROMPTS)]

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.text] if isinstance(self.text, str) else self.text


class TranslateRequest(OfTexts):
    """The body of /v1/translate."""

    beams: Annotated[int, Field(ge=1, le=16)] = 5
    alignments: bool = False


class TagRequest(OfTexts):
    """The body of /v1/tag."""

    text: TaggedText | Annotated[list[TaggedText], Field(min_length=1, max_length=MOST_PROMPTS)]
    split: Literal["unicode", "whitespace"] = "unicode"


class ClassifyRequest(OfTexts):
    """The body of /v1/classify."""


class InsideRequest(Asked):
    """The body of /v1/inside."""

    text: Annotated[str, Field(max_length=2000)]
    token: Annotated[int, Field(ge=1, le=2000)] | None = None
    """The number of the token of the text that is predicted, from 1 on; None: the last."""
    after: bool = False
    """Predict the most likely token after the text, and not one of the text."""
    target: Annotated[str, Field(max_length=2000)] | None = None
    """Of an encoder-decoder: the target for which to show where it looks; None: its own translation."""


class CardRequest(BaseModel):
    """The body of /v1/lessons/card."""

    lesson: Annotated[int, Field(ge=0, le=1000)]
    card: Annotated[int, Field(ge=1, le=100)]
    values: Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=10)] = {}
    """The places of the sliders; those that are left out stand as they do at first."""


class CheckRequest(BaseModel):
    """The body of /v1/lessons/check."""

    lesson: Annotated[int, Field(ge=0, le=1000)]
    exercise: Annotated[str, Field(max_length=20)]
    answer: Annotated[str, Field(max_length=2000)]
    """What the student typed: a number or a sum of numbers, a word, a list or a dict."""
    student: Annotated[str, Field(max_length=LONGEST_STUDENT)] = ""


class NeighboursRequest(Asked):
    """The body of /v1/neighbours."""

    token: Annotated[str, Field(min_length=1, max_length=200)]
    top: Annotated[int, Field(ge=1, le=100)] = 10


class SuggestRequest(Asked):
    """The body of /v1/suggest."""

    text: Annotated[str, Field(max_length=4000)] = ""
    k: Annotated[int, Field(ge=1, le=20)] = 5


class FillRequest(Asked):
    """The body of /v1/fill."""

    text: Text
    top: Annotated[int, Field(ge=1, le=50)] = 5
