use super::*;
use crate::fields::TextField;
use crate::formats::tests::{any_records, mount, same};
use crate::level::Level;
use crate::record::Record;
use crate::value::Value;
use proptest::prelude::*;

const NOW: &str = "2026-11-22T18:40:58Z";

fn arrival() -> Arrival {
    Arrival { now: NOW.parse().unwrap(), offset_s: 0 }
}

fn record(message: &str) -> Record {
    read(message.as_bytes(), &arrival()).unwrap()
}

/// Time, host, logger, process and message.
fn parts(message: &str) -> [String; 5] {
    let record = record(message);
    let text = record.text.unwrap_or_default();
    let mut time = Vec::new();
    crate::formats::utc::put(&mut time, record.time, crate::formats::utc::Digits::Three);
    [String::from_utf8(time).unwrap(), record.host, record.logger, record.process, text]
}

fn written(record: &Record) -> String {
    let mut bytes = Vec::new();
    write(record, &mut bytes);
    String::from_utf8(bytes).unwrap()
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn messages_of_rfc_5424_are_read() {
    let message = "<165>1 2026-08-24T05:14:15.000003-07:00 gas01.example.org archive 8710 ID47 \
                   [id@32473 n=\"3\" \"]";
    assert!(read(message.as_bytes(), &arrival()).is_err());
    let message = "<165>1 2026-08-24T05:14:15.000003-07:00 gas01.example.org archive 8710 ID47 \
                   [id@32473 n=\"3\" \
                   q=\"a \\\"b\\\" \\\\ \\] \\n\"][flag@32473] \u{feff} two  spaces ";
    let record = record(message);
    assert_eq!(record.time, "2026-08-24T12:14:15.000003Z".parse().unwrap());
    assert_eq!(record.observed, Some(arrival().now));
    assert_eq!((record.level, record.log_id.as_str()), (Level::NOTICE, "ID47"));
    assert_eq!((record.host.as_str(), record.logger.as_str()), ("gas01.example.org", "archive"));
    assert_eq!((record.process.as_str(), record.message()), ("8710", " two  spaces ".to_owned()));
    let data = [
        ("syslog.facility", text("local4")),
        ("id@32473.n", text("3")),
        ("id@32473.q", text("a \"b\" \\ ] \\n")),
        ("flag@32473", Value::Null),
    ];
    assert_eq!(record.data, data.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn what_is_not_there_is_empty() {
    let bare = record("<0>1 - - - - - -");
    assert_eq!((bare.time, bare.level, bare.text), (arrival().now, Level::EMERGENCY, None));
    assert_eq!(record("<0>1 - - - - - - ").text, Some(String::new()));
    assert_eq!(record("<13>1 - h a - - [meta x=\"\"]").text, None);
}

#[test]
fn messages_of_rfc_3164_are_read_as_their_senders_write_them() {
    let time = "2026-11-22T18:40:58.000";
    for (message, expected) in [
        // logger and glibc to the socket of their own machine.
        ("<13>Nov 22 18:40:58 anna: on sky", [time, "", "anna", "", "on sky"]),
        ("<13>Nov 22 18:40:58 anna[812]: on sky\n", [time, "", "anna", "812", "on sky"]),
        // logger --rfc3164 and rsyslog to other machines.
        ("<13>Nov 22 18:40:58 gas01 anna: on sky", [time, "gas01", "anna", "", "on sky"]),
        (
            "<13>2026-11-22T18:40:58.123456+00:00 gas01 postfix/smtpd[812]:  on sky",
            ["2026-11-22T18:40:58.123", "gas01", "postfix/smtpd", "812", " on sky"],
        ),
        // Others.
        ("<13>Nov 22 18:40:58 gas01 on sky: yes", [time, "gas01", "", "", "on sky: yes"]),
        ("<13>Nov 22 2026 18:40:58.5: gas01 %LINK-3: up", {
            ["2026-11-22T18:40:58.500", "gas01", "%LINK-3", "", "up"]
        }),
        ("<13>NOV 22 18:40:58", [time, "", "", "", ""]),
        ("<13>on sky", [time, "", "", "", "on sky"]),
        ("<13>2 of 3 on sky", [time, "", "", "", "2 of 3 on sky"]),
        ("<13>", [time, "", "", "", ""]),
        ("<13>Feb 30 18:40:58 a: b", [time, "", "", "", "Feb 30 18:40:58 a: b"]),
    ] {
        assert_eq!(parts(message), expected, "{message}");
    }
    assert_eq!(record("<13>on sky").level, Level::NOTICE);
}

#[test]
fn a_time_without_a_year_is_the_one_next_to_now() {
    let time = |now: &str, offset_s, message: &str| {
        let arrival = Arrival { now: now.parse().unwrap(), offset_s };
        read(message.as_bytes(), &arrival).unwrap().time.to_utc_string()
    };
    let december = "<13>Dec 31 23:59:59 a: b";
    assert_eq!(time("2027-01-01T00:00:03Z", 0, december), "2026-12-31T23:59:59.000000000Z");
    assert_eq!(time("2026-12-31T20:00:00Z", 0, december), "2026-12-31T23:59:59.000000000Z");
    let january = "<13>Jan  1 00:00:02 a: b";
    assert_eq!(time("2026-12-31T23:59:58Z", 0, january), "2027-01-01T00:00:02.000000000Z");
    // Its clock is of Chile's summer.
    assert_eq!(time("2026-12-31T23:59:58Z", -10_800, december), "2027-01-01T02:59:59.000000000Z");
    let leap = "<13>Feb 29 12:00:00 a: b";
    assert_eq!(time("2026-11-22T18:40:58Z", 0, leap), "2028-02-29T12:00:00.000000000Z");
}

#[test]
fn a_time_of_another_age_is_kept() {
    let record = record("<13>1 1999-01-01T00:00:00Z h a - - - b");
    assert_eq!(record.time, "1999-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(record.observed, Some(arrival().now));
}

#[test]
fn what_is_no_utf_8_is_kept_as_bytes() {
    let bytes = b"<13>Nov 22 18:40:58 gas01 a: caf\xe9";
    let record = read(bytes, &arrival()).unwrap();
    assert_eq!(record.message(), "caf\u{fffd}");
    let raw = ("syslog.raw".to_owned(), Value::Bytes(bytes.to_vec()));
    assert_eq!(record.data.last(), Some(&raw));
}

#[test]
fn a_malformed_message_says_why() {
    let time = NOW;
    for (message, expected) in [
        (String::new(), "\"\" does not begin with a priority"),
        ("on sky\u{7}".to_owned(), "\"on sky\\x07\" does not begin with a priority"),
        ("<192>1 - - - - - -".to_owned(), "a priority from <0> to <191>"),
        ("<+13>a".to_owned(), "a priority"),
        ("<0013>a".to_owned(), "a priority"),
        ("<13>1 ".to_owned(), "no right TIMESTAMP"),
        ("<13>1 yesterday h a - - - m".to_owned(), "no right TIMESTAMP"),
        ("<13>1 2026-11-22T18:40:58 h a - - - m".to_owned(), "no right TIMESTAMP"),
        (format!("<13>1 {time}"), "no right TIMESTAMP"),
        (format!("<13>1 {time}  a - - - m"), "no right HOSTNAME"),
        (format!("<13>1 {time} h a"), "no right APP-NAME"),
        (format!("<13>1 {time} h a -"), "no right PROCID"),
        (format!("<13>1 {time} h a - -"), "no right MSGID"),
        (format!("<13>1 {time} h a - - m"), "no right STRUCTURED-DATA"),
        (format!("<13>1 {time} h a - - -m"), "no right STRUCTURED-DATA"),
        (format!("<13>1 {time} h a - - [x"), "no right STRUCTURED-DATA"),
        (format!("<13>1 {time} h a - - [x y=1] m"), "no right STRUCTURED-DATA"),
        (format!("<13>1 {time} h a - - [x y=\"1\" m"), "no right STRUCTURED-DATA"),
        (format!("<13>1 {time} h a - - [] m"), "no right STRUCTURED-DATA"),
        ("x".repeat(MAX_MESSAGE_BYTES + 1), "has 65536 bytes, the limit is 65535"),
    ] {
        let told = read(message.as_bytes(), &arrival()).unwrap_err().to_string();
        assert!(told.contains(expected) && told.len() < 300, "{told}");
    }
}

#[test]
fn records_are_written_as_the_rfc_has_them() {
    let mut record = mount();
    record.data.insert(0, ("origin.ip".to_owned(), text("10.0.0.7")));
    record.data.push(("note@32473.a]b".to_owned(), text("\\ \" ]")));
    record.data.push((FACILITY.to_owned(), text("local0")));
    assert_eq!(
        written(&record),
        "<131>1 2026-09-21T14:13:20.123456Z dv11-abm CONTROL/DV11/Mount mountContainer:4711 \
         AxisOff [record@32473 thread=\"control\" context=\"tracking\" file=\"mount/axis.cpp\" \
         line=\"120\" routine=\"Axis::track\" audiences=\"Operator SciLog\" array=\"Array002\" \
         antenna=\"DV11\" stack_id=\"dv11-99\" stack_level=\"1\" uri=\"https://example.org/axis\" \
         trace_id=\"07070707070707070707070707070707\" span_id=\"0808080808080808\" \
         producer=\"CONTROL/DV11\" sequence=\"41\"][origin ip=\"10.0.0.7\"]\
         [data@32473 encoder=\"{a: true}\"][note@32473 a_b=\"\\\\ \\\" \\]\"] \
         \u{feff}axis azimuth is -3° off after 0.25 tries"
    );
    let again = read(written(&record).as_bytes(), &arrival()).unwrap();
    assert_eq!(again.audiences, record.audiences);
    assert!(again.data.contains(&("encoder".to_owned(), text("{a: true}"))));
    let other = "<15>1 - - - - - [record@32473 level=\"EMERGENCY\"] x";
    let other = read(other.as_bytes(), &arrival()).unwrap();
    assert_eq!(other.level, Level::DEBUG, "the priority says so");
    let before: Tai = "2016-12-31T23:59:59.5Z".parse().unwrap();
    let leap = Tai::from_nanos(before.nanos() + 1_000_000_000);
    let plain = Record::new(leap, Level::TRACE, "a b", "x");
    assert_eq!(
        written(&plain),
        "<15>1 2016-12-31T23:59:59.999999Z - a_b - - \
         [record@32473 logger=\"a b\" level=\"TRACE\"] x"
    );
}

/// What a sender sends, in both framings, and what comes of it.
fn streams() -> impl Strategy<Value = (Vec<u8>, Vec<Vec<u8>>)> {
    let message =
        prop::collection::vec(any::<u8>().prop_filter("a line's", |c| *c != b'\n'), 0..20);
    let framed = (message, any::<bool>()).prop_map(|(message, counted)| {
        let message = [b"<0>", message.as_slice()].concat();
        let counted =
            counted.then(|| [format!("{} ", message.len()).as_bytes(), &message].concat());
        (counted.unwrap_or_else(|| [message.as_slice(), b"\n"].concat()), message)
    });
    prop::collection::vec(framed, 0..6).prop_map(|all| {
        let (framed, messages): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        (framed.concat(), messages)
    })
}

fn framed(bytes: &[u8], sizes: &[usize]) -> Vec<Result<Vec<u8>, FrameError>> {
    let (mut framer, mut found) = (Framer::default(), Vec::new());
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
        framer.feed(piece);
        while let Some(message) = framer.message() {
            found.push(message.map(<[u8]>::to_vec));
        }
        rest = behind;
    }
    framer.end();
    while let Some(message) = framer.message() {
        found.push(message.map(<[u8]>::to_vec));
    }
    found
}

proptest! {
    #[test]
    fn streams_are_cut_into_their_messages(
        (bytes, messages) in streams(),
        sizes in prop::collection::vec(1..30_usize, 1..4),
    ) {
        let expected: Vec<_> = messages.into_iter().map(Ok).collect();
        prop_assert_eq!(framed(&bytes, &sizes), expected);
    }

    #[test]
    fn any_stream_ends(
        bytes: Vec<u8>,
        like in "([0-9]{0,11} ?<[0-9]>[a-z]{0,5}\n?){0,5}",
        sizes in prop::collection::vec(1..9_usize, 1..4),
    ) {
        for bytes in [bytes.as_slice(), like.as_bytes()] {
            prop_assert_eq!(framed(bytes, &sizes), framed(bytes, &[bytes.len()]));
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(
        bytes: Vec<u8>,
        like in "<[0-9]{1,3}>(1 )?[-A-Za-z0-9:.\\[\\]=\"\\\\ é]{0,60}",
        time in "(1 )?[A-Z][a-z]{2} [ 0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} .{0,20}",
    ) {
        let stamped = [b"<13>", time.as_bytes(), &bytes].concat();
        for bytes in [bytes.as_slice(), like.as_bytes(), &stamped] {
            if let Ok(record) = read(bytes, &arrival()) {
                // What we make of it is well-formed.
                let message = written(&record);
                prop_assert!(read(message.as_bytes(), &arrival()).is_ok(), "{}", message);
            }
        }
    }

    #[test]
    fn what_is_written_comes_back(record in any_records()) {
        let read = read(written(&record).as_bytes(), &arrival()).unwrap();
        prop_assert_eq!(read.level, record.level);
        let mut message = record.message();
        // A zero byte or a line's end is the frame's.
        message.truncate(message.strip_suffix('\0').map_or(message.len(), str::len));
        let line = message.strip_suffix("\r\n").or_else(|| message.strip_suffix('\n'));
        message.truncate(line.map_or(message.len(), str::len));
        prop_assert_eq!(read.message(), message);
        for field in TextField::ALL {
            prop_assert_eq!(field.member(&read), field.member(&record));
        }
        for field in [
            |record: &Record| record.site.line.to_string(),
            |record: &Record| record.sequence.to_string(),
            |record: &Record| format!("{:?}", (&record.stack, &record.trace, &record.span)),
        ] {
            prop_assert_eq!(field(&read), field(&record));
        }
        let again = super::read(written(&read).as_bytes(), &arrival()).unwrap();
        prop_assert_eq!(again.data.len(), read.data.len());
        let bare = |record: Record| Record { data: vec![], text: None, ..record };
        prop_assert!(same(&bare(again), &bare(read)));
    }
}

#[test]
fn a_message_that_is_too_long_costs_no_other_one() {
    let long = "x".repeat(MAX_MESSAGE_BYTES + 1);
    let next = (b"<0>next".to_vec(), Ok(b"<0>next".to_vec()));
    for stream in [format!("{} {long}<0>next\n", long.len()), format!("<{long}\n7 <0>next")] {
        for size in [1_000, stream.len()] {
            let found = framed(stream.as_bytes(), &[size]);
            assert_eq!(found, [Err(FrameError::TooLarge), next.1.clone()]);
        }
    }
    assert_eq!(framed(b"9 <0>cut", &[3]), [Err(FrameError::Cut)]);
    assert_eq!(framed(b"<0>last", &[3]), [Ok(b"<0>last".to_vec())]);
}
