//! A worker: a process, its connection, and its limits.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};

use crate::batch::MAX_BATCH_BYTES;
use crate::error::{Ended, StartError};
use crate::guards::{self, Report};
use crate::limits::{Limits, Usage};
use crate::process::{self, Figures};

/// The worker's script, for an interpreter with numpy.
pub const WORKER: &str = include_str!("../../../python/workers/filter.py");

/// How often memory and time of a pending request are checked. A process that fills pages at 1 GB/s
/// gets 10 MB over its limit; the limit of its address space holds in between.
const WATCH_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// The longest message, of a mask or of a text, is half of this.
const MESSAGE_BYTES: usize = 128 * 1024;

/// The end of what a worker that refuses wrote to standard error: its last line is the reason.
const REFUSAL_BYTES: usize = 4096;

/// The start of a message: its kind, and the request's number.
const MESSAGE_START: usize = 5;

/// The environment of a worker, beside the path to its program, while it loads its libraries: they
/// start no threads, which would run beside the guards. It empties it before it has a text.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("OPENBLAS_NUM_THREADS", "1"),
    ("OMP_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    ("LANG", "C.UTF-8"),
];

/// How a worker is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program: a path, or a name to look for in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Modules that filters may import beside numpy and a part of Python's own library. They are
    /// loaded before the guards; what they would load later, they cannot.
    pub modules: Vec<String>,
}

impl Launch {
    /// [`WORKER`] in a Python interpreter, which needs numpy.
    pub fn python(interpreter: impl Into<OsString>) -> Self {
        let arguments = ["-I", "-c", WORKER].map(OsString::from).to_vec();
        Self { program: interpreter.into(), arguments, modules: Vec::new() }
    }
}

/// A worker's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
    pub(crate) usage: Usage,
}

impl Answer {
    /// The payload as text for people.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }

    /// The error for an answer that fits no request.
    pub(crate) fn garbage(&self) -> Ended {
        let kind = self.kind.escape_ascii();
        Ended::Garbage(format!("an answer {kind} of {} bytes", self.payload.len()))
    }
}

/// A running worker whose guards hold.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    connection: OwnedFd,
    figures: Figures,
    /// The number of the last request.
    number: u32,
    buffer: Vec<u8>,
}

impl Worker {
    /// Starts a process and verifies its guards.
    pub(crate) fn start(launch: &Launch, limits: &Limits) -> Result<Self, StartError> {
        let spawn_error = |source| {
            let program = launch.program.to_string_lossy().into_owned();
            StartError::Spawn { program, source }
        };
        let mut worker = Self::spawn(launch).map_err(spawn_error)?;
        let setup = setup(launch, limits)?;
        // Libraries may take more processor time than a batch.
        let limits = Limits { cpu: limits.start, time: limits.start, ..*limits };
        let answer = match worker.request(b'S', setup.as_bytes(), None, &limits) {
            Err(Ended::Exited(status)) => return Err(worker.refusal(status)),
            answer => answer?,
        };
        let report: Report = match (answer.kind, serde_json::from_slice(&answer.payload)) {
            (b'R', Ok(report)) => report,
            _ => return Err(answer.garbage().into()),
        };
        guards::verify(&report, &worker.figures.status().map_err(Ended::from)?)?;
        // A pipe that nobody reads would block a filter whose libraries warn in every batch.
        worker.child.stderr = None;
        Ok(worker)
    }

