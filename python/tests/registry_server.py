"""`helio registry` in a process of its own, and its clients' requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engines import TIMEOUT_S, registry
from processes import program, started

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = {"type": "record", "name": "W", "fields": [{"name": "a", "type": "int", "default": 0}]}
WIDER = {"type": "record", "name": "W", "fields": [{"name": "a", "type": "double", "default": 0}]}


class Served:
    """A registry in its own process."""

    def __init__(self, folder: Path) -> None:
        arguments = ["registry", "--listen", "127.0.0.1:0", "--json", f"journal:{folder}"]
        self.process = started(program(), *arguments)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.url: str = json.loads(line)["url"]

    def kill(self) -> None:
        """Kill it, as power loss does."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)


def avro(schema: Any) -> Any:
    return registry.Schema(json.dumps(schema), "AVRO")


def level(word: str) -> Any:
    return registry.ServerConfig(compatibility=registry.ConfigCompatibilityLevel[word])
