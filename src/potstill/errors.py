"""Every error that Potstill raises on purpose.

    PotstillError                exit code
    ├── InputError                   2   what the user gave cannot be used
    │   ├── SettingsError                a key or a value in the settings
    │   ├── SourceError                  a path, hub name or package that cannot be had
    │   ├── DataError                    a file's columns, labels or rows
    │   ├── ModelError                   a teacher that is no encoder, a shape that cannot be
    │   └── StorageError                 no space, no permission, a damaged file
    ├── GateRefused                  1   a result exists and did not pass its gate
    ├── NonFiniteError               1   NaN or infinity in a loss or a gradient
    └── LockHeld                     3   another process works in the same run folder

An error says what was got, what was expected and what to do about it, on one line.
"""

__all__ = [
    "DataError",
    "GateRefused",
    "InputError",
    "LockHeld",
    "ModelError",
    "NonFiniteError",
    "PotstillError",
    "SettingsError",
    "SourceError",
    "StorageError",
]


class PotstillError(Exception):
    """Root of the tree.

    Args:
        got: What was found, with its name or value.
        expected: What would have been right. None where `got` says it all.
        fix: What to do about it. None where nothing general can be said.
    """

    exit_code = 1

    def __init__(self, got: str, *, expected: str | None = None, fix: str | None = None) -> None:
        self.got, self.expected, self.fix = got, expected, fix
        parts = [got, f"expected {expected}" if expected else "", f"fix: {fix}" if fix else ""]
        super().__init__("; ".join(part.rstrip(".") for part in parts if part))


class InputError(PotstillError):
    """What the user gave cannot be used; nothing was changed."""

    exit_code = 2


class SettingsError(InputError):
    """A key that does not exist, or a value that is not allowed."""


class SourceError(InputError):
    """A path, hub name or package that cannot be had."""


class DataError(InputError):
    """A file whose columns, labels or rows cannot be used."""


class ModelError(InputError):
    """A model that cannot do what is asked of it."""


class StorageError(InputError):
    """No space, no permission, or a file that does not hold what its manifest says."""


class GateRefused(PotstillError):
    """A result was made and written, and did not pass its gate."""


class NonFiniteError(PotstillError):
    """NaN or infinity in a loss or a gradient; the weights before it are kept."""


class LockHeld(PotstillError):
    """Another process works in the same run folder."""

    exit_code = 3
