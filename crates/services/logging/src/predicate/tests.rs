use std::collections::HashSet;

use helio_core::{Tai, TraceId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::compare::{Number, Order, Pattern, Sense, TextTest, ValueTest};
use super::tree::{Expression, Field, Moment, Path, Root, Term};
use super::*;
use crate::fields::TextField;
use crate::level::Level;
use crate::packet::tests::{packed, records, whole};
use crate::packet::{Packet, RecordRef};
use crate::record::{Audiences, Record, Site, Stack};
use crate::value::Value;

const NOW: &str = "2026-11-21T03:00:00Z";

fn now() -> Tai {
    NOW.parse().unwrap()
}

fn selector(text: &str) -> Selector {
    let predicate: Predicate = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    predicate.compile(now(), &Views::default()).unwrap()
}

/// Whether it matches, as a value and in a packet.
fn matches(text: &str, record: &Record) -> bool {
    let selector = selector(text);
    let bytes = packed(std::slice::from_ref(record));
    let packet = Packet::parse(&bytes).unwrap();
    let in_packet = selector.select(&packet).count() == 1;
    assert_eq!(selector.matches(record), in_packet, "{text}");
    assert_eq!(selector.matches_ref(packet.record(0).unwrap()), in_packet, "{text}");
    in_packet
}

#[test]
fn every_field_is_found() {
    let record = whole();
    for text in [
        "",
        "  ",
        "level = ERROR",
        "LEVEL>=8 AND level<ALERT",
        "time >= 2026-09-21T14:13:20Z and time < now",
        "logger = CONTROL/DV11/Mount",
        "logger = CONTROL/*",
        "logger ~ ^CONTROL",
        "audience = operator",
        "audience != Developer",
        "audience ~ ^Sci",
        "host = dv*-abm",
        "process = mountContainer:4711",
        "thread = control context = tracking array = Array002 antenna = DV11",
        "file = **/axis.cpp line = 120 routine = Axis::track",
        "line > 100 and line != 121",
        "stack = dv11-99 log_id = AxisOff",
        "uri = https://example.org/*",
        "trace = 07070707070707070707070707070707",
        "span = \"0808080808080808\" span = 08*",
        "producer = CONTROL/DV11",
        "message = \"axis azimuth is -3° off after 0.25 tries\"",
        r#"message ~ "-\d° (on|off)""#,
        "AZIMUTH \"is 3 off\" not mount",
        "data.encoder.a = true",
        "has data.encoder and not has data.encoder.b",
        "args.axis = azimuth",
        "args.0 < 0 args.0 = -3 args.1 <= 0.25 args.1 > 0.2",
        "view Operator and view engineer and not view SciLog",
        "time > 1980-01-01 (host = other or antenna = DV11)",
    ] {
        assert!(matches(text, &record), "{text}");
    }
}

#[test]
fn what_is_not_so_is_not_found() {
    let record = whole();
    for text in [
        "level = WARNING",
        "level != ERROR",
        "time > now",
        "time >= -15m",
        "logger = control/*",
        "logger = CONTROL/DV11",
        "audience = Developer",
        "audience != Operator",
        "host = abm",
        "line = 121",
        "axi",
        "\"azimuth axis\"",
        "args.axis = Azimuth",
        "args.0 > 0",
        "args.7 = 0",
        "args.other = 0",
        "data.encoder = 5",
        "data.other = 5",
        "data.encoder.a.b = 5",
        "not view Engineer",
        "antenna = DV11 and host = other",
        "not antenna = DV11",
        "trace = 0707",
    ] {
        assert!(!matches(text, &record), "{text}");
    }
}

/// The trap of three values: what is not there is neither equal nor unequal, and `not` of either is
/// true.
#[test]
fn a_missing_field_makes_comparisons_false_and_their_denials_true() {
    let record = Record::new(now(), Level::INFO, "a", "");
    let fields = "audience host process thread context array antenna file routine stack log_id uri \
                  trace span producer message data.x args.x args.0 data.x.y";
    for field in fields.split_whitespace() {
        assert!(!matches(&format!("has {field}"), &record), "{field}");
        for operator in ["=", "!=", "~", "!~"] {
            let comparison = format!("{field} {operator} \"0\"");
            assert!(!matches(&comparison, &record), "{comparison}");
            assert!(matches(&format!("not {comparison}"), &record), "{comparison}");
        }
    }
    for operator in ["=", "!=", "<", "<=", ">", ">="] {
        let comparison = format!("line {operator} 0");
        assert!(!matches(&comparison, &record), "{comparison}");
        assert!(matches(&format!("not {comparison}"), &record), "{comparison}");
    }
    assert!(matches("has level has time not has line", &record));
}

#[test]
fn numbers_are_compared_as_such_and_quotes_make_texts_of_them() {
    let mut record = Record::new(now(), Level::INFO, "a", "");
    let pairs = [("n", Value::Int(10)), ("acs", "10".into()), ("http.method", "GET".into())];
    record.data = pairs.map(|(name, value)| (name.to_owned(), value)).to_vec();
    for text in [
        "data.n > 9",
        "data.acs > 9",
        "data.n < \"9\"",
        "data.n = \"10\"",
        "data.n ~ ^1",
        "data.n = 10.0",
        "data.n = 1*",
        "data.\"http.method\" = GET",
        "data.\"http.method\" != 5",
        "not has data.http",
        "data.http.method = GET or data.n >= 1e1",
    ] {
        assert!(matches(text, &record), "{text}");
    }
    assert!(!matches("data.n > \"9\"", &record));
    assert!(!matches("data.\"http.method\" > 5 or data.\"http.method\" = get", &record));
}

#[test]
fn views_are_those_of_acs() {
    let seen = |view: &str, level, audiences: &Audiences| {
        let mut record = Record::new(now(), level, "a", "");
        record.audiences = audiences.clone();
        matches(&format!("view {view}"), &record)
    };
    let everyone = Audiences::everyone();
    let of = |name: &str| Audiences::of([name]);
    for (audiences, operator_info, operator_warning, scilog_notice) in [
        (Audiences::default(), false, true, false),
        (of("Operator"), true, true, false),
        (of("SciLog"), true, true, true),
        (of("Developer"), false, false, false),
        (of("DBA"), false, true, false),
        (Audiences::of(["Developer", "Operator"]), true, true, false),
        (everyone, true, true, true),
    ] {
        assert_eq!(seen("Operator", Level::INFO, &audiences), operator_info, "{audiences:?}");
        assert_eq!(seen("Operator", Level::WARNING, &audiences), operator_warning);
        assert_eq!(seen("SciLog", Level::NOTICE, &audiences), scilog_notice, "{audiences:?}");
        assert!(!seen("SciLog", Level::WARNING, &audiences));
        assert!(seen("Engineer", Level::TRACE, &audiences));
    }
}

#[test]
fn a_record_for_everyone_is_for_each_audience() {
    let mut record = Record::new(now(), Level::INFO, "a", "");
    record.audiences = Audiences::everyone();
    assert!(matches("has audience audience = Operator audience = Any audience ~ x", &record));
    assert!(!matches("audience != Operator or audience !~ x", &record));
}

#[test]
fn views_that_are_none_or_turn_in_circles_are_told() {
    let mut views = Views::default();
    views.define("Night", "view Operator".parse().unwrap());
    let compile = |text: &str, views: &Views| {
        text.parse::<Predicate>()
            .unwrap()
            .compile(now(), views)
            .map(drop)
            .map_err(|e| e.to_string())
    };
    assert_eq!(compile("view night", &views), Ok(()));
    assert_eq!(
        compile("view Day", &views).unwrap_err(),
        "there is no view \"Day\"; the views are Operator, SciLog, Engineer, Night"
    );
    views.define("NIGHT", "not view night".parse().unwrap());
    assert!(compile("view Night", &views).unwrap_err().contains("names itself"));
    for (name, inner) in [("a", "b"), ("b", "c"), ("c", "Operator")] {
        let text = format!("view {inner} or ").repeat(40) + "x";
        views.define(name, text.parse().unwrap());
    }
    assert!(compile("view a", &views).unwrap_err().contains("more than 4096 terms"));
}

#[test]
fn errors_say_where_and_what_was_expected() {
    for (text, column, expected) in [
        ("level >= LOUD", 10, "a level: TRACE"),
        ("level > 12", 9, "a level: TRACE"),
        ("level ~ W", 7, "one of = != < <= > >=;"),
        ("level", 6, "one of = != < <= > >= ~ !~; for the word write \"level\""),
        ("level WARNING", 7, "one of ="),
        ("level:WARNING", 1, "level = VALUE"),
        ("severity > 5", 1, "one of the fields level, time"),
        ("time > yesterday", 8, "a time such as"),
        ("time > 2026-01-01T00:00:00.0000000001Z", 8, "a time such as"),
        ("time > 99999-01-01", 8, "a time such as"),
        ("time > 2026-11-21T25:00:00Z", 8, "a time such as"),
        ("time > -5", 8, "a time such as"),
        ("time > -999999d", 8, "a time such as"),
        ("line = many", 8, "the number of a line"),
        ("host =", 7, "a text"),
        ("host == a", 7, "a value; put it in quotes"),
        ("host = \"\"", 8, "a text; where there is none, write not has host"),
        ("host < dv*", 8, "a text without *"),
        ("host = a\"b\"", 9, "a space"),
        ("audience < a", 10, "one of = != ~ !~"),
        ("audience = Op*", 12, "an audience; for a pattern"),
        ("message ~ \"(a\"", 11, "a regular expression (error: unclosed group)"),
        ("message ~ \"a{999}{999}\"", 11, "a regular expression (it is too large)"),
        ("\"off", 1, "a quote at the end, too"),
        ("\"a\"b", 4, "a space"),
        ("é (a or b", 10, "), and, or, or another term"),
        ("a)", 2, "the end; no parenthesis is open"),
        ("a or", 5, "a field, a word"),
        ("and", 1, "a field, a word"),
        ("a & b", 3, "1 to 64 words"),
        ("timeo*", 1, "a whole word"),
        ("-timeout", 1, "a word; what is not to be there"),
        ("has colour", 5, "a field: level"),
        ("data > 5", 5, "1 to 16 names, as in data.NAME"),
        ("data. > 5", 6, "a name"),
        ("view", 5, "the name of a view"),
        ("\"\"", 1, "1 to 64 words"),
    ] {
        let error = text.parse::<Predicate>().expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.expected.starts_with(expected), "{text}: {error}");
        assert_eq!(error.found.is_empty(), column > text.chars().count(), "{text}: {error}");
    }
    let error = "level >= LOUD".parse::<Predicate>().unwrap_err();
    assert!(error.to_string().starts_with("column 10: expected a level"), "{error}");
    assert!(error.to_string().ends_with("found \"LOUD\""), "{error}");
}

