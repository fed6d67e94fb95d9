"""The process of a filter in Python: runs a user's ``select`` behind guards that it installs first.

``helio-sandbox`` carries this script and runs it as ``python3 -I -c SCRIPT``, with a socket as
standard input. Messages and batches are those of ``docs/formats/filter-batch.md``.

Order: libraries are loaded, resources limited, descriptors closed, then Landlock, then seccomp. The
supervisor checks both guards before it sends a user's text. A refusal goes to standard error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import importlib.machinery
import itertools
import json
import linecache
import os
import resource
import signal
import socket
import struct
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

try:
    import numpy as np
except ImportError as error:
    raise SystemExit(f"{sys.executable} has no numpy ({error}); install it there") from None

_LIBRARIES = (
    "array bisect calendar cmath collections copy dataclasses datetime _strptime decimal enum"
    " encodings.ascii encodings.latin_1 encodings.utf_8 fractions functools heapq itertools json"
    " math numbers operator random re statistics string textwrap time types typing unicodedata"
    " warnings numpy.char numpy.fft numpy.lib.recfunctions numpy.linalg numpy.ma numpy.polynomial"
    " numpy.random"
)
"""What filters may import; the supervisor's set-up can name more."""

_MESSAGE = struct.Struct("<cI")
"""The start of each message: its kind, and the request's number."""
_BATCH_LENGTH = struct.Struct("<Q")
_BATCH_START = struct.Struct("<8sII")
_MAGIC, _VERSION = b"HELIOFLT", 1
_ALIGNMENT = 64
_MESSAGE_BYTES = 128 * 1024
_REPORT_BYTES = 4096
"""The longest report of an exception: its end names the cause."""

_CONNECTION = 0
"""The descriptor of the supervisor's socket."""
_FILTER = "<filter>"
"""The name of the user's text in reports."""

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_PROT_READ = 1
_MAP_SHARED = 1
_MAP_FAILED = ctypes.c_void_p(-1).value

_PROBE = "/proc/self/status"
"""A file that every process can read unless it is guarded."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

Array = np.ndarray[Any, Any]


class WrongResultError(Exception):
    """What ``select`` returned is no mask of the batch's rows."""


class List:
    """A column of lists: an array of values for each field, and where each row's begin."""

    def __init__(self, offsets: Array, valid: Array | None, field: Callable[[str], Any]) -> None:
        first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        self.offsets = offsets - first
        """Row ``i`` has the values from ``offsets[i]`` to ``offsets[i + 1]``."""
        self.lengths = np.diff(offsets) if valid is None else np.where(valid, np.diff(offsets), 0)
        """The number of values of each row; 0 for null."""
        self._field = field
        self._range = slice(first, last)

    def __getitem__(self, name: str) -> Any:
        """A field of the lists' records, of all rows; ``""`` for lists of plain values."""
        return self._field(name)[self._range]

    def reduce(self, ufunc: np.ufunc, name: str = "", empty: Any = np.nan) -> Array:
        """Combine each row's values, as ``reduce(np.maximum, "psfFlux")``; `empty` without any."""
        values, filled = self[name], self.lengths > 0
        kind = np.result_type(values.dtype, np.asarray(empty).dtype)
        result: Array = np.full(len(filled), empty, dtype=kind)
        if filled.any():
            # Each row's start and end: ranges between rows, of nulls, are computed and left out.
            ends = np.stack([self.offsets[:-1][filled], self.offsets[1:][filled]], axis=1).ravel()
            padded = np.append(values, values[-1:])
            result[filled] = ufunc.reduceat(padded, ends)[::2]
        return result


