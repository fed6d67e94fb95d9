//! Reading mapped files that someone cuts short: a guard that turns the signal into zeros.
//!
//! Constraints: only maps of journals that are open for reading are guarded. A process that writes
//! dies of the signal, which is right: its receipts would promise what the file does not hold. The
//! handler makes no allocation and takes no lock.
//!
//! Operation: guarded maps are listed in a table of fixed size. The handler puts a page of zeros in
//! the place of a page of such a map that the file no longer has; its checksums then do not fit,
//! and the reader reports damage. Faults elsewhere go to the handler that was there before.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::map::PAGE_BYTES;

/// The limit of guarded maps of a process; further ones are not guarded.
const MAX_GUARDED: usize = 16_384;

/// A guarded map: its first byte (0: free) and the byte behind it.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

static RANGES: [Range; MAX_GUARDED] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; MAX_GUARDED];
/// Where the next free entry is looked for, and how many entries were ever used.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// The handler that was there before this one.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// Guards a map until it is [released](release). Returns its entry.
pub(crate) fn guard(start: usize, len: usize) -> Option<usize> {
    install();
    let from = NEXT.fetch_add(1, Relaxed);
    for i in 0..MAX_GUARDED {
        let entry = (from + i) % MAX_GUARDED;
        let range = &RANGES[entry];
        // 1 is taken, and no map begins there.
        if range.start.compare_exchange(0, 1, AcqRel, Relaxed).is_ok() {
            range.end.store(start + len, Release);
            range.start.store(start, Release);
            USED.fetch_max(entry + 1, AcqRel);
            return Some(entry);
        }
    }
    None
}

/// Ends the guard, before the map ends.
pub(crate) fn release(entry: usize) {
    RANGES[entry].start.store(0, Release);
}

fn install() {
    FORMER.get_or_init(|| {
        let mut former = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both structures live on this frame; the handler is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, former.as_mut_ptr());
            former.assume_init()
        }
    });
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let inside = |range: &&Range| {
        let start = range.start.load(Acquire);
        start > 1 && (start..range.end.load(Acquire)).contains(&address)
    };
    if RANGES[..USED.load(Acquire)].iter().find(inside).is_some() {
        let page = address / PAGE_BYTES * PAGE_BYTES;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page belongs to a read-only map of this process, whose contents the file no
        // longer has.
        let zeros =
            unsafe { libc::mmap(page as *mut _, PAGE_BYTES, libc::PROT_READ, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Calls the former handler, or restores the former disposition: then the fault repeats.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let former = FORMER.get().filter(|former| {
        former.sa_sigaction != libc::SIG_DFL && former.sa_sigaction != libc::SIG_IGN
    });
    // SAFETY: the kernel had these as a handler, with the arguments that its flags say.
    unsafe {
        match former {
            Some(former) if former.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
                let call: Handler = std::mem::transmute(former.sa_sigaction);
                call(signal, info, context);
            }
            Some(former) => {
                let call: extern "C" fn(i32) = std::mem::transmute(former.sa_sigaction);
                call(signal);
            }
            None => {
                let mut default: libc::sigaction = MaybeUninit::zeroed().assume_init();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, ptr::null_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::map::{Map, Mode, reserve};

    /// Four pages, mapped twice: by a writer and in another mode. Then the file has one.
    fn short(mode: Mode) -> [Map; 2] {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 16_384).unwrap();
        let maps = [Mode::Write, mode].map(|mode| Map::of(&file, 16_384, mode).unwrap());
        (0..4).for_each(|page| maps[0].write(page * 4096, b"data"));
        file.set_len(4096).unwrap();
        maps
    }

    #[test]
    fn a_file_that_is_cut_short_reads_as_zeros_where_it_is_only_read() {
        let [_, reader] = short(Mode::Guarded);
        let read = |page: usize| reader.array::<4>(page * 4096);
        assert_eq!([read(0), read(1), read(3)], [*b"data", [0; 4], [0; 4]]);
        assert_eq!(reader.u64(8192).load(Relaxed), 0);
    }

    const CASE: &str = "HELIO_SIGBUS_CASE";
    /// A child that ran no test ends with 0.
    const CHILD_PASSED: i32 = 42;

    /// Runs a case in a process of its own: handlers are the process's.
    fn run(case: &str) -> ExitStatus {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "sigbus::tests::child", "--nocapture"]).env(CASE, case);
        child.status().unwrap()
    }

    #[test]
    fn faults_elsewhere_go_to_the_handler_that_was_there_before() {
        for case in ["with information", "plain"] {
            assert_eq!(run(case).code(), Some(CHILD_PASSED), "{case}");
        }
    }

    #[test]
    fn a_writer_dies_of_a_file_that_is_cut_short() {
        for case in ["writer", "writer, guarded before"] {
            assert_eq!(run(case).signal(), Some(libc::SIGBUS), "{case}");
        }
    }

    /// The case that the parent chose; nothing without one.
    #[test]
    fn child() {
        let Ok(case) = std::env::var(CASE) else { return };
        match &*case {
            "with information" => chained(libc::SA_SIGINFO, former_with as *const () as usize),
            "plain" => chained(0, former_plain as *const () as usize),
            case => {
                let _guarded = (case != "writer").then(|| short(Mode::Guarded));
                let [writer, _] = short(Mode::Read);
                writer.write(8192, b"more");
                unreachable!("the write succeeded");
            }
        }
    }

    /// The page of the fault that the former handler has to repair, and whether it did.
    static FAULT: AtomicUsize = AtomicUsize::new(0);
    static CALLED: AtomicBool = AtomicBool::new(false);

    extern "C" fn former_plain(signal: i32) {
        assert_eq!(signal, libc::SIGBUS);
        CALLED.store(true, Release);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let page = FAULT.load(Acquire) as *mut _;
        // SAFETY: the page belongs to a map of this test.
        unsafe { libc::mmap(page, PAGE_BYTES, libc::PROT_READ, flags, -1, 0) };
    }

    extern "C" fn former_with(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the handler before this one passes what the kernel gave it.
        assert_eq!(unsafe { (*info).si_addr() } as usize, FAULT.load(Acquire));
        former_plain(signal);
    }

    fn chained(flags: i32, handler: usize) {
        // SAFETY: a structure of this frame, and a handler with the arguments that its flags say.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            (action.sa_sigaction, action.sa_flags) = (handler, flags);
            assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()), 0);
        }
        let [_, guarded] = short(Mode::Guarded);
        assert_eq!(guarded.array(4096), [0; 4]);
        assert!(!CALLED.load(Acquire), "the guard's own faults are not passed on");
        let [_, elsewhere] = short(Mode::Read);
        FAULT.store(&raw const *elsewhere.u64(8192) as usize, Release);
        assert_eq!(elsewhere.u64(8192).load(Relaxed), 0);
        assert!(CALLED.load(Acquire));
        assert_eq!(guarded.array(8192), [0; 4], "the guard is still there");
        std::process::exit(CHILD_PASSED);
    }
}
