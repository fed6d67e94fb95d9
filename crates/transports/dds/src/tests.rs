//! The JSON of every message between sessions, literally: a Rust rename must not change the wire
//! without a new version.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fmt::Debug;

use helio_core::Qos;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::announcements::{
    Announcement, Claim, EndpointGuids, EndpointKind, Fenced, OpenedEndpoint, Origin,
    ProducerPosition, Request, RequestKind, Response, ServiceState, WriterAnnouncement,
};
use crate::peer_messages::{
    Ack, HistoryRequest, NO_MORE_PAGES, NackReason, POSITIONS_ONLY, PageHeader,
};
use helio_bus::transport::versioned_json::{self, FormatError};

/// A message is encoded as the text's JSON, and the text is decoded as the message. With another
/// version, or without one, it is refused by name.
fn is_written<T: Serialize + DeserializeOwned + Debug + PartialEq>(message: &T, text: &str) {
    let encoded = versioned_json::encode(message).unwrap();
    assert!(encoded.starts_with(br#"{"v":2,"#), "the version is the first member");
    let [encoded, json] =
        [&encoded[..], text.as_bytes()].map(|json| serde_json::from_slice::<Value>(json).unwrap());
    assert_eq!(encoded, json);
    reads(text, message);
    let refused = |json: String| {
        let error = versioned_json::decode::<T>(json.as_bytes()).unwrap_err();
        let optional = versioned_json::decode_optional::<T>(json.as_bytes());
        assert_eq!(optional.unwrap_err(), error);
        error
    };
    for version in [1, 3] {
        let error = refused(text.replacen(r#""v":2"#, &format!(r#""v":{version}"#), 1));
        assert_eq!(error, FormatError::Version(version));
    }
    assert_eq!(refused(text.replacen(r#""v":2,"#, "", 1)), FormatError::NoVersion);
}

/// JSON without the optional members is decoded as the message.
fn reads<T: DeserializeOwned + Debug + PartialEq>(text: &str, message: &T) {
    assert_eq!(versioned_json::decode::<T>(text.as_bytes()).unwrap(), *message, "{text}");
}

fn origin() -> Origin {
    Origin { time_nanos: 1_700_000_000_000_000_000, session: "01ff".to_owned() }
}

fn position() -> ProducerPosition {
    let producer = "Mount".parse().unwrap();
    ProducerPosition {
        partition: 3,
        producer,
        incarnation: 2,
        sequence: 41,
        topic_sequences: [40, 41],
    }
}

const POSITION_JSON: &str =
    r#"{"partition":3,"producer":"Mount","incarnation":2,"sequence":41,"topic_sequences":[40,41]}"#;

#[test]
fn announcements_of_topics_and_schemas() {
    let qos = Qos::event();
    let qos_text = serde_json::to_string(&qos).unwrap();
    is_written(
        &Announcement::Topic { topic: "weather/wind".parse().unwrap(), qos, origin: origin() },
        &format!(
            r#"{{"v":2,"kind":"topic","topic":"weather/wind","qos":{qos_text},
                "origin":{{"time_nanos":1700000000000000000,"session":"01ff"}}}}"#
        ),
    );
    is_written(
        &Announcement::SchemaText { schema: "9f".to_owned(), text: r#""int""#.to_owned() },
        r#"{"v":2,"kind":"schema_text","schema":"9f","text":"\"int\""}"#,
    );
    is_written(
        &Announcement::TopicSchema {
            topic: "weather/wind".parse().unwrap(),
            schema: "9f".to_owned(),
            after: 1,
            origin: origin(),
        },
        r#"{"v":2,"kind":"topic_schema","topic":"weather/wind","schema":"9f","after":1,
            "origin":{"time_nanos":1700000000000000000,"session":"01ff"}}"#,
    );
}

#[test]
fn announcements_of_writers() {
    let announcement = |claim| Announcement::Writer {
        topic: "weather/wind".parse().unwrap(),
        writer: WriterAnnouncement {
            partition: 3,
            producer: "Mount".parse().unwrap(),
            incarnation: 2,
            open: true,
            last_active_tai_ns: -5,
            idle_nanos: 7,
            claim,
        },
    };
    is_written(
        &announcement(None),
        r#"{"v":2,"kind":"writer","topic":"weather/wind","writer":{"partition":3,"producer":"Mount",
            "incarnation":2,"open":true,"last_active_tai_ns":-5,"idle_nanos":7,"claim":null}}"#,
    );
    let fences = vec![Fenced { producer: "Dome".parse().unwrap(), incarnation: 9 }];
    is_written(
        &announcement(Some(Claim { origin: origin(), strength: 4, fences })),
        r#"{"v":2,"kind":"writer","topic":"weather/wind","writer":{"partition":3,"producer":"Mount",
            "incarnation":2,"open":true,"last_active_tai_ns":-5,"idle_nanos":7,
            "claim":{"origin":{"time_nanos":1700000000000000000,"session":"01ff"},"strength":4,
            "fences":[{"producer":"Dome","incarnation":9}]}}}"#,
    );
    let mut old = announcement(None);
    if let Announcement::Writer { writer, .. } = &mut old {
        writer.idle_nanos = 0;
    }
    reads(
        r#"{"v":2,"kind":"writer","topic":"weather/wind","writer":{"partition":3,"producer":"Mount",
            "incarnation":2,"open":true,"last_active_tai_ns":-5}}"#,
        &old,
    );
}

