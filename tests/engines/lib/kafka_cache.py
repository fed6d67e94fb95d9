"""What every start of a broker needs and is always the same, kept in the cache.

`storage/bootstrap.checkpoint` is what Kafka's formatter writes into an empty data folder, besides
random names. `classes-KEY.jsa` is an archive of the classes that a broker loads (class-data sharing
of the JVM): with it, a broker starts in about half the time. The JVM checks that the archive fits,
and starts without it where it does not.
"""

import base64
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from lib.errors import FailureError
from lib.process import until

# Kafka's formatter.
FORMATTER = ["kafka.tools.StorageTool", "format", "-c", "server.properties"]
CHECKPOINT = "bootstrap.checkpoint"
STARTED = "Kafka Server started"
# A start without an archive on a machine that does other things.
TRAINING_SECONDS = 120.0


@dataclass(frozen=True)
class Cache:
    """The part of the cache that is made here; it is used under the cache's lock."""

    folder: Path
    # The JVM's program and options, without a class path.
    java: list[str]
    jars: list[Path]

    @property
    def classpath(self) -> list[str]:
        """The JVM's options for it."""
        return ["-cp", os.pathsep.join(str(jar) for jar in self.jars)]

    @property
    def checkpoint(self) -> Path:
        """A file of formatted storage."""
        return self.folder / "storage" / CHECKPOINT

    def command(self) -> list[str]:
        """The JVM with the archive, where there is one, and the class path."""
        archive = self._archive()
        is_usable = archive.exists() and archive.stat().st_size > 0
        options = [f"-XX:SharedArchiveFile={archive}"] if is_usable else []
        return [*self.java, *options, *self.classpath]

    def is_filled(self) -> bool:
        """Whether nothing is missing."""
        return self.checkpoint.exists() and self._archive().exists()

    def fill(self, node: Path) -> None:
        """Makes what is missing, by a broker in this folder, which has its properties already."""
        formatted = run_formatter(self.command(), node, random_id(), [])
        if formatted is not None:
            raise FailureError(formatted)
        self.checkpoint.parent.mkdir(exist_ok=True)
        _place(node / "data" / CHECKPOINT, self.checkpoint)
        for old in [*self.folder.glob("classes-*.jsa"), *self.folder.glob("*.draft")]:
            old.unlink()
        draft = self.folder / f"classes-{os.getpid()}.draft"
        self._train(node, draft)
        # An empty file: the archive cannot be made here, and is not tried again.
        draft.touch()
        draft.replace(self._archive())

    def _train(self, node: Path, draft: Path) -> None:
        """Runs a broker that writes the archive when it ends."""
        command = [*self.java, f"-XX:ArchiveClassesAtExit={draft}", *self.classpath]
        log = node / "log" / "broker.log"
        with (node / "log" / "console.log").open("wb") as console:
            broker = subprocess.Popen(
                [*command, "kafka.Kafka", "server.properties"],
                cwd=node,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        try:
            until(
                lambda: (
                    broker.poll() is not None
                    or (log.exists() and STARTED in log.read_text(errors="replace"))
                ),
                TRAINING_SECONDS,
                lambda: "the broker does not start",
            )
            broker.send_signal(signal.SIGTERM)
            broker.wait(TRAINING_SECONDS)
        except (FailureError, subprocess.TimeoutExpired):
            draft.unlink(missing_ok=True)
        finally:
            broker.kill()
            broker.wait()

    def _archive(self) -> Path:
        """It is of one JVM and of these very files."""
        key = hashlib.sha256()
        for file in [Path(self.java[0]).resolve(), *self.jars]:
            stat = file.stat()
            key.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        return self.folder / f"classes-{key.hexdigest()[:16]}.jsa"

    def copy_storage(self, node: Path, number: int, cluster: str) -> None:
        """Formats the data folder of a node, as Kafka's formatter does."""
        data = node / "data"
        data.mkdir()
        shutil.copyfile(self.checkpoint, data / CHECKPOINT)
        names = {"node.id": number, "directory.id": random_id(), "cluster.id": cluster}
        lines = (f"{name}={value}\n" for name, value in names.items())
        (data / "meta.properties").write_text("version=1\n" + "".join(lines))


def random_id() -> str:
    """A new name, as Kafka writes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def run_formatter(java: list[str], node: Path, cluster: str, options: list[str]) -> str | None:
    """Formats the data folder of a node; what went wrong, if anything did."""
    tool = [*FORMATTER, f"--cluster-id={cluster}", *options]
    done = subprocess.run(
        [*java, *tool],
        cwd=node,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return f"{shlex.join(tool)} failed:\n{done.stdout}" if done.returncode else None


def _place(file: Path, there: Path) -> None:
    """Copies a file, which takes its name when it is whole."""
    draft = there.with_suffix(".draft")
    shutil.copyfile(file, draft)
    draft.replace(there)
