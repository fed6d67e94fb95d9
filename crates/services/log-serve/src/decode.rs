//! Decodes the formats of `helio_logging::formats` in streams and datagrams.

use std::fmt;

use helio_logging::Record;
use helio_logging::formats::syslog::{Arrival, FrameError, Framer, SyslogError};
use helio_logging::formats::{acs_xml, json, syslog};

use crate::lines::Lines;
use crate::sender::{Cause, Sender};

/// The format of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Syslog, RFC 5424 and 3164; in streams with octet counts or lines (RFC 6587).
    Syslog,
    /// ACS's log entries as XML.
    Acs,
    /// One JSON object per line.
    Json,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syslog => "syslog",
            Self::Acs => "acs",
            Self::Json => "json",
        })
    }
}

/// Why a message is not a record.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) cause: Cause,
    pub(crate) why: String,
}

impl Refused {
    fn new(cause: Cause, why: &dyn fmt::Display) -> Self {
        Self { cause, why: why.to_string() }
    }
}

/// Decodes a stream.
pub(crate) enum Decoder {
    Syslog(Framer),
    Acs(acs_xml::Reader),
    Json(Lines),
}

impl Decoder {
    pub(crate) fn new(format: Format) -> Self {
        match format {
            Format::Syslog => Self::Syslog(Framer::default()),
            Format::Acs => Self::Acs(acs_xml::Reader::default()),
            Format::Json => Self::Json(Lines::new(json::MAX_LINE_BYTES)),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::Syslog(framer) => framer.feed(bytes),
            Self::Acs(reader) => reader.feed(bytes),
            Self::Json(lines) => lines.feed(bytes),
        }
    }

    /// Marks the end of the stream.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Syslog(framer) => framer.end(),
            Self::Acs(reader) => reader.end(),
            Self::Json(lines) => lines.end(),
        }
    }

    /// Whether the bytes so far end between messages.
    pub(crate) fn is_between(&self) -> bool {
        match self {
            Self::Syslog(framer) => framer.is_between(),
            Self::Acs(reader) => reader.is_between(),
            Self::Json(lines) => lines.is_between(),
        }
    }

    /// The next record or error; none until more bytes are added.
    pub(crate) fn record(&mut self, arrival: &Arrival) -> Option<Result<Record, Refused>> {
        Some(match self {
            Self::Syslog(framer) => match framer.message()? {
                Ok(message) => of_syslog(message, arrival),
                Err(error @ FrameError::TooLarge) => Err(Refused::new(Cause::TooLarge, &error)),
                Err(error @ FrameError::Cut) => Err(Refused::new(Cause::Malformed, &error)),
            },
            Self::Acs(reader) => reader.record()?.map_err(|error| {
                let large = error.problem == acs_xml::XmlProblem::TooLarge;
                Refused::new(if large { Cause::TooLarge } else { Cause::Malformed }, &error)
            }),
            Self::Json(lines) => match lines.line()? {
                Ok(line) => json::read_foreign(line, arrival.now)
                    .map_err(|error| Refused::new(Cause::Malformed, &error)),
                Err(cause) => {
                    let why = format!("a line has more than {} bytes", json::MAX_LINE_BYTES);
                    Err(Refused { cause, why })
                }
            },
        })
    }

    /// Passes on all available records and errors, and returns their number.
    pub(crate) fn hand_on(&mut self, sender: &Sender, arrival: &Arrival) -> usize {
        let mut messages = 0;
        while let Some(next) = self.record(arrival) {
            messages += 1;
            hand_on(next, sender);
        }
        messages
    }
}

/// Passes on the messages of a datagram: one of syslog, any number in other formats.
pub(crate) fn datagram(format: Format, bytes: &[u8], sender: &Sender, arrival: &Arrival) {
    if format == Format::Syslog {
        return hand_on(of_syslog(bytes, arrival), sender);
    }
    let mut decoder = Decoder::new(format);
    decoder.feed(bytes);
    decoder.end();
    decoder.hand_on(sender, arrival);
}

fn of_syslog(message: &[u8], arrival: &Arrival) -> Result<Record, Refused> {
    syslog::read(message, arrival).map_err(|error| {
        let large = matches!(error, SyslogError::TooLarge(_));
        Refused::new(if large { Cause::TooLarge } else { Cause::Malformed }, &error)
    })
}

fn hand_on(next: Result<Record, Refused>, sender: &Sender) {
    match next {
        // A drop is counted by `take`.
        Ok(record) => _ = sender.take(record),
        Err(refused) => sender.refuse(refused.cause, &refused.why),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use helio_bus::Bus;
    use helio_bus::transport::locked;
    use helio_logging::{LogOptions, Logging};
    use proptest::prelude::*;

    use super::*;
    use crate::sender::Peer;
    use crate::{Ingest, Limits, Rate};

    /// What takes all, and the way to a bus behind it.
    static INGEST: LazyLock<(Logging, Ingest)> = LazyLock::new(|| {
        let options = LogOptions::default();
        let logging = Logging::start(Bus::connect("memory:").unwrap(), options.clone()).unwrap();
        let rate = Rate { per_s: 1e9, burst: 1e9 };
        let ingest = Ingest::new(logging.relay(), &options, Limits { rate, ..Limits::default() });
        (logging, ingest)
    });

    fn formats() -> impl Strategy<Value = Format> {
        prop_oneof![Just(Format::Syslog), Just(Format::Acs), Just(Format::Json)]
    }

    /// Pieces that are right, wrong and cut, in any order.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"<13>a: b\n".to_vec()),
            Just(b"9 <13>a: b".to_vec()),
            Just(b"{\"time\":\"2026-11-21T03:00:00Z\"}\n".to_vec()),
            Just(b"<Info TimeStamp=\"2026-11-21T03:00:00\">".to_vec()),
            Just(b"<![CDATA[a]]></Info>".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..8),
            "[<>{}\"0-9 \n]{0,8}".prop_map(String::into_bytes),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    fn messages(format: Format, chunks: &[&[u8]], sender: &Sender) -> usize {
        let ingest = &INGEST.1;
        let arrival = Arrival { now: ingest.now(), offset_s: 0 };
        let mut decoder = Decoder::new(format);
        let mut messages = 0;
        for chunk in chunks {
            decoder.feed(chunk);
            messages += decoder.hand_on(sender, &arrival);
        }
        decoder.end();
        messages + decoder.hand_on(sender, &arrival)
    }

    proptest! {
        #[test]
        fn whatever_comes_however_it_is_cut_is_counted(
            format in formats(),
            bytes in pieces(),
            at in any::<prop::sample::Index>(),
        ) {
            let sender = INGEST.1.sender(Peer::Input);
            let received = || locked(&sender.entry.state).tally.received;
            let before = received();
            let (first, second) = bytes.split_at(at.index(bytes.len() + 1));
            let cut = messages(format, &[first, second], &sender);
            prop_assert_eq!(received() - before, cut as u64);
            prop_assert_eq!(messages(format, &[&bytes], &sender), cut);
            let arrival = Arrival { now: INGEST.1.now(), offset_s: 0 };
            datagram(format, &bytes, &sender, &arrival);
        }
    }
}
