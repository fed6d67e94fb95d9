//! A component as YAML of any text: read or refused, never a panic, a hang or a large allocation.
#![no_main]

use helio_core::sal::{Interfaces, SalNaming};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(interfaces) = Interfaces::load([("C.yaml", data)]) else { return };
    assert_eq!(interfaces.components().len(), 1);
    for topic in interfaces.topics() {
        let record = topic.sal_record(&SalNaming::default());
        assert_eq!(record.revcode.len(), 8);
        let schema = topic.schema().expect("a small topic's schema is legal");
        let sal = topic.sal_schema().expect("a small topic's schema is legal");
        assert_eq!(schema.canonical_form(), sal.canonical_form());
    }
    assert!(interfaces.diff(&interfaces).is_ok_and(|diff| diff.is_empty()));
});
