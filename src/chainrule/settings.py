"""Settings such as `order=3`, read into a small frozen dataclass and checked by its type hints.

>>> @dataclasses.dataclass(frozen=True)
... class Example:
...     order: int = 3
...     smoothing: typing.Literal["mle", "laplace"] = "mle"
>>> parse(Example, {"order": "5"})
Example(order=5, smoothing='mle')
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from chainrule.errors import SettingsError

T = TypeVar("T")
Groups: typing.TypeAlias = Mapping[str, tuple[str, ...]]
"""The names of settings that belong together, by the name of their group."""
Presets: typing.TypeAlias = Mapping[str, Mapping[str, Any]]
"""The values of settings that a preset stands for, by the name of the preset."""


CHOSEN = "chosen"
"""The default that help shows for a setting whose value a rule chooses when training begins."""


def split_words(words: Iterable[str]) -> dict[str, str]:
    """Split words such as `["order=3", "k=0.5"]` into a dictionary of strings."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise SettingsError(f"--set takes key=value, not {word!r}")
        settings[key.strip()] = value.strip()
    return settings


ALSO_CALLED = {
    "order": ("n", "ngram", "ngrams"),
    "learning_rate": ("lr", "eta"),
    "batch": ("batch_size", "bs"),
    "layers": ("num_layers", "n_layers", "n_layer", "depth"),
    "heads": ("num_heads", "n_heads", "n_head"),
    "width": ("d_model", "dim", "n_embd", "model_dim"),
    "hidden": ("hidden_size", "hidden_dim", "units"),
    "embedding": ("embedding_dim", "embed_dim", "emsize", "d_embedding"),
    "epochs": ("num_epochs", "n_epochs", "max_epochs"),
    "steps": ("max_steps", "num_steps", "max_iters", "iterations"),
    "optimiser": ("optimizer", "optim"),
    "window": ("block_size", "context_length", "context_size", "seq_len", "max_seq_len"),
    "length": ("bptt", "seq_len", "seq_length"),
    "clip": ("grad_clip", "max_norm", "clip_grad"),
    "smoothing": ("method", "smoother"),
}
"""The names that other toolkits give to settings, by the names here."""


