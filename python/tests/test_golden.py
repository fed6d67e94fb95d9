"""Names and texts that users, peers and the program `helio` see: they change on purpose only.

``data/public-api.txt`` holds the public modules, their signatures and the tree of exceptions. Run
this file to print the current state.
"""

from __future__ import annotations

import asyncio
import enum
import importlib
import importlib.metadata
import inspect
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from processes import TIMEOUT_S

import heliograph as helio
from heliograph import _heliograph as raw
from heliograph import testing
from heliograph._component._engine import Engine, _outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOLDEN = Path(__file__).parent / "data" / "public-api.txt"
WORKERS = Path(__file__).parents[1] / "workers"
MODULES = (
    "heliograph",
    "heliograph.sync",
    "heliograph.testing",
    "heliograph.logging",
    "heliograph.alerts",
    "heliograph.alerts.sync",
)


def surface() -> Iterator[str]:
    """The public names of all modules, one a line."""
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in sorted(module.__all__):
            yield from _shown(f"{module_name}.{name}", getattr(module, name))


def _shown(path: str, item: Any) -> Iterator[str]:
    if inspect.isclass(item):
        bases = ", ".join(_bases(item))
        yield f"class {path}({bases}){_signature(item)}"
        if issubclass(item, enum.Enum):
            yield from (f"  {path}.{member.name} = {member.value!r}" for member in item)
        for name, member in sorted(_members(item).items()):
            yield from ("  " + line for line in _shown(f"{path}.{name}", member))
    elif inspect.isroutine(item) or isinstance(item, (staticmethod, classmethod)):
        kind = "async def" if inspect.iscoroutinefunction(item) else "def"
        yield f"{kind} {path}{_signature(item)}"
    elif inspect.isdatadescriptor(item):
        yield f"property {path}"
    elif inspect.ismodule(item):
        yield f"module {path}"
    elif path.endswith("__version__"):
        yield path
    elif isinstance(item, helio.Qos):
        yield f"{path} = {item.to_json()}"
    else:
        yield f"{path} = {_plain(item)}"


def _bases(kind: type) -> Iterator[str]:
    """The names of a class's bases; for a private base, its own bases."""
    for base in kind.__bases__:
        if base.__module__.startswith("heliograph") and base.__name__ not in helio.__all__:
            yield from _bases(base)
        else:
            yield base.__name__


