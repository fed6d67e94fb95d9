"""The base class of components."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from heliograph._component import _config
from heliograph._component._codes import State
from heliograph._component._data import encodable
from heliograph._component._engine import Engine
from heliograph._component._hooks import Hooks
from heliograph._component._interface import find_interface
from heliograph._component._logs import LogPublisher
from heliograph._component._topics import Identity, WriteTopic
from heliograph._errors import ClosedError, ExpectedError, HelioError
from heliograph._heliograph import __version__, state_path
from heliograph._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Literal, Self

    from heliograph._bus import Bus
    from heliograph._common import Evolution
    from heliograph._component._commands import CommandOptions
    from heliograph._component._data import Enums
    from heliograph._component._interface import TopicType

HEARTBEAT_INTERVAL_S = 1.0
"""The heartbeat interval."""


class Component(Hooks):
    """A component of an observatory: subclass it with a handler for each command.

    ::

        class Mount(heliograph.Component):
            component = "MTMount"

            async def do_moveToTarget(self, command):
                self.assert_enabled()
                await self.in_progress(command, timeout=60, text="slewing", progress=0.0)
                ...

        if __name__ == "__main__":
            Mount.run()

    ``do_<command>(command)`` runs a command and returns its result: None for "Done", a text, or a
    value that JSON can represent. :class:`ExpectedError` fails the command; any other exception
    fails it, too, and is logged. ``validate_<command>(command)`` checks a command that a caller
    wants to validate without running it. ``evt_<event>`` and ``tel_<telemetry>`` are the topics to
    write:
    :class:`heliograph.WriteTopic`. The hooks ``begin_…``, ``end_…`` and
    :meth:`handle_summary_state` run around changes of state.

    Use it as an asynchronous context manager, or call :meth:`start` and :meth:`close`. `done_task`
    is done when the component has ended. Keyword arguments: ``index`` of an indexed component,
    ``initial_state`` to go to, ``override`` and ``config_dir`` of the configuration,
    ``simulation_mode``, ``authorization`` (a file, watched), ``interface`` in place of the class's,
    ``logger`` whose records are published as logMessage (the component's own, ``log``, unless
    given).
    """

    component: ClassVar[str] = ""
    """The component's name in the interfaces; the class's name unless given."""

    interface: ClassVar[Any] = None
    """The folder of interfaces, or what ``load_interfaces`` returns; else ``HELIO_INTERFACES``."""

    version: ClassVar[str] = ""
    """The component's version, for softwareVersions."""

    valid_simulation_modes: ClassVar[Sequence[int]] = (0,)
    """The supported values of ``simulation_mode``; 0 is the real hardware."""

    evolution: ClassVar[Evolution | None] = None
    """The required compatibility with schemas of other releases on the same topics: backward,
    forward, full or none. None accepts all schemas that resolve. See :meth:`heliograph.Bus.topic`.
    """

    missing_fields: ClassVar[Literal["refuse", "default"] | None] = None
    """What becomes of a command's fields that the caller's interface does not have: ``refuse``
    answers such a command as failed, with the fields named; ``default`` reads zeros. None:
    ``HELIO_MISSING_FIELDS`` decides, else they are refused.
    """

    config_schema: ClassVar[Mapping[str, Any] | None] = None
    """The JSON schema of its configuration. With a schema or a folder the component has one."""

    config_folder: ClassVar[str | os.PathLike[str] | None] = None
    """The folder of its configuration, unless ``config_dir`` is given."""

    command_options: ClassVar[Mapping[str, CommandOptions]] = {}
    """Options by command, for commands whose handlers are not decorated."""

    extra_commands: ClassVar[Sequence[str]] = ()
    """Commands with handlers that the interface may lack."""

    def __init__(
        self,
        bus: Bus,
        index: int = 0,
        *,
        initial_state: State | None = None,
        override: str = "",
        config_dir: str | os.PathLike[str] | None = None,
        simulation_mode: int = 0,
        authorization: str | os.PathLike[str] | None = None,
        interface: Any = None,
        logger: logging.Logger | None = None,
    ) -> None:
        kind = type(self)
        name = kind.component or kind.__name__
        given = interface if interface is not None else kind.interface
        self._interface = find_interface(given, name, kind.evolution)
        if self._interface.indexed != (index > 0):
            remedy = "give an index of 1 or more" if self._interface.indexed else "it has no index"
            raise ValueError(f"{name} cannot have the index {index}: {remedy}")
        if simulation_mode not in kind.valid_simulation_modes:
            modes = ", ".join(map(str, kind.valid_simulation_modes))
            raise ExpectedError(f"{name} has no simulation mode {simulation_mode}; it has {modes}")
        identity = f"{name}:{index}" if self._interface.indexed else name
        self.bus = bus
        self.index = index
        self.log = logging.getLogger(identity)
        self._logger = logger or self.log
        if logger is None and self.log.level == logging.NOTSET:
            # INFO records are rare; they are published by default.
            self.log.setLevel(logging.INFO)
        self._simulation_mode = simulation_mode
        self._wanted = initial_state
        self._initial = State.OFFLINE if self._has_enter_control() else State.STANDBY
        self._override = override
        folder = config_dir if config_dir is not None else kind.config_folder
        self._config_dir = None if folder is None else Path(folder)
        self._authorization = None if authorization is None else Path(authorization)
        self._authorization_seen: Any = None
        self._configuration: _config.LoadedConfig | None = None
        self._loaded: _config.LoadedConfig | None = None
        self._who = Identity(identity, os.getpid(), index, f"{identity}")
        self._engine = Engine(self, bus, self._interface, self._who)
        publish = weakref.WeakMethod(self._publish_record)
        # A component that is never started must not be kept alive by the logger.
        self._records = LogPublisher(lambda fields: (publish() or _discard)(fields))
        self._records.setLevel(logging.NOTSET)
        self._logger.addHandler(self._records)
        weakref.finalize(self, self._logger.removeHandler, self._records).atexit = False
        self._started = False

    def _has_enter_control(self) -> bool:
        return self._interface.get("cmd_enterControl") is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._who.identity} {self.summary_state.name}>"

    def __getattr__(self, name: str) -> Any:
        if name[:4] in ("evt_", "tel_") and "_interface" in self.__dict__:
            topic = self._interface.get(name)
            if topic is not None:
                return self._writer(topic)
            raise AttributeError(f"{self._interface!r} has no {name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _writer(self, topic: TopicType) -> WriteTopic:
        """Return the only writer of a topic; it becomes an attribute."""
        made = self.__dict__.get(topic.attribute)
        if made is None:
            made = WriteTopic(self.bus, self._who, topic, self._engine.refusal)
            self.__dict__[topic.attribute] = made
        return made

    # Properties.

    @property
    def name(self) -> str:
        """The component's name, with its index if it has one: ``ESS:3``."""
        return self._who.identity

    @property
    def summary_state(self) -> State:
        """The current summary state."""
        return self._engine.state

    @property
    def simulation_mode(self) -> int:
        """The simulation mode; 0 is the real hardware."""
        return self._simulation_mode

    @property
    def enums(self) -> Enums:
        """The enumerations of its interface: ``self.enums.AxisState.Moving``."""
        return self._interface.enums

    @property
    def done_task(self) -> asyncio.Future[None]:
        """Done when the component has ended; raises the reason of an unrequested end."""
        return self._engine.done

    @property
    def configuration(self) -> _config.LoadedConfig | None:
        """The configuration that was applied last: values, files, version."""
        return self._configuration

    @property
    def locked_by(self) -> str | None:
        """The caller that holds the lock of the component, if any."""
        locked = self._engine.controller.locked
        return None if locked is None else locked[0]

    def stream_stats(self, command: str) -> dict[str, int]:
        """Return the statistics of a stream's commands.

        ``received``, ``late``, ``lost`` (never received), ``missing`` (late or lost in a row, now)
        and ``most_missing`` (in a row, ever).
        """
        counts = self._engine.controller.stream(command)
        if counts is None:
            raise ValueError(f"{self.name} has no stream of commands {command!r}")
        names = ("received", "late", "lost", "missing", "most_missing")
        return dict(zip(names, counts, strict=True))

    # Calls of handlers.

    def assert_enabled(self, action: str = "") -> None:
        """Raise :class:`ExpectedError` unless the state is ENABLED."""
        if self.summary_state is not State.ENABLED:
            what = f"{action} is " if action else ""
            state = self.summary_state.name
            fault = self._engine.controller.fault_report
            why = f" (error {fault[0]}: {fault[1]})" if fault else ""
            raise ExpectedError(f"{what}not allowed in state {state}{why}: it must be ENABLED")

    async def in_progress(
        self,
        command: Any,
        timeout: float,
        text: str = "",
        *,
        progress: float | None = None,
        result: Any = None,
    ) -> None:
        """Report to the caller that a command runs, and for how many more seconds at most.

        ``progress`` is the completed fraction, 0 to 1. ``result`` is an early result, a value that
        JSON can represent.
        """
        self._engine.in_progress(command, timeout, text, progress, result)
        # A handler that reports progress in a busy loop must not block the component.
        await asyncio.sleep(0)

    async def fault(self, code: int, report: str, traceback: str = "") -> None:
        """Go to FAULT after an error that needs an operator. Pending state commands fail."""
        engine = self._engine
        try:
            code, report, traceback = _code(code), encodable(report), encodable(traceback)
            engine.put("errorCode", errorCode=code, errorReport=report, traceback=traceback)
        except Exception:
            # An invalid report must not prevent the fault.
            self.log.exception("a fault's report cannot be published")
            code, report = _CODE_MAX, "its report cannot be published"
        self.log.error("fault %d: %s", code, report)
        await engine.fault(code, report)

    async def do_setLogLevel(self, command: Any) -> None:  # noqa: N802
        """Set the level of the component's log, or of the logger that `subsystem` names."""
        logger = logging.getLogger(command.subsystem) if command.subsystem else self._logger
        logger.setLevel(command.level)
        self._publish_log_level(command.subsystem)

    def _publish_log_level(self, subsystem: str = "") -> None:
        logger = logging.getLogger(subsystem) if subsystem else self._logger
        level = logger.getEffectiveLevel()
        self._engine.put("logLevel", force=True, level=level, subsystem=subsystem)

    # Start and end.

    async def start(self) -> None:
        """Take the lease, accept commands, and go to the initial state.

        Raises :class:`LeaseError` if another instance runs. Raises :class:`ExpectedError` if a
        change of state fails; the component then runs in the state before it.
        """
        if self._started:
            raise RuntimeError(f"{self!r} was started before; create another one")
        self._started = True
        engine = self._engine
        try:
            if self._authorization is not None:
                # Taken before reading, so that a change during the read is detected.
                self._authorization_seen = await in_thread(self._authorization_stat)
                text = await in_thread(self._authorization.read_text)
                engine.controller.set_policy(text)
            await engine.open()
        except (OSError, ValueError, HelioError) as error:
            self._release_topics()
            if isinstance(error, HelioError):
                raise
            raise HelioError(f"the authorization {self._authorization}: {error}") from error
        except BaseException:
            self._release_topics()
            raise
        engine.begin()
        await self._publish_initial_events()
        self._records.start()
        engine.spawn(self._publish_heartbeats())
        engine.spawn(self._poll_files())
        await self.handle_summary_state()
        if self._wanted is not None:
            await self.go_to(self._wanted)

    async def go_to(self, state: State) -> None:
        """Go to a state by the fewest commands, as if they were received.

        Raises :class:`ExpectedError` if one fails.
        """
        commands = state_path(int(self.summary_state), int(state))
        if commands is None:
            raise ExpectedError(f"no command leads from {self.summary_state.name} to {state.name}")
        for command in commands:
            fields = {"configurationOverride": self._override} if command == "start" else {}
            await self._engine.ask(command, **fields)

    async def close(self, error: BaseException | None = None) -> None:
        """End at once, in any state; use :meth:`go_to` to end through OFFLINE."""
        if not self._started or self._engine.lease is None:
            self._release_topics()
            return
        await asyncio.shield(self._engine.stop(error))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _release_topics(self) -> None:
        """Publish pending log records, and remove the handler from the logger."""
        self._records.stop()
        self._logger.removeHandler(self._records)

    async def _publish_initial_events(self) -> None:
        engine = self._engine
        engine.put(
            "softwareVersions",
            force=True,
            salVersion=f"heliograph {__version__}",
            xmlVersion=self._interface.raw.release(),
            cscVersion=self.version,
            subsystemVersions=await in_thread(_versions),
        )
        engine.put("simulationMode", force=True, mode=self._simulation_mode)
        engine.put("errorCode", errorCode=0, errorReport="", traceback="")
        self._publish_log_level()
        await self._publish_available()

    async def _publish_heartbeats(self) -> None:
        loop = asyncio.get_running_loop()
        due, wrong = loop.time(), ""
        while True:
            try:
                self._engine.admits()
                self._engine.beat()
                wrong = ""
            except ClosedError as error:
                self._engine.stop(error)
                return
            except Exception as error:
                wrong = self._log_once(error, wrong, "the heartbeat failed")
            # Relative to the due time, so that a busy loop does not reduce the rate.
            due = max(due + HEARTBEAT_INTERVAL_S, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _poll_files(self) -> None:
        """Poll the files of authorization and configuration for changes."""
        wrong = ["", ""]
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            for place, look in enumerate((self.reload_authorization, self._poll_configurations)):
                try:
                    await look()
                    wrong[place] = ""
                except Exception as error:
                    wrong[place] = self._log_once(error, wrong[place], "looking for files failed")

    def _log_once(self, error: Exception, before: str, what: str) -> str:
        """Log, once, an error that must not end a permanent task; return it."""
        if (now := repr(error)) != before:
            self.log.error("%s; it is retried", what, exc_info=error)
        return now

    async def _poll_configurations(self) -> None:
        if self.summary_state is State.STANDBY:
            await self._publish_available()

    def _authorization_stat(self) -> Any:
        assert self._authorization is not None, "callers look"
        found = self._authorization.stat()
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    async def reload_authorization(self) -> bool:
        """Apply the authorization file if it has changed; return whether it has.

        An invalid file is logged once, and the last valid one stays in force.
        """
        if self._authorization is None:
            return False
        try:
            seen = await in_thread(self._authorization_stat)
            if seen == self._authorization_seen:
                return False
            self._authorization_seen = seen
            text = await in_thread(self._authorization.read_text)
            self._engine.controller.set_policy(text)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and self._authorization_seen == str(error):
                return False
            if isinstance(error, OSError):
                self._authorization_seen = str(error)
            self.log.error(
                "the authorization %s cannot be used, the last valid one stays in force: %s",
                self._authorization,
                error,
            )
            return False
        self.log.info("the authorization %s is in force", self._authorization)
        return True

    # Changes of state; the engine calls these.

    async def _begin_state(self, command: str, data: Any) -> None:
        self._loaded = await self._load_configuration(data) if command == "start" else None
        await getattr(self, f"begin_{command}")(data)

    async def _end_state(self, command: str, old: State, data: Any) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            self._publish_applied(loaded)
        await self.handle_summary_state()
        await getattr(self, f"end_{command}")(data)
        if command == "standby" and old is State.FAULT:
            self._engine.put("errorCode", errorCode=0, errorReport="", traceback="")

    @property
    def _configurable(self) -> bool:
        return self._config_dir is not None or type(self).config_schema is not None

    async def _load_configuration(self, data: Any) -> _config.LoadedConfig | None:
        override = getattr(data, "configurationOverride", "")
        if not self._configurable:
            if override:
                raise ExpectedError(f"{self.name} has no configuration; {override!r} is refused")
            return None
        if self._config_dir is None:
            raise ExpectedError(f"{self.name} has no folder of configurations; give config_dir")
        schema = type(self).config_schema
        loaded = await in_thread(_config.load, self._config_dir, override, schema)
        await self.configure(loaded.namespace())
        return loaded

    def _publish_applied(self, loaded: _config.LoadedConfig) -> None:
        assert self._config_dir is not None, "it was loaded from there"
        self._configuration = loaded
        self._engine.put(
            "configurationApplied",
            force=True,
            configurations=",".join(loaded.files),
            version=loaded.version,
            url=self._config_dir.absolute().as_uri(),
            schemaVersion=_schema_version(type(self).config_schema),
        )

    async def _publish_available(self) -> None:
        if self._config_dir is None:
            return
        found = await in_thread(_config.overrides, self._config_dir)
        overrides = ",".join(map(encodable, found))
        self._engine.put(
            "configurationsAvailable",
            overrides=overrides,
            version=_config.version(overrides),
            url=self._config_dir.absolute().as_uri(),
            schemaVersion=_schema_version(type(self).config_schema),
        )

    def _publish_record(self, fields: dict[str, Any]) -> None:
        self._engine.put("logMessage", force=True, **fields)

    # The command line.

    @classmethod
    def run(cls, arguments: Sequence[str] | None = None) -> None:
        """Run the component from the command line until it ends; ``--help`` says how."""
        from heliograph._component import _main

        _main.run(cls, arguments)

    @classmethod
    async def amain(cls, arguments: Sequence[str] | None = None) -> None:
        """The same as :meth:`run`, in a running event loop."""
        from heliograph._component import _main

        await _main.amain(cls, arguments)


_CODE_MAX = 2**31 - 1
"""The largest error code that SAL's field holds; it also replaces a code that is not a number."""


def _code(code: Any) -> int:
    """Return an error code within the range of SAL's field."""
    try:
        return max(-_CODE_MAX - 1, min(int(code), _CODE_MAX))
    except (TypeError, ValueError, OverflowError):
        return _CODE_MAX


def _discard(_fields: dict[str, Any]) -> None:
    """Publish nothing: the component no longer exists."""


def _schema_version(schema: Mapping[str, Any] | None) -> str:
    """Return the last word of a schema's title, as SAL has it: ``Mount v3``."""
    words = str((schema or {}).get("title", "")).split()
    return words[-1] if words else ""


def _versions() -> str:
    import importlib.metadata
    import socket

    try:
        numpy = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        numpy = "?"
    return f"heliograph={__version__},numpy={numpy},host={socket.gethostname()}"
