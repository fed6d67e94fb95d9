use super::*;
use crate::formats::json;
use crate::formats::tests::{any_records, mount, same};
use crate::record::{Audiences, Record, Stack};
use crate::value::Value;
use proptest::prelude::*;

fn element(record: &Record) -> String {
    let mut bytes = Vec::new();
    write(record, &mut bytes);
    String::from_utf8(bytes).unwrap()
}

fn all(bytes: &[u8]) -> Vec<Result<Record, XmlError>> {
    read(bytes).collect()
}

fn one(text: &str) -> Record {
    let mut all = all(text.as_bytes());
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).unwrap()
}

/// What comes back of a record: ACS has no stack without an id at these levels.
fn expected(mut record: Record) -> Record {
    let none = |stack: &Stack| stack.id.is_empty() && matches!(stack.level, 0 | -1);
    record.stack = record.stack.filter(|stack| !none(stack));
    record
}

/// What a stream gives when it is fed in pieces of these sizes.
fn in_pieces(mut bytes: &[u8], sizes: &[usize]) -> Vec<Result<Record, XmlError>> {
    let (mut reader, mut found) = (Reader::default(), Vec::new());
    let mut sizes = sizes.iter().cycle();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at((*sizes.next().unwrap()).clamp(1, bytes.len()));
        reader.feed(piece);
        found.extend(std::iter::from_fn(|| reader.record()));
        bytes = rest;
    }
    reader.end();
    found.extend(std::iter::from_fn(|| reader.record()));
    found
}

/// What looks like XML.
const LIKE: &str = "(<(Info|Data|Log|/Info|/Data|!|!--|!\\[CDATA\\[|[?])?\
                    [ a\"'=&;/>-]{0,4}(\\]\\]>|-->|>)?){0,12}";

proptest! {
    #[test]
    fn records_come_back(records in prop::collection::vec(any_records(), 1..4)) {
        let mut document = DOCUMENT_START.as_bytes().to_vec();
        records.iter().for_each(|record| write(record, &mut document));
        document.extend_from_slice(DOCUMENT_END.as_bytes());
        let read = all(&document);
        prop_assert_eq!(read.len(), records.len());
        for (read, record) in read.into_iter().zip(records) {
            let (read, expected) = (read.unwrap(), expected(record));
            prop_assert!(same(&read, &expected), "{:?}\n{:?}", read, expected);
        }
    }

    #[test]
    fn others_read_our_documents(record in any_records()) {
        let text = format!("{DOCUMENT_START}{}{DOCUMENT_END}", element(&record));
        let document = roxmltree::Document::parse(&text).unwrap();
        let entry = document.root_element().last_element_child().unwrap();
        let visible = |text: &str| {
            text.chars().any(|c| is_forbidden(c) || c == ESCAPE || c == '\r')
        };
        let message: String =
            entry.children().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
        let expected = record.message();
        if !visible(&expected) {
            prop_assert_eq!(message, expected);
        }
        if !visible(&record.logger) {
            let logger = entry.attribute("SourceObject").unwrap_or("");
            prop_assert_eq!(logger, &record.logger);
        }
        let data: Vec<_> = entry.children().filter(|node| node.has_tag_name("Data")).collect();
        prop_assert_eq!(data.len(), record.data.len());
        // What reads ACS's Data takes the second pair's second attribute for its name.
        prop_assert!(data.iter().all(|node| node.attributes().len() == 1));
    }

    #[test]
    fn damage_is_told_and_costs_no_entry_before_it(
        records in prop::collection::vec(any_records(), 3),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1..400_usize, 1..5),
    ) {
        let (first, rest) = (element(&records[0]), &records[1..]);
        let mut damaged = rest.iter().map(element).collect::<String>().into_bytes();
        for (place, byte) in changes {
            let place = place.index(damaged.len());
            damaged[place] = byte;
        }
        damaged.truncate(cut.index(damaged.len()) + 1);
        let bytes = [first.as_bytes(), &damaged].concat();
        let found = all(&bytes);
        prop_assert!(same(found[0].as_ref().unwrap(), &expected(records[0].clone())));
        for error in found.iter().filter_map(|found| found.as_ref().err()) {
            prop_assert!((first.len() as u64 - 1..bytes.len() as u64).contains(&error.position));
        }
        prop_assert_eq!(format!("{:?}", in_pieces(&bytes, &sizes)), format!("{found:?}"));
    }

    #[test]
    fn any_bytes_are_records_or_errors(
        like in LIKE,
        bytes: Vec<u8>,
        sizes in prop::collection::vec(1..9_usize, 1..5),
    ) {
        for bytes in [like.as_bytes(), &bytes] {
            let found = all(bytes);
            for record in found.iter().flatten() {
                prop_assert!(same(&one(&element(record)), &expected(record.clone())));
            }
            prop_assert_eq!(format!("{:?}", in_pieces(bytes, &sizes)), format!("{found:?}"));
        }
    }
}

fn golden(name: &str, ours: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("HELIO_GOLDEN").is_some() {
        std::fs::write(&file, ours).unwrap();
    }
    assert_eq!(ours, std::fs::read_to_string(file).unwrap(), "{name}");
}

#[test]
fn documents_of_acs_are_read() {
    let document = include_bytes!("../../../tests/golden/acs-log.xml");
    let mut lines = Vec::new();
    for record in read(document) {
        match record {
            Ok(record) => json::write(&record, &mut lines),
            Err(error) => lines.extend_from_slice(format!("{error}\n").as_bytes()),
        }
    }
    golden("acs-log.jsonl", &String::from_utf8(lines).unwrap());
}