#[test]
fn announcements_of_durability_services() {
    is_written(
        &Announcement::Service { started_nanos: 5 },
        r#"{"v":2,"kind":"service","started_nanos":5}"#,
    );
    is_written(
        &Announcement::StorageRequest { topic: "weather/wind".parse().unwrap() },
        r#"{"v":2,"kind":"storage_request","topic":"weather/wind"}"#,
    );
    let announcement = |service_state| Announcement::ServiceState {
        topic: "weather/wind".parse().unwrap(),
        service_state,
    };
    is_written(
        &announcement(ServiceState {
            ready: true,
            ready_count: 2,
            reunions: 3,
            refused: true,
            last_values: true,
            opening: true,
            error: Some("a full disk".to_owned()),
        }),
        r#"{"v":2,"kind":"service_state","topic":"weather/wind",
            "service_state":{"ready":true,"ready_count":2,"reunions":3,
            "refused":true,"last_values":true,"opening":true,"error":"a full disk"}}"#,
    );
    is_written(
        &announcement(ServiceState::default()),
        r#"{"v":2,"kind":"service_state","topic":"weather/wind",
            "service_state":{"ready":false,"ready_count":0,"reunions":0,
            "refused":false,"last_values":false,"opening":false,"error":null}}"#,
    );
    reads(
        r#"{"v":2,"kind":"service_state","topic":"weather/wind",
            "service_state":{"ready":false,"ready_count":0}}"#,
        &announcement(ServiceState::default()),
    );
}

#[test]
fn keys_of_announcements() {
    let topic = || "weather/wind".parse().unwrap();
    let (schema, text) = ("9f".to_owned(), String::new());
    let request = Request { slot: 1, number: 8, subject: RequestKind::Nothing };
    let service_state = ServiceState::default();
    let announcements = [
        Announcement::Topic { topic: topic(), qos: Qos::event(), origin: origin() },
        Announcement::SchemaText { schema: schema.clone(), text },
        Announcement::TopicSchema { topic: topic(), schema, after: 1, origin: origin() },
        Announcement::Service { started_nanos: 5 },
        Announcement::ServiceState { topic: topic(), service_state },
        Announcement::StorageRequest { topic: topic() },
        Announcement::Request(request),
    ];
    assert_eq!(
        announcements.map(|announcement| announcement.key()),
        [
            "topic weather/wind",
            "schema_text 9f",
            "topic_schema weather/wind 9f",
            "service",
            "service_state weather/wind",
            "storage_request weather/wind",
            "request 1",
        ]
    );
}

#[test]
fn requests() {
    let request = |subject| Announcement::Request(Request { slot: 1, number: 8, subject });
    is_written(
        &request(RequestKind::Nothing),
        r#"{"v":2,"kind":"request","slot":1,"number":8,"subject":"nothing"}"#,
    );
    is_written(
        &request(RequestKind::Joining),
        r#"{"v":2,"kind":"request","slot":1,"number":8,"subject":"joining"}"#,
    );
    is_written(
        &request(RequestKind::Producer {
            topic: "weather/wind".parse().unwrap(),
            producer: "Mount".parse().unwrap(),
        }),
        r#"{"v":2,"kind":"request","slot":1,"number":8,
            "subject":{"producer":{"topic":"weather/wind","producer":"Mount"}}}"#,
    );
    let opened = |endpoint_kind, typed: Option<&str>| {
        request(RequestKind::OpenedEndpoint(OpenedEndpoint {
            topic: "weather/wind".parse().unwrap(),
            endpoint_kind,
            guids: EndpointGuids { envelopes: "aa".to_owned(), typed: typed.map(str::to_owned) },
            partitions: vec![0, 2],
        }))
    };
    is_written(
        &opened(EndpointKind::Reader, Some("bb")),
        r#"{"v":2,"kind":"request","slot":1,"number":8,
            "subject":{"opened_endpoint":{"topic":"weather/wind",
            "endpoint_kind":"reader","guids":{"envelopes":"aa","typed":"bb"},
            "partitions":[0,2]}}}"#,
    );
    is_written(
        &opened(EndpointKind::Writer, None),
        r#"{"v":2,"kind":"request","slot":1,"number":8,
            "subject":{"opened_endpoint":{"topic":"weather/wind",
            "endpoint_kind":"writer","guids":{"envelopes":"aa","typed":null},
            "partitions":[0,2]}}}"#,
    );
    reads(
        r#"{"v":2,"kind":"request","number":8}"#,
        &Announcement::Request(Request { slot: 0, number: 8, subject: RequestKind::Nothing }),
    );
}

