"""The event loop: order of concurrent publishes, and no public name that blocks it."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import itertools
import subprocess
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
from probe import Multi, Probe, asynchronous

import heliograph as helio
from heliograph import alerts, testing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path


@helio.record
class Numbered:
    """A numbered sample."""

    name: helio.String = helio.field(key=True, default="one")
    number: helio.Int64 = 0


COUNT = 500


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@asynchronous
async def test_concurrent_publishes_on_a_fresh_topic_keep_their_order(url: str, many: bool) -> None:
    """Also if one in three is cancelled, and others come while the first ones are queued."""
    async with helio.connect(url) as bus:
        topic = bus.topic("fresh", Numbered, qos=helio.EVENT)

        async def publish(number: int) -> None:
            if many and number % 5 == 0:
                await topic.publish_many([Numbered(number=number)])
            else:
                await topic.publish(Numbered(number=number))

        tasks = []
        for number in range(COUNT):
            tasks.append(asyncio.create_task(publish(number)))
            if number % 50 == 49:
                await asyncio.sleep(0)
            if number % 3 == 2:
                tasks[-2].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        completed = [number for number, outcome in enumerate(done) if outcome is None]
        assert len(completed) >= COUNT * 2 // 3
        async with topic.subscribe(start=helio.earliest()) as samples:
            found: list[int] = []
            while not set(completed) <= set(found):
                found += [sample.value.number for sample in await samples.batch()]
        assert found == sorted(set(found))


@asynchronous
async def test_concurrent_writes_of_a_component_keep_their_order(interfaces: Path) -> None:
    """The first of them opens the topic; one in three is cancelled."""
    async with (
        testing.memory_bus() as bus,
        testing.component(Probe, bus=bus) as (probe, remote),
    ):
        position = remote.evt_position
        await position.aopen()
        tasks = []
        for number in range(1, COUNT):
            tasks.append(asyncio.create_task(probe.evt_position.set_write(value=float(number))))
            if number % 50 == 0:
                await asyncio.sleep(0)
            if number % 3 == 0:
                tasks[-1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        wanted = {told.data.value for told in done if isinstance(told, helio.SetWriteResult)}
        assert len(wanted) >= COUNT * 3 // 5
        found: list[float] = []
        while not wanted <= set(found):
            found.append((await position.next()).value)
        assert found == sorted(found)


def test_a_failed_opening_fails_all_that_waits_for_it(url: str) -> None:
    """And the next publish tries again."""

    async def main() -> None:
        async with helio.connect(url, producer="one") as bus, helio.connect(url) as other:
            qos = dataclasses.replace(helio.EVENT, ownership=helio.Ownership.EXCLUSIVE)
            owner = other.topic("owned", Numbered, qos=qos)
            await owner.publish(Numbered(number=1))
            topic = bus.topic("owned", Numbered, qos=qos)
            done = await asyncio.gather(
                *(topic.publish(Numbered(number=n)) for n in range(10)), return_exceptions=True
            )
            assert {type(told) for told in done} == {helio.Fenced}
            await other.close()
            await topic.publish(Numbered(number=2))

    asyncio.run(main())


def test_a_panic_is_a_helio_error() -> None:
    """Not a BaseException, which `except Exception` misses."""
    from heliograph import _heliograph

    with pytest.raises(helio.InternalError, match=r"a bug of Heliograph.*: the reason") as caught:
        _heliograph.panics("the reason")
    assert isinstance(caught.value, helio.HelioError)


class Rig:
    """Objects on a bus whose engine takes its time: opened before, and used meanwhile.

    There is one for each name. A loaded machine tries a name again, on one that was used before.
    """

    def __init__(self, bus: helio.Bus, spare: helio.Bus, clock: testing.ManualClock) -> None:
        self.bus = bus
        self.spare = spare
        self.clock = clock
        self.probe: Probe
        self.remote: helio.Remote
        self.call: helio.CommandCall
        self.producer: alerts.CcdProducer
        self.of_group: alerts.AlertSubscription
        self._topics: Iterator[helio.Topic[Numbered]]
        self._alerts: Iterator[alerts.AlertSubscription]
        self._samples: Iterator[helio.Subscription[Numbered]]

    async def prepare(self) -> None:
        """Open what is used later."""
        names = [f"topic{n}" for n in range(20)]
        topics = [self.bus.topic(name, Numbered, qos=helio.EVENT) for name in names]
        self._topics = itertools.cycle(topics)
        for topic in topics:
            await topic.publish_many([Numbered(number=1), Numbered(number=2)])
        again = [self.bus.topic(name, Numbered) for name in names]
        samples = [topic.subscribe(start=helio.earliest(), group="g") for topic in again]
        for each in samples:
            await each.next()
        self._samples = itertools.cycle(samples)
        self.remote = helio.Remote(self.bus, "Probe")
        self.call = self.remote.cmd_unhandled.set_start()
        with pytest.raises(helio.CommandError):
            await self.call
        await self.remote.evt_summaryState.aopen()
        await self.remote.evt_summaryState.aget()
        await self._prepare_alerts()

    async def _prepare_alerts(self) -> None:
        self.producer = alerts.CcdProducer(self.bus, schema=ALERT)
        await self.producer.open_visit(1, detectors=[0], shutter_close=helio.Time.now())
        await self.producer.publish(visit=1, detector=0, packets=[{"candid": 1}, {"candid": 2}])
        stream = alerts.open(self.bus)
        found = [stream.subscribe(start="earliest", batch_alerts=1) for _ in range(14)]
        self.of_group = stream.subscribe(start="earliest", group="g")
        for each in (*found, self.of_group):
            await each.alert()
        self._alerts = itertools.cycle(found)

    @property
    def alerts(self) -> alerts.AlertSubscription:
        """An open subscription of alerts, with one unread."""
        return next(self._alerts)

    @property
    def topic(self) -> helio.Topic[Numbered]:
        """An open topic without a writer."""
        return next(self._topics)

    @property
    def samples(self) -> helio.Subscription[Numbered]:
        """An open subscription of a group, with one unread sample."""
        return next(self._samples)

    @property
    def fresh(self) -> helio.Remote:
        """A remote that has opened nothing."""
        return helio.Remote(self.bus, "Probe")

    @property
    def state(self) -> helio.ReadTopic:
        """An open event."""
        state: helio.ReadTopic = self.remote.evt_summaryState
        return state

    def stale(self) -> helio.Remote:
        """The remote, after its knowledge of the presence has expired."""
        self.clock.advance(0.06)
        return self.remote


class Stall:
    """An engine that answers nothing, for 30 s at most: a blocked loop could not end that.

    Another process ends it then, as this one may hold the interpreter's lock.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "stall"
        self._late = folder / "late"

    @contextmanager
    def lasts(self) -> Iterator[None]:
        """Begin it, and end it on leaving."""
        self.file.touch()
        end = f"sleep 30; touch {self._late}; rm {self.file}"
        with subprocess.Popen(["sh", "-c", end], start_new_session=True) as watchdog:
            try:
                yield
            finally:
                watchdog.kill()
                self.file.unlink(missing_ok=True)

    def check(self, what: str) -> None:
        """Fail if the other process had to end it."""
        assert not self._late.exists(), f"{what} blocked the loop"


