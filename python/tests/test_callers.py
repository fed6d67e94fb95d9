"""Callers that are proved by signatures, and forged by a raw writer."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from probe import TIMEOUT_S, Probe, asynchronous, send
from test_commands import audit

import heliograph as helio
from heliograph import AckCode, State, sync, testing

if TYPE_CHECKING:
    from heliograph._heliograph import Sample

pytestmark = pytest.mark.usefixtures("interfaces")

SIGNATURE, CALLER, EXPIRY = "helio-signature", "helio-caller", "helio-expiry"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file of alice's key."""
    path = tmp_path / "alice.pem"
    public = helio.make_caller_key(path)
    # Of another caller, to compare.
    assert helio.make_caller_key(tmp_path / "eve.pem") != public
    (tmp_path / "who.yaml").write_text(
        "default: deny\n"
        f"keys: {{alice: {public}}}\n"
        "roles: {all: ['*']}\n"
        "identities: {alice: [all], bob: [all]}\n"
    )
    return path


def guarded(key: Path, **options: Any) -> Any:
    authorization = key.with_name("who.yaml")
    return testing.component(
        Probe, initial_state=State.ENABLED, authorization=authorization, **options
    )


def alice(bus: helio.Bus, key: Path | None) -> helio.Remote:
    return helio.Remote(bus, "Probe", caller="alice", caller_key=key)


async def genuine(
    bus: helio.Bus, key: Path, interfaces: Path
) -> tuple[helio.Topic[Any], Sample[Any]]:
    """Send a signed command; return its topic, as any program can open it, and its sample."""
    info = helio.load_interfaces(interfaces)["Probe/command/move"]
    topic: helio.Topic[Any] = bus.topic(info.name, info.schema, qos=info.qos)
    async with topic.subscribe(start=helio.latest()) as samples:
        await send(alice(bus, key).cmd_move, axis=1, position=7.0, timeout=TIMEOUT_S)
        return topic, await samples.next(timeout=TIMEOUT_S)


def without(headers: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: value for name, value in headers.items() if name not in names}


@asynchronous
async def test_a_raw_writer_can_forge_no_proved_caller(
    url: str, key: Path, interfaces: Path
) -> None:
    async with helio.connect(url) as bus, guarded(key, bus=bus) as (probe, _):
        topic, sample = await genuine(bus, key, interfaces)
        headers, trace, value = sample.headers, sample.trace, sample.value
        forged: list[tuple[dict[str, Any], bytes | None, dict[str, bytes]]] = [
            (value, trace, without(headers, SIGNATURE)),
            (value, trace, without(headers, SIGNATURE) | {CALLER: b"bob"}),
            (value, trace, headers | {SIGNATURE: bytes(64)}),
            (value, trace, headers | {EXPIRY: b"\xff" * 7 + b"\x7f"}),
            (value, trace, without(headers, EXPIRY)),
            (value, bytes(15) + b"\1", headers),
            (value | {"position": 8.0}, trace, headers),
            (value | {"private_seqNum": 5}, trace, headers),
            (value | {"private_identity": "alice"}, trace, without(headers, CALLER)),
            # The same once more.
            (value, trace, headers),
        ]
        for payload, of, beside in forged:
            await topic.publish(payload, trace=of, headers=beside)
        with pytest.raises(helio.NotPermitted, match="declared name"):
            await send(helio.Remote(bus, "Probe", caller="bob").cmd_move, axis=1)
        entries = [e for e in await audit(bus) if e["phase"] == "finished"]
        assert [e["ack"] for e in entries] == [AckCode.COMPLETE] + [AckCode.NO_PERM] * 11
        declared = [e["caller"].startswith("declared:") for e in entries]
        assert declared == [False] + [True] * 9 + [False, True]
        assert "a copy" in entries[10]["result"]
        assert len(probe.ran) == 1


@asynchronous
async def test_every_request_of_a_proved_caller_is_signed(url: str, key: Path) -> None:
    async with helio.connect(url) as bus, guarded(key, bus=bus) as (probe, _):
        proved = alice(bus, key)
        await send(proved.cmd_move, axis=1, forces=[0.5, 0, 0, 1e-9], name="é", validate=True)
        await send(proved.cmd_move, axis=1, forces=[0.5, 0, 0, 1e-9], name="é", big=2**60)
        await proved.lock(60)
        for other in (alice(bus, None), alice(bus, key.with_name("eve.pem"))):
            for refused in (
                lambda of: of.unlock(),
                lambda of: of.lock(60),
                lambda of: send(of.cmd_move, axis=1, validate=True),
                lambda of: send(of.cmd_move, axis=1),
            ):
                with pytest.raises(helio.NotPermitted, match="no signature of this command"):
                    await refused(other)
        call = send(proved.cmd_hang, name="x", timeout=TIMEOUT_S)
        async for ack in call:
            if ack.ack is AckCode.IN_PROGRESS:
                break
        await call.cancel()
        with pytest.raises(helio.CommandAborted):
            await call
        await proved.unlock()
        assert [type(command).__name__ for command in probe.ran] == [
            "command_move",
            "command_hang",
        ]


def test_a_key_file_is_its_owner_s_alone(key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(OSError, match="exists"):
        helio.make_caller_key(key)
    key.chmod(0o644)
    with testing.sync_memory_bus() as bus, pytest.raises(ValueError, match="chmod 600"):
        sync.Remote(bus, "Probe", caller_key=key)


def test_the_example_of_the_page_on_security_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    (_, example) = page.split("```python\n# signed.py\n")
    command = [sys.executable, "-W", "error", "-c", example.split("```")[0]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "at 1.5 mm"
    assert "alice has a key in the authorization file, and no signature" in second
