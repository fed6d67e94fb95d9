//! OpenTelemetry's own software at the other end: its Python SDK and exporters send to our service,
//! and we send to receivers made of the classes of its `opentelemetry-proto`.

use std::time::Duration;

use crate::others;
use crate::support::bus::{Published, forward};
use crate::support::kept::served;
use crate::support::whole;
use helio_core::{Tai, TraceId};
use helio_log_otlp::{
    Exporter, ExporterOptions, ForwardError, ForwardEvent, Protocol, to_protobuf,
};
use helio_logging::{Level, Record, Value};
use serde_json::{Value as Json, json};

const TIME: i64 = 1_790_000_000_123_456_789;

fn map(pairs: &[(&str, Value)]) -> Value {
    Value::Map(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn pairs(all: &[(&str, Value)]) -> Vec<(String, Value)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// What each record of the SDK has besides.
fn of_sdk(record: &Record) {
    assert_eq!(record.producer, "correlator");
    assert_eq!((record.host.as_str(), record.process.as_str()), ("cob-cc", "corr:4711"));
    let (name, resource) = record.data.last().unwrap();
    assert_eq!(name, "otel.resource.attributes");
    let Value::Map(resource) = resource else { panic!("{resource:?}") };
    assert!(resource.contains(&("service.version".to_owned(), "2.1".into())), "{resource:?}");
    assert!(record.data.contains(&(
        "otel.resource.schema_url".to_owned(),
        "https://opentelemetry.io/schemas/1.38.0".into()
    )));
}

/// The record with all that the API has.
fn whole_of_sdk(record: &Record) {
    assert_eq!(record.time, Tai::from_unix_nanos(TIME));
    assert_eq!(record.observed, Some(Tai::from_unix_nanos(TIME + 5)));
    assert_eq!(record.level, Level::WARNING);
    assert_eq!(record.logger, "CORR/Baseline");
    assert_eq!(record.text.as_deref(), Some("baseline ångström"));
    let (trace, span) =
        (std::array::from_fn(|n| n as u8 + 1), std::array::from_fn(|n| n as u8 + 17));
    assert_eq!((record.trace, record.span, record.flags), (Some(TraceId(trace)), Some(span), 1));
    assert_eq!(record.log_id, "corr.baseline");
    let site = &record.site;
    assert_eq!(
        (site.file.as_str(), site.line, site.routine.as_str()),
        ("baseline.py", 12, "correlate")
    );
    assert_eq!(record.thread, "worker");
    let texts = Value::Array(vec!["a".into(), "b".into()]);
    let inner = Value::Array(vec![Value::Int(1), Value::Int(2)]);
    let expected = pairs(&[
        ("text", "x".into()),
        ("int", Value::Int(-3)),
        ("double", Value::Double(0.1)),
        ("flag", false.into()),
        ("texts", texts),
        ("bytes", Value::Bytes(vec![0, 0xff])),
        ("map", map(&[("inner", inner)])),
        ("otel.severity_number", Value::Int(14)),
        ("otel.severity_text", "careful".into()),
        ("otel.scope.version", "0.9".into()),
        ("otel.scope.schema_url", "https://example.org/schema".into()),
        ("otel.scope.attributes", map(&[("scoped", true.into())])),
    ]);
    assert_eq!(record.data[..expected.len()], expected);
}

/// The record that Python's `logging` has made.
fn of_logging(record: &Record) {
    assert_eq!(record.level, Level::ERROR);
    assert_eq!(
        (record.logger.as_str(), record.message().as_str()),
        ("corr.python", "of logging 7")
    );
    assert!(record.site.file.ends_with("peer.py") && record.site.line > 0, "{:?}", record.site);
    assert_eq!(record.site.routine, "send");
    assert!(record.data.contains(&("antenna".to_owned(), "DV11".into())));
}

#[test]
fn what_opentelemetrys_sdk_sends_is_what_arrives() {
    let Some(python) = others::python() else { return };
    let (kept, serving, grpc, http) = served();
    for (kind, url) in [("grpc", grpc), ("http", http)] {
        others::send(&python, kind, &url);
        let records = std::mem::take(&mut *kept.records.lock().unwrap());
        assert_eq!(records.len(), 28, "{kind}: {records:#?}");
        records.iter().for_each(of_sdk);
        whole_of_sdk(&records[0]);
        let body = Value::Array(vec![Value::Null, "x".into()]);
        let body = ("otel.body".to_owned(), map(&[("a", Value::Int(1)), ("b", body)]));
        assert!(records[1].data.contains(&body), "{:?}", records[1]);
        assert_eq!(records[1].message(), "{a: 1, b: [null, x]}");
        // SeverityNumber's 25 values, from UNSPECIFIED on.
        for (number, record) in records[2..27].iter().enumerate() {
            let number = i32::try_from(number).unwrap();
            assert_eq!(record.level, Level::from_severity(number), "{record:?}");
            let is_kept = record.data.iter().any(|(name, _)| name == "otel.severity_number");
            let says_all = number == 0 || i32::from(record.level.severity()) == number;
            assert_eq!(is_kept, !says_all, "{record:?}");
        }
        of_logging(&records[27]);
    }
    assert!(kept.refused.lock().unwrap().is_empty());
    drop(serving);
}

fn exporter(protocol: Protocol, ports: &Json) -> Exporter {
    let name = if protocol == Protocol::Grpc { "grpc" } else { "http" };
    let url = format!("http://127.0.0.1:{}", ports[name]);
    let options = ExporterOptions { timeout: Duration::from_secs(60), ..Default::default() };
    Exporter::new(protocol, &url, &options).unwrap()
}

#[test]
fn what_we_send_is_what_opentelemetrys_classes_read() {
    let Some(mut receiver) = others::Receiver::start() else { return };
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let exporter = exporter(protocol, &receiver.ports);
        assert_eq!(exporter.export(to_protobuf(&[whole()])).unwrap().records, 0);
        let request = receiver.request();
        let logs = &request["resourceLogs"][0];
        let record = &logs["scopeLogs"][0]["logRecords"][0];
        assert_eq!(logs["scopeLogs"][0]["scope"], json!({ "name": "CONTROL/DV11/Mount" }));
        let attribute = |all: &Json, name: &str| {
            let mut all = all["attributes"].as_array().unwrap().iter();
            all.find(|pair| pair["key"] == name).map(|pair| pair["value"].clone())
        };
        let text = |text: &str| Some(json!({ "stringValue": text }));
        assert_eq!(attribute(&logs["resource"], "service.name"), text("CONTROL/DV11"));
        assert_eq!(attribute(&logs["resource"], "host.name"), text("dv11-abm"));
        assert_eq!(
            attribute(&logs["resource"], "process.pid"),
            Some(json!({ "intValue": "4711" }))
        );
        assert_eq!(record["severityNumber"], "SEVERITY_NUMBER_ERROR3");
        assert_eq!(record["severityText"], "ALERT");
        assert_eq!(record["timeUnixNano"], "1790000000123456789");
        assert_eq!(record["observedTimeUnixNano"], "1790000000200000000");
        assert_eq!(record["body"]["stringValue"], "axis azimuth is -3° off after 0.25 tries");
        assert_eq!(record["eventName"], "AxisOff");
        // JSON of Protobuf's own kind has ids in base64.
        assert_eq!(record["traceId"], "BwcHBwcHBwcHBwcHBwcHBw==");
        assert_eq!((&record["spanId"], &record["flags"]), (&json!("CAgICAgICAg="), &json!(1)));
        assert_eq!(attribute(record, "code.file.path"), text("mount/axis.cpp"));
        assert_eq!(attribute(record, "code.line.number"), Some(json!({ "intValue": "120" })));
        let audiences =
            json!({ "values": [{ "stringValue": "Operator" }, { "stringValue": "SciLog" }] });
        assert_eq!(attribute(record, "helio.audiences"), Some(json!({ "arrayValue": audiences })));
        assert_eq!(attribute(record, "raw"), Some(json!({ "bytesValue": "AP8=" })));
    }
}

#[test]
fn a_forwarder_does_what_opentelemetrys_receivers_say() {
    let Some(mut receiver) = others::Receiver::start() else { return };
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cursor");
        let mut published = Published::new();
        published.publish(30);
        receiver.tell(&["partial 2", "bad", "denied"]);
        let mut forwarder = published.forwarder(exporter(protocol, &receiver.ports), &file);
        let failed = forward(&mut forwarder).unwrap_err();
        assert!(matches!(failed, ForwardError::Never(_)), "{failed}");
        // Two of the first batch and all of the second are refused; the third one is kept.
        assert_eq!((forwarder.figures().taken, forwarder.figures().refused), (8, 12));
        let answers: Vec<_> = (0..3).map(|_| receiver.answered()).collect();
        assert_eq!(
            answers,
            [("partial 2".to_owned(), 10), ("bad".to_owned(), 10), ("denied".to_owned(), 10)]
        );
        drop(forwarder);
        receiver.tell(&["busy", "large 3"]);
        let mut forwarder = published.forwarder(exporter(protocol, &receiver.ports), &file);
        let told = forward(&mut forwarder).unwrap();
        assert!(matches!(told.as_slice(), [ForwardEvent::Later { .. }]), "{told:?}");
        assert!(forward(&mut forwarder).unwrap().is_empty());
        assert_eq!(forwarder.figures().taken, 10);
        let counts: Vec<_> = std::iter::from_fn(|| Some(receiver.answered())).take(7).collect();
        let counts: Vec<_> =
            counts.iter().map(|(answer, count)| (answer.as_str(), *count)).collect();
        // Half of it, and half of that, until they are taken.
        assert_eq!(
            counts,
            [("busy", 10), ("large", 10), ("large", 5), ("ok", 3), ("ok", 3), ("ok", 3), ("ok", 1),]
        );
        receiver.forget();
    }
}