VALUE = Numbered(number=2)
ALERT = {"type": "record", "name": "a", "fields": [{"name": "candid", "type": "long"}]}

CALLS: dict[str, Callable[[Rig], Any]] = {
    "connect": lambda rig: helio.connect(testing.memory_url()),
    "set_summary_state": lambda rig: helio.set_summary_state(rig.fresh, helio.State.STANDBY),
    "Bus.url": lambda rig: rig.bus.url,
    "Bus.producer": lambda rig: rig.bus.producer,
    "Bus.atopic": lambda rig: rig.bus.atopic("new", Numbered, qos=helio.EVENT),
    "Bus.topics": lambda rig: rig.bus.topics(),
    "Bus.close": lambda rig: rig.spare.close(),
    "Topic.name": lambda rig: rig.topic.name,
    "Topic.producer": lambda rig: rig.topic.producer,
    "Topic.schema": lambda rig: rig.topic.schema,
    "Topic.qos": lambda rig: rig.topic.qos,
    "Topic.publisher_stats": lambda rig: rig.topic.publisher_stats,
    "Topic.key": lambda rig: rig.topic.key("one"),
    "Topic.awriters": lambda rig: rig.topic.awriters(),
    "Topic.agrant": lambda rig: refused(rig.topic.agrant("nobody")),
    "Topic.agroups": lambda rig: rig.topic.agroups(),
    "Topic.arevoke": lambda rig: refused(rig.topic.arevoke("nobody")),
    "Topic.aclaim": lambda rig: rig.topic.aclaim(),
    "Topic.aassert_alive": lambda rig: rig.topic.aassert_alive(),
    "Topic.publish": lambda rig: rig.topic.publish(VALUE),
    "Topic.publish_many": lambda rig: rig.topic.publish_many([VALUE]),
    "Topic.publish_batch": lambda rig: rig.topic.publish_batch([VALUE], partition=0),
    "Topic.flush": lambda rig: rig.topic.flush("stored"),
    "Topic.asubscribe": lambda rig: rig.topic.asubscribe(start=helio.earliest()),
    "Subscription.stats": lambda rig: rig.samples.stats,
    "Subscription.positions": lambda rig: rig.samples.positions,
    "Subscription.close": lambda rig: rig.samples.close(),
    "Subscription.next": lambda rig: rig.samples.next(),
    "Subscription.batch": lambda rig: rig.samples.batch(),
    "Subscription.events": lambda rig: anext(rig.samples.events()),
    "Subscription.aseek": lambda rig: rig.samples.aseek(0),
    "Subscription.acommit": lambda rig: beside_a_commit(rig.samples),
    "Remote.name": lambda rig: rig.fresh.name,
    "Remote.enums": lambda rig: rig.fresh.enums,
    "Remote.late_sent": lambda rig: rig.fresh.late_sent,
    "Remote.apresence": lambda rig: rig.fresh.apresence(),
    "Remote.lock": lambda rig: rig.fresh.lock(1.0),
    "Remote.unlock": lambda rig: rig.stale().unlock(),
    "Remote.close": lambda rig: closed(rig.fresh),
    "RemoteCommand.data_type": lambda rig: rig.fresh.cmd_move.data_type,
    "RemoteCommand.set": lambda rig: rig.fresh.cmd_hang.set(name="one"),
    "RemoteCommand.stream": lambda rig: rig.fresh.cmd_track.stream("taiTime"),
    "RemoteCommand.set_start": lambda rig: rig.fresh.cmd_unhandled.set_start(),
    "RemoteCommand.start": lambda rig: rig.stale().cmd_unhandled.start(),
    "CommandCall.done": lambda rig: rig.call.done,
    "CommandCall.wait": lambda rig: rig.stale().cmd_unhandled.set_start().wait(),
    "CommandCall.next_ack": lambda rig: rig.call.next_ack(),
    "CommandCall.cancel": lambda rig: rig.stale().cmd_unhandled.set_start().cancel(),
    "ReadTopic.has_data": lambda rig: rig.state.has_data,
    "ReadTopic.nqueued": lambda rig: rig.state.nqueued,
    "ReadTopic.lost": lambda rig: rig.state.lost,
    "ReadTopic.get": lambda rig: rig.state.get(),
    "ReadTopic.get_oldest": lambda rig: rig.state.get_oldest(),
    "ReadTopic.aflush": lambda rig: rig.fresh.evt_summaryState.aflush(),
    "ReadTopic.aget": lambda rig: rig.fresh.evt_summaryState.aget(),
    "ReadTopic.aopen": lambda rig: rig.fresh.evt_summaryState.aopen(),
    "ReadTopic.next": lambda rig: rig.fresh.evt_summaryState.next(flush=False),
    "ReadTopic.callback": lambda rig: setattr(rig.fresh.evt_heartbeat, "callback", print),
    "ReadTopic.close": lambda rig: closed(rig.fresh.evt_summaryState),
    "WriteTopic.data": lambda rig: rig.probe.evt_position.data,
    "WriteTopic.has_data": lambda rig: rig.probe.evt_position.has_data,
    "WriteTopic.is_open": lambda rig: rig.probe.evt_position.is_open,
    "WriteTopic.set": lambda rig: rig.probe.evt_position.set(value=1.0),
    "WriteTopic.set_write": lambda rig: rig.probe.evt_position.set_write(value=2.0),
    "WriteTopic.write": lambda rig: rig.probe.tel_sample.write(),
    "Component.name": lambda rig: rig.probe.name,
    "Component.summary_state": lambda rig: rig.probe.summary_state,
    "Component.simulation_mode": lambda rig: rig.probe.simulation_mode,
    "Component.enums": lambda rig: rig.probe.enums,
    "Component.done_task": lambda rig: rig.probe.done_task.done(),
    "Component.configuration": lambda rig: rig.probe.configuration,
    "Component.locked_by": lambda rig: rig.probe.locked_by,
    "Component.stream_stats": lambda rig: rig.probe.stream_stats("track"),
    "Component.start": lambda rig: Multi(rig.bus, 1).start(),
    "Component.close": lambda rig: Multi(rig.bus, 2).close(),
    "Component.go_to": lambda rig: rig.probe.go_to(helio.State.DISABLED),
    "Component.fault": lambda rig: rig.probe.fault(1, "a fault"),
    "Component.do_setLogLevel": lambda rig: rig.probe.do_setLogLevel(
        rig.remote.cmd_setLogLevel.data_type(level=20)
    ),
    "Component.reload_authorization": lambda rig: rig.probe.reload_authorization(),
    "alerts.open": lambda rig: alerts.open(rig.bus),
    "alerts.Alerts.topic": lambda rig: alerts.open(rig.bus).topic,
    "alerts.Alerts.subscribe": lambda rig: alerts.open(rig.bus).subscribe(columns=["candid"]),
    "alerts.Alerts.rewind": lambda rig: alerts.open(rig.bus).rewind("nobody", "earliest"),
    "alerts.AlertSubscription.dropped": lambda rig: rig.alerts.dropped,
    "alerts.AlertSubscription.batch": lambda rig: fresh(rig).batch(),
    "alerts.AlertSubscription.alert": lambda rig: rig.alerts.alert(),
    "alerts.AlertSubscription.alerts": lambda rig: anext(rig.alerts.alerts()),
    "alerts.AlertSubscription.packets": lambda rig: anext(rig.alerts.packets()),
    "alerts.AlertSubscription.raw": lambda rig: anext(rig.alerts.raw()),
    "alerts.AlertSubscription.events": lambda rig: anext(fresh(rig).events()),
    "alerts.AlertSubscription.checkpoint": lambda rig: rig.alerts.checkpoint("here"),
    "alerts.AlertSubscription.lag": lambda rig: rig.alerts.lag(),
    "alerts.AlertSubscription.audit": lambda rig: rig.alerts.audit(1),
    "alerts.AlertSubscription.rewind": lambda rig: rig.alerts.rewind("earliest"),
    "alerts.AlertSubscription.close": lambda rig: rig.alerts.close(),
    "alerts.AlertSubscription.commit": lambda rig: rig.of_group.commit(),
    "alerts.CcdProducer.schema": lambda rig: rig.producer.schema,
    "alerts.CcdProducer.encode": lambda rig: rig.producer.encode([{"candid": 3}]),
    "alerts.CcdProducer.open_visit": lambda rig: rig.producer.open_visit(
        2, detectors=[0], shutter_close=helio.Time.now()
    ),
    "alerts.CcdProducer.publish": lambda rig: rig.producer.publish(
        visit=2, detector=0, packets=[{"candid": 3}]
    ),
    "alerts.CcdProducer.replay": lambda rig: replayed(rig),
}

