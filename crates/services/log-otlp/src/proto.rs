//! OTLP's messages for logs.
//!
//! Format: opentelemetry-proto 1.10.0, `collector/logs/v1/logs_service.proto`,
//! `logs/v1/logs.proto`, `resource/v1/resource.proto` and `common/v1/common.proto`;
//! `google/rpc/status.proto` and `google/rpc/error_details.proto` of googleapis. The JSON is
//! ProtoJSON with OTLP's own rules (its specification, "JSON Protobuf Encoding"): names in
//! lowerCamelCase, ids as hexadecimal digits, enumerations as numbers, unknown members skipped.
//!
//! Operation. There are two sets of container messages. Those with decoded records are written.
//! Those with each record's bytes are read (`lazy`), so that a malformed record affects no other,
//! and a small request does not expand to a large one.

use serde::{Deserialize, Serialize};

use crate::json;

/// A request. `LogsData`, used in files, differs only in its name.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_logs: Vec<ResourceLogs>,
}

/// Records of one resource.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_logs: Vec<ScopeLogs>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) schema_url: String,
}

/// Records of one logger.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) log_records: Vec<LogRecord>,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) schema_url: String,
}

/// A sender's description.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "json::or_default")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// A logger: `InstrumentationScope`.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "json::or_default", skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "json::or_default", skip_serializing_if = "String::is_empty")]
    pub(crate) version: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "json::or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// A record.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LogRecord {
    #[prost(fixed64, tag = "1")]
    #[serde(with = "json::u64_text", skip_serializing_if = "json::is_zero")]
    pub(crate) time_unix_nano: u64,
    #[prost(fixed64, tag = "11")]
    #[serde(with = "json::u64_text", skip_serializing_if = "json::is_zero")]
    pub(crate) observed_time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "json::number")]
    pub(crate) severity_number: i32,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "json::or_default", skip_serializing_if = "String::is_empty")]
    pub(crate) severity_text: String,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "json::or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "7")]
    #[serde(deserialize_with = "json::number", skip_serializing_if = "json::is_zero")]
    pub(crate) dropped_attributes_count: u32,
    #[prost(fixed32, tag = "8")]
    #[serde(deserialize_with = "json::number", skip_serializing_if = "json::is_zero")]
    pub(crate) flags: u32,
    #[prost(bytes = "vec", tag = "9")]
    #[serde(with = "json::hex", skip_serializing_if = "Vec::is_empty")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    #[serde(with = "json::hex", skip_serializing_if = "Vec::is_empty")]
    pub(crate) span_id: Vec<u8>,
    #[prost(string, tag = "12")]
    #[serde(deserialize_with = "json::or_default", skip_serializing_if = "String::is_empty")]
    pub(crate) event_name: String,
}

/// An attribute.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "json::or_default")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

/// A value; an empty one has no kind.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(crate) value: Option<Kind>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Kind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(Values),
    #[prost(message, tag = "6")]
    Map(Pairs),
    #[prost(bytes = "vec", tag = "7")]
    Bytes(Vec<u8>),
}

/// `ArrayValue`.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Values {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "json::or_default")]
    pub(crate) values: Vec<AnyValue>,
}

/// `KeyValueList`.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pairs {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "json::or_default")]
    pub(crate) values: Vec<KeyValue>,
}

/// The answer to a request.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

/// The refused part of an accepted request.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    #[serde(with = "json::i64_text")]
    pub(crate) rejected_log_records: i64,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "json::or_default")]
    pub(crate) error_message: String,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "json::number", skip_serializing_if = "json::is_zero")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "json::or_default")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip)]
    pub(crate) details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Delay {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// Containers of records, with each record as bytes.
pub(crate) mod lazy {
    use bytes::Bytes;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Request {
        #[prost(bytes = "bytes", repeated, tag = "1")]
        pub(crate) resource_logs: Vec<Bytes>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ResourceLogs {
        #[prost(message, optional, tag = "1")]
        pub(crate) resource: Option<super::Resource>,
        #[prost(bytes = "bytes", repeated, tag = "2")]
        pub(crate) scope_logs: Vec<Bytes>,
        #[prost(string, tag = "3")]
        pub(crate) schema_url: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ScopeLogs {
        #[prost(message, optional, tag = "1")]
        pub(crate) scope: Option<super::Scope>,
        #[prost(bytes = "bytes", repeated, tag = "2")]
        pub(crate) log_records: Vec<Bytes>,
        #[prost(string, tag = "3")]
        pub(crate) schema_url: String,
    }
}

/// The same for JSON.
pub(crate) mod raw {
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use crate::json;

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(crate) struct Request<'a> {
        #[serde(borrow, deserialize_with = "json::or_default")]
        pub(crate) resource_logs: Vec<&'a RawValue>,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(crate) struct ResourceLogs<'a> {
        pub(crate) resource: Option<super::Resource>,
        #[serde(borrow, deserialize_with = "json::or_default")]
        pub(crate) scope_logs: Vec<&'a RawValue>,
        #[serde(deserialize_with = "json::or_default")]
        pub(crate) schema_url: String,
    }

    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub(crate) struct ScopeLogs<'a> {
        pub(crate) scope: Option<super::Scope>,
        #[serde(borrow, deserialize_with = "json::or_default")]
        pub(crate) log_records: Vec<&'a RawValue>,
        #[serde(deserialize_with = "json::or_default")]
        pub(crate) schema_url: String,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// Requests are pinned by `golden/whole.json`; these are the answers.
    #[test]
    fn the_json_and_protobuf_of_answers() {
        let partial =
            PartialSuccess { rejected_log_records: 3, error_message: "too many".to_owned() };
        let response = Response { partial_success: Some(partial) };
        let golden = r#"{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"too many"}}"#;
        assert_eq!(serde_json::to_string(&response).unwrap(), golden);
        assert_eq!(serde_json::from_str::<Response>(golden).unwrap(), response);
        assert_eq!(response.encode_to_vec(), b"\x0a\x0c\x08\x03\x12\x08too many");
        let status = Status { code: 8, message: "full".to_owned(), details: Vec::new() };
        let golden = r#"{"code":8,"message":"full"}"#;
        assert_eq!(serde_json::to_string(&status).unwrap(), golden);
        assert_eq!(serde_json::from_str::<Status>(golden).unwrap(), status);
        let delay = Some(Delay { seconds: 1, nanos: 5 });
        let value = RetryInfo { retry_delay: delay }.encode_to_vec();
        assert_eq!(value, b"\x0a\x04\x08\x01\x10\x05");
    }
}
