"""Programs built from Go modules, which go.sum holds to their sums, and their cache."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lib.errors import FailureError, SkippedError
from lib.files import cache_folder

# With go.mod, go.sum and the main packages that have no module of their own.
SOURCES = Path(__file__).parent / "go"
OLDEST_GO = (1, 26)


@dataclass(frozen=True)
class GoPrograms:
    """The programs of an engine: the version is that of one module in go.mod."""

    name: str
    module: str
    # What each is built from, by the program's name.
    packages: dict[str, str]
    sources: Path = SOURCES
    # Flags of the linker, in which {version}, {major} and {minor} stand for the module's.
    linker: str = ""
    # Whether they are written here, so that it is their text that says whether one is built anew.
    is_own: bool = False
    # Whether a C compiler is needed: Go leaves such parts out where it finds none.
    needs_c: bool = False

    @property
    def file(self) -> Path:
        """What says which modules are used."""
        return self.sources / "go.sum"

    def version(self) -> str:
        """The version of the engine's module."""
        found = re.search(rf"^\s*{re.escape(self.module)} v(\S+)$", self._requirements(), re.M)
        if found is None:
            raise FailureError(f"{self.sources / 'go.mod'} does not require {self.module}")
        return found[1]

    def _requirements(self) -> str:
        return (self.sources / "go.mod").read_text()

    def flags(self) -> str:
        """The flags of the linker."""
        version = self.version()
        major, minor, *_ = version.split(".")
        return self.linker.format(version=version, major=major, minor=minor)

    def programs(self) -> dict[str, Path]:
        """The programs, by name; what is not in the user's cache yet is built first."""
        with cache_folder(f"{self.name}-{self._edition()}") as cache:
            built = {name: cache / name for name in self.packages}
            for name, file in built.items():
                if not file.exists():
                    print(f"building {name}, which takes minutes, once", file=sys.stderr)
                    self._build(self.packages[name], file)
            return built

    def is_built(self) -> bool:
        """Whether all are in the user's cache."""
        with cache_folder(f"{self.name}-{self._edition()}") as cache:
            return all((cache / name).exists() for name in self.packages)

    def _edition(self) -> str:
        """What tells these programs from those of other versions of this folder."""
        if not self.is_own:
            return self.version()
        digest = hashlib.sha256()
        for file in sorted(self.sources.rglob("*.*")):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    def update(self) -> int:
        """Writes go.sum again, for the versions in go.mod; the number of its lines."""
        _go(self.sources, "mod", "tidy")
        return len(self.file.read_text().splitlines())

    def _build(self, package: str, file: Path) -> None:
        """Builds a program, which takes its name when it is whole."""
        with tempfile.TemporaryDirectory(dir=file.parent) as name:
            made = Path(name) / file.name
            # One compiler at a time: tests run beside it.
            how = ["-mod=readonly", "-trimpath", "-p=1", f"-ldflags={self.flags()}"]
            more = {"CGO_ENABLED": "1"} if self.needs_c else {}
            _go(self.sources, "build", *how, "-o", str(made), package, environment=more)
            made.replace(file)


def check() -> None:
    """Refuses a machine without a Go that is new enough."""
    program = shutil.which("go")
    shown = "there is none on PATH"
    if program is not None:
        # go.mod would have another toolchain downloaded otherwise.
        done = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
        found = re.search(r"go(\d+)\.(\d+)", done.stdout)
        if found and (int(found[1]), int(found[2])) >= OLDEST_GO:
            return
        shown = f"{program} is {found[0] if found else 'broken'}"
    oldest = ".".join(map(str, OLDEST_GO))
    raise SkippedError(f"Go {oldest} or newer is needed (https://go.dev/dl); {shown}")


def _go(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    how = {"GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        ["go", *arguments],
        cwd=folder,
        env=os.environ | how | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FailureError(f"go {' '.join(arguments)} failed:\n{done.stderr}")