TWINS = {
    "Bus.topic",
    "Topic.grant",
    "Topic.groups",
    "Topic.revoke",
    "Topic.writers",
    "ReadTopic.flush",
    "Topic.claim",
    "Topic.assert_alive",
    "Topic.subscribe",
    "Subscription.seek",
    "Subscription.commit",
    "Remote.presence",
}
"""The names that may block the loop; the prefix ``a`` makes the twin that does not."""

NOT_CALLED = {
    "alerts.AlertSubscription.stamp_url": "a text",
    "Component.assert_enabled": "reads the state",
    "Component.in_progress": "a handler's: it needs a command that runs",
    "Component.run": "a program of its own",
    "Component.amain": "a program of its own",
    "WriteTopic.adopt": "the engine's",
    "WriteTopic.open_now": "the engine's, in its threads",
    "WriteTopic.put": "the engine's",
    "WriteTopic.is_held_up": "the engine's",
}

PLAIN = {
    *("COMMAND", "EVENT", "LOG", "NULL", "STATE", "STREAM", "TELEMETRY", "__version__", "sync"),
    *("Array", "Boolean", "Bytes", "Float32", "Float64", "Int32", "Int64", "String"),
    *("Int8", "Int16", "NdArray", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Ack", "AckCode", "CommandOptions", "Enums", "FieldInfo", "InterfaceTopic", "Interfaces"),
    *("Durability", "Group", "GroupMember", "GroupPartition", "Guarantee", "History", "KeepLast"),
    *("Lagging", "Overload", "Ownership"),
    *("Qos", "Receipt", "Reliability", "Retention", "Sample", "Schema", "SetWriteResult"),
    *("Start", "State", "Stats", "Stream", "Time", "TopicData", "Writer", "command", "conflate"),
    *("drop_oldest", "earliest", "field", "from_offset", "last", "latest", "load_interfaces"),
    *("load_schema", "lossless", "make_caller_key", "record", "schema", "shed_by_level", "since"),
    *("alerts.Alert", "alerts.Audit", "alerts.Batch", "alerts.CcdOutcome", "alerts.DetectorAudit"),
    *("alerts.FilterSet", "alerts.Manifest", "alerts.best", "alerts.rubin_schema", "alerts.sync"),
}
"""Values, and functions that use no bus. Errors and events are values, too."""


def fresh(rig: Rig) -> alerts.AlertSubscription:
    """A subscription of alerts that is not open yet."""
    return alerts.open(rig.bus).subscribe(start="earliest", columns=["candid"])


async def replayed(rig: Rig) -> None:
    """Replay a file that is not there."""
    with pytest.raises(OSError, match="visit-1-detector-0"):
        await rig.producer.replay("visit-1-detector-0.avro")


async def beside_a_commit(samples: helio.Subscription[Any]) -> None:
    """Commit; the subscription may be watched and closed meanwhile."""
    committing = asyncio.ensure_future(samples.acommit((0, 1)))
    await asyncio.sleep(0.05)
    assert samples.stats.received == 1
    assert samples.positions
    samples.close()
    # On a loaded machine its thread may not have begun.
    with suppress(helio.ClosedError):
        await committing


async def refused(call: Awaitable[Any]) -> None:
    """Await what this transport refuses."""
    with pytest.raises(helio.QosRefused):
        await call


async def closed(remote: Any) -> None:
    """Close a remote or a topic while it is opened."""
    topic = remote if isinstance(remote, helio.ReadTopic) else remote.evt_summaryState
    waiting = asyncio.ensure_future(topic.aget())
    await asyncio.sleep(0.05)
    remote.close()
    with pytest.raises(helio.ClosedError):
        await waiting


def public_names() -> set[str]:
    """The public functions, methods and properties that may use a bus."""
    names = set()
    items = {name: getattr(helio, name) for name in helio.__all__}
    items |= {f"alerts.{name}": getattr(alerts, name) for name in alerts.__all__}
    for name, item in items.items():
        is_value = isinstance(item, type) and issubclass(item, (BaseException, helio.Event))
        if name in PLAIN or is_value:
            continue
        assert isinstance(item, (type, FunctionType)), f"say in PLAIN what {name} is"
        if not isinstance(item, type):
            names.add(name)
            continue
        for kind in item.__mro__:
            if kind.__module__.startswith("heliograph") and kind.__name__ != "Hooks":
                names |= {
                    f"{name}.{attribute}"
                    for attribute, found in vars(kind).items()
                    if not attribute.startswith("_")
                    and isinstance(found, (FunctionType, property, classmethod, staticmethod))
                }
    return names


def test_each_public_name_is_tried() -> None:
    """A new one needs a call in this file, or a twin."""
    names = public_names()
    assert names == CALLS.keys() | TWINS | NOT_CALLED.keys()
    for twin in TWINS:
        owner, name = twin.rsplit(".", 1)
        assert f"{owner}.a{name}" in CALLS
        found = getattr(getattr(helio, owner), f"a{name}")
        assert inspect.iscoroutinefunction(found)
        of_twin = inspect.signature(found).parameters.keys()
        assert of_twin == inspect.signature(getattr(getattr(helio, owner), name)).parameters.keys()


@asynchronous
async def test_no_public_name_blocks_the_loop(interfaces: Path, tmp_path: Path) -> None:
    """The engine answers nothing until all names were tried."""
    stall = Stall(tmp_path)
    clock = testing.ManualClock(helio.Time.now())
    url = f"fault:{testing.memory_url()}?stall={stall.file}"
    async with (
        testing.memory_bus(url, clock=clock) as bus,
        testing.memory_bus(f"fault:{testing.memory_url()}?stall={stall.file}") as spare,
    ):
        rig = Rig(bus, spare, clock)
        async with testing.component(Probe, bus=bus) as (rig.probe, _):
            await rig.probe.go_to(helio.State.ENABLED)
            await rig.prepare()
            with stall.lasts():
                begun = await _begin(rig, stall)
                # Timers of pending commands fire meanwhile.
                for _ in range(50):
                    await asyncio.sleep(0.01)
                stall.check("a timer")
            clock.advance(0.06)
            outcomes = await asyncio.gather(*begun.values(), return_exceptions=True)
            _check(dict(zip(begun, outcomes, strict=True)))


async def _begin(rig: Rig, stall: Stall) -> dict[str, asyncio.Future[Any]]:
    begun: dict[str, asyncio.Future[Any]] = {}
    for name, call in CALLS.items():
        outcome = call(rig)
        if inspect.isawaitable(outcome):

            async def wait(outcome: Any = outcome) -> Any:
                return await outcome

            begun[name] = asyncio.create_task(wait())
        # The counting task: it advances before the engine answers.
        for _ in range(10):
            await asyncio.sleep(0)
        stall.check(name)
    return begun


def _check(outcomes: dict[str, Any]) -> None:
    """What waited for the engine has a result now; handlers and states may refuse it."""
    allowed = (helio.CommandError, helio.ExpectedError, RuntimeError)
    for name, outcome in outcomes.items():
        if isinstance(outcome, BaseException) and not isinstance(outcome, allowed):
            raise AssertionError(f"{name}: {outcome!r}") from outcome