class Batch(Mapping[str, Any]):
    """A batch's columns by name, as arrays that cannot be written; read when first used."""

    def __init__(self, memory: memoryview) -> None:
        magic, version, length = _BATCH_START.unpack_from(memory)
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError(f"a batch of version {_VERSION} is wanted, not {magic!r}, {version}")
        end = _BATCH_START.size + length
        header = json.loads(bytes(memory[_BATCH_START.size : end]))
        self.rows: int = header["rows"]
        self._memory = memory[-(-end // _ALIGNMENT) * _ALIGNMENT :]
        self._columns = {column["name"]: column for column in header["columns"]}
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """The column of that name."""
        if name not in self._read:
            self._read[name] = self._column(self._columns[name], self.rows)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def _buffer(self, place: list[int], dtype: str, count: int) -> Array:
        start, length = place
        kind = np.dtype(dtype)
        if count * kind.itemsize > length:
            raise ValueError(f"{count} values of {dtype} are longer than {length} bytes")
        return np.frombuffer(self._memory, kind, count, start)

    def _bits(self, place: list[int], count: int) -> Array:
        packed = self._buffer(place, "u1", -(-count // 8))
        return np.unpackbits(packed, count=count, bitorder="little").view(bool)

    def _column(self, column: dict[str, Any], rows: int) -> Any:
        valid = self._bits(column["validity"], rows) if "validity" in column else None
        if column["type"] == "list":
            return self._list(column, rows, valid)
        values = self._values(column, rows)
        if valid is None:
            return values
        if values.dtype.kind == "f":
            return np.where(valid, values, values.dtype.type(np.nan))
        return np.ma.MaskedArray(values, ~valid)

    def _values(self, column: dict[str, Any], rows: int) -> Array:
        if column["type"] == "bool":
            return self._bits(column["values"], rows)
        if column["type"] != "utf8":
            return self._buffer(column["values"], f"<{column['type']}", rows)
        offsets = self._buffer(column["offsets"], "<i4", rows + 1).tolist()
        start, length = column["values"]
        text = bytes(self._memory[start : start + length])
        rows_text = [text[a:b].decode(errors="replace") for a, b in itertools.pairwise(offsets)]
        return np.array(rows_text, dtype=object)

    def _list(self, column: dict[str, Any], rows: int, valid: Array | None) -> List:
        offsets = self._buffer(column["offsets"], "<i4", rows + 1)
        fields = {child["name"]: child for child in column["fields"]}
        return List(offsets, valid, lambda name: self._column(fields[name], int(offsets[-1])))


def main() -> None:
    """Prepare, shut the doors, then serve until the supervisor closes the connection."""
    connection = socket.socket(fileno=_CONNECTION)
    kind, number, payload, _ = _receive(connection)
    if kind != b"S":
        raise SystemExit(f"the first message has the kind {kind!r}; a supervisor sends set-up")
    setup = json.loads(payload)
    _load_libraries([*_LIBRARIES.split(), *setup["modules"]])
    os.environ.clear()
    _die_with(setup["supervisor"])
    # First those that the supervisor left open: there may be more than the limit.
    _close_descriptors()
    _limit_resources(setup["address_space"])
    report = {"landlock": _landlock(), "file": _errno(lambda: os.open(_PROBE, os.O_RDONLY))}
    _seccomp(bytes.fromhex(setup["seccomp"]))
    report |= {
        "socket": _errno(socket.socket),
        "fork": _errno(_fork),
        "exec": _errno(lambda: os.execv("/nowhere", ["nowhere"])),
    }
    # The supervisor reads standard error no more; standard output leads nowhere.
    sys.stderr = sys.stdout
    _send(b"R", number, json.dumps(report).encode())
    _serve(connection)


def _load_libraries(names: list[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SystemExit(f"{sys.executable} cannot import {name}: {error}") from None
    sys.path.clear()
    sys.meta_path[:] = [
        importlib.machinery.BuiltinImporter,
        importlib.machinery.FrozenImporter,
        _NotLoaded(),
    ]


class _NotLoaded:
    """The last of the import system's finders, since no file can be opened any more."""

    def find_spec(self, name: str, *_: object) -> NoReturn:
        raise ModuleNotFoundError(
            f"{name} is not among the modules of filters; the service's operator can add it",
            name=name,
        )


def _die_with(supervisor: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def _limit_resources(headroom_bytes: int) -> None:
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    for what, limit in (
        (resource.RLIMIT_AS, mapped + headroom_bytes),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    # If the machine runs out of memory, the kernel takes a filter first.
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _close_descriptors() -> None:
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2:
            with contextlib.suppress(OSError):  # The listing's own is closed already.
                os.close(fd)


def _errno(call: Callable[[], object]) -> int:
    """The error of a call that must fail; 0 where it does not."""
    try:
        call()
    except OSError as error:
        return error.errno or 0
    return 0


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _call(what: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise SystemExit(f"{what}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")
    return result


def _landlock() -> int:
    """Deny all files, TCP and signals to others; returns the kernel's version of Landlock."""
    create, what = ctypes.c_long(_LANDLOCK_CREATE_RULESET), "Landlock cannot be installed"
    version = _call(
        what, _libc.syscall(create, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION)
    )
    # Access rights of files, by the version that brought the last of them (linux/landlock.h).
    rights = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    network, scopes = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("<QQQ", (1 << rights) - 1, network, scopes)
    ruleset = _call(what, _libc.syscall(create, attributes, ctypes.c_size_t(size), 0))
    _call("no_new_privs cannot be set", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _call(what, _libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ruleset, 0))
    os.close(ruleset)
    return version


def _seccomp(program: bytes) -> None:
    instructions = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    result = _libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), fprog)
    _call("seccomp cannot be installed", result)


def _receive(connection: socket.socket) -> tuple[bytes, int, bytes, list[int]]:
    message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1)
    if not message:
        os._exit(0)
    kind, number = _MESSAGE.unpack_from(message)
    return kind, number, message[_MESSAGE.size :], descriptors


def _send(kind: bytes, number: int, payload: bytes = b"") -> None:
    os.write(_CONNECTION, _MESSAGE.pack(kind, number) + payload)


def _serve(connection: socket.socket) -> None:
    namespace: dict[str, Any] = {"__name__": "filter"}
    while True:
        kind, number, payload, descriptors = _receive(connection)
        try:
            if kind == b"T":
                _compile(payload.decode(), namespace)
                answer = b"L", b""
            else:
                answer = b"M", _select(namespace["select"], payload, descriptors)
        except WrongResultError as error:
            answer = b"W", str(error).encode()
        except BaseException as error:
            answer = b"E", _report(error)
        _send(answer[0], number, answer[1])


def _compile(text: str, namespace: dict[str, Any]) -> None:
    # The traceback's lines, since the text is no file.
    linecache.cache[_FILTER] = (len(text), None, text.splitlines(keepends=True), _FILTER)
    exec(compile(text, _FILTER, "exec"), namespace)
    if not callable(namespace.get("select")):
        raise NameError("the text defines no function select(batch)")


def _select(select: Callable[[Batch], Any], payload: bytes, descriptors: list[int]) -> bytes:
    batch = _map(descriptors[0], _BATCH_LENGTH.unpack(payload)[0])
    return _mask(select(batch), batch.rows)


def _map(descriptor: int, length: int) -> Batch:
    address = _libc.mmap(None, length, _PROT_READ, _MAP_SHARED, descriptor, 0)
    code = ctypes.get_errno()
    os.close(descriptor)
    if address == _MAP_FAILED:
        raise OSError(code, "a batch cannot be mapped; does the filter keep earlier ones?")
    memory = (ctypes.c_ubyte * length).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, length)
    return Batch(memoryview(memory).cast("B").toreadonly())


def _mask(result: Any, rows: int) -> bytes:
    try:
        mask = np.asarray(np.ma.filled(result, False))
    except (TypeError, ValueError) as error:
        raise WrongResultError(f"select returned {type(result).__name__}: {error}") from None
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        found = f"{type(result).__name__} of {mask.dtype} with the shape {mask.shape}"
        raise WrongResultError(f"select returned {found}; a mask has {rows} of bool")
    return np.packbits(mask, bitorder="little").tobytes()


def _report(error: BaseException) -> bytes:
    """The exception as Python prints it, without this script's frames; its end if it is long."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != _FILTER:
        frames = frames.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except BaseException:
        text = type(error).__name__
    return text.strip().encode(errors="replace")[-_REPORT_BYTES:]


if __name__ == "__main__":
    try:
        main()
    except BaseException as error:
        # Written before the connection closes, upon which the supervisor ends this process.
        text = str(error) if isinstance(error, SystemExit) else traceback.format_exc()
        os.write(2, text.encode(errors="replace"))
        os._exit(1)
