"""Queues of samples that cannot be published at once: drops, retries and order."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from probe import TIMEOUT_S, asynchronous

import heliograph as helio
from heliograph._component import _send
from heliograph._component._send import AckOrder, Sender, SendPolicy, TopicQueue

KEPT, PASSING = SendPolicy(keep=True), SendPolicy()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_send, "RETRY_INTERVAL_S", 0.001)


class Scripted:
    """A raw topic that blocks offers, fails as configured, and then accepts everything."""

    def __init__(self, *failures: helio.HelioError | None) -> None:
        self.name = "Probe/topic"
        self.free = False
        self.failures = list(failures)
        self.said: list[Any] = []
        self.reopened = 0

    def offer(self, value: Any) -> Any:
        return self.publish(value) if self.free else None

    def publish(self, value: Any) -> Any:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.said.append(value)
        return "receipt"

    def reopen(self) -> None:
        self.reopened += 1


class Receipts:
    """Receipts that the test completes or fails."""

    def __init__(self) -> None:
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def poll(self) -> None:
        raise AssertionError("they are waited for")


class Late(Scripted):
    """A raw topic that accepts everything at once; its first receipt comes later."""

    def __init__(self) -> None:
        super().__init__()
        self.free = True
        self.receipts = Receipts()

    def publish(self, value: Any) -> Any:
        super().publish(value)
        return self.receipts if len(self.said) == 1 else "receipt"


async def finish(receipts: Any) -> None:
    await receipts.come


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def send(sender: Sender, topic: Any, value: int, policy: SendPolicy) -> None:
    sender.send(topic, value, policy=policy)


@asynchronous
async def test_what_passes_goes_at_the_first_failure() -> None:
    ended: list[TopicQueue] = []
    sender = Sender(finish, ended.append)
    topic = Scripted(helio.StorageError("no space left"))
    for value, policy in ((1, PASSING), (2, KEPT), (3, PASSING), (4, KEPT)):
        send(sender, topic, value, policy)
    await sender.drained()
    assert topic.said == [2, 4]
    assert (ended[-1].discarded, ended[-1].shed) == (2, 0)


@asynchronous
async def test_what_somebody_waits_for_is_tried_and_told_one_by_one() -> None:
    sender = Sender(finish)
    topic = Scripted(helio.StorageError("no space left"))
    told: list[str] = []
    for value in (1, 2):
        send(sender, topic, value, SendPolicy(failed=lambda error: told.append(str(error))))
    await sender.drained()
    assert (topic.said, told) == ([2], ["no space left"])


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        # It may be stored: one repeat is better than a loss, and enough.
        ([helio.PublishError("nobody knows")], [1, 2]),
        ([helio.PublishError("nobody knows")] * 2, [2]),
        ([helio.Fenced("taken")], [1, 2]),
        ([helio.Fenced("taken")] * 3, [1, 2]),
        ([helio.QosRefused("not as it is")] * 3, [1, 2]),
        ([helio.EncodeError("no number")], [2]),
        ([helio.ClosedError("the bus is closed")], [2]),
    ],
)
@pytest.mark.parametrize("free", [True, False])
@asynchronous
async def test_all_but_what_is_lost_is_tried_again(
    failures: list[helio.HelioError], said: list[int], free: bool
) -> None:
    sender, topic = Sender(finish), Scripted(*failures)
    topic.free = free
    policy = SendPolicy(keep=True, refusal=lambda: None)
    send(sender, topic, 1, policy)
    send(sender, topic, 2, policy)
    await sender.drained()
    assert topic.said == said
    fenced = sum(isinstance(failure, helio.Fenced) for failure in failures)
    # The offer did not wait for that.
    assert bool(topic.reopened) == (fenced > free)


@asynchronous
async def test_a_full_queue_does_not_drop_a_sample_that_may_have_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_send, "QUEUE_MAX", 2)
    ended: list[TopicQueue] = []
    sender, topic = Sender(finish, ended.append), Scripted(helio.PublishError("no receipt"))
    topic.free = True
    for value in (1, 2, 3):
        send(sender, topic, value, KEPT)
    await sender.drained()
    assert (topic.said, ended[-1].shed) == ([1, 3], 1)


@asynchronous
async def test_a_failure_after_a_recovery_is_reported_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    full = helio.StorageError("no space left")
    sender, topic = Sender(finish), Scripted(full, full, None, full)
    topic.free = True
    for value in (1, 2, 3, 4):
        send(sender, topic, value, PASSING)
    assert topic.said == [3]
    assert caplog.text.count("a sample for Probe/topic was not published: no space left") == 2


@pytest.mark.parametrize("free", [True, False])
@asynchronous
async def test_who_was_replaced_takes_no_topic_back(free: bool) -> None:
    sender, topic = Sender(finish), Scripted(helio.Fenced("taken"))
    topic.free = free
    replaced = helio.NotLive("another instance runs")
    policy = SendPolicy(keep=True, ack_order=AckOrder.AUDIT, refusal=lambda: replaced)
    send(sender, topic, 1, policy)
    send(sender, topic, 2, policy)
    await sender.drained()
    # Its commands until then are recorded, if the topic is shared.
    assert (topic.said, topic.reopened) == ([2], 0)


@asynchronous
async def test_patience_begins_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_send, "ORDER_TIMEOUT_S", 0.01)
    lines: list[TopicQueue] = []
    sender = Sender(finish, lines.append)
    go_on = threading.Event()

    class Held(Scripted):
        def publish(self, value: Any) -> Any:
            assert go_on.wait(TIMEOUT_S)
            return super().publish(value)

    before, acks = Held(), Scripted()
    before.name, acks.free = "Probe/audit", True
    send(sender, before, 1, SendPolicy(keep=True, ack_order=AckOrder.AUDIT))
    # No acknowledgement has waited yet; one that comes after the timeout does not wait.
    await lines[0].settled
    send(sender, acks, 2, SendPolicy(keep=True, ack_order=AckOrder.ACKS))
    assert (before.said, acks.said) == ([], [2])
    go_on.set()
    await sender.drained()
    assert before.said == [1]


@asynchronous
async def test_nothing_is_done_before_its_receipt() -> None:
    sender, topic = Sender(finish), Late()
    send(sender, topic, 1, KEPT)
    drained = asyncio.ensure_future(sender.drained())
    await settle()
    assert topic.said == [1]
    assert sender.is_queued(topic)  # type: ignore[arg-type]
    assert not drained.done()
    topic.receipts.come.set_result(None)
    await asyncio.wait_for(drained, TIMEOUT_S)
    # Samples without `failed` do not wait.
    send(sender, topic, 2, PASSING)
    assert not sender.is_queued(topic)  # type: ignore[arg-type]


@asynchronous
async def test_what_has_no_receipt_in_the_end_is_tried_again() -> None:
    sender, topic = Sender(finish), Late()
    send(sender, topic, 1, KEPT)
    await settle()
    topic.receipts.come.set_exception(helio.PublishError("nobody took it in time"))
    await asyncio.wait_for(sender.drained(), TIMEOUT_S)
    assert topic.said == [1, 1]


@asynchronous
async def test_an_acknowledgement_comes_after_the_receipt_of_the_audit() -> None:
    sender, audit, acks = Sender(finish), Late(), Scripted()
    audit.name, acks.free = "Probe/audit", True
    send(sender, audit, 1, SendPolicy(keep=True, ack_order=AckOrder.AUDIT))
    send(sender, acks, 1, SendPolicy(keep=True, ack_order=AckOrder.ACKS))
    await settle()
    assert acks.said == []
    audit.receipts.come.set_result(None)
    await asyncio.wait_for(sender.drained(), TIMEOUT_S)
    assert acks.said == [1]
