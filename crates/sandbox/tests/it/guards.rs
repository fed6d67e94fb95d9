//! No worker without both guards, and nothing inherited.

use helio_sandbox::{Filter, Launch, Limits};

use crate::support::{changed, filter, python, selected};

const TEXT: &str = "def select(batch): return batch['n'] > 8";

fn refusal(launch: Launch) -> String {
    Filter::start(launch, TEXT, Limits::default()).unwrap_err().to_string()
}

#[test]
fn a_kernel_without_landlock_is_named() {
    let Some(python) = python() else { return };
    // A call that no kernel has.
    let launch =
        changed(&python, "_LANDLOCK_CREATE_RULESET = 444", "_LANDLOCK_CREATE_RULESET = 4444");
    let want = "the worker refused to start: Landlock cannot be installed: \
                Function not implemented (ENOSYS)";
    assert_eq!(refusal(launch), want);
}

#[test]
fn a_worker_without_landlock_does_not_start() {
    let Some(python) = python() else { return };
    let restrict = "_call(what, _libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ruleset, 0))";
    let error = refusal(changed(&python, restrict, "pass"));
    assert!(error.starts_with("Landlock does not guard the worker ("), "{error}");
    assert!(error.contains("opening a file gave 0"), "{error}");
}

#[test]
fn a_worker_without_seccomp_does_not_start() {
    let Some(python) = python() else { return };
    let install = "_seccomp(bytes.fromhex(setup[\"seccomp\"]))";
    let error = refusal(changed(&python, install, "pass"));
    assert!(error.starts_with("seccomp does not guard the worker (socket gave 0)"), "{error}");
    // One that claims what the kernel does not confirm.
    let claims = "report = dict(landlock=_landlock(), file=13, socket=1, fork=1, exec=1)\n    \
                  _send(b'R', number, json.dumps(report).encode())\n    _serve(connection)";
    let report = "report = {\"landlock\": _landlock(), \"file\"";
    let launch = changed(&python, report, &format!("{claims}\n    {report}"));
    let error = refusal(launch);
    let want = "seccomp does not guard the worker (Seccomp is 0, not 2)";
    assert!(error.starts_with(want), "{error}");
}

#[test]
fn a_worker_with_threads_does_not_start() {
    let Some(python) = python() else { return };
    let main = "    report = {\"landlock\"";
    let thread = "    import threading, time\n    \
                  threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()\n";
    let error = refusal(changed(&python, main, &format!("{thread}{main}")));
    assert!(error.starts_with("one thread does not guard the worker (Threads is 2"), "{error}");
}

#[test]
fn a_worker_that_cannot_run_is_named() {
    let error = refusal(Launch::python("/nowhere/python3"));
    let want = "/nowhere/python3 cannot be started: No such file or directory (os error 2); \
                name an interpreter that is installed";
    assert_eq!(error, want);
    let error = refusal(Launch { arguments: Vec::new(), ..Launch::python("/bin/true") });
    assert_eq!(error, "the filter's process ended by itself (exit status: 0)");
    let Some(python) = python() else { return };
    let error = refusal(changed(&python, "import numpy as np", "import nunpy as np"));
    assert!(error.contains("has no numpy (No module named 'nunpy')"), "{error}");
}

#[test]
fn a_worker_inherits_nothing() {
    let Some(python) = python() else { return };
    // A descriptor that other code of the supervisor's process left open for children.
    let (leaked, _other) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let body = "import os\n\
                open_fds = []\n\
                for fd in range(100):\n    \
                    try: os.write(fd, b'') if fd else None; open_fds.append(fd)\n    \
                    except OSError: pass\n\
                raise LookupError(f'{open_fds} {sorted(os.environ)}')";
    let report = selected(&mut filter(&python, body)).unwrap_err().to_string();
    // 0 is the connection, 1 leads nowhere, and nobody reads 2.
    assert!(report.ends_with("LookupError: [0, 1, 2] []"), "{report}");
}

/// As beside librdkafka, whose sockets children inherit.
#[test]
fn a_worker_may_inherit_more_than_it_may_open() {
    let Some(python) = python() else { return };
    let clear = "    os.environ.clear()";
    let launch = changed(&python, clear, &format!("    for _ in range(40): os.dup(0)\n{clear}"));
    let mut filter = Filter::start(launch, TEXT, Limits::default()).unwrap();
    assert_eq!(selected(&mut filter).unwrap(), [9]);
}
