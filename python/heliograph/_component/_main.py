"""The command line that every component has."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

from heliograph._bus import connect
from heliograph._component._codes import State
from heliograph._component._interface import find_interface
from heliograph._errors import ExpectedError, HelioError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph._component._component import Component

STATES = ("offline", "standby", "disabled", "enabled", "fault")

STOP_TIMEOUT_S = 60.0
"""How long a component may take to reach OFFLINE when it is asked to end."""


def parser(kind: type[Component], name: str, indexed: bool) -> argparse.ArgumentParser:
    """Return the parser of a component's command line."""
    made = argparse.ArgumentParser(prog=name, description=(kind.__doc__ or name).split("\n")[0])
    if indexed:
        made.add_argument("index", type=_index, help="the component's index, from 1")
    made.add_argument("--url", help="the bus; else HELIO_URL, else the user's own journal")
    made.add_argument(
        "--state",
        choices=[state for state in STATES if state != "fault"],
        help="go to this state at the start (standby, unless given)",
    )
    made.add_argument(
        "--override", default="", metavar="FILE", help="configuration that --state starts with"
    )
    made.add_argument("--config-dir", metavar="DIR", help="the folder of configurations")
    modes = list(kind.valid_simulation_modes)
    made.add_argument(
        "--simulate",
        type=int,
        nargs="?",
        const=next((mode for mode in modes if mode), 0),
        default=0 if 0 in modes else modes[0],
        choices=modes,
        metavar="MODE",
        help=f"simulation mode: {', '.join(map(str, modes))} (0 is the real hardware)",
    )
    made.add_argument(
        "--log-level",
        type=_level,
        default=logging.INFO,
        metavar="LEVEL",
        help="DEBUG, INFO, WARNING or a number",
    )
    made.add_argument("--authorization", metavar="FILE", help="the authorization file, watched")
    made.add_argument("--interfaces", metavar="DIR", help="interfaces; else HELIO_INTERFACES")
    made.add_argument("--version", action="version", version=f"{name} {kind.version or '?'}")
    return made


def _index(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not an index; indices begin with 1")
    return int(text)


def _level(text: str) -> int:
    if text.isdecimal() and int(text) < 2**31:
        return int(text)
    level = logging.getLevelNamesMapping().get(text.upper())
    if level is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a level: give DEBUG, INFO, or a number")
    return level


def run(kind: type[Component], arguments: Sequence[str] | None) -> None:
    """Run a component; an error is printed in one line, with the exit code 1."""
    try:
        asyncio.run(amain(kind, arguments))
    except HelioError as error:
        print(f"{kind.component or kind.__name__}: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


async def amain(kind: type[Component], arguments: Sequence[str] | None) -> None:
    """Run a component until it ends or receives SIGTERM or SIGINT."""
    name = kind.component or kind.__name__
    given = list(sys.argv[1:] if arguments is None else arguments)
    early = argparse.ArgumentParser(add_help=False)
    early.add_argument("--interfaces")
    folder = early.parse_known_args(given)[0].interfaces
    given_folder = folder if folder is not None else kind.interface
    interface = find_interface(given_folder, name, kind.evolution)
    made = parser(kind, name, interface.indexed)
    options = made.parse_args(given)
    if options.override and options.state not in ("disabled", "enabled"):
        made.error("--override is of the command start: give --state disabled or enabled, too")
    logging.basicConfig(level=options.log_level)
    async with connect(options.url) as bus:
        component = kind(
            bus,
            options.index if interface.indexed else 0,
            initial_state=State[options.state.upper()] if options.state else None,
            override=options.override,
            config_dir=options.config_dir,
            simulation_mode=options.simulate,
            authorization=options.authorization,
            interface=interface,
            logger=logging.getLogger(),
        )
        requested, forced = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            (forced if requested.is_set() else requested).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        await live(component, requested, forced)


async def live(component: Component, requested: asyncio.Event, forced: asyncio.Event) -> None:
    """Run a component until it ends or is asked to; a second request ends it at once."""
    try:
        starting = asyncio.ensure_future(component.start())
        if await _before(starting, requested):
            await starting
            component.log.info("%s runs on %s", component.name, component.bus.url)
            if not await _before(component.done_task, requested):
                component.log.info("%s was asked to end", component.name)
                leaving = asyncio.ensure_future(_leave(component))
                await _before(leaving, forced)
                await _cancelled(leaving)
        else:
            component.log.info("%s was asked to end during its start", component.name)
            await _cancelled(starting)
    finally:
        await component.close()
    if component.done_task.done():
        await component.done_task


async def _before(work: asyncio.Future[Any], event: asyncio.Event) -> bool:
    """Wait for the end of some work or for an event; return whether the work has ended."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return work.done()


async def _cancelled(work: asyncio.Future[Any]) -> None:
    """Cancel some work, and raise its exception if it had one."""
    work.cancel()
    await asyncio.wait([work])
    if not work.cancelled():
        work.result()


async def _leave(component: Component) -> None:
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await component.go_to(State.OFFLINE)
            await component.done_task
    except (ExpectedError, TimeoutError) as error:
        state = component.summary_state.name
        component.log.warning("%s ends in the state %s: %s", component.name, state, error)