#[test]
fn length_depth_and_expressions_are_bounded() {
    let deepest = format!("{}a{}", "(".repeat(MAX_NESTING), ")".repeat(MAX_NESTING));
    assert_eq!(deepest.parse(), "a".parse::<Predicate>());
    for text in [
        format!("({deepest})"),
        "not ".repeat(MAX_NESTING + 1) + "a",
        "é".repeat(MAX_PREDICATE_BYTES),
        // Short as it stands, and too long when written out.
        "a ".repeat(MAX_PREDICATE_BYTES / 2),
        "host~a ".repeat(MAX_REGEXES + 1),
        format!("host = {}*", "a/".repeat(MAX_GLOB_PARTS)),
        format!("\"{}\"", "a ".repeat(MAX_PHRASE_WORDS + 1)),
        format!("data{} > 5", ".a".repeat(17)),
    ] {
        let error = text.parse::<Predicate>().expect_err(&text);
        assert!(
            error.expected.contains("at most")
                || error.expected.contains("1 to")
                || error.expected.contains("64 parts")
                || error.expected.contains("the limit"),
            "{error}"
        );
    }
    let none = Predicate::default();
    let (a, b): (Predicate, Predicate) = ("a or b".parse().unwrap(), "c".parse().unwrap());
    assert_eq!(none.and(&a), Ok(a.clone()));
    assert_eq!(a.and(&none), Ok(a.clone()));
    assert_eq!(a.and(&b).unwrap().to_string(), "(a or b) and c");
    let long: Predicate = "a".repeat(3_000).parse().unwrap();
    assert!(long.and(&long).is_err());
}

