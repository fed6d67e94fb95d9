"""Schemas from record classes, Avro's JSON as text or dict, or ``.avsc`` files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from heliograph._errors import SchemaError
from heliograph._heliograph import Schema, schema_set
from heliograph._record import schema_of


def schema(source: Any) -> Schema:
    """Return the schema of ``source``.

    ``source`` is a record class, a :class:`Schema`, Avro's JSON as a dict, a list (union) or text,
    or a path (``pathlib.Path``, or text that ends in ``.avsc``) to a file of it.
    """
    if isinstance(source, Schema):
        return source
    if isinstance(source, type) and hasattr(source, "__helio_record__"):
        return schema_of(source)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and source.endswith(".avsc")):
        return Schema(_read(Path(source)))
    if isinstance(source, (str, dict, list)):
        return Schema(source)
    raise SchemaError(
        f"{source!r} is not a schema; give a record class, Avro JSON (text or dict) or a path"
    )


def load_schema(*paths: str | os.PathLike[str], root: str | None = None) -> Schema:
    """Return the schema that ``.avsc`` files, which may name each other's types, make together.

    A path may be a folder: all its ``.avsc`` files. ``root`` is the full name of the wanted type;
    without it, it is the one that no other uses.

    Raises :class:`SchemaError` naming the file.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        files.extend(sorted(path.glob("*.avsc")) if path.is_dir() else [path])
    if not files:
        raise SchemaError(f"there are no .avsc files in {', '.join(map(str, paths))}")
    return schema_set([(str(file), _read(file)) for file in files], root)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SchemaError(f"the schema file {path} cannot be read: {error.strerror}") from error
