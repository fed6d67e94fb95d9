//! What filters attempt and the guards deny: files, sockets, processes, threads, other memory.

use helio_sandbox::{Filter, FilterError, Launch, Limits};

use crate::support::{filter, numbers, python, rows, select, start};

/// What a filter may import here to attempt more.
const MODULES: [&str; 6] =
    ["encodings.idna", "mmap", "multiprocessing", "socket", "subprocess", "threading"];

/// Runs attempts in one filter: each fails with a report of what is wanted, and the next request
/// is served.
fn denied(attempts: &[(&str, &str)]) {
    let Some(python) = python() else { return };
    let mut body = "import ctypes, mmap, os, signal, socket, subprocess, threading\n\
                    libc = ctypes.CDLL(None, use_errno=True)\n"
        .to_owned();
    for (rows, (attempt, _)) in (100..).zip(attempts) {
        body += &format!("if batch.rows == {rows}:\n    {attempt}\n");
    }
    let launch = Launch { modules: MODULES.map(str::to_owned).into(), ..Launch::python(&python) };
    let text = select(&format!("{body}return batch['n'] > 0"));
    let mut filter = Filter::start(launch, &text, Limits::default()).unwrap();
    for (count, (attempt, want)) in (100..).zip(attempts) {
        let error = filter.select(&numbers(count)).unwrap_err();
        let FilterError::Raised(report) = error else { panic!("{attempt}: {error}") };
        assert!(report.contains(want), "{attempt}: {report}");
        assert_eq!(rows(&filter.select(&numbers(3)).unwrap().0), [1, 2], "{attempt}");
    }
}

const DENIED: &str = "PermissionError: [Errno 1] Operation not permitted";

#[test]
fn files() {
    let named = |path| format!("{DENIED}: '{path}'");
    denied(&[
        ("open('/etc/passwd')", &named("/etc/passwd")),
        ("open('/tmp/helio-filter-test', 'w')", &named("/tmp/helio-filter-test")),
        ("os.listdir('/')", &named("/")),
        ("os.stat('/etc/passwd')", &named("/etc/passwd")),
        ("os.unlink('/tmp/x')", &named("/tmp/x")),
        ("os.memfd_create('x')", DENIED),
    ]);
}

#[test]
fn sockets() {
    denied(&[
        ("socket.socket()", DENIED),
        ("socket.socketpair()", DENIED),
        ("socket.create_connection(('127.0.0.1', 9))", DENIED),
    ]);
}

#[test]
fn processes_and_threads() {
    denied(&[
        ("os.fork()", DENIED),
        ("os.execv('/bin/true', ['true'])", DENIED),
        ("subprocess.run(['/bin/true'])", DENIED),
        ("os.kill(os.getppid(), 9)", DENIED),
        ("os.kill(os.getpid(), 9)", DENIED),
        ("threading.Thread(target=print).start()", "can't start new thread"),
        ("signal.setitimer(signal.ITIMER_REAL, 0.01)", "[Errno 1] Operation not permitted"),
    ]);
}

/// Calls of the system itself, as the C library offers them.
#[test]
fn calls_of_the_system() {
    let calls = [
        "prctl(1, 0, 0, 0, 0)", // The signal at the parent's death.
        "ptrace(16, os.getppid(), 0, 0)",
        "syscall(425, 1, 0)",    // io_uring_setup
        "syscall(321, 0, 0, 0)", // bpf on x86_64
        "syscall(435, 0, 0)",    // clone3
        "mount(b'none', b'/', b'tmpfs', 0, None)",
        "setuid(0)",
        "dup(0)",
    ];
    let checked = calls.map(|call| {
        format!("assert (libc.{call}, ctypes.get_errno()) == (-1, 1); raise LookupError('denied')")
    });
    denied(&checked.each_ref().map(|call| (call.as_str(), "denied")));
}

#[test]
fn code_and_uncounted_memory() {
    denied(&[
        ("mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)", DENIED),
        // Shared, which is not counted as the process's.
        ("mmap.mmap(-1, 1 << 20)", DENIED),
        (
            "page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)\n    \
             at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n    \
             assert libc.mprotect(at, 4096, 5) == -1 and ctypes.get_errno() == 1\n    \
             raise LookupError('denied')",
            "denied",
        ),
    ]);
}

/// The shared memory of a batch, by its address and by its descriptor.
#[test]
fn writing_into_a_batch() {
    let Some(python) = python() else { return };
    let batch = numbers(10);
    let mut writer = filter(
        &python,
        "import ctypes\n\
         libc, at = ctypes.CDLL(None, use_errno=True), batch['n'].ctypes.data\n\
         page = ctypes.c_void_p(at & ~4095)\n\
         assert libc.mprotect(page, 4096, 3) == -1\n\
         ctypes.memset(at, 255, 4)\n\
         return batch['n'] > 0",
    );
    let mut reader = filter(&python, "return batch['n'] > 0");
    let error = writer.select(&batch).unwrap_err().to_string();
    assert_eq!(error, "the filter's process ended by itself (signal: 11 (SIGSEGV))");
    assert_eq!(reader.select(&batch).unwrap().0.count(), 9);
}

#[test]
fn keeping_batches_costs_other_filters_nothing() {
    let Some(python) = python() else { return };
    let text = "kept = []\ndef select(batch):\n    kept.append(batch)\n    return batch['n'] > 0";
    let mut keeper = start(&python, text).unwrap();
    for _ in 0..100 {
        assert_eq!(keeper.select(&numbers(10)).unwrap().0.count(), 9);
    }
}
