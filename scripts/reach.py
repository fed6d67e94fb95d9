"""Which packages a change reaches, by a table of paths, cargo's dependencies and included files.

Pure but for `Workspace.of_checkout`. A path that no rule knows reaches everything.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

EVERYTHING = "everything"
"""The name of a package list in `RULES`: all packages and all other units."""

# The first rule whose prefix fits decides. Packages' own folders are no rules: cargo knows them.
RULES: list[tuple[str, tuple[str, ...]]] = [
    ("tests/engines/apicurio", ("engines", "helio-kafka")),
    ("tests/engines/lib/apicurio", ("engines", "helio-kafka")),
    ("tests/engines/kube", ("engines", "helio-state-etcd")),
    ("tests/engines/lib/kube", ("engines", "helio-state-etcd")),
    ("tests/engines/lib/control_plane", ("engines", "helio-state-etcd")),
    ("tests/engines/lib/kubernetes", ("engines", "helio-state-etcd")),
    ("tests/engines/lib/go", ("engines", "helio-state-etcd")),
    ("tests/engines/soak_kube", ("helio-state-etcd",)),
    ("tests/engines/", ("engines", "helio-kafka", "helio-bridge", "helio-cli", "python")),
    ("python/", ("python", "helio-python")),
    ("examples/interfaces/", ("helio-component", "helio-cli", "python")),
    ("examples/", ("python",)),
    # Held by the fast tests and by lint alone.
    ("bench/", ()),
    ("fuzz/", ()),
    ("docs/", ()),
    ("crates/xtask/", ()),
    (".ci/", ()),
    ("scripts/soak", ()),
    ("scripts/reach.py", ()),
    ("scripts/tests/", ()),
    ("scripts/", (EVERYTHING,)),
    (".gitignore", ()),
    (".rustfmt.toml", ()),
    ("clippy.toml", ()),
    ("Makefile", ()),
]
PROSE = (".md", "LICENSE")
"""Ends of the names of files that no test in the soak reads."""

USED_BY_PATH = re.compile(r'(?:#\[path\s*=\s*|include_(?:str|bytes)!\(\s*)"([^"]+)"')


@dataclass(frozen=True)
class Package:
    """A package of the workspace: its folder, and the packages of ours that it depends on."""

    name: str
    folder: str
    dependencies: frozenset[str]


@dataclass(frozen=True)
class Workspace:
    """The packages, and the files of one package that another one compiles in."""

    packages: dict[str, Package]
    used_by: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def of_checkout(cls, root: Path) -> Workspace:
        """Reads cargo's metadata and the sources."""
        command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
        output = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
        packages = {}
        for package in json.loads(output.stdout)["packages"]:
            folder = Path(package["manifest_path"]).parent.relative_to(root).as_posix()
            dependencies = frozenset(d["name"] for d in package["dependencies"] if d.get("path"))
            packages[package["name"]] = Package(package["name"], folder, dependencies)
        workspace = cls(packages)
        for package in packages.values():
            for source in (root / package.folder).rglob("*.rs"):
                workspace.note(
                    package.name, source.relative_to(root).as_posix(), source.read_text()
                )
        return workspace

    def note(self, package: str, source: str, text: str) -> None:
        """Notes the files outside the package's folder that a source of it names."""
        for match in USED_BY_PATH.finditer(text):
            path = normal(PurePosixPath(source).parent / match[1])
            if self.owner(path) != package:
                self.used_by.setdefault(path, set()).add(package)

    def owner(self, path: str) -> str | None:
        """The package in whose folder a file is."""
        owners = [p for p in self.packages.values() if path.startswith(p.folder + "/")]
        return max(owners, key=lambda p: len(p.folder)).name if owners else None

    def dependents(self, package: str) -> set[str]:
        """The packages that depend on one, directly or not."""
        found: set[str] = set()
        new = {package}
        while new:
            new = {p.name for p in self.packages.values() if p.dependencies & new} - found
            found |= new
        return found


@dataclass
class Reach:
    """What a change reaches: packages that it changes, and those that depend on them."""

    direct: set[str] = field(default_factory=set)
    indirect: set[str] = field(default_factory=set)
    everything: bool = False

    def rank(self, name: str) -> int | None:
        """0: changed; 1: depends on something changed, or all is reached; none: not reached."""
        if name in self.direct:
            return 0
        return 1 if self.everything or name in self.indirect else None


def normal(path: PurePosixPath) -> str:
    """A relative path without `.` and `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def of_change(paths: Iterable[str], workspace: Workspace) -> Reach:
    """What a change of these files, relative to the checkout, reaches."""
    reach = Reach()
    for path in paths:
        users = workspace.used_by.get(path, set())
        reach.direct |= users
        rule = next((names for prefix, names in RULES if path.startswith(prefix)), None)
        owner = workspace.owner(path)
        if rule is not None:
            reach.everything |= EVERYTHING in rule
            reach.direct |= {name for name in rule if name != EVERYTHING}
        elif path.endswith(PROSE):
            continue
        elif owner is None:
            reach.everything = True
        else:
            reach.direct.add(owner)
            inside = path.removeprefix(workspace.packages[owner].folder + "/")
            # A package's tests reach nobody but those that compile them in.
            if not inside.startswith(("tests/", "benches/", "examples/")):
                reach.indirect |= workspace.dependents(owner)
    reach.indirect -= reach.direct
    if "helio-python" in reach.direct | reach.indirect:
        (reach.direct if "helio-python" in reach.direct else reach.indirect).add("python")
    return reach