#[test]
fn a_predicate_is_written_in_one_way() {
    for (text, written) in [
        ("", ""),
        ("LEVEL>=warn&&", "level >= WARNING"),
        ("a b or c AND (d e)", "a and b or c and d and e"),
        ("not (not (a)) (b or (c or d))", "not not a and (b or c or d)"),
        ("Not (A b)", "not (a and b)"),
        ("\"Has\" \"DV11, off\"", "\"has\" and \"dv11 off\""),
        ("time>-90m time<now", "time > -90m and time < now"),
        ("time>-1h30m5s", "time > -5405s"),
        ("time=2026-11-21", "time = 2026-11-21T00:00:00.000000000Z"),
        ("host=\"a b\" host!=\"x*\"", "host = \"a b\" and host != \"x*\""),
        ("data.\"a.b\".c>+5 data.x=\"5\"", "data.\"a.b\".c > 5 and data.x = \"5\""),
        (r#"message~"\d \"x\" \\\\""#, r#"message ~ "\\d \"x\" \\\\""#),
        ("trace=AB*", "trace = ab*"),
        ("view \"Operator\" has args.axis", "view Operator and has args.axis"),
    ] {
        let predicate = text.trim_end_matches('&').parse::<Predicate>().unwrap();
        assert_eq!(predicate.to_string(), written);
        assert_eq!(written.parse(), Ok(predicate));
    }
}

#[test]
fn levels_and_times_are_as_narrow_as_they_can_be_told() {
    let levels = |text: &str| {
        selector(text)
            .levels()
            .map(|level| level.number().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(levels("timeout"), "1 2 3 4 5 6 7 8 9 10 11");
    assert_eq!(levels("level >= WARNING and timeout"), "6 7 8 9 10 11");
    assert_eq!(levels("not (level < ALERT or timeout)"), "10 11");
    assert_eq!(levels("level = INFO or level = 7 and host = a"), "4 7");
    assert_eq!(levels("level = INFO and level = 7"), "");
    assert_eq!(levels("view SciLog"), "5");
    let times = |text: &str| selector(text).times();
    let ago = |seconds: i64| Tai::from_nanos(now().nanos() - seconds * 1_000_000_000);
    let (first, last) = (Tai::from_nanos(i64::MIN), Tai::from_nanos(i64::MAX));
    assert_eq!(times("a"), first..=last);
    assert_eq!(times("time >= -15m and time <= now and a"), ago(900)..=now());
    assert_eq!(times("time = -5s or time = -1m"), ago(60)..=ago(5));
    assert_eq!(times("not time > -5s"), first..=ago(5));
    assert!(times("time > now time < -5s").is_empty());
    assert!(times("level = 1 level = 2").is_empty());
    // What cannot be does not widen what can.
    assert_eq!(times("time = -5s or time = -9s and level = 1 and level = 2"), ago(5)..=ago(5));
}

#[test]
fn of_a_malformed_body_what_lies_behind_the_damage_is_not_there() {
    use crate::packet::{Numbers, Origin, PacketWriter, RecordEntry};
    let mut body = crate::Body::default();
    body.text("off").member(TextField::Thread, "t");
    let mut damaged = body.as_bytes().to_vec();
    damaged.truncate(damaged.len() - 1);
    let (audiences, origin) = (Audiences::default(), Origin::default());
    let mut writer = PacketWriter::default();
    let entry = RecordEntry {
        time: now(),
        level: Level::INFO,
        logger: "a",
        audiences: &audiences,
        origin: &origin,
        site: None,
        registered: None,
        body: &damaged,
    };
    writer.push_entry(&entry).unwrap();
    let bytes = writer.finish(Numbers { lane: None, first: 1, shed: 0 });
    let packet = Packet::parse(bytes).unwrap();
    let count = |text: &str| selector(text).select(&packet).count();
    assert_eq!((count("off"), count("thread = t"), count("not thread = t")), (1, 0, 1));
}

/// Terms that hold of some of the [`scenes`] and not of others.
const TERMS: [&str; 54] = [
    "level >= WARNING",
    "level = 7",
    "level != INFO",
    "level < DEBUG",
    "time >= -3s",
    "time < -2s",
    "time = -3s",
    "time != -3s",
    "logger = CONTROL/*",
    "logger = CONTROL/**",
    "logger != **/Mount",
    "logger ~ 11",
    "logger !~ M",
    "logger > CONTROL",
    "host = dv*",
    "host != dv11",
    "has host",
    "process = p",
    "producer = p",
    "file = a/*",
    "line > 1",
    "line != 2",
    "has line",
    "routine = r",
    "audience = Operator",
    "audience != Operator",
    "audience ~ ^S",
    "audience !~ ^S",
    "has audience",
    "view Operator",
    "view SciLog",
    "thread = t",
    "context != t",
    "has array",
    "antenna = t",
    "stack = t",
    "log_id = t",
    "uri !~ t",
    "trace = 01*",
    "has span",
    "axis",
    "\"axis off\"",
    "message = \"axis off\"",
    "message ~ \"^axis\"",
    "has message",
    "data.x > 4",
    "data.x != 5",
    "data.x = fast",
    "data.x ~ .",
    "data.x.y >= 5",
    "has data.y",
    "args.x = 5",
    "args.1 != t",
    "has args.x",
];

fn small_values() -> impl Strategy<Value = Value> {
    let pair = |value| Value::Map(vec![("y".to_owned(), value)]);
    select(vec![
        Value::Int(5),
        Value::Double(4.5),
        "5".into(),
        "t".into(),
        "fast".into(),
        Value::Null,
        Value::Bool(true),
        pair(Value::Int(5)),
        pair("t".into()),
    ])
}

prop_compose! {
    /// Records of few values, so that terms hold of some and not of others.
    fn scenes()(
        (level, seconds) in (1..=11_u8, 0..5_i64),
        logger in select(vec!["", "CONTROL", "CONTROL/DV11", "CONTROL/DV11/Mount", "Mount"]),
        [host, file] in prop::array::uniform2(select(vec!["", "dv11", "dv12", "a/b"])),
        [process, producer, routine] in prop::array::uniform3(select(vec!["", "p", "r"])),
        (line, everyone) in (0..4_u32, prop::bool::weighted(0.1)),
        audiences in vec(select(vec!["Operator", "SciLog", "Developer"]), 0..3),
        texts in prop::array::uniform7(select(vec!["", "t", "u"])),
        [has_trace, has_span] in any::<[bool; 2]>(),
        text in option::of(select(vec!["", "axis off", "off axis", "Axis"])),
        arguments in vec(small_values(), 0..3),
        template in select(vec!["", "axis {}", "axis {x} {}"]),
        names in select(vec![vec![], vec!["x"], vec!["", "x"]]),
        data in vec((select(vec!["x", "y"]), small_values()), 0..3),
    ) -> Record {
        let [thread, context, array, antenna, stack, log_id, uri] = texts.map(str::to_owned);
        Record {
            time: Tai::from_nanos(now().nanos() - seconds * 1_000_000_000),
            level: Level::new(level).unwrap(),
            logger: logger.to_owned(),
            text: text.map(str::to_owned),
            arguments,
            site: Site {
                template: template.to_owned(),
                names: names.into_iter().map(str::to_owned).collect(),
                file: file.to_owned(),
                line,
                routine: routine.to_owned(),
                ..Site::default()
            },
            host: host.to_owned(),
            process: process.to_owned(),
            producer: producer.to_owned(),
            thread, context, array, antenna,
            audiences: Audiences { everyone, ..Audiences::of(audiences) },
            stack: Some(Stack { id: stack, level: 0 }),
            log_id, uri,
            trace: has_trace.then_some(TraceId([1; 16])),
            span: has_span.then_some([2; 8]),
            data: data.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..Record::default()
        }
    }
}

/// A predicate, and its truth found the plain way.
#[derive(Debug, Clone)]
enum Plain {
    Term(&'static str),
    Not(Box<Plain>),
    And(Vec<Plain>),
    Or(Vec<Plain>),
}

impl Plain {
    fn text(&self) -> String {
        let list = |inner: &[Self], between: &str| {
            let inner: Vec<_> = inner.iter().map(Self::text).collect();
            format!("({})", inner.join(between))
        };
        match self {
            Self::Term(text) => (*text).to_owned(),
            Self::Not(inner) => format!("not {}", inner.text()),
            Self::And(inner) => list(inner, " "),
            Self::Or(inner) => list(inner, " or "),
        }
    }

    fn holds(&self, record: &Record) -> bool {
        match self {
            Self::Term(text) => selector(text).matches(record),
            Self::Not(inner) => !inner.holds(record),
            Self::And(inner) => inner.iter().all(|inner| inner.holds(record)),
            Self::Or(inner) => inner.iter().any(|inner| inner.holds(record)),
        }
    }
}

fn plains() -> impl Strategy<Value = Plain> {
    let leaf = select(TERMS.to_vec()).prop_map(Plain::Term);
    leaf.prop_recursive(4, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Plain::Not(Box::new(inner))),
            vec(inner.clone(), 2..4).prop_map(Plain::And),
            vec(inner, 2..4).prop_map(Plain::Or),
        ]
    })
}

#[test]
fn terms_hold_of_some_scenes_and_not_of_others() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let records: Vec<_> =
        (0..400).map(|_| scenes().new_tree(&mut runner).unwrap().current()).collect();
    for term in TERMS {
        let selector = selector(term);
        let count = records.iter().filter(|record| selector.matches(record)).count();
        assert!((1..records.len()).contains(&count), "{term}: {count}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_predicate_holds_in_a_packet_as_it_does_of_values(
        plain in plains(),
        records in vec(scenes(), 1..6),
    ) {
        let selector = selector(&plain.text());
        let bytes = packed(&records);
        let packet = Packet::parse(&bytes).unwrap();
        let whole = |record: RecordRef<'_>| record.to_record().unwrap();
        let found: Vec<_> = selector.select(&packet).map(whole).collect();
        let all: Vec<_> = packet.records().map(whole).collect();
        let expected: Vec<_> =
            all.iter().filter(|record| plain.holds(record)).cloned().collect();
        prop_assert_eq!(&found, &expected);
        for (place, record) in all.into_iter().enumerate() {
            let is_found = expected.contains(&record);
            prop_assert_eq!(selector.matches_ref(packet.record(place).unwrap()), is_found);
            prop_assert_eq!(selector.matches(&record), is_found);
            if is_found {
                prop_assert!(selector.levels().any(|level| level == record.level));
                prop_assert!(selector.times().contains(&record.time));
            }
        }
    }

    #[test]
    fn nothing_is_lost_of_any_record_in_a_packet(
        plain in plains(),
        records in vec(records(), 1..4),
    ) {
        let selector = selector(&plain.text());
        let bytes = packed(&records);
        let packet = Packet::parse(&bytes).unwrap();
        let expected = records.iter().filter(|record| selector.matches(record)).count();
        prop_assert_eq!(selector.select(&packet).count(), expected);
    }

    #[test]
    fn de_morgan_holds(a in plains(), b in plains(), record in scenes()) {
        let (a, b) = (a.text(), b.text());
        let same = |one: String, two: String| {
            prop_assert_eq!(selector(&one).matches(&record), selector(&two).matches(&record));
            Ok(())
        };
        same(format!("not ({a} and {b})"), format!("not {a} or not {b}"))?;
        same(format!("not ({a} or {b})"), format!("not {a} and not {b}"))?;
        same(format!("not not {a}"), a)?;
    }

    #[test]
    fn unequal_is_there_and_not_equal(
        field in select(vec![
            "logger", "host", "audience", "message", "file", "thread", "uri", "stack", "trace",
            "data.x", "data.x.y", "args.x", "args.0",
        ]),
        (sign, value) in select(vec![
            ("=", "t"), ("=", "dv11"), ("=", "5"), ("=", "\"5\""), ("=", "Operator"),
            ("~", "[1t5]"),
        ]),
        record in scenes(),
    ) {
        let denied = selector(&format!("{field} !{sign} {value}")).matches(&record);
        let law = selector(&format!("has {field} and not {field} {sign} {value}"));
        prop_assert_eq!(denied, law.matches(&record));
    }
}

/// What is known of records, without a filter's errors.
struct Exact {
    levels: Vec<Level>,
    times: (Tai, Tai),
    keys: HashSet<(IndexTermKind, String)>,
}

impl Exact {
    fn of(packet: &Packet<'_>) -> Self {
        let times: Vec<_> = packet.records().map(RecordRef::time).collect();
        let times = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        let mut exact = Self {
            levels: packet.records().map(RecordRef::level).collect(),
            times,
            keys: HashSet::new(),
        };
        index_terms(packet, |key| _ = exact.keys.insert((key.kind, key.text.to_owned())));
        exact
    }
}

impl Outline for Exact {
    fn may_have_level(&self, level: Level) -> bool {
        self.levels.contains(&level)
    }

    fn times(&self) -> (Tai, Tai) {
        self.times
    }

    fn may_have(&self, key: IndexTerm<'_>) -> bool {
        self.keys.contains(&(key.kind, key.text.to_owned()))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn an_outline_never_excludes_what_matches(
        plain in plains(),
        records in vec(scenes(), 1..4),
    ) {
        let selector = selector(&plain.text());
        let bytes = packed(&records);
        let packet = Packet::parse(&bytes).unwrap();
        if selector.select(&packet).next().is_some() {
            prop_assert!(selector.may_match(&Exact::of(&packet)));
        }
    }
}

#[test]
fn each_field_of_a_record_excludes_records_without_it() {
    let bytes = packed(&[whole()]);
    let packet = Packet::parse(&bytes).unwrap();
    let exact = Exact::of(&packet);
    for there in [
        "axis \"is 3 off\" level = ERROR logger = CONTROL/DV11/Mount logger = CONTROL/DV11/*",
        "host = dv11-abm process = mountContainer:4711 producer = CONTROL/DV11",
        "file = mount/axis.cpp routine = Axis::track thread = control context = tracking",
        "array = Array002 antenna = DV11 stack = dv11-99 log_id = AxisOff has data.encoder",
        "uri = https://example.org/axis data.encoder.a = true data.encoder = \"{a: true}\"",
        "trace = 07070707070707070707070707070707 span = \"0808080808080808\"",
        "message = \"axis azimuth is -3° off after 0.25 tries\" time < now",
    ] {
        assert!(selector(there).may_match(&exact), "{there}");
    }
    for missing in [
        "axes",
        "axis level = DEBUG",
        "time > now",
        "logger = CONTROL/DV11/Mount/Azimuth/*",
        "logger = CONTROL/DV12/*",
        "logger = CORR",
        "host = dv11",
        "process = a or producer = a",
        "file = axis.cpp",
        "routine = track",
        "thread = a",
        "context = a",
        "array = a",
        "antenna = DV1",
        "stack = a",
        "log_id = a",
        "uri = a",
        "trace = 07",
        "span = \"08\"",
        "data.other != 5",
        "data.encoder.a = false",
        "message = \"axis 7\"",
    ] {
        assert!(!selector(missing).may_match(&exact), "{missing}");
    }
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![".{1,6}", "[a-zA-Z0-9\"\\\\*.()= -]{1,6}", Just("and".to_owned())]
}

fn orders() -> impl Strategy<Value = Order> {
    use Order::{AtLeast, AtMost, Equal, Greater, Less, NotEqual};
    select(vec![Equal, NotEqual, Less, AtMost, Greater, AtLeast])
}

fn senses() -> impl Strategy<Value = Sense> {
    select(vec![Sense::Is, Sense::IsNot])
}

fn text_tests() -> impl Strategy<Value = TextTest> {
    let globs = prop_oneof!["[^\\s()\"]{0,3}\\*[^\\s()\"]{0,3}", "[a/*]{0,6}\\*"];
    prop_oneof![
        (orders(), texts()).prop_map(|(order, text)| TextTest::Order(order, text)),
        (senses(), globs).prop_map(|(sense, glob)| TextTest::Glob(sense, glob.parse().unwrap())),
        regexes(),
    ]
}

fn regexes() -> impl Strategy<Value = TextTest> {
    let escaped = texts().prop_map(|text| regex::escape(&text));
    let regex = prop_oneof![
        escaped,
        select(vec!["", "a|b", "(?i)\\d+ \"x\"", "^.*$"]).prop_map(Into::into)
    ];
    (senses(), regex).prop_map(|(sense, text)| TextTest::Regex(sense, Pattern::new(&text).unwrap()))
}

fn paths() -> impl Strategy<Value = Path> {
    let root = select(vec![Root::Data, Root::Arguments]);
    (root, vec(texts(), 1..4)).prop_map(|(root, names)| Path { root, names })
}

fn text_fields() -> impl Strategy<Value = TextField> {
    use TextField::{Host, LogId, Logger, Message, Routine, Uri};
    select(vec![Logger, Host, Routine, Message, LogId, Uri])
}

fn fields() -> impl Strategy<Value = Field> {
    prop_oneof![
        select(vec![Field::Level, Field::Time, Field::Line, Field::Audience]),
        text_fields().prop_map(Field::Text),
        paths().prop_map(Field::Value),
    ]
}

fn moments() -> impl Strategy<Value = Moment> {
    let at = (0..i64::MAX).prop_map(|nanos| Moment::At(Tai::from_nanos(nanos)));
    // Within a leap second there are two times that are written the same, and neither is read.
    let at = at.prop_filter("a leap second", |moment| {
        moment.to_string().parse() == Ok(moment_time(*moment))
    });
    let ago = (0..1_000_i64, select(vec![1, 1_000_000_000, 60_000_000_000, 86_400_000_000_000]));
    prop_oneof![
        at,
        (0..=i64::MAX).prop_map(Moment::Ago),
        ago.prop_map(|(count, unit)| Moment::Ago(count * unit)),
    ]
}

fn moment_time(moment: Moment) -> Tai {
    match moment {
        Moment::At(time) => time,
        Moment::Ago(_) => unreachable!("it was made above"),
    }
}

fn terms() -> impl Strategy<Value = Term> {
    let numbers = prop_oneof![
        any::<i64>().prop_map(Number::WholeRecord),
        prop::num::f64::NORMAL.prop_map(Number::Real),
        Just(Number::Real(5.0)),
    ];
    let value_tests = prop_oneof![
        text_tests().prop_map(ValueTest::Text),
        (orders(), Just(""))
            .prop_map(|(order, text)| { ValueTest::Text(TextTest::Order(order, text.to_owned())) }),
        (orders(), numbers).prop_map(|(order, number)| ValueTest::Number(order, number)),
    ];
    let audiences = prop_oneof![
        (select(vec![Order::Equal, Order::NotEqual]), "[^*]{1,6}")
            .prop_map(|(order, name)| TextTest::Order(order, name)),
        (senses(), "[a-z.]{1,4}")
            .prop_map(|(sense, text)| { TextTest::Regex(sense, Pattern::new(&text).unwrap()) }),
    ];
    let phrases = vec(select(vec!["axis", "été", "and", "level", "data", "_", "0", "İ"]), 1..4);
    prop_oneof![
        (orders(), 1..=11_u8)
            .prop_map(|(order, level)| Term::Level(order, Level::new(level).unwrap())),
        (orders(), moments()).prop_map(|(order, moment)| Term::Time(order, moment)),
        (orders(), any::<u32>()).prop_map(|(order, line)| Term::Line(order, line)),
        audiences.prop_map(Term::Audience),
        (text_fields(), text_tests()).prop_map(|(field, test)| Term::Text(field, test)),
        (paths(), value_tests).prop_map(|(path, test)| Term::Value(path, test)),
        fields().prop_map(Term::Has),
        phrases.prop_map(|words| Term::Words(words.into_iter().map(str::to_owned).collect())),
        texts().prop_map(Term::View),
    ]
}

fn expressions() -> impl Strategy<Value = Expression> {
    terms().prop_map(Expression::Term).prop_recursive(4, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Expression::Not(Box::new(inner))),
            vec(inner.clone(), 2..4).prop_map(Expression::all),
            vec(inner, 2..4).prop_map(Expression::any),
        ]
    })
}

