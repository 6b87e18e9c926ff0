"""`potstill sources`: the short names."""

from typing import Annotated

import typer

from potstill.cli.output import results, write_json

__all__ = ["sources"]


def sources(
    as_json: Annotated[bool, typer.Option("--json", help="Answer with JSON on standard output.")] = False,
) -> None:
    """List models and data with a short name.

    Each with its columns, origin, licence and size.

    \b
    Example:
      potstill sources
      potstill sources --json
    """
    from potstill.data.catalogue import catalogue

    entries = [entry.facts() for entry in catalogue()]
    with results() as out:
        if as_json:
            write_json(out, {"schema_version": 1, "sources": entries})
            return
        for entry in entries:
            out.write(f"{'  '.join(entry['sources'])}\n")
            out.write(f"    {entry['kind']}: {entry['description']}\n")
            if entry["columns"]:
                columns = ", ".join(f"{role} = {name}" for role, name in entry["columns"].items())
                out.write(f"    columns: {columns}\n")
            out.write(f"    origin: {entry['origin']}\n    licence: {entry['licence']}\n")
            out.write(f"    download: {entry['download'] / 1e6:,.0f} MB ({', '.join(entry['packages'])})\n\n")
