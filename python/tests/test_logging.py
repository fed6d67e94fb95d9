"""``heliograph.logging``: Python's log records on the bus."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

import heliograph as helio
from heliograph import sync
from heliograph.logging import ALERT, NOTICE, Handler, records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEVELS = ["TRACE", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT"]


@pytest.fixture
def handler(url: str) -> Iterator[Handler]:
    """A handler on a bus of its own."""
    handler = Handler(url, producer="CONTROL/DV11")
    yield handler
    handler.close()


@pytest.fixture
def log(handler: Handler) -> Iterator[logging.Logger]:
    """A logger with nothing but that handler."""
    log = logging.Logger("CONTROL.DV11.Mount")
    log.addHandler(handler)
    yield log
    log.removeHandler(handler)


def read(url: str, producer: str | None = "CONTROL/DV11") -> list[dict[str, Any]]:
    """Everything that was logged, the lowest level first."""
    found = []
    with sync.connect(url) as bus:
        for level in LEVELS:
            topic = bus.topic(f"log/{level}")
            with topic.subscribe(start=helio.earliest()) as samples:
                for _ in range(samples.stats.lag):
                    sample = samples.next(timeout=60)
                    assert producer in (None, sample.producer)
                    found += records(sample)
    return found


def test_a_record_has_what_python_knows_of_it(
    url: str, handler: Handler, log: logging.Logger
) -> None:
    """Message, arguments with their types, place, thread, and what ``extra`` gives."""
    extra = {"audience": "Operator", "antenna": "DV11", "encoder": 8_388_607, "ratio": 0.5}
    log.warning("axis %s is %.1f degrees off", "azimuth", 0.25, extra=extra)
    handler.flush()
    [record] = read(url)
    assert record["message"] == "axis azimuth is 0.2 degrees off"
    assert record["template"] == "axis %s is %.1f degrees off"
    assert record["args"] == ["azimuth", 0.25]
    assert (record["level"], record["logger"]) == ("WARNING", "CONTROL/DV11/Mount")
    assert record["audiences"] == ["Operator"]
    assert record["antenna"] == "DV11"
    assert record["data"] == {"encoder": 8_388_607, "ratio": 0.5}
    assert record["file"] == __file__
    assert record["routine"] == "test_a_record_has_what_python_knows_of_it"
    assert (record["thread"], record["sequence"]) == ("MainThread", 1)
    assert handler.figures == (1, 1, 0, 0, None)


def test_levels_of_python_are_those_of_acs(url: str, handler: Handler, log: logging.Logger) -> None:
    """Each of Python's, and the names that Python has not."""
    for level in (1, logging.DEBUG, logging.INFO, NOTICE, logging.ERROR, logging.CRITICAL, ALERT):
        log.log(level, "at %d", level)
    handler.flush()
    found = [(record["level"], record["message"]) for record in read(url)]
    assert found == [
        ("TRACE", "at 1"),
        ("DEBUG", "at 10"),
        ("INFO", "at 20"),
        ("NOTICE", "at 25"),
        ("ERROR", "at 40"),
        ("CRITICAL", "at 50"),
        ("ALERT", "at 60"),
    ]


def test_an_exception_is_data_with_names_of_opentelemetry(
    url: str, handler: Handler, log: logging.Logger
) -> None:
    """Its class, its message and where it came from."""
    try:
        raise ValueError("no such axis")
    except ValueError:
        log.exception("slew failed")
    handler.flush()
    [record] = read(url)
    assert record["message"] == "slew failed"
    assert record["data"]["exception.type"] == "ValueError"
    assert record["data"]["exception.message"] == "no such axis"
    assert "Traceback" in record["data"]["exception.stacktrace"]


def test_what_is_logged_may_log(url: str, handler: Handler, log: logging.Logger) -> None:
    """A value whose text logs by itself."""

    class Talks:
        def __str__(self) -> str:
            log.info("asked")
            return "told"

    log.info("%s", Talks())
    handler.flush()
    assert sorted(record["message"] for record in read(url)) == ["asked", "asked", "told"]


def test_a_wrong_call_fails_for_nobody(
    handler: Handler, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """``logging`` says it on stderr, as it does for its own handlers."""
    assert logging.raiseExceptions
    log.info("%d", "no number")
    assert "Logging error" in capsys.readouterr().err
    assert handler.figures.offered == 0


def test_closing_publishes_what_was_logged(url: str) -> None:
    """However young it is."""
    handler = Handler(url, producer="CONTROL/DV11", batch_age=3600)
    log = logging.Logger("short")
    log.addHandler(handler)
    for n in range(100):
        log.info("%d", n)
    reader = sync.connect(url)
    handler.close()
    found = read(url)
    reader.close()
    assert [record["args"] for record in found] == [[n] for n in range(100)]
    with pytest.raises(helio.ClosedError):
        handler.flush()


def test_a_child_logs_on_by_itself(tmp_path: Path) -> None:
    """Under a name of its own: its parent's goes on, too."""
    url = f"journal:{tmp_path / 'journal'}"
    handler = Handler(url, producer="CONTROL/DV11")
    log = logging.Logger("forks")
    log.addHandler(handler)
    log.info("before")
    child = os.fork()
    if child == 0:
        log.info("in the child")
        handler.flush()
        figures = handler.figures
        handler.close()
        os._exit(0 if (figures.published, figures.shed) == (1, 0) else 1)
    assert os.waitpid(child, 0) == (child, 0)
    log.info("behind")
    handler.close()
    found = {(record["producer"], record["message"]) for record in read(url, producer=None)}
    assert found == {
        ("CONTROL/DV11", "before"),
        ("CONTROL/DV11", "behind"),
        (f"CONTROL/DV11-{child}", "in the child"),
    }


def test_a_bus_that_is_not_there_and_a_file_that_is_another_s_are_refused(tmp_path: Path) -> None:
    """By errors of the package's own tree."""
    with pytest.raises(helio.ConnectError):
        Handler("nothing://here")
    notes = tmp_path / "notes"
    notes.write_text("twenty characters and more")
    with pytest.raises(helio.StorageError, match="no spill file"):
        Handler(helio.testing.memory_url(), spill=notes)
    assert notes.read_text() == "twenty characters and more"


def test_a_sample_that_is_no_packet_is_an_error(url: str) -> None:
    """Of whoever reads another topic."""
    with sync.connect(url) as bus:
        notes = bus.topic("notes", bytes, qos=helio.EVENT)
        with notes.subscribe() as samples:
            notes.publish(b"{}")
            with pytest.raises(helio.DecodeError, match="HLOG"):
                records(samples.next(timeout=60))


def test_nothing_is_done_at_import() -> None:
    """Names of levels are Python's to give."""
    assert "heliograph.logging" in sys.modules
    assert logging.getLevelName(ALERT) == "Level 60"