#[test]
fn answers() {
    is_written(
        &Response {
            number: 8,
            last_announcement: 12,
            newest_incarnation: 3,
            matched: vec!["aa".to_owned()],
            positions: vec![position()],
            sessions: vec!["01ff".to_owned()],
        },
        &format!(
            r#"{{"v":2,"number":8,"last_announcement":12,"newest_incarnation":3,"matched":["aa"],
                "positions":[{POSITION_JSON}],"sessions":["01ff"]}}"#
        ),
    );
    is_written(
        &Response::default(),
        r#"{"v":2,"number":0,"last_announcement":0,"newest_incarnation":0,"matched":[],
            "positions":[],"sessions":[]}"#,
    );
    reads(r#"{"v":2}"#, &Response::default());
    let text = r#"{"partition":3,"producer":"Mount","incarnation":2,"sequence":41}"#;
    assert_eq!(
        serde_json::from_str::<ProducerPosition>(text).unwrap(),
        ProducerPosition { topic_sequences: [0, 0], ..position() }
    );
}

#[test]
fn marks_of_durability_services() {
    let stored = |appended, nack| Ack {
        topic: "weather/wind".parse().unwrap(),
        position: position(),
        appended,
        nack,
    };
    let text = |rest: &str| {
        format!(r#"{{"v":2,"topic":"weather/wind","position":{POSITION_JSON}{rest}}}"#)
    };
    is_written(&stored(0, None), &text(""));
    is_written(&stored(50, Some(NackReason::Missing)), &text(r#","appended":50,"nack":"missing""#));
    is_written(
        &stored(0, Some(NackReason::Fenced { newer_incarnation: 6 })),
        &text(r#","nack":{"fenced":{"newer_incarnation":6}}"#),
    );
    is_written(
        &stored(0, Some(NackReason::Refused { cause: "no room".to_owned() })),
        &text(r#","nack":{"refused":{"cause":"no room"}}"#),
    );
}

#[test]
fn requests_for_history_and_heads_of_pages() {
    let request = HistoryRequest {
        service: "01ff".to_owned(),
        reader: 4,
        page: 0,
        topic: "weather/wind".parse().unwrap(),
        partitions: vec![3],
        last: Some(1),
        required_positions: vec![position()],
        received_positions: Vec::new(),
        digest: 77,
    };
    is_written(
        &request,
        &format!(
            r#"{{"v":2,"service":"01ff","reader":4,"page":0,"topic":"weather/wind","partitions":[3],
                "last":1,"required_positions":[{POSITION_JSON}],
                "received_positions":[],"digest":77}}"#
        ),
    );
    is_written(
        &HistoryRequest {
            page: NO_MORE_PAGES,
            last: None,
            required_positions: Vec::new(),
            digest: 0,
            ..request
        },
        r#"{"v":2,"service":"01ff","reader":4,"page":18446744073709551615,"topic":"weather/wind",
            "partitions":[3],"last":null,"required_positions":[],"received_positions":[]}"#,
    );
    assert_eq!(POSITIONS_ONLY, 18_446_744_073_709_551_614);
    is_written(
        &PageHeader {
            page: 2,
            end: true,
            complete: false,
            positions: vec![position()],
            failed: true,
            busy: true,
        },
        &format!(
            r#"{{"v":2,"page":2,"end":true,"complete":false,"positions":[{POSITION_JSON}],
                "failed":true,"busy":true}}"#
        ),
    );
    is_written(
        &PageHeader::new(2),
        r#"{"v":2,"page":2,"end":false,"complete":true,"positions":[]}"#,
    );
    reads(r#"{"v":2,"page":2,"end":false}"#, &PageHeader::new(2));
}
