//! Foreign formats of log records, as pure functions between bytes and records. There is no I/O and
//! no clock.
//!
//! | module | what |
//! | --- | --- |
//! | [`acs_xml`] | ALMA's ACS: log entries as XML, in and out |
//! | [`json`] | JSON lines: a record a line, nothing of it lost |
//! | [`csv`] | chosen columns for spreadsheets, out only |
//! | [`syslog`] | RFC 5424 in and out, RFC 3164 in, and frames of TCP |

pub mod acs_xml;
pub mod csv;
pub mod json;
mod json_foreign;
pub mod syslog;
pub(crate) mod utc;

/// The beginning of some bytes as one line of visible characters, for an error's message.
fn shown(bytes: &[u8]) -> String {
    // Enough to recognize the source.
    const MOST: usize = 48;
    let dots = if bytes.len() > MOST { "..." } else { "" };
    format!("\"{}\"{dots}", bytes[..bytes.len().min(MOST)].escape_ascii())
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::fields::TextField;
    use crate::packet::tests::{records, whole};
    use crate::record::{Audiences, Record, Stack};
    use crate::value::Value;
    use proptest::prelude::*;

    /// A mount's record with every field.
    pub(crate) fn mount() -> Record {
        whole()
    }

    /// The names that formats give to fields are read for ever, whatever ours are called.
    #[test]
    fn the_names_of_fields_stay_as_they_are() {
        let percent = Record {
            site: crate::record::Site { style: crate::record::Style::Percent, ..mount().site },
            audiences: Audiences::everyone(),
            ..Record::new(mount().time, crate::level::Level::EMERGENCY, "a", "b")
        };
        let (mut json, mut csv) = (Vec::new(), Vec::new());
        let golden = include_str!("../../tests/golden/record-1.csv");
        // A field that was added later has no column in the golden file.
        let columns = golden.lines().next().unwrap().split(',');
        let columns: Vec<super::csv::Column> = columns.map(|name| name.parse().unwrap()).collect();
        super::csv::write_header(&columns, &mut csv);
        for record in [mount(), percent] {
            super::json::write(&record, &mut json);
            super::csv::write(&record, &columns, &mut csv);
        }
        let csv = String::from_utf8(csv).unwrap().replace("\r\n", "\n");
        for (name, ours) in
            [("record-1.jsonl", String::from_utf8(json).unwrap()), ("record-1.csv", csv)]
        {
            let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
            let golden = std::path::Path::new(golden).join(name);
            if std::env::var_os("HELIO_GOLDEN").is_some() {
                std::fs::write(&golden, &ours).unwrap();
            }
            assert_eq!(ours, std::fs::read_to_string(golden).unwrap());
        }
        let golden = include_str!("../../tests/golden/record-1.jsonl");
        assert_eq!(super::json::read(golden.lines().next().unwrap().as_bytes()), Ok(mount()));
    }

    /// Texts with what formats trip over.
    fn hard() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            "[a-z]{0,6}",
            "(?s).{0,12}",
            "[<>&\"'\\]\\[ \\n\\r\\t=\\\\#;x]{0,12}",
            "[\\x00-\\x20\u{7f}-\u{9f}\u{2028}\u{feff}\u{fffd}-\u{ffff}\u{241b}0-9a-f;]{0,12}",
            Just("]]>]]]]>".to_owned()),
            Just("N/A".to_owned()),
        ]
    }

    fn hard_values() -> impl Strategy<Value = Value> {
        prop_oneof![
            hard().prop_map(Value::Text),
            any::<f64>().prop_map(Value::Double),
            Just(Value::Double(f64::NAN)),
            Just(Value::Double(f64::INFINITY)),
            Just(Value::Int(i64::MIN)),
            hard().prop_map(|name| Value::Map(vec![
                (name.clone(), 1_i64.into()),
                (name, Value::Null)
            ])),
            "[$](int|double|bytes|map|x)".prop_map(|tag| Value::Map(vec![(tag, "1".into())])),
        ]
    }

    /// Records of all kinds, with much that is hard on a format.
    pub(crate) fn any_records() -> impl Strategy<Value = Record> {
        let texts = prop::collection::vec(hard(), TextField::ALL.len() + 4);
        let values = prop::collection::vec((hard(), hard_values()), 0..4);
        let time = prop_oneof![
            any::<i64>(),
            1_500_000_000_000_000_000..1_900_000_000_000_000_000_i64,
            (1_500_000_000_000..1_900_000_000_000_i64).prop_map(|ms| ms * 1_000_000),
        ];
        (records(), texts, values, time, any::<u64>(), any::<bool>()).prop_map(
            |(record, texts, values, time, sequence, hard)| {
                let record = Record { time: helio_core::Tai::from_nanos(time), sequence, ..record };
                if hard { harden(record, texts, values) } else { record }
            },
        )
    }

    fn harden(mut record: Record, texts: Vec<String>, values: Vec<(String, Value)>) -> Record {
        let mut texts = texts.into_iter();
        for field in TextField::ALL {
            if let Some(member) = field.member_mut(&mut record) {
                *member = texts.next().unwrap_or_default();
            }
        }
        record.site.template = texts.next().unwrap_or_default();
        record.text = record.text.and(texts.next());
        record.audiences =
            Audiences { names: texts.next().into_iter().collect(), ..record.audiences };
        record.stack = record.stack.and(texts.next()).map(|id| Stack { id, level: 3 });
        record.arguments = values.iter().map(|(_, value)| value.clone()).collect();
        record.data.extend(values);
        record
    }

    /// Whether two records are the same, where a NaN is the same as another.
    pub(crate) fn same(one: &Record, other: &Record) -> bool {
        // As a text a negative zero is not zero, and a NaN is itself.
        format!("{one:?}") == format!("{other:?}")
    }
}
