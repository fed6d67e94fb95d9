//! Records as messages of OTLP and back, and messages of others as records.

use crate::support::{records, whole};
use crate::targets::{NOW, shown};
use helio_core::Tai;
use helio_log_otlp::{Received, from_json, from_protobuf, to_json, to_protobuf};
use helio_logging::{Level, MAX_DEPTH, Record, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

proptest! {
    #[test]
    fn records_come_back(records in vec(records(), 0..6)) {
        for one in records.chunks(1) {
            let read = from_protobuf(to_protobuf(one).into(), NOW).unwrap();
            prop_assert_eq!(shown(&read.records), shown(one));
        }
        let read = from_protobuf(to_protobuf(&records).into(), NOW).unwrap();
        prop_assert_eq!(shown(&read.records), shown(&records));
        prop_assert_eq!(read.refused, 0);
        let read = from_json(&to_json(&records), NOW).unwrap();
        prop_assert_eq!(shown(&read.records), shown(&records));
    }
}

fn one(request: &Json) -> Record {
    let received = from_json(request.to_string().as_bytes(), NOW).unwrap();
    assert_eq!((received.records.len(), received.refused), (1, 0), "{received:?}");
    received.records.into_iter().next().unwrap()
}

/// A request with one record, of which a sender says no more than that.
fn with(record: Json) -> Json {
    json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] })
}

#[test]
fn a_record_is_the_json_that_opentelemetry_people_expect() {
    let written: Json = serde_json::from_slice(&to_json(&[whole()])).unwrap();
    let golden: Json = serde_json::from_str(include_str!("../golden/whole.json")).unwrap();
    assert_eq!(written, golden, "{written:#}");
    assert_eq!(one(&golden), whole());
}

