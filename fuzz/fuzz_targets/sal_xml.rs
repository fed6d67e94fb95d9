//! Interface folders of any text: read or refused, never a panic, a hang or a large allocation.
//!
//! The input is the folder's files in the order of `FILES`, separated by zero bytes; those that are
//! missing have a default.
#![no_main]

use helio_core::sal::{Interfaces, SalNaming};
use libfuzzer_sys::fuzz_target;

const FILES: [(&str, &str); 4] = [
    ("C/C_Telemetry.xml", "<SALTelemetrySet/>"),
    (
        "SALSubsystems.xml",
        "<SALSubsystemSet><SALSubsystem><Name>C</Name><IndexEnumeration>any</IndexEnumeration>\
         <AddedGenerics>csc</AddedGenerics></SALSubsystem></SALSubsystemSet>",
    ),
    ("SALGenerics.xml", "<SALObjects/>"),
    ("C/topic.avsc", r#"{"type": "record", "name": "topic", "fields": []}"#),
];

fuzz_target!(|data: &[u8]| {
    let mut parts = data.split(|byte| *byte == 0);
    let files = FILES.map(|(path, default)| {
        let given = parts.next().filter(|part| !part.is_empty());
        (path, given.unwrap_or(default.as_bytes()))
    });
    let Ok(interfaces) = Interfaces::load(files) else { return };
    for topic in interfaces.topics() {
        let record = topic.sal_record(&SalNaming::default());
        assert_eq!(record.revcode.len(), 8);
        let schema = topic.schema().expect("a small topic's schema is legal");
        let sal = topic.sal_schema().expect("a small topic's schema is legal");
        assert_eq!(schema.canonical_form(), sal.canonical_form());
    }
    assert!(interfaces.diff(&interfaces).is_ok_and(|diff| diff.is_empty()));
});
