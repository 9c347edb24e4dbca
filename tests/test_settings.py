"""Tests of parsing settings from words, with checks of their types."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Optional

import pytest

from chainrule.contract.kinds import find_kind, kind_names
from chainrule.errors import SettingsError
from chainrule.networks.recurrent.settings import LstmSettings
from chainrule.networks.settings import BagOfWordsSettings, FeedforwardSettings
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.settings import Groups, describe, left_open, parse, setting, split_words


@dataclass(frozen=True)
class Example:
    layers: int = setting(2, "how deep")
    rate: float = 0.5
    tied: bool = False
    cell: Literal["lstm", "gru"] = "lstm"
    bits: Literal[16, 32] = 32
    clip: float | None = None
    limit: Optional[int] = None  # noqa: UP045 (both spellings are understood)
    name: str = "model"


@pytest.mark.parametrize(
    ("key", "word", "value"),
    [
        ("layers", "4", 4),
        ("layers", "-1", -1),
        ("layers", 4.0, 4),
        ("rate", "1e-3", 0.001),
        ("rate", "inf", math.inf),
        ("rate", 3, 3.0),
        ("tied", "true", True),
        ("tied", "Yes", True),
        ("tied", "on", True),
        ("tied", "1", True),
        ("tied", "FALSE", False),
        ("tied", "no", False),
        ("tied", "off", False),
        ("tied", "0", False),
        ("tied", True, True),
        ("cell", "gru", "gru"),
        ("bits", 16, 16),
        ("bits", "16", 16),
        ("clip", "none", None),
        ("clip", "None", None),
        ("clip", None, None),
        ("clip", "2.5", 2.5),
        ("limit", "7", 7),
        ("name", "3", "3"),
    ],
)
def test_a_word_is_read_by_the_type_of_its_setting(key: str, word: Any, value: Any) -> None:
    read = getattr(parse(Example, {key: word}), key)
    assert read == value
    assert type(read) is type(value)


def test_other_settings_keep_their_defaults() -> None:
    assert parse(Example, {"layers": "4"}) == Example(layers=4)
    assert parse(Example, {}) == Example()


@pytest.mark.parametrize(
    ("key", "word", "message"),
    [
        ("layers", "two", "layers should be a whole number, not 'two'"),
        ("layers", "2.5", "layers should be a whole number, not '2.5'"),
        ("layers", 2.5, "layers should be a whole number, not 2.5"),
        ("layers", math.inf, "layers should be a whole number, not inf"),
        ("layers", None, "layers should be a whole number, not None"),
        ("rate", "fast", "rate should be a number, not 'fast'"),
        ("rate", "", "rate should be a number, not ''"),
        ("tied", "maybe", "tied should be true or false, not 'maybe'"),
        ("cell", "rnn", "cell should be lstm|gru, not 'rnn'"),
        ("cell", "lstms", "cell should be lstm|gru, not 'lstms'"),
        ("bits", "8", "bits should be 16|32, not '8'"),
    ],
)
def test_a_word_that_does_not_fit_names_the_setting_and_what_it_takes(key: str, word: Any, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(Example, {key: word})
    assert str(refused.value) == message


def test_what_an_optional_setting_takes_includes_none() -> None:
    with pytest.raises(SettingsError, match=r"^clip should be a number or none, not 'much'$"):
        parse(Example, {"clip": "much"})


def test_an_unknown_setting_is_guessed_at() -> None:
    with pytest.raises(
        SettingsError, match=r"unknown setting 'layer'; did you mean 'layers'\? \(there are: layers, "
    ):
        parse(Example, {"layer": "3"})
    with pytest.raises(SettingsError, match=r"unknown setting 'num_layers'; did you mean 'layers'\?"):
        parse(Example, {"num_layers": "3"})
    with pytest.raises(SettingsError, match=r"unknown setting 'zzz' \(there are: layers, rate, "):
        parse(Example, {"zzz": "3"})
    with pytest.raises(SettingsError, match=r"unknown setting 'blame' \(there are"):  # a little like name
        parse(Example, {"blame": "3"})


def test_a_class_without_settings_says_so() -> None:
    @dataclass(frozen=True)
    class Nothing:
        pass

    with pytest.raises(SettingsError, match="there are: none"):
        parse(Nothing, {"layers": "3"})


def test_the_class_may_refuse_values() -> None:
    @dataclass(frozen=True)
    class Positive:
        size: int = 1

        def __post_init__(self) -> None:
            if self.size < 1:
                raise SettingsError(f"size should be at least 1, not {self.size}")

    with pytest.raises(SettingsError, match="size should be at least 1, not 0"):
        parse(Positive, {"size": "0"})


def test_a_type_that_cannot_be_parsed_is_an_error_of_the_kind() -> None:
    @dataclass(frozen=True)
    class Odd:
        sizes: dict[str, int] = field(default_factory=dict)

    with pytest.raises(TypeError, match="not supported"):
        parse(Odd, {"sizes": "{}"})


def test_words_are_split_at_the_first_equals_sign() -> None:
    assert split_words(["layers=3", " name = a=b "]) == {"layers": "3", "name": "a=b"}
    assert split_words([]) == {}
    assert split_words(["layers=3", "layers=4"]) == {"layers": "4"}


@pytest.mark.parametrize("word", ["layers", "=3", ""])
def test_a_word_without_a_key_or_value_is_shown(word: str) -> None:
    with pytest.raises(SettingsError, match="--set takes key=value") as refused:
        split_words([word])
    assert repr(word) in str(refused.value)


def test_settings_describe_themselves() -> None:
    described = {entry["name"]: entry for entry in describe(Example)}
    assert list(described) == ["layers", "rate", "tied", "cell", "bits", "clip", "limit", "name"]
    assert described["layers"] == {
        "name": "layers",
        "type": "a whole number",
        "default": 2,
        "help": "how deep",
        "group": "",
        "common": True,  # no setting of this class is marked as common, so all of them are
    }
    assert described["cell"]["type"] == "lstm|gru"
    assert described["clip"]["type"] == "a number or none"
    assert described["rate"]["help"] == ""


@dataclass(frozen=True)
class Several:
    """A class whose settings have more than one type."""

    size: int | Literal["auto"] = 1
    share: float | None = None


def test_every_type_of_a_union_is_tried_and_none_only_where_it_is_one() -> None:
    assert parse(Several, {"size": "auto", "share": "none"}) == Several("auto", None)
    assert parse(Several, {"size": "7", "share": "0.5"}) == Several(7, 0.5)
    with pytest.raises(SettingsError, match="size should be a whole number or auto, not 'none'"):
        parse(Several, {"size": "none"})


def test_groups_come_from_the_class_and_its_bases() -> None:
    @dataclass(frozen=True)
    class Base:
        GROUPS: ClassVar[Groups] = {"size": ("layers",), "speed": ("threads",)}
        layers: int = 2
        threads: int = 1

    @dataclass(frozen=True)
    class Derived(Base):
        GROUPS: ClassVar[Groups] = {"size": ("width",)}
        width: int = 3
        other: int = 4

    assert {entry["name"]: entry["group"] for entry in describe(Derived)} == {
        "layers": "size",
        "threads": "speed",
        "width": "size",
        "other": "",
    }


def test_marks_of_common_settings_are_inherited_and_kept_when_left_open() -> None:
    @dataclass(frozen=True)
    class Base:
        layers: int = setting(2, "how deep", common=True)
        rate: float = setting(0.5, "how fast", common=True)
        clip: float = setting(1.0, "how far")

    @dataclass(frozen=True)
    class Derived(Base):
        layers: int | None = left_open(Base, "layers")
        tied: bool = False

    assert [entry["name"] for entry in describe(Derived) if entry["common"]] == ["layers", "rate"]


def test_a_setting_is_known_by_its_earlier_name() -> None:
    @dataclass(frozen=True)
    class Renamed:
        extra_words: str = setting("", "words to add", formerly="vocabulary")

    assert parse(Renamed, {"vocabulary": "a.txt"}) == parse(Renamed, {"extra_words": "a.txt"}) == Renamed("a.txt")
    with pytest.raises(SettingsError, match=r"unknown setting 'words' \(there are: extra_words\)"):
        parse(Renamed, {"words": "a.txt"})


def test_values_that_are_not_listed_are_read() -> None:
    @dataclass(frozen=True)
    class Marked:
        origin: Literal["trained", "counted", "imported"] = setting("trained", "from where", unlisted=("imported",))

    assert parse(Marked, {"origin": "imported"}) == Marked("imported")
    assert describe(Marked)[0]["type"] == "trained|counted"
    with pytest.raises(SettingsError, match=r"origin should be trained\|counted, not 'found'"):
        parse(Marked, {"origin": "found"})


def test_a_choice_called_none_is_not_the_absence_of_one() -> None:
    @dataclass(frozen=True)
    class Chosen:
        positions: Literal["learned", "none"] | None = None
        width: int | None = 4

    assert parse(Chosen, {"positions": "none", "width": "none"}) == Chosen("none", None)
    assert parse(Chosen, {"positions": None}) == Chosen(None)
    attention = parse(find_kind("seq2seq").settings, {"cell": "lstm", "attention": "none"}).attention
    assert attention == "none"


@pytest.mark.parametrize("name", kind_names())
def test_every_setting_of_every_kind_is_in_a_group(name: str) -> None:
    described = describe(find_kind(name).settings)
    assert [entry["name"] for entry in described if not entry["group"]] == []
    groups = [vars(base).get("GROUPS", {}) for base in find_kind(name).settings.__mro__]
    named = [setting for by_group in groups for names in by_group.values() for setting in names]
    # each once, and none that is not there
    assert sorted(named) == sorted({*named} & {entry["name"] for entry in described})


def test_the_case_of_a_word_does_not_matter() -> None:
    assert parse(LstmSettings, {"optimiser": "ADAM"}).optimiser == "adam"


def test_settings_that_a_run_left_open_are_read_back() -> None:
    """run.json has null for settings that a rule or a preset fills in later."""
    for settings_class in (TransformerSettings, LstmSettings, FeedforwardSettings, BagOfWordsSettings):
        assert parse(settings_class, asdict(settings_class())) == settings_class()
