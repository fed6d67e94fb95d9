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
    use crate::map::{Map, Mode, reserve};

    #[test]
    fn a_file_that_is_cut_short_reads_as_zeros_where_it_is_only_read() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 16_384).unwrap();
        let writer = Map::of(&file, 16_384, Mode::Write).unwrap();
        let reader = Map::of(&file, 16_384, Mode::Guarded).unwrap();
        (0..4).for_each(|page| writer.write(page * 4096, b"data"));
        file.set_len(4096).unwrap();
        let read = |page: usize| reader.array::<4>(page * 4096);
        assert_eq!([read(0), read(1), read(3)], [*b"data", [0; 4], [0; 4]]);
        assert_eq!(reader.u64(8192).load(std::sync::atomic::Ordering::Relaxed), 0);
        drop(reader);
        let again = Map::of(&file, 4096, Mode::Guarded).unwrap();
        assert_eq!(again.array(0), *b"data");
    }
}
