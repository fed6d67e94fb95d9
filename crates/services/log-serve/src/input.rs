//! Reads standard input, in a thread of its own.

use std::io::{self, Read as _};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::decode::{Decoder, Format};
use crate::endpoint::{DRAIN_TIMEOUT, Edge};
use crate::ingest::Ingest;
use crate::sender::Peer;

const READ_BYTES: usize = 64 << 10;
/// The interval of checking whether the server closes.
const CLOSE_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reads until the input ends. Once the server closes, it reads the available input, for a second
/// at most.
pub(crate) fn run(format: Format, edge: &Edge) {
    let sender = edge.ingest.sender(Peer::Input);
    let mut decoder = Decoder::new(format);
    let mut buffer = vec![0; READ_BYTES];
    let mut input = io::stdin().lock();
    let mut ending: Option<Instant> = None;
    loop {
        let closing = edge.is_closing();
        if closing && ending.get_or_insert_with(Instant::now).elapsed() >= DRAIN_TIMEOUT {
            break;
        }
        let ready = is_ready(&input);
        if !ready && !closing {
            continue;
        }
        let Some(count @ 1..) = ready.then(|| input.read(&mut buffer).unwrap_or(0)) else { break };
        decoder.feed(&buffer[..count]);
        decoder.hand_on(&sender, &edge.arrival());
        // A pipe or a file can be blocked.
        while !edge.ingest.has_room() && !edge.is_closing() {
            std::thread::sleep(Ingest::ROOM_POLL_INTERVAL);
        }
    }
    decoder.end();
    decoder.hand_on(&sender, &edge.arrival());
}

/// Waits for input; returns whether there is some.
fn is_ready(input: &io::StdinLock<'_>) -> bool {
    poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&CLOSE_POLL_INTERVAL))
        .is_ok_and(|ready| ready > 0)
}
