"""A component for tests; its interface has a field of every kind."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from processes import TIMEOUT_S

import heliograph as helio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path


SUBSYSTEMS = """<SALSubsystemSet>
  <SALSubsystem><Name>Probe</Name><IndexEnumeration>no</IndexEnumeration>
    <AddedGenerics>csc, configurable</AddedGenerics></SALSubsystem>
  <SALSubsystem><Name>Multi</Name><IndexEnumeration>any</IndexEnumeration>
    <AddedGenerics>csc</AddedGenerics></SALSubsystem>
  <SALSubsystem><Name>Camera</Name><IndexEnumeration>no</IndexEnumeration>
    <AddedGenerics>csc, command_enterControl</AddedGenerics></SALSubsystem>
</SALSubsystemSet>"""

COMMANDS = {
    "move": [
        ("position", "double", 1, ""),
        ("speed", "float", 1, ""),
        ("axis", "byte", 1, "Axis_Azimuth=1, Axis_Elevation=2"),
        ("flags", "int", 1, "Flag_A=1, Flag_B=2, Flag_C=4"),
        ("count", "unsigned short", 1, ""),
        ("forces", "float", 4, ""),
        ("name", "string", 1, ""),
        ("big", "long long", 1, ""),
    ],
    "hang": [("name", "string", 1, "")],
    "track": [("taiTime", "double", 1, ""), ("target", "double", 1, "")],
    "unhandled": [],
}
EVENTS = {
    "position": [
        ("value", "double", 1, ""),
        ("single", "float", 1, ""),
        ("axis", "byte", 1, "Axis_Azimuth=1, Axis_Elevation=2"),
        ("forces", "float", 4, ""),
        ("text", "string", 1, ""),
        ("ok", "boolean", 1, ""),
    ],
    "odd": [("from", "int", 1, "A-b, 2nd, mro, None=9"), ("__x", "int", 1, "")],
}
TELEMETRY = {"sample": [("values", "float", 4, ""), ("number", "long", 1, "")]}


def _topics(component: str, tag: str, middle: str, topics: dict[str, Any]) -> str:
    parts = []
    for name, fields in topics.items():
        items = "".join(
            f"<item><EFDB_Name>{field}</EFDB_Name><Description>.</Description>"
            f"<IDL_Type>{kind}</IDL_Type><Units>unitless</Units><Count>{count}</Count>"
            + (f"<Enumeration>{labels}</Enumeration>" if labels else "")
            + "</item>"
            for field, kind, count, labels in fields
        )
        parts.append(
            f"<SAL{tag}><EFDB_Topic>{component}_{middle}{name}</EFDB_Topic>"
            f"<Description>.</Description>{items}</SAL{tag}>"
        )
    return f"<SAL{tag}Set>{''.join(parts)}</SAL{tag}Set>"


def write_interfaces(folder: Path, generics: Path) -> Path:
    """Write the interfaces into a folder, with the generics of another."""
    folder.mkdir(exist_ok=True)
    (folder / "SALSubsystems.xml").write_text(SUBSYSTEMS)
    (folder / "SALGenerics.xml").write_text(generics.read_text())
    (folder / "VERSION").write_text("2.5.0\n")
    for component in ("Probe", "Multi", "Camera"):
        place = folder / component
        place.mkdir(exist_ok=True)
        for file, tag, middle, topics in (
            ("Commands", "Command", "command_", COMMANDS),
            ("Events", "Event", "logevent_", EVENTS),
            ("Telemetry", "Telemetry", "", TELEMETRY),
        ):
            text = _topics(component, tag, middle, topics)
            (place / f"{component}_{file}.xml").write_text(text)
    return folder


class Probe(helio.Component):
    """A probe, which moves, hangs and tracks."""

    component = "Probe"
    version = "1.2.3"
    valid_simulation_modes = (0, 1)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ran: list[Any] = []
        self.hooks: list[str] = []
        self.fails: dict[str, BaseException] = {}
        self.hanging = asyncio.Event()
        self.release = asyncio.Event()
        self.result: Any = None
        self.configs: list[Any] = []

    @helio.command(
        limits={"position": (-10, 10), "forces": (None, 100)}, refuse_nan=["speed", "forces"]
    )
    async def do_move(self, command: Any) -> Any:
        self.assert_enabled("move")
        self.ran.append(command)
        if "move" in self.fails:
            raise self.fails["move"]
        return self.result

    def validate_move(self, command: Any) -> None:
        if command.name == "nobody":
            raise helio.ExpectedError("nobody cannot be moved")

    async def do_hang(self, command: Any) -> str:
        self.ran.append(command)
        await self.in_progress(command, 20.0, "hanging", progress=0.25, result={"of": 4})
        self.hanging.set()
        await self.release.wait()
        return f"released {command.name}"

    @helio.command(stream=helio.Stream("taiTime"))
    async def do_track(self, command: Any) -> None:
        self.ran.append(command)

    async def configure(self, config: Any) -> None:
        self._note("configure")
        self.configs.append(config)

    def _note(self, hook: str) -> None:
        self.hooks.append(hook)
        if hook in self.fails:
            raise self.fails[hook]

    async def handle_summary_state(self) -> None:
        self._note(self.summary_state.name)

    async def begin_start(self, data: Any) -> None:
        self._note("begin_start")

    async def end_start(self, data: Any) -> None:
        self._note("end_start")

    async def begin_enable(self, data: Any) -> None:
        self._note("begin_enable")

    async def end_enable(self, data: Any) -> None:
        self._note("end_enable")

    async def begin_standby(self, data: Any) -> None:
        self._note("begin_standby")

    async def end_exitControl(self, data: Any) -> None:  # noqa: N802
        self._note("end_exitControl")

    async def close_tasks(self) -> None:
        self._note("close_tasks")


class Configured(Probe):
    """A probe with a configuration."""

    config_schema: ClassVar[dict[str, Any]] = {
        "title": "Probe v3",
        "type": "object",
        "properties": {
            "host": {"type": "string"},
            "port": {"type": "integer", "minimum": 1},
            "axes": {"type": "object", "properties": {"az": {"type": "number", "default": 1.5}}},
        },
        "required": ["host"],
        "additionalProperties": False,
    }


class Writer(Probe):
    """A probe that writes continuously once it is enabled, and reports what prevents it."""

    async def end_enable(self, data: Any) -> None:
        self.writing = asyncio.ensure_future(self.write_for_ever())

    async def write_for_ever(self) -> None:
        while True:
            if not await self.may(self.tel_sample.write()):
                return
            await asyncio.sleep(0.01)

    async def do_hang(self, command: Any) -> str:
        try:
            return await super().do_hang(command)
        finally:
            await self.may(self.evt_position.set_write(value=7.0))

    async def may(self, write: Awaitable[Any]) -> bool:
        try:
            await write
        except helio.NotLive as error:
            print(f"refused: {error}", file=sys.stderr)
            return False
        return True

    async def close_tasks(self) -> None:
        await self.writing
        print("closed", file=sys.stderr)


class Multi(Probe):
    """An indexed probe."""

    component = "Multi"


class Camera(Probe):
    """A probe that starts in OFFLINE."""

    component = "Camera"


def send(command: Any, **fields: Any) -> Any:
    """Send a command with explicit zeros for the fields that are not given."""
    value = command.data_type()
    zeros = {name: getattr(value, name) for name in command.type.required}
    return command.set_start(**zeros | fields)


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine test in a loop of its own, with a timeout against hanging."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), TIMEOUT_S))

    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run
