"""`potstill cache`: what is kept of teachers, and its removal."""

import time
from typing import Annotated

import typer

from potstill.cli.output import results, write_json

__all__ = ["cache"]


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all that no run is using.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with JSON on standard output.")] = False,
) -> None:
    """List what is kept of teachers, or remove it.

    Teachers' answers and inner states are kept in POTSTILL_CACHE (not set: the platform's cache folder). Removing them
    loses nothing: a run that needs them runs the teacher again.

    \b
    Example:
      potstill cache
      potstill cache --clear
    """
    from potstill.data.sources import teacher_cache_folder
    from potstill.models import cache_room

    root = teacher_cache_folder()
    before = cache_room.kept_folders(root)
    kept = cache_room.clear(root) if clear else before
    removed = sum(one.size for one in before) - sum(one.size for one in kept)
    facts = [{"folder": str(k.folder), "teacher": k.about, "bytes": k.size, "used": k.used} for k in kept]
    with results() as out:
        if as_json:
            write_json(out, {"schema_version": 1, "root": str(root), "removed_bytes": removed, "teachers": facts})
            return
        for one in kept:
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used))
            out.write(f"{one.size / 1e6:10,.1f} MB  {used}  {one.folder.name[:12]}  {one.about}\n")
        if clear:
            out.write(f"{removed / 1e6:,.1f} MB removed{', what runs are using stays' if kept else ''}\n")
        total = sum(one.size for one in kept)
        out.write(f"{total / 1e6:,.1f} MB of {len(kept)} teacher{'' if len(kept) == 1 else 's'} in {root}\n")