#[test]
fn the_elements_are_those_of_the_format() {
    let mut reserved = Record { level: Level::new(7).unwrap(), ..mount() };
    reserved.audiences = Audiences::everyone();
    reserved.text = Some("a]]>b \u{7}\0 \u{241b}\r\n".to_owned());
    let mut plain = Record::new("2026-11-21T03:00:00.123Z".parse().unwrap(), Level::INFO, "A", "x");
    plain.audiences = Audiences::of(["SciLog"]);
    plain.data = vec![("empty".to_owned(), "".into()), ("n".to_owned(), "N/A".into())];
    let elements: String = [mount(), reserved, plain].iter().map(element).collect();
    golden("acs-ours.xml", &format!("{DOCUMENT_START}{elements}{DOCUMENT_END}"));
}

#[test]
fn a_priority_of_its_own_is_kept_beside_the_level() {
    let entry = |tag: &str| one(&format!("<{tag} TimeStamp=\"2026-11-21T03:00:00.1\"/>"));
    let told = |name: &str, value: Value| vec![(name.to_owned(), value)];
    let info = entry("Info Priority=\"4\"");
    assert_eq!((info.level, info.data), (Level::INFO, vec![]));
    let info = entry("Info Priority=\"3\"");
    assert_eq!((info.level, info.data), (Level::INFO, told("Priority", Value::Int(3))));
    let info = entry("Info Priority=\"high\"");
    assert_eq!((info.level, info.data), (Level::INFO, told("Priority", "high".into())));
    let reserved = entry("Error Priority=\"7\"");
    assert_eq!((reserved.level.number(), reserved.data), (7, vec![]));
    let archive = entry("Archive Priority=\"5\"");
    assert_eq!((archive.level, archive.data), (Level::NOTICE, told("Element", "Archive".into())));
    let other = entry("Chatter");
    assert_eq!((other.level, other.data), (Level::INFO, told("Element", "Chatter".into())));
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let good = "<Info TimeStamp=\"2026-11-21T03:00:00.123\">-</Info>";
    let limit = "x".repeat(MAX_ELEMENT_BYTES);
    let many: String = (0..=MAX_ATTRIBUTES).map(|n| format!(" a{n}=\"\"")).collect();
    for (wrong, expected) in [
        ("Resolving ...".to_owned(), "text where a log entry is expected: \"Resolving ...\""),
        ("<!DOCTYPE Log [<!ENTITY a \"b\">]>".to_owned(), "declarations are refused"),
        ("<Info TimeStamp=\"x\"/>".to_owned(), "invalid TimeStamp \"x\""),
        ("<Info>m</Info>".to_owned(), "<Info> has no TimeStamp"),
        (good.replace(">-<", ">&bomb;<"), "the entity \"bomb\" is none of"),
        (good.replace("Stamp=\"", "Stamp=\"&bomb;"), "the entity \"bomb\" is none of"),
        (good.replace(">-<", "><b>m</b><"), "the tag \"<b>\" cannot be here"),
        (good.replace("</Info", "</Error"), "not well-formed"),
        (good.replace("<Info", "<Info Host=\"\" Host=\"\""), "not well-formed"),
        (good.replace("<Info", &format!("<Info{many}")), "more than 64 attributes"),
        (good.replace(">-<", &format!(">{limit}<")), "more than 1500000 bytes"),
        (good.replace("</Info>", ""), "cannot be here"),
        (good[..30].to_owned(), "cannot be here"),
        ("</Info>".to_owned(), "the tag \"</Info>\" cannot be here"),
    ] {
        let all = all(format!("{good}{wrong}{good}").as_bytes());
        let shown = &wrong[..wrong.len().min(40)];
        assert_eq!(all.len(), 3, "{shown}: {all:?}");
        assert!(all[0].is_ok() && all[2].is_ok(), "{shown}");
        let error = all[1].as_ref().unwrap_err();
        assert_eq!(error.position, good.len() as u64, "{shown}");
        assert!(error.to_string().contains(expected), "{shown}: {error}");
    }
    let cut = all(&good.as_bytes()[..30]);
    assert_eq!(cut, [Err(XmlError { position: 0, problem: XmlProblem::Cut })]);
}

#[test]
fn what_never_ends_is_given_up_at_the_limit() {
    let mut reader = Reader::default();
    reader.feed(b"<Info TimeStamp=\"2026-11-21T03:00:00.123\"><![CDATA[");
    let chunk = [b'<'; 1 << 16];
    let fed = (0..).find(|_| {
        reader.feed(&chunk);
        reader.record().is_some_and(|found| found.unwrap_err().problem == XmlProblem::TooLarge)
    });
    assert_eq!(fed, Some(MAX_ELEMENT_BYTES / chunk.len()));
    reader.feed(b"]]></Info><Info TimeStamp=\"2026-11-21T03:00:00.123\"/>");
    assert!(reader.record().unwrap().is_ok());
}

#[test]
fn an_ampersand_that_begins_no_reference_stays() {
    let tag = "<Info TimeStamp=\"2026-11-21T03:00:00.123\" Routine=\"f(a && b, &c)&#x41;&lt;\">";
    let record = one(&format!("{tag}a && b &amp; &#66;</Info>"));
    assert_eq!(record.site.routine, "f(a && b, &c)A<");
    assert_eq!(record.message(), "a && b & B");
}
