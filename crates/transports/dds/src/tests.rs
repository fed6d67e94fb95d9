//! The JSON of every message between sessions, literally: a Rust rename must not change the wire.
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

/// A value serializes as the text's JSON, and the text deserializes as the value.
fn is_written<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: &T, text: &str) {
    let json: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(value).unwrap(), json);
    reads(text, value);
}

/// The JSON of an older session, without later fields, deserializes as the value.
fn reads<T: DeserializeOwned + Debug + PartialEq>(text: &str, value: &T) {
    assert_eq!(serde_json::from_str::<T>(text).unwrap(), *value, "{text}");
}

fn origin() -> Origin {
    Origin { at: 1_700_000_000_000_000_000, by: "01ff".to_owned() }
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
    r#"{"partition":3,"producer":"Mount","incarnation":2,"sequence":41,"ways":[40,41]}"#;

#[test]
fn announcements_of_topics_and_schemas() {
    let qos = Qos::event();
    let qos_text = serde_json::to_string(&qos).unwrap();
    is_written(
        &Announcement::Topic { topic: "weather/wind".parse().unwrap(), qos, origin: origin() },
        &format!(
            r#"{{"word":"topic","topic":"weather/wind","qos":{qos_text},
                "origin":{{"at":1700000000000000000,"by":"01ff"}}}}"#
        ),
    );
    is_written(
        &Announcement::SchemaText { schema: "9f".to_owned(), text: r#""int""#.to_owned() },
        r#"{"word":"text","schema":"9f","text":"\"int\""}"#,
    );
    is_written(
        &Announcement::TopicSchema {
            topic: "weather/wind".parse().unwrap(),
            schema: "9f".to_owned(),
            after: 1,
            origin: origin(),
        },
        r#"{"word":"of","topic":"weather/wind","schema":"9f","after":1,
            "origin":{"at":1700000000000000000,"by":"01ff"}}"#,
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
            seen: -5,
            idle_nanos: 7,
            claim,
        },
    };
    is_written(
        &announcement(None),
        r#"{"word":"writer","topic":"weather/wind","writer":{"partition":3,"producer":"Mount",
            "incarnation":2,"open":true,"seen":-5,"quiet":7,"claim":null}}"#,
    );
    let fences = vec![Fenced { producer: "Dome".parse().unwrap(), incarnation: 9 }];
    is_written(
        &announcement(Some(Claim { origin: origin(), strength: 4, fences })),
        r#"{"word":"writer","topic":"weather/wind","writer":{"partition":3,"producer":"Mount",
            "incarnation":2,"open":true,"seen":-5,"quiet":7,
            "claim":{"origin":{"at":1700000000000000000,"by":"01ff"},"strength":4,
            "fences":[{"producer":"Dome","incarnation":9}]}}}"#,
    );
    let mut old = announcement(None);
    if let Announcement::Writer { writer, .. } = &mut old {
        writer.idle_nanos = 0;
    }
    reads(
        r#"{"word":"writer","topic":"weather/wind","writer":{"partition":3,"producer":"Mount",
            "incarnation":2,"open":true,"seen":-5}}"#,
        &old,
    );
}

#[test]
fn announcements_of_durability_services() {
    is_written(&Announcement::Service { at: 5 }, r#"{"word":"keeper","at":5}"#);
    is_written(
        &Announcement::KeepRequest { topic: "weather/wind".parse().unwrap() },
        r#"{"word":"wanted","topic":"weather/wind"}"#,
    );
    let announcement = |service_state| Announcement::ServiceState {
        topic: "weather/wind".parse().unwrap(),
        service_state,
    };
    is_written(
        &announcement(ServiceState {
            ready: true,
            turn: 2,
            reunions: 3,
            refused: true,
            last_values: true,
            opening: true,
            trouble: Some("a full disk".to_owned()),
        }),
        r#"{"word":"keeps","topic":"weather/wind","keeps":{"ready":true,"turn":2,"parted":3,
            "refused":true,"last_values":true,"opening":true,"trouble":"a full disk"}}"#,
    );
    is_written(
        &announcement(ServiceState::default()),
        r#"{"word":"keeps","topic":"weather/wind","keeps":{"ready":false,"turn":0,"parted":0,
            "refused":false,"last_values":false,"opening":false,"trouble":null}}"#,
    );
    reads(
        r#"{"word":"keeps","topic":"weather/wind","keeps":{"ready":false,"turn":0}}"#,
        &announcement(ServiceState::default()),
    );
}

