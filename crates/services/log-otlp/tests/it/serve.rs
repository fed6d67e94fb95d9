//! The service over both protocols: what is taken, what is refused, and how the sender is told.

use std::io::Write as _;
use std::time::Duration;

use crate::support::kept::served;
use crate::support::whole;
use crate::targets::shown;
use flate2::Compression;
use flate2::write::GzEncoder;
use helio_log_otlp::{
    ExportError, Exporter, ExporterOptions, MAX_REQUEST_BYTES, Protocol, Refused, Taken, to_json,
    to_protobuf,
};
use serde_json::Value as Json;

fn exporters(grpc: &str, http: &str) -> [Exporter; 2] {
    let options = ExporterOptions { timeout: Duration::from_secs(60), ..Default::default() };
    [
        Exporter::new(Protocol::Grpc, grpc, &options).unwrap(),
        Exporter::new(Protocol::Http, http, &options).unwrap(),
    ]
}

#[test]
fn records_go_through_both_protocols_as_they_are() {
    let (kept, _serving, grpc, http) = served();
    for exporter in exporters(&grpc, &http) {
        let records = vec![whole(); 300];
        assert_eq!(exporter.export(to_protobuf(&records)), Ok(Refused::default()));
        let taken = std::mem::take(&mut *kept.records.lock().unwrap());
        assert_eq!(shown(&taken), shown(&records), "{exporter:?}");
        assert_eq!(exporter.export(Vec::new()), Ok(Refused::default()), "an empty request");
    }
    assert!(kept.refused.lock().unwrap().is_empty());
}

#[test]
fn a_sender_is_told_what_was_refused_and_when_to_come_again() {
    let (kept, _serving, grpc, http) = served();
    for exporter in exporters(&grpc, &http) {
        let but = Taken::But { refused: 3, reason: "too many audiences".to_owned() };
        let after = Duration::from_secs(7);
        *kept.answers.lock().unwrap() = vec![Taken::Later { after }, but];
        let request = to_protobuf(&[whole()]);
        let refused = Refused { records: 3, reason: "too many audiences".to_owned() };
        assert_eq!(exporter.export(request.clone()), Ok(refused));
        let later = exporter.export(request).unwrap_err();
        assert!(
            matches!(later, ExportError::Later { after: Some(told), .. } if told == after),
            "{later:?}"
        );
        let wrong = exporter.export(vec![0xff; 20]).unwrap_err();
        assert!(matches!(wrong, ExportError::Refused(_)), "{wrong:?}");
        let (_, reason) = kept.refused.lock().unwrap().pop().unwrap();
        assert!(reason.contains("invalid ExportLogsServiceRequest"), "{reason}");
        // It packs well: what counts is how large it is when it is unpacked.
        let large = exporter.export(vec![0; MAX_REQUEST_BYTES + 1]).unwrap_err();
        assert!(matches!(large, ExportError::TooLarge(_)), "{large:?}");
    }
    assert!(kept.records.lock().unwrap().is_empty());
}

/// A request by hand: its status, its content type, and what it was answered.
fn post(url: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String, Vec<u8>) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let mut request = ureq::Agent::from(config).post(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, mut body) = request.send(body).unwrap().into_parts();
    let kind = head.headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    (head.status.as_u16(), kind.unwrap_or_default(), body.read_to_vec().unwrap())
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn json_is_answered_in_json() {
    let (kept, _serving, _, http) = served();
    let url = format!("{http}/v1/logs");
    let json = ("content-type", "application/json; charset=utf-8");
    let (status, kind, body) = post(&url, &[json], &to_json(&[whole()]));
    assert_eq!((status, kind.as_str(), body.as_slice()), (200, "application/json", &b"{}"[..]));
    let gzip = ("content-encoding", "gzip");
    assert_eq!(post(&url, &[json, gzip], &zipped(&to_json(&[whole()]))).0, 200);
    assert_eq!(*kept.records.lock().unwrap(), [whole(), whole()]);
    let wrong = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{"traceId":"x"}]}]}]}"#;
    let (status, _, body) = post(&url, &[json], wrong);
    let told: Json = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &told["partialSuccess"]["rejectedLogRecords"]), (200, &"1".into()));
    let (status, kind, body) = post(&url, &[json], b"{");
    let told: Json = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, kind.as_str(), &told["code"]), (400, "application/json", &3.into()));
}

#[test]
fn what_is_no_request_has_a_status_that_says_so() {
    let (kept, _serving, grpc, http) = served();
    let url = format!("{http}/v1/logs");
    let protobuf = ("content-type", "application/x-protobuf");
    let gzip = ("content-encoding", "gzip");
    let bomb = zipped(&vec![0; 16 << 20]);
    assert!(bomb.len() < MAX_REQUEST_BYTES);
    for (expected, headers, body) in [
        (415, vec![], vec![]),
        (415, vec![("content-type", "text/plain")], vec![]),
        (415, vec![protobuf, ("content-encoding", "br")], vec![]),
        (400, vec![protobuf], vec![0xff]),
        (400, vec![protobuf, gzip], b"not gzip".to_vec()),
        (400, vec![protobuf, gzip], zipped(&[0; 1000])[..20].to_vec()),
        (413, vec![protobuf], vec![0; MAX_REQUEST_BYTES + 1]),
        (413, vec![protobuf, gzip], bomb),
    ] {
        let (status, kind, _) = post(&url, &headers, &body);
        assert_eq!(status, expected, "{headers:?}");
        assert!(status == 415 || kind == "application/x-protobuf", "{kind}");
        assert!(kept.refused.lock().unwrap().pop().is_some(), "{headers:?}");
    }
    assert_eq!(post(&format!("{http}/v1/traces"), &[protobuf], &[]).0, 404);
    assert_eq!(ureq::get(&url).call().unwrap_err().to_string(), "http status: 405");
    // Another signal, over gRPC: who sends it is told that it is not served.
    let trace = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let status = post(&format!("{grpc}{trace}"), &[("content-type", "application/grpc")], &[]).0;
    assert_eq!(status, 200, "gRPC's status is in a header");
    assert!(kept.records.lock().unwrap().is_empty());
}

#[test]
fn a_receiver_that_is_not_there_is_one_to_try_again() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for exporter in exporters(&url, &url) {
        let error = exporter.export(to_protobuf(&[whole()])).unwrap_err();
        assert!(matches!(error, ExportError::Later { after: None, .. }), "{error:?}");
    }
    let options = ExporterOptions::default();
    for wrong in ["", "localhost:4317", "ftp://localhost", "http://"] {
        for protocol in [Protocol::Grpc, Protocol::Http] {
            assert!(Exporter::new(protocol, wrong, &options).is_err(), "{wrong:?}");
        }
    }
}
