"""Finds a settings key and says in words what it may hold. Knows the models' types, not their meaning."""

import difflib
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from potstill.config.kinds import Allowed

__all__ = [
    "allowed_values",
    "alone",
    "choices",
    "comment_on",
    "field_at",
    "holds_only_text",
    "nearest_keys",
    "section_of",
]


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model behind a field that is a section; None where it holds a value."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def field_at(root: type[BaseModel], key: tuple[str, ...]) -> FieldInfo | None:
    """The field of `root` that a dotted key leads to, split at its dots; None where there is none."""
    model: type[BaseModel] | None = root
    field = None
    for name in key:
        field = model.model_fields.get(name) if model is not None else None
        if field is None:
            return None
        model = section_of(field)
    return field


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        section = section_of(field)
        if section is None:
            yield prefix + name
        else:
            yield prefix + name + "."
            yield from _leaves(section, f"{prefix}{name}.")


def nearest_keys(root: type[BaseModel], key: str) -> list[str]:
    """Existing keys of `root`, best first, that a key which does not exist may have meant; at most two.

    A section ends in a dot. The same name in another section comes before a similar name.
    """
    keys = list(_leaves(root))
    section, _, last = key.rpartition(".")
    elsewhere = [one for one in keys if one.rstrip(".").rpartition(".")[2] == last]
    beside = {one.removeprefix(section + "."): one for one in keys if section and one.startswith(section + ".")}
    similar = difflib.get_close_matches(last, beside, 1, 0.6)
    anywhere = difflib.get_close_matches(key, keys if not beside else [k for k in keys if k[-1] != "."], 1, 0.6)
    found = [*elsewhere, *(beside[name] for name in similar), *anywhere]
    return list(dict.fromkeys(found))[:2]


def allowed_values(field: FieldInfo) -> str:
    """What a field may hold, in words."""
    return _describe(field.annotation, field.metadata)


def comment_on(field: FieldInfo) -> str:
    """A field's description and, where a settings file should repeat it, what it may hold."""
    kinds = [field.annotation, *get_args(field.annotation)]
    inside = [item for kind in kinds if get_origin(kind) is Annotated for item in get_args(kind)[1:]]
    quiet = any(isinstance(item, Allowed) and not item.comment for item in [*field.metadata, *inside])
    return f"{field.description}" if quiet else f"{field.description} Allowed: {allowed_values(field)}."


def _describe(kind: Any, metadata: list[Any]) -> str:
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        metadata = [*inner, *metadata]
    for item in metadata:
        if isinstance(item, Allowed):
            return item.text
    if get_origin(kind) in (Union, types.UnionType, Literal):
        return _join(_alternatives(kind, metadata))
    if get_origin(kind) is tuple:
        return f"a list, each {_describe(get_args(kind)[0], [])}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "a section with " + ", ".join(kind.model_fields)
    if kind is bool:
        return "true or false"
    if kind is str:
        return "text in quotes"
    return ("a whole number" if kind is int else "a number") + _range(metadata)


def _alternatives(kind: Any, metadata: list[Any]) -> list[str]:
    if get_origin(kind) in (Union, types.UnionType):
        return [one for part in get_args(kind) if part is not type(None) for one in _alternatives(part, metadata)]
    if get_origin(kind) is Literal:
        return [f'"{value}"' for value in get_args(kind)]
    return ["true", "false"] if kind is bool else [_describe(kind, metadata)]


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _range(metadata: list[Any]) -> str:
    # A FieldInfo inside Annotated holds its bounds in its own metadata.
    flat = [bound for item in metadata for bound in (item.metadata if isinstance(item, FieldInfo) else [item])]
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    parts = [f"{word} {_number(getattr(b, name))}" for name, word in words.items() for b in flat if hasattr(b, name)]
    between = " " if [part.split()[0] for part in parts] == ["from", "to"] else ", "
    return " " + between.join(parts) if parts else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def choices(kind: Any) -> list[str]:
    """Every literal text a type admits, at any depth."""
    if get_origin(kind) is Literal:
        return [value for value in get_args(kind) if isinstance(value, str)]
    return [value for part in get_args(kind) for value in choices(part)]


def alone(field: FieldInfo) -> list[str]:
    """The texts that a field takes in the place of a list, and not in one."""
    parts = [part for part in get_args(field.annotation) if get_origin(part) is Literal]
    return [value for part in parts for value in get_args(part) if isinstance(value, str)]


def holds_only_text(field: FieldInfo) -> bool:
    """Whether a field takes text, or nothing, and no other type: a bare `3` is then the text "3"."""
    kind = field.annotation
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    return all(part in (str, type(None)) for part in plain)
