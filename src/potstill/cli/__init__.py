"""The command line: parses, calls one function, prints. One module a command; `main` turns errors into exit codes.

Importing it is quick: torch and everything that needs it is imported inside the commands.
"""

from potstill.cli.app import main

__all__ = ["main"]