def parse(settings_class: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance of the frozen dataclass `settings_class`, with strings converted to its types.

    If the class has `PRESETS`, its setting `preset` names one: values for the settings that are not given.
    """
    hints = typing.get_type_hints(settings_class)
    fields = dataclasses.fields(settings_class)  # type: ignore[arg-type]
    known = [field.name for field in fields]
    earlier = {field.metadata.get("formerly"): field.name for field in fields}
    values = {key if key in known else earlier.get(key, key): value for key, value in values.items()}
    preset = getattr(settings_class, "PRESETS", {}).get(str(values.get("preset")).lower(), {})
    values = {**preset, **values}
    for key in values:
        if key not in known:
            close = [name for name in known if key in ALSO_CALLED.get(name, ())]
            close = close or difflib.get_close_matches(key, known, n=1, cutoff=0.7)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"unknown setting {key!r}{hint} (there are: {', '.join(known) or 'none'})")
    # None stands for a value that is filled in later: by a rule when training begins, or by other settings
    may_be_none = {field.name for field in fields if field.metadata.get("open") or field.default is None}
    offered = {field.name: _offered(field, hints[field.name]) for field in fields}
    return settings_class(
        **{
            key: None if value is None and key in may_be_none else _read(key, value, hints[key], offered[key])
            for key, value in values.items()
        }
    )


def setting(
    default: T,
    explanation: str,
    *,
    common: bool = False,
    formerly: str | None = None,
    unlisted: tuple[str, ...] = (),
) -> T:
    """Return a field of a settings dataclass, with the explanation that the command line's help shows.

    `common` marks one of the few settings that most users change: help shows the others only when asked for all.
    `formerly` is an earlier name of the setting, which model folders may have and users may still give. `unlisted`
    are values that model folders may have, and that help and errors do not list.
    """
    metadata = {"help": explanation, "common": common, "formerly": formerly, "unlisted": unlisted}
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


def left_open(settings_class: type, name: str) -> Any:
    """Return a field for a subclass of `settings_class` that is None until a rule chooses its value.

    It keeps the metadata of the field that it replaces; `closed` fills in the default of that field.
    """
    replaced = next(field for field in dataclasses.fields(settings_class) if field.name == name)
    metadata = {**replaced.metadata, "open": True, "fixed": replaced.default}
    return dataclasses.field(default=None, metadata=metadata)


def open_names(settings: Any) -> list[str]:
    """Return the names of the settings that are left open and have no value yet."""
    return [
        field.name
        for field in dataclasses.fields(settings)
        if field.metadata.get("open") and getattr(settings, field.name) is None
    ]


def closed(settings: T) -> T:
    """Return the settings with the fixed default of each one left open, for use without a text to fit."""
    fixed = {field.name: field.metadata.get("fixed") for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    return dataclasses.replace(settings, **{name: fixed[name] for name in open_names(settings)})  # type: ignore[type-var]


def describe(settings_class: type) -> list[dict[str, Any]]:
    """List the settings of a dataclass: name, type in words, default, help, group and whether it is common.

    A class that marks no setting as common has only common ones. The groups are those in `GROUPS` of the class and
    its bases, such as {"size": ("layers", "hidden")}; a setting that none of them names is in the group that its
    own metadata names, or else in that of the class, `GROUP`.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Example:
    ...     layers: int = setting(2, "how many layers", common=True)
    ...     clip: float = setting(1.0, "the largest norm of a gradient")
    >>> [(entry["name"], entry["default"], entry["help"], entry["common"]) for entry in describe(Example)]
    [('layers', 2, 'how many layers', True), ('clip', 1.0, 'the largest norm of a gradient', False)]
    """
    hints = typing.get_type_hints(settings_class)
    fields = dataclasses.fields(settings_class)
    groups = {
        name: group
        for base in reversed(settings_class.__mro__)
        for group, names in vars(base).get("GROUPS", {}).items()
        for name in names
    }
    common = {field.name for field in fields if field.metadata.get("common")} or {field.name for field in fields}
    return [
        {
            "name": field.name,
            "type": _type_in_words(_offered(field, hints[field.name])),
            "default": CHOSEN if field.metadata.get("open") else field.default,
            "help": field.metadata.get("help", ""),
            "group": groups.get(field.name) or field.metadata.get("group") or getattr(settings_class, "GROUP", ""),
            "common": field.name in common,
        }
        for field in fields
    ]


def _offered(field: dataclasses.Field[Any], hint: Any) -> Any:
    """Return the type of a setting without the values that are not listed."""
    unlisted = field.metadata.get("unlisted")
    return typing.Literal[tuple(a for a in typing.get_args(hint) if a not in unlisted)] if unlisted else hint


def _read(key: str, value: Any, hint: Any, offered: Any) -> Any:
    """Convert a value to the type `hint`; an error names the type `offered`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        for argument in arguments:
            if value == argument or (isinstance(value, str) and value.lower() == str(argument).lower()):
                return argument
    elif origin in (typing.Union, types.UnionType):
        choices = [
            choice for a in arguments if typing.get_origin(a) is typing.Literal for choice in typing.get_args(a)
        ]
        is_none = isinstance(value, str) and value.lower() == "none" and "none" not in choices
        if type(None) in arguments and (value is None or is_none):
            return None
        for argument in arguments:
            if argument is not type(None):
                with contextlib.suppress(SettingsError):
                    return _read(key, value, argument, argument)
    elif hint is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "yes", "on", "1"):
            return True
        if str(value).lower() in ("false", "no", "off", "0"):
            return False
    elif hint in (int, float, str):
        try:
            if not (hint is int and isinstance(value, float) and value != int(value)):
                return hint(value)
        except (TypeError, ValueError, OverflowError):
            pass
    else:
        raise TypeError(f"settings of type {hint} are not supported")
    raise SettingsError(f"{key} should be {_type_in_words(offered)}, not {value!r}")


def _type_in_words(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return "|".join(str(argument) or "''" for argument in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join("none" if a is type(None) else _type_in_words(a) for a in typing.get_args(hint))
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(hint, str(hint))