#[test]
fn the_example_of_opentelemetry_is_read() {
    // The values are those of the example of opentelemetry-proto, examples/logs.json.
    let record = one(&json!({
        "resourceLogs": [{
            "resource": { "attributes": [
                { "key": "service.name", "value": { "stringValue": "my.service" } },
            ] },
            "scopeLogs": [{
                "scope": { "name": "my.library", "version": "1.0.0", "attributes": [
                    { "key": "my.scope.attribute", "value": { "stringValue": "some" } },
                ] },
                "logRecords": [{
                    "timeUnixNano": "1544712660300000000",
                    "observedTimeUnixNano": 1_544_712_660_300_000_000_u64,
                    "severityNumber": 10,
                    "severityText": "Information",
                    "traceId": "5B8EFFF798038103D269B633813FC60C",
                    "spanId": "EEE19B7EC3C1B174",
                    "body": { "stringValue": "Example log record" },
                    "attributes": [
                        { "key": "boolean.attribute", "value": { "boolValue": true } },
                        { "key": "int.attribute", "value": { "intValue": "10" } },
                        { "key": "double.attribute", "value": { "doubleValue": 637.704 } },
                        { "key": "map.attribute", "value": { "kvlistValue": { "values": [
                            { "key": "some.map.key", "value": { "stringValue": "some value" } },
                        ] } } },
                    ],
                    "unknownField": { "a": [1] },
                }],
            }],
        }],
    }));
    let time = Tai::from_unix_nanos(1_544_712_660_300_000_000);
    assert_eq!((record.time, record.observed), (time, Some(time)));
    assert_eq!((record.level, record.logger.as_str()), (Level::NOTICE, "my.library"));
    assert_eq!(record.producer, "my.service");
    assert_eq!(record.text.as_deref(), Some("Example log record"));
    assert_eq!(record.trace.unwrap().0[..2], [0x5b, 0x8e]);
    assert_eq!(record.span.unwrap()[7], 0x74);
    let inner = Value::Map(vec![("some.map.key".to_owned(), "some value".into())]);
    let scope = Value::Map(vec![("my.scope.attribute".to_owned(), "some".into())]);
    let expected = [
        ("boolean.attribute", true.into()),
        ("int.attribute", Value::Int(10)),
        ("double.attribute", Value::Double(637.704)),
        ("map.attribute", inner),
        ("otel.severity_text", "Information".into()),
        ("otel.scope.version", "1.0.0".into()),
        ("otel.scope.attributes", scope),
    ];
    assert_eq!(record.data, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn severities_are_levels_and_what_they_say_besides_is_kept() {
    for (number, text, level, kept) in [
        (1, "", Level::TRACE, 0),
        (2, "", Level::TRACE, 1),
        (9, "INFO", Level::INFO, 0),
        (13, "WARN", Level::WARNING, 0),
        (14, "LEVEL7", Level::new(7).unwrap(), 0),
        (14, "", Level::WARNING, 1),
        (0, "ERROR", Level::ERROR, 0),
        (0, "loud", Level::INFO, 1),
        (21, "CRITICAL", Level::EMERGENCY, 1),
        (24, "", Level::EMERGENCY, 1),
        (99, "", Level::INFO, 1),
        (-3, "x", Level::INFO, 2),
        (i32::MAX, "", Level::INFO, 1),
        (0, "", Level::INFO, 0),
    ] {
        let written = json!({ "severityNumber": number, "severityText": text });
        let record = one(&with(written));
        assert_eq!((record.level, record.data.len()), (level, kept), "{number} {text}");
        let back: Json = serde_json::from_slice(&to_json(&[record])).unwrap();
        let back = &back["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        if number != 0 {
            assert_eq!(back["severityNumber"], json!(number), "{number} {text}");
        }
        assert_eq!(back.get("attributes"), None, "{number} {text}");
    }
}

#[test]
fn a_record_without_a_time_has_that_of_its_observation_or_arrival() {
    let record = one(&with(json!({ "observedTimeUnixNano": "1544712660300000000" })));
    assert_eq!(Some(record.time), record.observed);
    let record = one(&with(json!({})));
    assert_eq!((record.time, record.observed, record.message()), (NOW, None, String::new()));
    let record = one(&with(json!({ "timeUnixNano": "18446744073709551615" })));
    let kept = ("otel.time_unix_nano".to_owned(), Value::Text(u64::MAX.to_string()));
    assert_eq!((record.time, record.data), (NOW, vec![kept]));
}

#[test]
fn a_body_may_be_any_value_and_goes_back_as_it_was() {
    for (body, text) in [
        (
            json!({ "kvlistValue": { "values": [{ "key": "a", "value": { "intValue": 1 } }] } }),
            "{a: 1}",
        ),
        (json!({ "arrayValue": { "values": [{ "boolValue": true }, {}] } }), "[true, null]"),
        (json!({ "intValue": "-7" }), "-7"),
        (json!({ "doubleValue": "NaN" }), "NaN"),
        (json!({ "doubleValue": 2 }), "2"),
        (json!({ "bytesValue": "_-8" }), "ffef"),
    ] {
        let record = one(&with(json!({ "body": body })));
        assert_eq!(record.message(), text);
        let again = from_protobuf(to_protobuf(std::slice::from_ref(&record)).into(), NOW).unwrap();
        assert_eq!(shown(&again.records), shown(std::slice::from_ref(&record)));
        let back: Json = serde_json::from_slice(&to_json(&[record])).unwrap();
        let back = &back["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        let is_text = back["body"].get("stringValue").is_some();
        assert!(!is_text && back.get("attributes").is_none(), "{back:#}");
    }
}

#[test]
fn ids_that_are_none_are_kept_as_what_they_are() {
    let record = one(&with(json!({ "traceId": "0".repeat(32), "spanId": "0102" })));
    let kept = ("otel.span_id".to_owned(), Value::Bytes(vec![1, 2]));
    assert_eq!((record.trace, record.span, record.data), (None, None, vec![kept]));
}

#[test]
fn records_of_one_resource_and_logger_travel_together() {
    let like = |host: &str, logger: &str, n: i64| Record {
        host: host.to_owned(),
        ..Record::new(Tai::from_nanos(n), Level::INFO, logger, "x")
    };
    let mixed = [like("a", "x", 1), like("b", "x", 2), like("a", "y", 3), like("a", "x", 4)];
    let written: Json = serde_json::from_slice(&to_json(&mixed)).unwrap();
    let counts: Vec<Vec<usize>> = written["resourceLogs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|logs| {
            let scopes = logs["scopeLogs"].as_array().unwrap();
            scopes.iter().map(|scope| scope["logRecords"].as_array().unwrap().len()).collect()
        })
        .collect();
    assert_eq!(counts, [vec![2, 1], vec![1]]);
    let read = from_json(written.to_string().as_bytes(), NOW).unwrap().records;
    let times: Vec<_> = read.iter().map(|record| record.time.nanos()).collect();
    assert_eq!(times, [1, 4, 3, 2]);
}

#[test]
fn a_record_that_is_wrong_spoils_no_other() {
    let good = json!({ "body": { "stringValue": "good" } });
    for wrong in [
        json!({ "traceId": "xyz" }),
        json!({ "severityNumber": "WARN" }),
        json!({ "timeUnixNano": "-1" }),
        json!({ "body": { "intValue": "1", "stringValue": "1" } }),
        json!({ "attributes": [{ "key": 7 }] }),
        json!(["no", "object"]),
    ] {
        let request = json!({ "resourceLogs": [{ "scopeLogs": [{
            "logRecords": [good, wrong, good],
        }] }] });
        let Received { records, refused, reason } =
            from_json(request.to_string().as_bytes(), NOW).unwrap();
        assert_eq!((records.len(), refused), (2, 1), "{wrong}");
        let reason = reason.unwrap();
        assert!(reason.starts_with("log record 2 of the request: "), "{reason}");
    }
}

#[test]
fn what_lies_too_deep_is_shown_as_a_text() {
    let deep = |count: usize| {
        (0..count).fold(
            json!({ "intValue": 7 }),
            |inner, _| json!({ "arrayValue": { "values": [inner] } }),
        )
    };
    let record = one(&with(json!({ "body": deep(25) })));
    assert_eq!(record.message(), format!("{}7{}", "[".repeat(25), "]".repeat(25)));
    let (_, kept) = &record.data[0];
    assert_eq!(kept.depth(), MAX_DEPTH);
    // What no decoder takes is refused, and nothing else is.
    let received =
        from_json(with(json!({ "body": deep(60) })).to_string().as_bytes(), NOW).unwrap();
    assert_eq!((received.records.len(), received.refused), (0, 1));
}
