"""Wheels that tests make themselves, and a folder that pip takes for the only index there is."""

import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

__all__ = ["make_wheel", "use_index"]


def make_wheel(
    index: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    metadata: str = "",
    links: Mapping[str, str] | None = None,
) -> Path:
    """Write `name-version-py3-none-any.whl` into `index`.

    Args:
        index: A folder.
        name: The package.
        version: Its version.
        files: Content by member name; the names are written as they are, safe or not.
        metadata: Lines more for METADATA.
        links: Targets of symbolic links by member name.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    index.mkdir(parents=True, exist_ok=True)
    path = index / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for member, content in files.items():
            wheel.writestr(member, content)
        for member, target in (links or {}).items():
            link = zipfile.ZipInfo(member)
            link.create_system = 3
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            wheel.writestr(link, target)
        wheel.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
        )
        wheel.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def use_index(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    """Let pip see `index` and nothing else, so that no network is used."""
    index.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