def _members(kind: type) -> dict[str, Any]:
    """The public attributes of a class, of itself or of this package's bases."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("heliograph"):
            known = {name for name in vars(base) if not name.startswith("_")}
            found |= {name: inspect.getattr_static(base, name) for name in known}
    fields = getattr(kind, "__dataclass_fields__", {})
    members = getattr(kind, "__members__", {})
    return {name: item for name, item in found.items() if name not in fields | members}


def _signature(item: Any) -> str:
    """The parameters; none for an inherited signature, which differs between Pythons."""
    if inspect.isclass(item) and issubclass(item, (enum.Enum, BaseException)):
        ours = [base for base in item.__mro__ if base.__module__.startswith("heliograph")]
        if not any("__init__" in vars(base) for base in ours):
            return ""
    item = getattr(item, "__func__", item)
    found = inspect.signature(item)
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return _plain(found.replace(parameters=bare, return_annotation=found.empty), shown=str)


def _plain(item: Any, shown: Callable[[Any], str] = repr) -> str:
    """A text without the parts that differ between runs or Pythons."""
    return re.sub(r" at 0x[0-9a-f]+", "", shown(item)).replace("numpy.", "np.")


def test_the_public_api_is_the_golden_one() -> None:
    assert list(surface()) == GOLDEN.read_text().splitlines()


def test_pytest_finds_the_fixtures() -> None:
    (point,) = [
        point
        for point in importlib.metadata.entry_points(group="pytest11")
        if point.name == "heliograph"
    ]
    assert point.value == "heliograph.testing._plugin"
    plugin = vars(point.load())
    assert {name for name in plugin if name.startswith("helio_")} == {"helio_url", "helio_bus"}


def test_environment_variables() -> None:
    package = Path(helio.__file__).parent
    text = "".join(file.read_text() for file in sorted(package.rglob("*.py")))
    found = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', text))
    assert found == {
        "HELIO_INTERFACES",
        "HELIO_LOG_SETTINGS",
        "HELIO_SITE",
        "HELIO_URL",
        "LSST_SITE",
        "USER",
        "XDG_STATE_HOME",
    }


# From Rust to Python.


def test_a_lease_and_who_watches_it(interfaces: Path) -> None:
    bus = raw.RawBus(testing.memory_url())
    known = raw.RawInterfaces(str(interfaces), "Probe")
    probe = raw.PresenceProbe(bus, known, "Probe", 0)
    assert probe.query() == ("gone", 0)
    lease = raw.Lease(bus, known, "Probe", 0, "golden")
    standing, instance = lease.standing()
    assert standing == "held"
    assert probe.query() == ("here", instance)
    lease.release()
    assert probe.query() == ("gone", 0)
    assert lease.standing() == ("lost", 0)


def caller(known: str) -> raw.Caller:
    made = raw.Caller("Probe", "golden@here", 7, None, 1, 0.0)
    made.presence(known, 1)
    return made


ENDS: dict[str, tuple[str, Callable[[raw.Caller, int], object]]] = {
    "unheard": ("here", lambda sent, _: sent.unheard("no acks")),
    "not sent": ("here", lambda sent, call: sent.publish_failed(call, "full")),
    "nobody there": ("gone", lambda sent, _: sent.tick(10**12)),
    "went away": ("here", lambda sent, _: sent.presence("gone", 0)),
    "timed out": ("here", lambda sent, _: sent.tick(10**12)),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_call_ends(name: str) -> None:
    known, then = ENDS[name]
    sent = caller(known)
    call = sent.send(0, ("run", 0.0), "move", 1.0, None, None, None)
    then(sent, call)
    done = sent.effects()[-1]
    assert (done[0], done[3]) == ("done", name)


@pytest.mark.parametrize("name", ["run", "validate", "cancel", "lock", "unlock"])
def test_actions(name: str) -> None:
    sent = caller("here")
    sent.send(0, (name, 3.0), "", 1.0, None, None, None)
    number = 3.0 if name in ("cancel", "lock") else 0.0
    (effect,) = sent.effects()
    assert (effect[0], effect[2:4]) == ("publish", (name, number))


def test_states_on_the_way() -> None:
    assert raw.state_path(int(helio.State.FAULT), int(helio.State.ENABLED)) == [
        "standby",
        "start",
        "enable",
    ]


def test_guarantees_and_events() -> None:
    assert [str(item) for item in helio.Guarantee] == ["accepted", "stored", "durable"]
    assert [helio.latest(), helio.earliest(), helio.last(2), helio.from_offset(3, partition=1)] == [
        helio.Start("latest"),
        helio.Start("earliest"),
        helio.Start("last", 2),
        helio.Start("offset", 3, 1),
    ]
    assert [helio.lossless().kind, helio.drop_oldest().kind, helio.conflate().kind] == [
        "lossless",
        "drop_oldest",
        "conflate",
    ]


# On the wire.


def test_topics_beside_a_component_s_own() -> None:
    found = {}
    for kind in ("control", "audit"):
        text, qos = raw.service_topic(kind)
        found[kind] = {"schema": json.loads(text), "qos": json.loads(qos)}
    golden = json.loads((GOLDEN.parent / "own-topics.json").read_text())
    assert found == golden


def test_the_schema_of_a_record() -> None:
    @helio.record(namespace="weather", description="Wind at the mast.")
    class Wind:
        mast: helio.String = helio.field(key=True)
        speed: helio.Float64 = helio.field(unit="m/s", description="Mean of 1 s.")
        gusts: helio.Array[helio.Float32, 2] = helio.field(unit="m/s", default=[0.0, 0.0])
        count: helio.Int32 = 0
        total: helio.Int64 = 0
        calm: helio.Boolean = False
        raw: helio.Bytes = b""

    assert json.loads(helio.schema(Wind).text) == json.loads(
        (GOLDEN.parent / "record-schema.json").read_text()
    )


def test_what_a_component_says_of_its_handlers() -> None:
    assert _outcome(None) == ("", None)
    assert _outcome("moved") == ("moved", None)
    assert _outcome({"of": 4}) == ("", '{"of":4}')
    assert _outcome("x" * 4000) == ("x" * 4000, None)
    assert _outcome(["x" * 4000]) == (
        "Done; its result of 4004 bytes is not told: at most 3900 can be",
        None,
    )
    ends: list[tuple[BaseException, tuple[str, int, str]]] = [
        (asyncio.CancelledError(), ("aborted", 0, "cancelled")),
        (helio.ExpectedError("no wind", 4), ("failed", 4, "no wind")),
        (TimeoutError(), ("timeout", 0, "timed out")),
        (ValueError("no"), ("failed", 1, "ValueError: no")),
    ]
    log = SimpleNamespace(error=lambda *_, **__: None)
    engine: Any = SimpleNamespace(component=SimpleNamespace(log=log))
    for error, failure in ends:
        cancelled = isinstance(error, asyncio.CancelledError)
        task: Any = SimpleNamespace(
            cancelled=lambda cancelled=cancelled: cancelled, exception=lambda error=error: error
        )
        assert Engine._failure(engine, task) == failure


# Read by the program `helio`.


class Half:
    """A process as `helio` starts it, which carries the script; messages are lines of JSON."""

    def __init__(self, script: str, kind: str, task: dict[str, Any]) -> None:
        text = (WORKERS / script).read_text()
        self.process = subprocess.Popen(
            [sys.executable, "-c", text, "worker", kind, json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def says(self) -> Any:
        return json.loads(self.output.readline())

    def order(self, value: Any) -> None:
        print(json.dumps(value), file=self.input, flush=True)

    def end(self) -> None:
        self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0


def test_a_log_producer_s_answers() -> None:
    urgent = {"first_ns": 0, "level": 10}
    task = {"url": testing.memory_url(), "name": "P1", "prefix": "log", "rate_hz": 2000}
    half = Half("log_producer.py", "log-producer", task | {"time_ns": 10**6, "urgent": urgent})
    assert half.says() is None
    half.order({"start_ns": time.monotonic_ns()})
    report = half.says()
    assert sorted(report) == [
        "bytes",
        "end_ns",
        "offered",
        "pacing_cpu_s",
        "published",
        "used",
    ]
    assert sorted(report["used"]) == ["cpu_s", "rss_mb"]
    assert report["offered"] == {"10": 1, "4": 1, "5": 1}
    assert (report["published"], report["bytes"]) == (3, 0)
    half.order(None)
    half.end()


def test_the_answers_of_a_component_and_its_caller(tmp_path: Path) -> None:
    task = {
        "url": f"journal:{tmp_path / 'journal'}",
        "component": "MTMount",
        "command": "moveToTarget",
        "interfaces": str(Path(__file__).parents[2] / "examples" / "interfaces"),
        "rate_hz": 100,
        "count": 2,
    }
    component = Half("bench_commands.py", "bench-commanded", task)
    assert component.says() is None
    component.order({})
    other = Half("bench_commands.py", "bench-caller", task)
    assert other.says() is None
    other.order({"start_ns": time.monotonic_ns()})
    report = other.says()
    assert sorted(report) == ["ack_ns", "done_ns", "failed", "used"]
    assert sorted(report["used"]) == ["cpu_s", "rss_mb"]
    other.end()
    component.order({})
    assert sorted(component.says()) == ["cpu_s", "rss_mb"]
    component.end()


if __name__ == "__main__":
    print("\n".join(surface()))
