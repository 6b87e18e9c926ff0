"""TOML and `--set` to settings. A wrong key or value ends in one `SettingsError` that says what to do.

Knows no command line: an override is the text `section.key=value`.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from potstill.config.commands import COMMANDS
from potstill.config.fields import allowed_values, alone, choices, field_at, holds_only_text, nearest_keys, section_of
from potstill.config.sections import Settings
from potstill.errors import SettingsError

__all__ = ["load_settings", "read_settings"]

Root = TypeVar("Root", bound=BaseModel)


def load_settings(path: Path | None, overrides: Sequence[str] = ()) -> Settings:
    """The settings of the main job, as `read_settings` reads them."""
    return read_settings(Settings, path, overrides)


def read_settings(root: type[Root], path: Path | None, overrides: Sequence[str] = ()) -> Root:
    """Read a settings file, apply overrides in their order, and validate as `root`.

    Paths in the file are relative to the current directory, not to the file: a file and the same keys given with
    `--set` mean the same. `run.name` left out is the file's name, `run.out` left out is `runs/` and the name.

    Args:
        root: What the file holds: a model whose fields are sections, one of them `run`.
        path: A TOML file; None starts from the defaults alone.
        overrides: `section.key=value` each. The value is TOML; where it is not, it is text as it stands, so that
            quotes are not needed. An empty value takes the key out, so that its default holds.

    Raises:
        SettingsError: No such file, no TOML, an unknown key (the nearest one is named), a value that is not allowed.
    """
    raw = {} if path is None else _read_toml(path)
    for text in overrides:
        _override(root, raw, text)
    _name_run(raw, path)
    for name, field in root.model_fields.items():
        if field.is_required():
            raw.setdefault(name, {})  # so that what is missing is the key, not the section
    try:
        return root.model_validate(raw)
    except ValidationError as error:
        raise _explain(root, error, raw) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n"))
    except IsADirectoryError as error:
        raise SettingsError(f"{path} is a folder", expected="a settings file", fix="a teacher is --teacher") from error
    except OSError as error:
        raise SettingsError(
            f"settings file {path}: {error.strerror}", fix=f"check the name, or write one with `potstill init {path}`"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text at byte {error.start}", expected="a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"{path} is not TOML: {error}", fix='text stands in quotes, as in text = "sentence"'
        ) from error


def _override(root: type[BaseModel], raw: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    names = tuple(name.strip() for name in key.split("."))
    if not equals or not all(names):
        raise SettingsError(f"--set {text}", expected="section.key=value, as in --set teacher.epochs=3")
    if not value.strip() and field_at(root, names) is None:
        got, expected, fix = _unknown(root, names)
        raise SettingsError(got, expected=expected, fix=fix)
    section = raw
    for name in names[:-1]:
        section = section.setdefault(name, {})
        if not isinstance(section, dict):
            raise SettingsError(f"--set {text}: {name} holds a value", expected="a section")
    if value.strip():
        section[names[-1]] = _parse(root, names, value.strip())
    else:
        section.pop(names[-1], None)


def _parse(root: type[BaseModel], names: tuple[str, ...], value: str) -> Any:
    field = field_at(root, names)
    if field is not None and holds_only_text(field) and value[0] not in "\"'":
        return value
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError as error:
        if value[0] in "[{\"'":
            fix = "text stands in quotes" + (', as in ["a.txt", "b.txt"]' if value[0] == "[" else "")
            raise SettingsError(f"--set {'.'.join(names)}={value} is not TOML: {error}", fix=fix) from error
        return value
    if len(parsed) > 1:
        raise SettingsError(f"--set {'.'.join(names)}={value!r} holds more than one value", expected="one line")
    return parsed["value"]


def _name_run(raw: dict[str, Any], path: Path | None) -> None:
    run = raw.setdefault("run", {})
    if not isinstance(run, dict):
        return
    out = run.get("out")
    if "name" not in run:
        name = path.stem if path is not None else Path(out).name if isinstance(out, str) else ""
        if name:
            run["name"] = name
    if out is None and isinstance(run.get("name"), str):
        run["out"] = f"runs/{run['name']}"


def _explain(root: type[BaseModel], error: ValidationError, raw: Mapping[str, Any]) -> SettingsError:
    """One error out of many: an unknown key first, since it often is why another is missing."""
    problems: dict[tuple[str, ...], str] = {}
    for item in error.errors(include_url=False, include_context=False):
        problems.setdefault(_key_of(root, item["loc"], unknown=item["type"] == "extra_forbidden"), item["type"])
    key = next((key for key, kind in problems.items() if kind == "extra_forbidden"), next(iter(problems)))
    field = field_at(root, key)
    if field is None:
        got, expected, fix = _foreign(root, key, raw) or _unknown(root, key)
    elif problems[key] == "missing":
        got, expected, fix = _missing(key, field)
    else:
        got, expected, fix = _wrong(key, field, raw)
    others = ", ".join(".".join(other) for other in problems if other != key)
    if others:
        fix = f"{fix or 'correct it'} (also wrong: {others})"
    return SettingsError(got, expected=expected, fix=fix)


def _key_of(root: type[BaseModel], place: tuple[int | str, ...], *, unknown: bool) -> tuple[str, ...]:
    """A pydantic location without the indices and union members that follow the key."""
    key: list[str] = []
    for part in place:
        name = str(part)
        if field_at(root, (*key, name)) is None:
            return (*key, name) if unknown else tuple(key)
        key.append(name)
    return tuple(key)


def _unknown(root: type[BaseModel], key: tuple[str, ...]) -> tuple[str, str | None, str | None]:
    near = [f"[{one.rstrip('.')}]" if one.endswith(".") else one for one in nearest_keys(root, ".".join(key))]
    if near:
        return f"unknown key {'.'.join(key)}", None, f"did you mean {' or '.join(near)}?"
    parent = field_at(root, key[:-1])
    model = (section_of(parent) if parent is not None else None) or root
    return f"unknown key {'.'.join(key)}", "one of " + ", ".join(model.model_fields), None


def _foreign(
    root: type[BaseModel], key: tuple[str, ...], raw: Mapping[str, Any]
) -> tuple[str, str | None, str | None] | None:
    """What is said of a section of another command's settings; None where they are no other command's."""
    sections = {name for name, value in raw.items() if isinstance(value, dict) and value}
    if key[0] in root.model_fields or key[0] not in sections:
        return None
    others = [name for other, name in COMMANDS.items() if sections <= other.model_fields.keys()]
    if not others:
        return None
    fix = f"these are settings of potstill {others[0]}: give them to it, or leave [{key[0]}] out"
    return f"unknown section [{key[0]}]", "one of " + ", ".join(root.model_fields), fix


def _missing(key: tuple[str, ...], field: FieldInfo) -> tuple[str, str | None, str | None]:
    example = f"{key[-1]} = {_toml(field.examples[0])}" if field.examples else f"{key[-1]} = ..."
    extra = field.json_schema_extra
    flag = f"give {extra['flag']}, or " if isinstance(extra, dict) and "flag" in extra else ""
    return f"{'.'.join(key)} is not set", allowed_values(field), f"{flag}under [{'.'.join(key[:-1])}] write {example}"


def _wrong(key: tuple[str, ...], field: FieldInfo, raw: Mapping[str, Any]) -> tuple[str, str | None, str | None]:
    value: Any = raw
    for name in key:
        value = value[name]
    near = difflib.get_close_matches(str(value), choices(field.annotation), 1, 0.6)
    default = field.get_default(call_default_factory=True)
    fix = None
    single = [name for name in alone(field) if isinstance(value, list) and name in value]
    if single:
        fix = f'"{single[0]}" stands alone, not in a list'
    elif _is_single(value) and "or two such as" in allowed_values(field):
        fix = f"write {_toml(value[0])}, or two numbers"
    elif near:
        fix = f'did you mean "{near[0]}"?'
    elif section_of(field) is None and not field.is_required():
        fix = "leave it out" + ("" if default in (None, ()) else f" for the default, {_toml(default)}")
    return f"{'.'.join(key)} = {_toml(value)}", allowed_values(field), fix


def _is_single(value: Any) -> bool:
    """A list of one number above 0: the number itself is meant, or a second is missing."""
    return isinstance(value, list) and len(value) == 1 and type(value[0]) in (int, float) and value[0] > 0


def _toml(value: Any) -> str:
    """A value as the user would write it; long ones are cut."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
