"""Configuration of components: layers of YAML files, checked against a JSON schema.

The layers are ``_init.yaml``, then ``_<site>.yaml`` (the site is ``HELIO_SITE``, or ``LSST_SITE``),
then the file that the command ``start`` names. Only ``_init.yaml`` is required.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from heliograph._errors import ExpectedError
from heliograph._heliograph import merge_layers

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 4 << 20
"""The largest configuration file, in bytes; tables of a few thousand numbers fit."""


def site() -> str:
    """Return the site's name; empty if none is set."""
    return os.environ.get("HELIO_SITE") or os.environ.get("LSST_SITE") or ""


@dataclass(frozen=True)
class LoadedConfig:
    """A merged configuration and its files."""

    values: dict[str, Any]
    files: list[str]
    version: str

    def namespace(self) -> SimpleNamespace:
        """Return it as an object with attributes for keys, also for nested ones."""
        made: SimpleNamespace = _namespace(self.values)
        return made


def _namespace(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{str(key): _namespace(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_namespace(item) for item in value]
    return value


def overrides(folder: Path) -> list[str]:
    """Return the names of the available overrides, sorted."""
    try:
        return sorted(
            file.name
            for file in folder.glob("*.yaml")
            if not file.name.startswith(("_", ".")) and file.is_file()
        )
    except OSError:
        return []


def version(text: str) -> str:
    """Return a checksum of a text, for the events."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(folder: Path, override: str, schema: Mapping[str, Any] | None) -> LoadedConfig:
    """Read, merge and check the layers.

    Raises :class:`ExpectedError` with the file and the reason.
    """
    files = ["_init.yaml"]
    if site() and (folder / f"_{site()}.yaml").is_file():
        files.append(f"_{site()}.yaml")
    if override:
        if override != Path(override).name or override.startswith(("_", ".")):
            raise ExpectedError(f"the override {override!r} is not the name of a file in {folder}")
        files.append(override)
    texts = [(name, _read(folder, name)) for name in files]
    try:
        values: dict[str, Any] = json.loads(merge_layers(texts))
    except ValueError as error:
        raise ExpectedError(f"the configuration in {folder} is refused: {error}") from None
    if schema is not None:
        values = _checked(values, schema, files)
    return LoadedConfig(values, files, version("\0".join(text for _, text in texts)))


def _read(folder: Path, name: str) -> str:
    path = folder / name
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        known = ", ".join(overrides(folder)) or "none"
        raise ExpectedError(
            f"the configuration {path} cannot be read: {error.strerror}; overrides there: {known}"
        ) from None
    if len(raw) > MAX_BYTES:
        raise ExpectedError(f"the configuration {path} has more than {MAX_BYTES} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ExpectedError(f"the configuration {path} is not UTF-8 text") from None


def _checked(values: Any, schema: Mapping[str, Any], files: list[str]) -> Any:
    """Check against the schema, after adding its defaults for missing values."""
    import jsonschema  # type: ignore[import-untyped]

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)
    _fill_defaults(values, schema)
    wrong = sorted(kind(schema).iter_errors(values), key=lambda error: error.json_path)
    if wrong:
        first = wrong[0]
        where = ".".join(str(part) for part in first.absolute_path) or "the configuration"
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ExpectedError(f"{' + '.join(files)}: {where}: {first.message}{more}")
    return values


def _fill_defaults(values: Any, schema: Any) -> None:
    if not isinstance(schema, dict) or not isinstance(values, dict):
        return
    for name, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, dict) and "default" in inner and name not in values:
            values[name] = json.loads(json.dumps(inner["default"]))
        _fill_defaults(values.get(name), inner)
