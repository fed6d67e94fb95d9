"""The public surface: what is exported, the exception tree, time, quality of service."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import pickle
import re
from pathlib import Path

import pytest

import heliograph as helio
from heliograph import _errors


def test_what_is_exported_is_sorted_documented_and_shows_its_public_name() -> None:
    constants = [name for name in helio.__all__ if name.isupper()]
    assert set(helio.__all__) == {name for name in helio.__all__ if hasattr(helio, name)}
    assert constants == sorted(constants)
    for name in helio.__all__:
        item = getattr(helio, name)
        if inspect.isclass(item) or inspect.isfunction(item):
            assert item.__doc__, name
            assert item.__module__ == "heliograph", name


def test_the_drawn_tree_of_exceptions_is_the_real_one() -> None:
    classes = {
        name: item
        for name, item in vars(_errors).items()
        if inspect.isclass(item) and issubclass(item, helio.HelioError)
    }
    parents: list[str] = []
    drawn = {}
    for line in (_errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│ ├└─]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            parents[depth:] = [found[2]]
            drawn[found[2]] = parents[depth - 1] if depth else "Exception"
    real = {name: item.__mro__[1].__name__ for name, item in classes.items()}
    assert drawn == real


def test_codec_errors_survive_pickling() -> None:
    error = helio.EncodeError("message", "path", "expected", "found")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.expected, again.found) == (
        "message",
        "path",
        "expected",
        "found",
    )


def test_time_is_tai() -> None:
    time = helio.Time.parse("2017-07-14T02:40:00Z")
    assert time.unix_ns == 1_500_000_000_000_000_000
    assert time.tai_ns - time.unix_ns == 37_000_000_000
    assert time.tai_seconds == time.tai_ns / 1e9
    assert time.utc == dt.datetime(2017, 7, 14, 2, 40, tzinfo=dt.UTC)
    assert helio.Time.from_utc(time.utc) == time
    assert str(time) == "2017-07-14T02:40:00.000000000Z"
    assert helio.Time.parse(str(time)) == time
    later = helio.Time(time.tai_ns + 1_500_000_000)
    assert later - time == 1.5
    assert later > time >= time
    assert time + 1.5 == later
    assert later - 1.5 == time
    with pytest.raises(OverflowError):
        time + 1e10
    with pytest.raises(TypeError):
        time - "x"  # type: ignore[operator]
    assert len({time, later, helio.Time(time.tai_ns)}) == 2
    assert pickle.loads(pickle.dumps(time)) == time
    with pytest.raises(ValueError, match="yesterday"):
        helio.Time.parse("yesterday")
    with pytest.raises(ValueError, match="without a time zone"):
        helio.Time.from_utc(dt.datetime(2017, 7, 14))
    with pytest.raises(TypeError):
        assert time < 5  # type: ignore[operator]
    assert abs(helio.Time.now().utc - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_quality_of_service_is_a_value() -> None:
    for name in ("telemetry", "event", "command", "stream", "log", "state"):
        qos = getattr(helio, name.upper())
        assert qos == helio.Qos.profile(name)
        from heliograph import _heliograph

        assert json.loads(qos.to_json()) == json.loads(_heliograph.qos_profile(name))
    changed = helio.TELEMETRY.replace(
        history=helio.KeepLast(3), deadline=dt.timedelta(seconds=1.5), partitions=4
    )
    raw = json.loads(changed.to_json())
    assert raw["history"] == {"keep_last": 3}
    assert raw["deadline"] == {"secs": 1, "nanos": 500_000_000}
    with pytest.raises(helio.QosRefused, match="telemetry, event"):
        helio.Qos.profile("volatile")
    with pytest.raises(ValueError, match="negative"):
        helio.TELEMETRY.replace(deadline=dt.timedelta(seconds=-1)).to_json()


def test_start_positions_are_checked() -> None:
    assert helio.last(3) == helio.last(3)
    with pytest.raises(ValueError, match="1 to 255"):
        helio.last(0)
    with pytest.raises(ValueError, match="0 to 2\\*\\*63"):
        helio.from_offset(-1)
    with pytest.raises(ValueError, match="0 to 2\\*\\*63"):
        helio.from_offset(2**63)
    with pytest.raises(ValueError, match="partitions start at 0"):
        helio.from_offset(0, partition=-1)


def test_interfaces_may_be_yaml(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "examples" / "interfaces"
    interfaces = helio.load_interfaces(folder)
    assert interfaces.components == ["MTM1M3", "MTMount", "ESS", "Camera"]
    event = interfaces["Camera/event/endReadout"]
    assert (event.indexed, event.sal_name) == (True, "logevent_endReadout")
    for index in (None, 2):
        key = f'"name": "Camera", "index": {index or 0}, "topic": "logevent_endReadout"'
        assert event.kafka_key(index) == "{ " + key + " }"
    single = interfaces["MTMount/command/trackTarget"]
    assert single.kafka_key(3) == '{ "name": "MTMount", "topic": "command_trackTarget" }'
    assert interfaces["Camera/telemetry/temperatures"].kafka_key(1) == ""
    (tmp_path / "Wind.yaml").write_text("name: Wind\nevents:\n  gust: {filds: []}\n")
    with pytest.raises(helio.SchemaError, match=r"Wind.yaml:3: .*`filds`"):
        helio.load_interfaces(tmp_path)
    with pytest.raises(helio.SchemaError, match="name a folder of interfaces"):
        helio.load_interfaces(tmp_path / "nothing")