const PIECES: [&str; 44] = [
    "level",
    "time",
    "logger",
    "audience",
    "message",
    "host",
    "line",
    "data",
    "args",
    "data.",
    ".",
    "a",
    "\"",
    "\"a b\"",
    "\\",
    "(",
    ")",
    "and",
    "or",
    "not",
    "has",
    "view",
    "Operator",
    "=",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "~",
    "!~",
    "!",
    "*",
    "a*",
    "**/b",
    "-15m",
    "now",
    "5",
    "-1e3",
    "2026-11-21T03:00:00Z",
    "WARNING",
    " ",
    " ",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_written_is_read_as_the_same(tree in expressions()) {
        let predicate = Predicate(tree);
        prop_assert_eq!(predicate.to_string().parse(), Ok(predicate));
    }

    #[test]
    fn any_text_is_a_predicate_or_an_error(
        text in prop_oneof![
            ".{0,60}",
            vec(select(PIECES.to_vec()), 0..16).prop_map(|pieces| pieces.concat()),
            vec(select(PIECES.to_vec()), 0..16).prop_map(|pieces| pieces.join(" ")),
            "time > \"[0-9]{1,10}-[0-9]{1,4}-[0-9]{1,4}[T ][0-9:.+Z -]{0,24}\"",
            "time > [0-9TZ:.+-]{0,40}",
        ],
    ) {
        match text.parse::<Predicate>() {
            Ok(predicate) => {
                prop_assert_eq!(predicate.to_string().parse(), Ok(predicate.clone()));
                if let Ok(selector) = predicate.compile(now(), &Views::default()) {
                    _ = selector.matches(&whole());
                }
            }
            Err(error) => {
                prop_assert!((1..=text.chars().count() + 1).contains(&error.column));
                prop_assert!(!error.expected.is_empty());
            }
        }
    }
}

/// Predicates are written down, and the numbers of keys are part of the archive's format.
#[test]
fn the_names_of_fields_and_the_numbers_of_keys_stay_as_they_are() {
    assert_eq!(
        super::tree::Field::names(),
        "level, time, audience, line, logger, message, host, process, thread, context, file, \
         routine, array, antenna, stack, log_id, uri, trace, span, producer, data.NAME, args.NAME"
    );
    assert_eq!(super::tree::KEYWORDS, ["and", "or", "not", "has", "view"]);
    use TextField::{
        Antenna, Array, Context, File, Host, LogId, Logger, Message, Process, Producer, Routine,
        Span, Stack, Thread, Trace, Uri,
    };
    let fields = [
        Logger, Host, Process, Producer, File, Routine, Thread, Context, Array, Antenna, Stack,
        LogId, Uri, Trace, Span,
    ];
    let kinds = [IndexTermKind::Word, IndexTermKind::Data].into_iter();
    let kinds = kinds.chain(fields.map(IndexTermKind::Text)).map(IndexTermKind::number);
    assert!(kinds.eq(1..=17));
    assert_eq!(IndexTermKind::Text(Message).number(), IndexTermKind::Word.number());
}