    fn spawn(launch: &Launch) -> io::Result<Self> {
        let kind = SocketType::SEQPACKET;
        let (connection, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).env_clear().envs(ENVIRONMENT).current_dir("/");
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        // A terminal's Ctrl-C is for the supervisor.
        command.process_group(0);
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = process::spawn(command)?;
        match Figures::of(child.id()) {
            Ok(figures) => {
                let buffer = vec![0; MESSAGE_BYTES];
                Ok(Self { child, connection, figures, number: 0, buffer })
            }
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// What a worker wrote before it ended, or how it ended.
    fn refusal(&mut self, status: std::process::ExitStatus) -> StartError {
        let mut bytes = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            // The process has ended: what it wrote is in the pipe, at most the pipe's size.
            let _ = stderr.take(1 << 20).read_to_end(&mut bytes);
        }
        let end = &bytes[bytes.len().saturating_sub(REFUSAL_BYTES)..];
        match String::from_utf8_lossy(end).trim() {
            "" => Ended::Exited(status).into(),
            text => StartError::Refused(text.to_owned()),
        }
    }

    /// Sends a request and waits for its answer, within the limits. An error has ended the process.
    pub(crate) fn request(
        &mut self,
        kind: u8,
        payload: &[u8],
        memory: Option<BorrowedFd<'_>>,
        limits: &Limits,
    ) -> Result<Answer, Ended> {
        let answer = self.exchange(kind, payload, memory, limits);
        if answer.is_err() {
            self.end();
        }
        answer
    }

    fn exchange(
        &mut self,
        kind: u8,
        payload: &[u8],
        memory: Option<BorrowedFd<'_>>,
        limits: &Limits,
    ) -> Result<Answer, Ended> {
        if let Some(length) = self.receive()? {
            return Err(Ended::Garbage(format!("{length} bytes that answer no request")));
        }
        let watch = Watch { start: Instant::now(), cpu: self.figures.cpu()?, limits };
        self.number = self.number.wrapping_add(1);
        self.send(kind, payload, memory)?;
        let length = loop {
            if let Some(length) = self.receive()? {
                break length;
            }
            wait(self.connection.as_fd())?;
            watch.usage(&self.figures)?;
        };
        // Also after an answer: what a filter keeps from batch to batch counts.
        let usage = watch.usage(&self.figures)?;
        let message = &self.buffer[..length];
        match message.split_first_chunk::<MESSAGE_START>() {
            Some(([kind, number @ ..], payload)) if *number == self.number.to_le_bytes() => {
                Ok(Answer { kind: *kind, payload: payload.to_vec(), usage })
            }
            _ => Err(Ended::Garbage(format!("{length} bytes that answer no request"))),
        }
    }

    fn send(
        &mut self,
        kind: u8,
        payload: &[u8],
        memory: Option<BorrowedFd<'_>>,
    ) -> Result<(), Ended> {
        let [n0, n1, n2, n3] = self.number.to_le_bytes();
        let start: [u8; MESSAGE_START] = [kind, n0, n1, n2, n3];
        let parts = [io::IoSlice::new(&start), io::IoSlice::new(payload)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if let Some(memory) = &memory {
            rights.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(memory)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&self.connection, &parts, &mut rights, flags) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(self.exited()?),
            Err(error) => Err(Ended::Io(error.into())),
        }
    }

    /// The length of the next message, which is then in the buffer; none where none is there.
    fn receive(&mut self) -> Result<Option<usize>, Ended> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        match recv(&self.connection, self.buffer.as_mut_slice(), flags) {
            Ok((0, 0)) | Err(Errno::CONNRESET) => Err(self.exited()?),
            Ok((_, length)) if length > MESSAGE_BYTES => {
                Err(Ended::Garbage(format!("a message of {length} bytes")))
            }
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(Ended::Io(error.into())),
        }
    }

    /// How a process whose connection is closed ended; one that still runs is ended.
    fn exited(&mut self) -> io::Result<Ended> {
        self.child.kill()?;
        Ok(Ended::Exited(self.child.wait()?))
    }

    fn end(&mut self) {
        // Both fail only for a process that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// The first message to a worker.
fn setup(launch: &Launch, limits: &Limits) -> Result<String, StartError> {
    let unguarded = |found: String| StartError::Unguarded { guard: "seccomp", found };
    let program = guards::program().map_err(|error| unguarded(error.to_string()))?;
    let hex: String = program.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(serde_json::json!({
        "modules": launch.modules,
        "supervisor": std::process::id(),
        "address_space": limits.memory_bytes.saturating_mul(2) + MAX_BATCH_BYTES,
        "seccomp": hex,
    })
    .to_string())
}

/// Waits for a message, or for the next check.
fn wait(connection: BorrowedFd<'_>) -> Result<(), Ended> {
    match poll(&mut [PollFd::new(&connection, PollFlags::IN)], Some(&WATCH_INTERVAL)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Ended::Io(error.into())),
    }
}

/// A pending request: when it began, with how much processor time used before, and its limits.
struct Watch<'a> {
    start: Instant,
    cpu: Duration,
    limits: &'a Limits,
}

impl Watch<'_> {
    /// What the request has used so far, unless it is over a limit.
    fn usage(&self, figures: &Figures) -> Result<Usage, Ended> {
        let usage = Usage {
            cpu: figures.cpu()?.saturating_sub(self.cpu),
            time: self.start.elapsed(),
            memory_bytes: figures.memory_bytes()?,
        };
        let limits = self.limits;
        if usage.memory_bytes > limits.memory_bytes {
            let (bytes, limit_bytes) = (usage.memory_bytes, limits.memory_bytes);
            return Err(Ended::Memory { bytes, limit_bytes });
        }
        if usage.cpu > limits.cpu {
            return Err(Ended::Cpu { used: usage.cpu, limit: limits.cpu });
        }
        if usage.time > limits.time {
            return Err(Ended::Time { used: usage.time, limit: limits.time });
        }
        Ok(usage)
    }
}
