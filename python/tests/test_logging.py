"""``heliograph.logging``: Python's log records on the bus."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from processes import TIMEOUT_S, program

import heliograph as helio
from heliograph import sync
from heliograph.logging import ALERT, NOTICE, Handler, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
    """A logger with only that handler."""
    log = logging.Logger("CONTROL.DV11.Mount")
    log.addHandler(handler)
    yield log
    log.removeHandler(handler)


def read(url: str, producer: str | None = "CONTROL/DV11") -> list[dict[str, Any]]:
    """All logged records, the lowest level first."""
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
    """Message, arguments with their types, place, thread, and the values of ``extra``."""
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
    # The program is pytest, however it was started.
    assert record["process"].endswith(f"test:{os.getpid()}")
    assert handler.figures == (1, 1, 0, 0, None)


def test_levels_of_python_are_those_of_acs(url: str, handler: Handler, log: logging.Logger) -> None:
    """Each of Python's levels, and the names that Python lacks."""
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


class Raises:
    """An object without a text."""

    def __str__(self) -> str:
        raise ValueError("no text")


class Mute(Raises):
    """An object without a text or a representation."""

    def __repr__(self) -> str:
        raise ValueError("no representation")


def test_a_record_that_cannot_be_formatted_is_published(
    url: str, handler: Handler, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its template, the arguments' representation, and the reason."""
    log.info("%d", "no number")
    log.info("%s %s", "too few")
    log.info("none", "too many")
    log.info("%(no)s", {"one": 1})
    log.info("%s", Mute())
    log.info(Mute())
    log.info("a lone \ud800")
    log.info("%s", "another \udfff")
    log.info("of %s", Raises(), extra={"odd": Raises(), "place": "here"})
    log.info("to nobody", extra={"audience": 5, "stack": "none", "antenna": Mute()})
    handler.emit(logging.makeLogRecord({"msg": "bare", "levelno": "high", "created": None}))
    handler.emit(logging.makeLogRecord({"msg": None, "pathname": None, "lineno": None}))
    handler.flush()
    found = {record["sequence"]: record for record in read(url, producer=None)}
    assert [found[number]["message"] for number in range(1, 13)] == [
        "%d ('no number',)",
        "%s %s ('too few',)",
        "none ('too many',)",
        "%(no)s {'one': 1}",
        "%s <tuple>",
        "<Mute>",
        "a lone \ufffd\ufffd\ufffd",
        "another \ufffd\ufffd\ufffd",
        found[9]["message"],
        "to nobody",
        "bare",
        "None",
    ]
    assert found[9]["message"].startswith("of %s (<")
    assert found[9]["data"]["logging.error"] == "ValueError: no text"
    assert found[9]["data"]["place"] == "here"
    assert "Raises" in found[9]["data"]["odd"]
    assert found[1]["data"]["logging.error"].startswith("TypeError: %d format")
    assert (found[1]["template"], found[1]["args"]) == ("%d", ["no number"])
    assert found[10]["data"] == {"audience": 5, "stack": "none"}
    assert found[10]["antenna"] == "<Mute>"
    assert handler.figures == (12, 12, 0, 0, None)
    assert capsys.readouterr().err == ""


def test_each_name_of_extra_is_published(url: str, handler: Handler, log: logging.Logger) -> None:
    """Also the only one, and also beside attributes that other handlers have set."""
    console = logging.StreamHandler(io.StringIO())
    console.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    for count in range(4):
        extra = {f"name{n}": n for n in range(count)}
        log.info("alone", extra=extra)
        log.handlers.insert(0, console)
        log.info("behind another handler", extra=extra)
        log.removeHandler(console)
    # Python's own attributes may be fewer than usual.
    bare = logging.makeLogRecord({"msg": "bare", "levelno": logging.INFO, "kept": 2})
    del bare.relativeCreated
    log.handle(bare)
    handler.flush()
    found = [record.get("data", {}) for record in read(url, producer=None)]
    wanted = [{f"name{n}": n for n in range(count)} for count in range(4) for _ in range(2)]
    assert sorted(map(str, found)) == sorted(map(str, [*wanted, {"kept": 2}]))


def test_what_is_emitted_is_published_or_counted(url: str) -> None:
    """Also what the handler's own code cannot take."""
    handler = Handler(url, producer="CONTROL/DV11")
    log = logging.Logger("counts")
    log.addHandler(handler)
    log.info("one")
    handler.emit(logging.makeLogRecord({"msg": "two", "exc_info": "no tuple"}))
    raising, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        handler.emit(object())  # type: ignore[arg-type]
    finally:
        logging.raiseExceptions = raising
    handler.flush()
    assert handler.figures == (3, 2, 1, 0, None)
    handler.close()


def test_closing_publishes_what_was_logged(url: str) -> None:
    """Even a young batch."""
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
    # logging does this with all handlers at the end of a program; an error would end it there.
    logging.shutdown([weakref.ref(handler)])


def test_a_child_logs_on_by_itself(tmp_path: Path) -> None:
    """Under its own name: the parent's continues, too."""
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


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def dv11() -> Iterator[logging.Logger]:
    """A logger that Python knows by its name, with a child."""
    log = logging.getLogger("DV11")
    log.setLevel(logging.INFO)
    log.getChild("Mount")
    yield log
    log.handlers.clear()
    until(lambda: not log.filters)
    log.setLevel(logging.NOTSET)


def test_levels_at_run_time_hold_for_python_s_own_loggers(
    tmp_path: Path, dv11: logging.Logger
) -> None:
    """A console beside the handler receives the same records as before."""
    url = f"journal:{tmp_path / 'journal'}"
    handler, console = Handler(url, producer="CONTROL/DV11"), logging.StreamHandler(io.StringIO())
    dv11.addHandler(handler)
    dv11.addHandler(console)
    mount = dv11.getChild("Mount")

    def level(*arguments: str) -> None:
        command = [program(), "log", "level", *arguments, "--url", url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    mount.debug("before")
    level("set", "DV11/*", "DEBUG")
    until(lambda: mount.isEnabledFor(logging.DEBUG))
    later = dv11.getChild("Later")
    until(lambda: later.isEnabledFor(logging.DEBUG))
    for log in (dv11, mount, later):
        log.debug("meanwhile")
        log.info("always")
    mount.setLevel(logging.WARNING)
    until(lambda: mount.level == logging.DEBUG)
    mount.info("still")
    level("clear", "DV11/*")
    until(lambda: mount.level == logging.WARNING and later.level == logging.NOTSET)
    until(lambda: not mount.filters)
    for log in (dv11, mount, later):
        log.debug("behind")
    mount.setLevel(logging.NOTSET)
    handler.close()
    # Setting levels produces records, too.
    all_there = [(record["logger"], record["message"]) for record in read(url, producer=None)]
    found = [(logger, message) for logger, message in all_there if logger.startswith("DV11")]
    assert found == [
        ("DV11/Mount", "meanwhile"),
        ("DV11/Later", "meanwhile"),
        ("DV11", "always"),
        ("DV11/Mount", "always"),
        ("DV11/Later", "always"),
        ("DV11/Mount", "still"),
    ]
    assert console.stream.getvalue().split() == ["always"] * 3


def test_a_settings_file_goes_over_what_the_program_says(
    url: str, tmp_path: Path, dv11: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also above the handler's own level, and while it runs."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("loggers: [{logger: DV11, level: DEBUG}]\nbatch_age: 1ms\n")
    monkeypatch.setenv("HELIO_LOG_SETTINGS", str(settings))
    handler = Handler(url, producer="CONTROL/DV11", level=logging.ERROR)
    dv11.addHandler(handler)
    mount = dv11.getChild("Mount")
    until(lambda: dv11.isEnabledFor(logging.DEBUG))
    assert not mount.isEnabledFor(logging.DEBUG)
    dv11.debug("first")
    dv11.warning("second")
    mount.warning("not this")
    settings.write_text("level: CRITICAL\nloggers: [{logger: DV11/Mount, level: TRACE}]\n")
    until(lambda: mount.isEnabledFor(1) and dv11.level == logging.INFO)
    mount.log(1, "third")
    dv11.error("nor this")
    dv11.critical("fourth")
    handler.close()
    # The handler's own records, about settings for example, have its process's name.
    found = [record["message"] for record in read(url) if record["logger"].startswith("DV11")]
    assert sorted(found) == ["first", "fourth", "second", "third"]
    settings.write_text("levels: 1")
    with pytest.raises(ValueError, match=r"settings.yaml, line 1: .*levels"):
        Handler(url)


def test_what_the_program_sets_while_a_pattern_holds_is_what_remains(
    url: str, tmp_path: Path, dv11: logging.Logger
) -> None:
    """Also if it saves a pattern's level and restores it."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("loggers: [{logger: DV11, level: DEBUG}]\n")
    handler, console = Handler(url, settings=settings), logging.StreamHandler(io.StringIO())
    dv11.addHandler(handler)
    dv11.addHandler(console)
    until(lambda: dv11.isEnabledFor(logging.DEBUG))
    saved = dv11.level
    dv11.setLevel(logging.ERROR)
    until(lambda: dv11.isEnabledFor(logging.DEBUG))
    dv11.info("not this")
    dv11.setLevel(saved)
    until(lambda: dv11.filter(logging.makeLogRecord({"levelno": logging.INFO})) is not False)
    dv11.debug("nor this")
    dv11.info("one")
    child = os.fork()
    if child == 0:
        os._exit(0 if (dv11.level, dv11.filters) == (logging.INFO, []) else 1)
    assert os.waitpid(child, 0) == (child, 0)
    dv11.setLevel(logging.DEBUG)
    dv11.debug("two")
    handler.close()
    until(lambda: not dv11.filters)
    assert dv11.level == logging.DEBUG
    assert console.stream.getvalue().split() == ["one", "two"]


def test_a_bus_that_is_not_there_and_a_file_that_is_another_s_are_refused(tmp_path: Path) -> None:
    """By errors of the package's own tree."""
    with pytest.raises(helio.ConnectError):
        Handler("nothing://here")
    notes = tmp_path / "notes"
    notes.write_text("twenty characters and more")
    with pytest.raises(helio.StorageError, match="not a spill file"):
        Handler(helio.testing.memory_url(), spill=notes)
    assert notes.read_text() == "twenty characters and more"


def test_a_sample_that_is_no_packet_is_an_error(url: str) -> None:
    """For readers of another topic."""
    with sync.connect(url) as bus:
        notes = bus.topic("notes", bytes, qos=helio.EVENT)
        with notes.subscribe() as samples:
            notes.publish(b"{}")
            with pytest.raises(helio.DecodeError, match="HLOG"):
                records(samples.next(timeout=60))


def test_nothing_is_done_at_import() -> None:
    """Python defines the names of levels."""
    assert "heliograph.logging" in sys.modules
    assert logging.getLevelName(ALERT) == "Level 60"
