//! The guards of a worker: the system calls that it may make, and the proof that they hold.
//!
//! seccomp sees numbers, not paths: it denies opening, sockets, processes. Landlock sees files,
//! whatever call opens them. The worker installs both. Before any text is sent, the supervisor
//! checks the worker's attempts at denied calls, and the kernel's status of the process.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde::Deserialize;

use crate::error::StartError;

/// What Python and numpy call while they compute: memory, clocks, signals of their own, the
/// connection. Everything else fails with `EPERM`, a `PermissionError` in Python.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];

/// The argument of `mmap` and `mprotect` that is the protection, and that of `mmap`'s flags.
const PROTECTION: u8 = 2;
const FLAGS: u8 = 3;

/// The filter as the kernel takes it: an array of `struct sock_filter`.
pub(crate) fn program() -> Result<Vec<u8>, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(
        libc::SYS_mmap,
        vec![rule(&[no_code()?, lacks(FLAGS, libc::MAP_SHARED)?])?, {
            // Anonymous shared memory would count as no memory of the worker's.
            rule(&[no_code()?, lacks(FLAGS, libc::MAP_ANONYMOUS)?])?
        }],
    );
    rules.insert(libc::SYS_mprotect, vec![rule(&[no_code()?])?]);
    let connection = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_recvmsg, vec![rule(&[connection])?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)?;
    let program = BpfProgram::try_from(filter)?;
    let bytes = program.iter().flat_map(|instruction| {
        let [code_low, code_high] = instruction.code.to_ne_bytes();
        let [k0, k1, k2, k3] = instruction.k.to_ne_bytes();
        [code_low, code_high, instruction.jt, instruction.jf, k0, k1, k2, k3]
    });
    Ok(bytes.collect())
}

fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.to_vec())
}

/// No memory whose contents can be run.
fn no_code() -> Result<SeccompCondition, seccompiler::BackendError> {
    lacks(PROTECTION, libc::PROT_EXEC)
}

fn lacks(argument: u8, bits: libc::c_int) -> Result<SeccompCondition, seccompiler::BackendError> {
    let mask = u64::from(bits.unsigned_abs());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), 0)
}

/// A worker's report of its guards: the errors of calls that must fail, 0 for none.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    /// Landlock's version.
    landlock: i64,
    /// Opening a file, before seccomp was installed.
    file: i32,
    socket: i32,
    fork: i32,
    exec: i32,
}

/// Whether both guards hold, by the worker's report and the kernel's `/proc/PID/status` of it.
pub(crate) fn verify(report: &Report, status: &str) -> Result<(), StartError> {
    let unguarded = |guard, found| Err(StartError::Unguarded { guard, found });
    if report.landlock < 1 || report.file != Errno::ACCESS.raw_os_error() {
        let found = format!("version {}, opening a file gave {}", report.landlock, report.file);
        return unguarded("Landlock", found);
    }
    let attempts = [("socket", report.socket), ("fork", report.fork), ("exec", report.exec)];
    for (call, errno) in attempts {
        if errno != Errno::PERM.raw_os_error() {
            return unguarded("seccomp", format!("{call} gave {errno}"));
        }
    }
    // Neither guard covers threads that were started before it.
    let expected = [("seccomp", "Seccomp", "2"), ("seccomp", "NoNewPrivs", "1")];
    for (guard, name, wanted) in expected.into_iter().chain([("one thread", "Threads", "1")]) {
        let found = crate::process::status_field(status, name).unwrap_or("nothing");
        if found != wanted {
            return unguarded(guard, format!("{name} is {found}, not {wanted}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tpython3\nThreads:\t1\nNoNewPrivs:\t1\nSeccomp:\t2\n";

    fn report() -> Report {
        Report { landlock: 7, file: 13, socket: 1, fork: 1, exec: 1 }
    }

    fn missing(report: &Report, status: &str) -> &'static str {
        match verify(report, status) {
            Err(StartError::Unguarded { guard, .. }) => guard,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_guard_is_needed() {
        assert!(verify(&report(), STATUS).is_ok());
        assert_eq!(missing(&Report { landlock: 0, ..report() }, STATUS), "Landlock");
        assert_eq!(missing(&Report { file: 0, ..report() }, STATUS), "Landlock");
        // Denied by seccomp instead.
        assert_eq!(missing(&Report { file: 1, ..report() }, STATUS), "Landlock");
        assert_eq!(missing(&Report { socket: 0, ..report() }, STATUS), "seccomp");
        assert_eq!(missing(&Report { fork: 0, ..report() }, STATUS), "seccomp");
        assert_eq!(missing(&Report { exec: 2, ..report() }, STATUS), "seccomp");
        for (good, bad) in [("Seccomp:\t2", "Seccomp:\t0"), ("NoNewPrivs:\t1", "NoNewPrivs:\t0")] {
            assert_eq!(missing(&report(), &STATUS.replace(good, bad)), "seccomp");
        }
        assert_eq!(missing(&report(), &STATUS.replace("Threads:\t1", "Threads:\t3")), "one thread");
        assert_eq!(missing(&report(), ""), "seccomp");
    }

    #[test]
    fn the_program_is_instructions_of_eight_bytes() {
        let bytes = program().unwrap();
        assert_eq!(bytes.len() % 8, 0);
        assert!(bytes.len() / 8 <= 4096, "{}", bytes.len());
    }
}
