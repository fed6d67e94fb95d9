"""mypy checks programs with the stubs of ``helio component stubs``.

The files in ``data`` are compared with the program's output by its own tests.
"""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
PACKAGE = Path(__file__).parents[2]

USE = """
    from typing import TYPE_CHECKING, cast

    import heliograph

    if TYPE_CHECKING:
        from ess import ESSRemote
        from mtmount import CmdTrackTarget, MTMountRemote
        from mtmount import MTMountComponent as Base
    else:
        from heliograph import Component as Base


    class Mount(Base):
        async def do_trackTarget(self, command: "CmdTrackTarget") -> None:
            await self.evt_target.set_write(azimuth=command.azimuth)


    async def watch(bus: heliograph.Bus) -> float:
        mount = cast("MTMountRemote", heliograph.Remote(bus, "MTMount"))
        ack = await mount.cmd_moveToTarget.set_start(azimuth=1.0, elevation=45.0, timeout=30)
        print(ack.result, mount.enums.AxisState.Moving)
        mast = cast("ESSRemote", heliograph.Remote(bus, "ESS", 1))
        async for wind in mast.tel_airFlow:
            return wind.speed + wind.salIndex
        return 0.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    for stub in DATA.glob("*.pyi.txt"):
        shutil.copy(stub, folder / stub.name.removesuffix(".txt"))
    return folder


def mypy(folder: Path, text: str) -> tuple[int, str]:
    program = folder / "program.py"
    program.write_text(textwrap.dedent(text))
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "program.py"],
        cwd=folder,
        env={"MYPYPATH": f"{folder}:{PACKAGE}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_a_program_passes_strict_checks_with_the_stubs(folder: Path) -> None:
    code, said = mypy(folder, USE)
    assert code == 0, said


WRONG = [
    ("azimuth=1.0, elevation", "azimuht=1.0, elevation", "azimuht"),
    ("azimuth=command.azimuth", 'azimuth="east"', "str"),
    ("AxisState.Moving", "AxisState.Flying", "Flying"),
    ("wind.speed", "wind.sped", "sped"),
]
"""A line of the program, its replacement, and mypy's complaint."""


def test_what_the_interface_does_not_have_is_found(folder: Path) -> None:
    text = USE
    for right, wrong, _ in WRONG:
        assert right in text
        text = text.replace(right, wrong)
    code, said = mypy(folder, text)
    assert code == 1
    assert [word for _, _, word in WRONG if word not in said] == [], said


def test_a_field_that_is_left_out_is_found(folder: Path) -> None:
    code, said = mypy(folder, USE.replace("elevation=45.0, ", ""))
    assert code == 1
    assert 'Missing named argument "elevation"' in said, said
