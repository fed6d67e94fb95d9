"""A real schema registry with Confluent's API, which keeps what it was told when it is killed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from conftest import SECONDS, Program

SCHEMA = json.dumps({"type": "record", "name": "sample", "fields": []})


def ask(url: str, body: dict[str, str] | None = None) -> Any:
    data = json.dumps(body).encode() if body else None
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(url, data=data, headers=headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=SECONDS) as answer:
        return json.load(answer)


def test_a_schema_outlives_the_registry(program: Callable[[str], Program]) -> None:
    with program("apicurio").running() as registry:
        url = registry.started["url"]
        assert url.endswith("/apis/ccompat/v7")
        given = ask(f"{url}/subjects/sample-value/versions", {"schema": SCHEMA})["id"]
        registry("kill", "1")
        registry("restart")
        assert json.loads(ask(f"{url}/schemas/ids/{given}")["schema"]) == json.loads(SCHEMA)
