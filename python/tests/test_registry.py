"""`helio registry`, by Confluent's own Python client."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from engines import registry
from processes import program
from registry_server import SCHEMA, WIDER, Served, avro, level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_FOUND, CONFLICT, UNPROCESSABLE = 404, 409, 422


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path / "journal")


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with registry.SchemaRegistryClient({"url": served.url}) as made:
        yield made


def refused(status: int, call: Any, *arguments: Any, **options: Any) -> int:
    with pytest.raises(registry.SchemaRegistryError) as told:
        call(*arguments, **options)
    assert told.value.http_status_code == status
    return int(told.value.error_code)


def test_confluent_s_client_finds_what_it_registered(client: Any) -> None:
    assert client.get_subjects() == []
    number = client.register_schema("a/b c-value", avro(SCHEMA))
    client.set_config("a/b c-value", level("BACKWARD"))
    assert client.register_schema("other", avro(SCHEMA)) == number
    client.clear_caches()
    assert json.loads(client.get_schema(number).schema_str) == SCHEMA
    assert client.get_subjects() == ["a/b c-value", "other"]
    second = client.register_schema("a/b c-value", avro(WIDER))
    assert client.get_versions("a/b c-value") == [1, 2]
    latest = client.get_latest_version("a/b c-value")
    assert (latest.schema_id, latest.version) == (second, 2)
    found = client.lookup_schema("a/b c-value", avro(SCHEMA))
    assert (found.schema_id, found.version) == (number, 1)
    assert refused(NOT_FOUND, client.get_schema, 77) == 40403
    assert refused(NOT_FOUND, client.get_versions, "none") == 40401
    assert refused(NOT_FOUND, client.get_version, "other", 9) == 40402
    assert refused(UNPROCESSABLE, client.register_schema, "x", avro({"type": "recrod"})) == 42201
    assert client.delete_version("a/b c-value", 1) == 1
    assert client.get_versions("a/b c-value") == [2]
    assert client.delete_subject("a/b c-value") == [2]
    assert client.get_subjects() == ["other"]
    assert client.delete_subject("a/b c-value", permanent=True) == [1, 2]


def test_levels_are_held_to(client: Any) -> None:
    assert client.get_config().compatibility_level == "BACKWARD"
    client.register_schema("s", avro(WIDER))
    assert not client.test_compatibility("s", avro(SCHEMA))
    assert refused(CONFLICT, client.register_schema, "s", avro(SCHEMA)) == CONFLICT
    client.set_config("s", level("FORWARD"))
    assert client.get_config("s").compatibility_level == "FORWARD"
    assert client.test_compatibility("s", avro(SCHEMA))
    client.register_schema("s", avro(SCHEMA))
    program_says = [program(), "schema", "compatibility"]
    for word in ("FULL", "NONE"):
        set_it = [*program_says, client._rest_client.base_urls[0], "s", "--set", word]
        told = subprocess.run(set_it, capture_output=True, text=True, check=True)
        assert told.stdout.strip() == word
        client.clear_caches()
        assert client.get_config("s").compatibility_level == word


def test_schemas_are_imported_under_their_numbers(client: Any) -> None:
    def imported(subject: str, schema: Any, number: int) -> int:
        body = {"schema": json.dumps(schema), "id": number}
        return int(client._rest_client.post(f"subjects/{subject}/versions", body)["id"])

    assert refused(UNPROCESSABLE, imported, "alerts", SCHEMA, 900) == 42205
    client._rest_client.put("mode", {"mode": "IMPORT"})
    assert imported("alerts", SCHEMA, 900) == 900
    assert imported("alerts", WIDER, 1000) == 1000
    assert refused(UNPROCESSABLE, imported, "other", WIDER, 900) == 42205
    assert refused(UNPROCESSABLE, imported, "other", WIDER, 1001) == 42207
    assert refused(UNPROCESSABLE, client.register_schema, "other", avro(SCHEMA)) == 42205
    client._rest_client.put("mode", {"mode": "READWRITE"})
    client.clear_caches()
    assert json.loads(client.get_schema(900).schema_str) == SCHEMA
    assert client.register_schema("more", avro({"type": "string"})) == 1001
