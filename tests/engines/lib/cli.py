"""The commands, which are the same for each kind of engine.

Exit codes: 0 done, 1 failed, 2 not understood, 3 skipped, as this machine cannot run the engine,
4 refused, as it is there already. Where HELIO_ENGINES_REQUIRED is set nothing is skipped: it fails.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lib.engine import Engine
from lib.errors import CALLER, FailureError, RefusedError, SkippedError, advice
from lib.kind import Kind, Node
from lib.shared import check_unshared, share, stop_after_owners

FAILED, SKIPPED, REFUSED = 1, 3, 4
# Where tests must not be skipped, as in CI.
REQUIRED = "HELIO_ENGINES_REQUIRED"


Command = Callable[[Kind, argparse.Namespace], None]


def main(kind: Kind, more: Mapping[str, Command] | None = None) -> int:
    """Runs the command line, which may have more commands of this kind; the exit code."""
    options = _parser(kind, more or {}).parse_args()
    # So that a start that is ended from outside cleans up, as one that is interrupted does.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        options.run(kind, options)
    except SkippedError as error:
        if os.environ.get(REQUIRED):
            print(f"{kind.lock.name} must run here, by {REQUIRED}: {error}", file=sys.stderr)
            return FAILED
        print(f"{CALLER or 'skipped'}: {error}", file=sys.stderr)
        return SKIPPED
    except RefusedError as error:
        print(f"{CALLER or kind.lock.name}: {error}", file=sys.stderr)
        return REFUSED
    except (FailureError, OSError) as error:
        print(f"{CALLER or kind.lock.name}: {error}", file=sys.stderr)
        return FAILED
    return 0


def _parser(kind: Kind, more: Mapping[str, Command]) -> argparse.ArgumentParser:
    name = kind.lock.name
    parser = argparse.ArgumentParser(
        prog=name,
        description=f"Runs {name} {kind.lock.version()} on 127.0.0.1, for tests and benchmarks.",
        epilog="Exit codes: 0 done, 1 failed, 2 not understood, 3 skipped (this machine lacks the "
        "Java or Go for it), 4 there is one already.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--dir", type=Path, help="the engine's folder (default: the only engine's)")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON, a line an engine")

    start = commands.add_parser("start", parents=[as_json], help="start an engine, and wait for it")
    start.set_defaults(run=_start)
    start.add_argument("--dir", type=Path, help="an empty folder (default: a new temporary one)")
    start.add_argument("--owner", type=int, metavar="PID", help="stop when this process has gone")
    start.add_argument(
        "--shared",
        action="store_true",
        help="the one engine of all programs that ask so; it stops after its last --owner",
    )
    kind.options(start)
    start.set_defaults(usual=start.parse_args([]))
    stop = commands.add_parser("stop", parents=[where], help="end an engine, remove its folder")
    stop.set_defaults(run=_stop)
    stop.add_argument("--all", action="store_true", help="all engines in the temporary folder")
    stop.add_argument("--keep", action="store_true", help="keep the folder, for `restart`")
    status = commands.add_parser("status", parents=[where, as_json], help="say what runs")
    status.set_defaults(run=_status)
    restart = commands.add_parser("restart", parents=[where, as_json], help="start nodes again")
    restart.set_defaults(run=_restart)
    restart.add_argument("nodes", type=int, nargs="*", metavar="NODE", help="(default: all)")

    for command, sent, does in (
        ("kill", signal.SIGKILL, "end a node at once, or send it a signal"),
        ("freeze", signal.SIGSTOP, "stop a node's time"),
        ("thaw", signal.SIGCONT, "let a frozen node go on"),
    ):
        sub = commands.add_parser(command, parents=[where], help=does)
        sub.set_defaults(run=_signal, signal=sent)
        sub.add_argument("node", type=int, metavar="NODE")
        if command == "kill":
            sub.add_argument("--signal", type=_signal_named, metavar="SIGNAL", help="9, TERM, …")
    update = commands.add_parser("update", help="write the file with the sums again")
    update.set_defaults(run=_update)
    for name, run in more.items():
        commands.add_parser(name, help=run.__doc__).set_defaults(run=run)
    watch = commands.add_parser("watch", parents=[where], description="What --owner runs.")
    watch.set_defaults(run=_watch)
    return parser


def _check_shared(options: argparse.Namespace) -> None:
    """A shared engine is the same for all."""
    for name, usual in vars(options.usual).items():
        if name not in {"json", "owner", "shared", "run"} and getattr(options, name) != usual:
            raise FailureError(f"--shared and --{name}: a shared engine is the same for all")


def _start(kind: Kind, options: argparse.Namespace) -> None:
    if options.shared:
        _check_shared(options)
    engine = share(kind, options) if options.shared else Engine.start(kind, options)
    _print(engine, options)
    if not options.json and not options.shared:
        print(f"{advice('stop', engine.folder)} ends it")


def _stop(kind: Kind, options: argparse.Namespace) -> None:
    engines = Engine.find_all(kind) if options.all else [_to_stop(kind, options)]
    for engine in engines:
        if engine.file.exists():
            check_unshared(engine)
        if options.keep:
            engine.end([node.node for node in engine.record().plan.nodes])
            continue
        with engine.alone():
            engine.stop()


def _to_stop(kind: Kind, options: argparse.Namespace) -> Engine:
    """An engine, or what a start that was killed has left of one."""
    if options.dir is not None and not options.keep:
        engine = Engine(kind, options.dir.resolve())
        if engine.is_begun():
            return engine
    return Engine.find(kind, options.dir)


def _status(kind: Kind, options: argparse.Namespace) -> None:
    engines = [Engine.find(kind, options.dir)] if options.dir else Engine.find_all(kind)
    for engine in engines:
        _print(engine, options)
    if not engines and not options.json:
        print("no engine runs here")


def _restart(kind: Kind, options: argparse.Namespace) -> None:
    engine = Engine.find(kind, options.dir)
    check_unshared(engine)
    engine.restart(options.nodes)
    _print(engine, options)


def _signal(kind: Kind, options: argparse.Namespace) -> None:
    engine = Engine.find(kind, options.dir)
    check_unshared(engine)
    engine.signal(options.node, options.signal)


def _update(kind: Kind, _options: argparse.Namespace) -> None:
    print(f"{kind.lock.file}: {kind.lock.update()} files")


def _watch(kind: Kind, options: argparse.Namespace) -> None:
    """Stops an engine when its owners have gone; `stop` ends this process too."""
    stop_after_owners(Engine(kind, options.dir))


def _print(engine: Engine, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(engine.described()))
        return
    plan = engine.record().plan
    print(f"{plan.url}  in {engine.folder}")
    for node in plan.nodes:
        print(f"  {_line(node)}")


def _line(node: Node) -> str:
    process = f"process {node.process.pid}" if node.process else "no process"
    return f"node {node.node}: port {node.port}, {process}, {node.state()}"


def _signal_named(text: str) -> signal.Signals:
    """A signal by number or name."""
    try:
        return signal.Signals(int(text))
    except ValueError:
        pass
    try:
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]
    except KeyError:
        raise argparse.ArgumentTypeError(f"there is no signal {text}") from None
