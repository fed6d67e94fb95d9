"""Artifacts from a Maven repository, held to the SHA-256 sums of a lock file, and their cache.

A lock file has the format of `sha256sum`, with paths from the repository's root. Only `update`
trusts what the repository says; everything else trusts the lock file.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from xml.etree import ElementTree

from lib.errors import FailureError
from lib.files import cache_folder

HERE = Path(__file__).parent
REPOSITORY = "https://repo1.maven.org/maven2"
URL_VARIABLE = "HELIO_MAVEN_URL"
# The goal is pinned as the artifacts are: its options have changed between versions.
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SUFFIXES = (".jar", ".tar.gz")
TIMEOUT_SECONDS = 60.0
ATTEMPTS = 3
PARALLEL = 8


class UnreachableError(FailureError):
    """The repository did not give a file."""


@dataclass(frozen=True)
class Artifact:
    """A file of the repository."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]

    def place(self, file: Path, folder: Path, source: str) -> None:
        """Moves a file into the cache, unless it has other bytes than those of the lock file.

        A file has its name there only when it is whole and checked: a name is as good as a check.
        """
        found = sum_of(file)
        if found != self.sha256:
            raise FailureError(
                f"{source} has SHA-256 {found}, the lock file says {self.sha256}: it is damaged, "
                "or another file than the one that was locked"
            )
        file.replace(folder / self.name)


class Lock:
    """An engine's artifacts: NAME.lock, and NAME.pom.xml that `update` resolves it from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.file = HERE / f"{name}.lock"
        self.pom = HERE / f"{name}.pom.xml"

    def version(self) -> str:
        """The engine's version, which the pom has as its own."""
        found = ElementTree.parse(self.pom).findtext("{*}version")
        if found is None:
            raise FailureError(f"{self.pom} has no <version>")
        return found

    def artifacts(self) -> list[Artifact]:
        """All files."""
        lines = (line.split() for line in self.file.read_text().splitlines())
        return [Artifact(path, sha256) for sha256, path in lines]

    @contextmanager
    def cache(self) -> Iterator[Path]:
        """The folder of this engine's version in the user's cache, which nobody else fills now."""
        with cache_folder(f"{self.name}-{self.version()}") as folder:
            yield folder

    def fetch(self, folder: Path) -> list[Path]:
        """The files in a folder; what is not there yet is downloaded first."""
        artifacts = self.artifacts()
        missing = [artifact for artifact in artifacts if not (folder / artifact.name).exists()]
        if missing:
            self._get(missing, folder)
        return [folder / artifact.name for artifact in artifacts]

    def _get(self, missing: list[Artifact], folder: Path) -> None:
        base = os.environ.get(URL_VARIABLE)
        try:
            download(missing, (base or REPOSITORY).rstrip("/"), folder)
        except UnreachableError as error:
            # Maven's own settings may name a mirror, a proxy or a password.
            if base or shutil.which("mvn") is None:
                raise
            tell(f"{error}; trying mvn, with its settings\n")
            with tempfile.TemporaryDirectory(dir=folder) as name:
                resolve(self.pom, Path(name))
                for artifact in missing:
                    artifact.place(Path(name) / artifact.path, folder, f"mvn's {artifact.path}")

    def update(self) -> int:
        """Makes the lock file anew with mvn; the number of artifacts."""
        with tempfile.TemporaryDirectory() as name:
            resolve(self.pom, Path(name))
            files = sorted(file for file in Path(name).rglob("*") if file.name.endswith(SUFFIXES))
            lines = [f"{sum_of(file)}  {file.relative_to(name).as_posix()}\n" for file in files]
        self.file.write_text("".join(lines))
        return len(lines)


def download(artifacts: list[Artifact], base: str, folder: Path) -> None:
    """Downloads files into a folder, several at a time, with progress on a terminal."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as parts,
        ThreadPoolExecutor(PARALLEL) as pool,
    ):
        jobs = [pool.submit(_download, each, base, Path(parts), folder) for each in artifacts]
        try:
            for done, job in enumerate(jobs):
                if sys.stderr.isatty():
                    tell(f"\r{base}: {done} of {len(jobs)} files")
                job.result()
        finally:
            pool.shutdown(cancel_futures=True)
            if sys.stderr.isatty():
                tell("\r\033[K")


def _download(artifact: Artifact, base: str, parts: Path, folder: Path) -> None:
    url, part = f"{base}/{artifact.path}", parts / artifact.name
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with (
                urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,
                part.open("wb") as file,
            ):
                shutil.copyfileobj(response, file, 1 << 20)
            break
        except (OSError, HTTPException) as error:
            if attempt == ATTEMPTS:
                remedy = f"{URL_VARIABLE} names another repository"
                raise UnreachableError(f"cannot download {url}: {error}; {remedy}") from error
            time.sleep(attempt)
    artifact.place(part, folder, url)


def sum_of(file: Path) -> str:
    """A file's SHA-256 sum."""
    if not file.exists():
        return "none"
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def resolve(pom: Path, folder: Path) -> None:
    """Copies what a pom depends on into a folder, laid out as the repository is."""
    if shutil.which("mvn") is None:
        raise FailureError("there is no mvn on PATH (Debian: maven)")
    options = ["-DincludeScope=runtime", "-Dmdep.useRepositoryLayout=true"]
    command = ["mvn", "-q", "-B", "-f", str(pom), COPY, f"-DoutputDirectory={folder}", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise FailureError(f"mvn failed:\n{done.stdout}")


def tell(text: str) -> None:
    """Says something to the person who waits."""
    sys.stderr.write(text)
    sys.stderr.flush()
