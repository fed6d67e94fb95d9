//! Starting a process that ends with its supervisor, and the kernel's figures of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// A command to start, and where its process goes.
type Start = (Command, SyncSender<io::Result<Child>>);

/// Starts a process from a thread that lasts as long as this process: the kernel's signal at the
/// parent's death is sent when the starting *thread* ends.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Option<Sender<Start>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, starts) = channel();
        let thread = std::thread::Builder::new().name("helio-sandbox".into());
        thread.spawn(move || spawn_all(&starts)).is_ok().then_some(sender)
    });
    let gone = || io::Error::other("the thread that starts workers is missing");
    let (reply, started) = sync_channel(1);
    let Some(spawner) = spawner else { return Err(gone()) };
    spawner.send((command, reply)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

fn spawn_all(starts: &Receiver<Start>) {
    for (mut command, reply) in starts {
        // A caller that is gone drops the process; it ends when its connection is closed.
        let _ = reply.send(command.spawn());
    }
}

/// Longer than what the kernel writes into either file.
const PROC_BYTES: usize = 8 * 1024;

/// The kernel's figures of a process, read from files that stay open: a later process of the same
/// number is never meant.
#[derive(Debug)]
pub(crate) struct Figures {
    status: File,
    schedstat: File,
}

impl Figures {
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let open = |name| File::open(format!("/proc/{pid}/{name}"));
        Ok(Self { status: open("status")?, schedstat: open("schedstat")? })
    }

    /// The text of `/proc/PID/status`.
    pub(crate) fn status(&self) -> io::Result<String> {
        read(&self.status)
    }

    /// Anonymous memory in bytes, with what of it was swapped; 0 for a process that has ended.
    pub(crate) fn memory_bytes(&self) -> io::Result<u64> {
        let status = self.status()?;
        let bytes = |name| {
            let field = status_field(&status, name)?;
            field.strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
        };
        Ok(bytes("RssAnon").unwrap_or(0) + bytes("VmSwap").unwrap_or(0))
    }

    /// Processor time of its only thread since its start.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        let text = read(&self.schedstat)?;
        let nanoseconds = text.split_ascii_whitespace().next().and_then(|n| n.parse().ok());
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/schedstat is empty");
        nanoseconds.map(Duration::from_nanos).ok_or_else(invalid)
    }
}

fn read(file: &File) -> io::Result<String> {
    let mut buffer = [0; PROC_BYTES];
    let length = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// A field of `/proc/PID/status`, without blanks.
pub(crate) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