#[test]
fn requests() {
    let ask = |about| Announcement::Request(Request { slot: 1, number: 8, about });
    is_written(
        &ask(RequestKind::Nothing),
        r#"{"word":"ask","slot":1,"number":8,"about":"nothing"}"#,
    );
    is_written(
        &ask(RequestKind::Joining),
        r#"{"word":"ask","slot":1,"number":8,"about":"joining"}"#,
    );
    is_written(
        &ask(RequestKind::Producer {
            topic: "weather/wind".parse().unwrap(),
            producer: "Mount".parse().unwrap(),
        }),
        r#"{"word":"ask","slot":1,"number":8,"about":{"producer":{"topic":"weather/wind",
            "producer":"Mount"}}}"#,
    );
    let opened = |end, typed: Option<&str>| {
        ask(RequestKind::OpenedEndpoint(OpenedEndpoint {
            topic: "weather/wind".parse().unwrap(),
            end,
            guids: EndpointGuids { envelopes: "aa".to_owned(), typed: typed.map(str::to_owned) },
            partitions: vec![0, 2],
        }))
    };
    is_written(
        &opened(EndpointKind::Reader, Some("bb")),
        r#"{"word":"ask","slot":1,"number":8,"about":{"opened":{"topic":"weather/wind",
            "end":"reader","guids":{"envelopes":"aa","typed":"bb"},"partitions":[0,2]}}}"#,
    );
    is_written(
        &opened(EndpointKind::Writer, None),
        r#"{"word":"ask","slot":1,"number":8,"about":{"opened":{"topic":"weather/wind",
            "end":"writer","guids":{"envelopes":"aa","typed":null},"partitions":[0,2]}}}"#,
    );
    reads(
        r#"{"word":"ask","number":8}"#,
        &Announcement::Request(Request { slot: 0, number: 8, about: RequestKind::Nothing }),
    );
}

#[test]
fn answers() {
    is_written(
        &Response {
            number: 8,
            said: 12,
            newest: 3,
            matched: vec!["aa".to_owned()],
            positions: vec![position()],
        },
        &format!(r#"{{"number":8,"said":12,"newest":3,"met":["aa"],"stands":[{POSITION_JSON}]}}"#),
    );
    is_written(&Response::default(), r#"{"number":0,"said":0,"newest":0,"met":[],"stands":[]}"#);
    reads("{}", &Response::default());
    reads(
        r#"{"partition":3,"producer":"Mount","incarnation":2,"sequence":41}"#,
        &ProducerPosition { topic_sequences: [0, 0], ..position() },
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
    let text = |rest: &str| format!(r#"{{"topic":"weather/wind","stand":{POSITION_JSON}{rest}}}"#);
    is_written(&stored(0, None), &text(""));
    is_written(&stored(50, Some(NackReason::Again)), &text(r#","appended":50,"verdict":"again""#));
    is_written(
        &stored(0, Some(NackReason::Fenced { newer: 6 })),
        &text(r#","verdict":{"fenced":{"newer":6}}"#),
    );
    is_written(
        &stored(0, Some(NackReason::Refused { cause: "no room".to_owned() })),
        &text(r#","verdict":{"refused":{"cause":"no room"}}"#),
    );
}

#[test]
fn requests_for_history_and_heads_of_pages() {
    let fetch = HistoryRequest {
        to: "01ff".to_owned(),
        number: 4,
        page: 0,
        topic: "weather/wind".parse().unwrap(),
        partitions: vec![3],
        last: Some(1),
        until: vec![position()],
        have: Vec::new(),
        known: 77,
    };
    is_written(
        &fetch,
        &format!(
            r#"{{"to":"01ff","number":4,"page":0,"topic":"weather/wind","partitions":[3],
                "last":1,"until":[{POSITION_JSON}],"have":[],"known":77}}"#
        ),
    );
    is_written(
        &HistoryRequest { page: NO_MORE_PAGES, last: None, until: Vec::new(), known: 0, ..fetch },
        r#"{"to":"01ff","number":4,"page":18446744073709551615,"topic":"weather/wind",
            "partitions":[3],"last":null,"until":[],"have":[]}"#,
    );
    assert_eq!(POSITIONS_ONLY, 18_446_744_073_709_551_614);
    is_written(
        &PageHeader {
            page: 2,
            end: true,
            whole: false,
            positions: vec![position()],
            failed: true,
            busy: true,
        },
        &format!(
            r#"{{"page":2,"end":true,"whole":false,"stands":[{POSITION_JSON}],"failed":true,
                "busy":true}}"#
        ),
    );
    is_written(&PageHeader::new(2), r#"{"page":2,"end":false,"whole":true,"stands":[]}"#);
    reads(r#"{"page":2,"end":false}"#, &PageHeader::new(2));
}
