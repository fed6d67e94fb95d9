//! Commands of `helio state` that ask a running store, or any server with etcd's API.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use helio_state_etcd::client::{Client, ClientError};
use helio_state_etcd::proto::etcdserverpb::{RangeRequest, WatchCreateRequest};
use helio_state_etcd::proto::mvccpb::Event;
use helio_state_etcd::proto::mvccpb::event::EventType;
use helio_state_etcd::{ClientTls, KeyValue};
use serde_json::{Value, json};

use crate::args::{
    CompactArgs, EndpointArgs, GetArgs, KeysArgs, SnapshotArgs, StatusArgs, TlsArgs, WatchArgs,
};
use crate::error::{CliError, CliResult};
use crate::out::Out;
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// The files of TLS of a command.
pub(super) fn tls(args: &TlsArgs) -> ClientTls {
    ClientTls {
        authorities: args.cacert.clone(),
        certificate: args.cert.clone(),
        key: args.key.clone(),
    }
}

pub(super) fn connect(args: &EndpointArgs) -> CliResult<Client> {
    Client::connect(&args.endpoint, &tls(&args.tls)).map_err(failed)
}

pub(super) fn failed(error: ClientError) -> CliError {
    match error {
        ClientError::Unreachable { .. } => CliError::Outage(error.to_string()),
        ClientError::Refused(_) | ClientError::Tls(_) => CliError::Refused(error.to_string()),
        _ => CliError::Failure(error.to_string()),
    }
}

pub(super) fn snapshot(args: &SnapshotArgs) -> CliResult {
    let client = connect(&args.endpoint)?;
    let file = &args.file;
    let wrong = |error: std::io::Error| CliError::Failure(format!("{}: {error}", file.display()));
    let mut opened = OpenOptions::new().write(true).create_new(true).open(file).map_err(wrong)?;
    let saved = client.snapshot(&mut opened);
    let bytes = saved.inspect_err(|_| drop(fs::remove_file(file))).map_err(failed)?;
    opened.flush().and_then(|()| opened.sync_all()).map_err(wrong)?;
    let mut out = Out::new();
    match args.output.json {
        true => out.json(&json!({ "file": file, "bytes": bytes }))?,
        false => out.line(&format!("{} has {bytes} bytes", file.display()))?,
    }
    out.flush()
}

pub(super) fn status(args: &StatusArgs) -> CliResult {
    let status = connect(&args.endpoint)?.status().map_err(failed)?;
    let header = status.header.unwrap_or_default();
    let rows: [(&str, Value); 7] = [
        ("version", status.version.into()),
        ("revision", header.revision.into()),
        ("cluster_id", format!("{:x}", header.cluster_id).into()),
        ("member_id", format!("{:x}", header.member_id).into()),
        ("leader", format!("{:x}", status.leader).into()),
        ("disk_bytes", status.db_size.into()),
        ("errors", status.errors.into()),
    ];
    let mut out = Out::new();
    if args.output.json {
        out.json(&Value::Object(rows.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()))?;
    } else {
        for (name, value) in rows {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out.line(&format!("{name:12} {shown}"))?;
        }
    }
    out.flush()
}

/// The end of the range of keys: empty for one key.
fn range_end(keys: &KeysArgs) -> Vec<u8> {
    if !keys.prefix {
        return Vec::new();
    }
    let mut end = keys.key.clone().into_bytes();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

/// The first key: the least one, where the prefix is empty.
fn first_key(keys: &KeysArgs) -> Vec<u8> {
    if keys.key.is_empty() { vec![0] } else { keys.key.clone().into_bytes() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(kv: &KeyValue) -> Value {
    let fields = kv.0.fields();
    json!({
        "key": text(fields.key),
        "value": text(fields.value),
        "create_revision": fields.create_revision,
        "mod_revision": fields.mod_revision,
        "version": fields.version,
        "lease": fields.lease,
    })
}

pub(super) fn get(args: &GetArgs) -> CliResult {
    let request = RangeRequest {
        key: first_key(&args.keys).into(),
        range_end: range_end(&args.keys).into(),
        revision: args.revision,
        ..RangeRequest::default()
    };
    let found = connect(&args.endpoint)?.range(request).map_err(failed)?;
    if found.kvs.is_empty() {
        return Err(CliError::NotFound(format!("there is no key {:?}", args.keys.key)));
    }
    let mut out = Out::new();
    for kv in &found.kvs {
        match args.output.json {
            true => out.json(&shown(kv))?,
            false => {
                out.line(&text(kv.0.fields().key))?;
                out.line(&text(kv.0.fields().value))?;
            }
        }
    }
    out.flush()
}

pub(super) fn watch(args: &WatchArgs, stop: &Stop) -> CliResult {
    let client = connect(&args.endpoint)?;
    let create = WatchCreateRequest {
        key: first_key(&args.keys).into(),
        range_end: range_end(&args.keys).into(),
        start_revision: args.from,
        ..WatchCreateRequest::default()
    };
    let mut watching = client.watch(create).map_err(failed)?;
    let mut out = Out::new();
    while !stop.asked() {
        out.check()?;
        let Some(answer) = watching.next(STOP_POLL_INTERVAL).map_err(failed)? else { continue };
        if answer.canceled {
            let compacted = answer.compact_revision;
            let why = match compacted {
                0 => answer.cancel_reason,
                _ => format!("revisions below {compacted} are compacted: --from {compacted}"),
            };
            return Err(CliError::Lost(format!("the watch has ended: {why}")));
        }
        for event in &answer.events {
            print(event, args, &mut out)?;
        }
        out.flush()?;
    }
    Ok(())
}

fn print(event: &Event, args: &WatchArgs, out: &mut Out) -> CliResult {
    let Some(kv) = &event.kv else { return Ok(()) };
    let kind = if event.r#type() == EventType::Delete { "DELETE" } else { "PUT" };
    if args.output.json {
        let mut shown = shown(kv);
        shown["event"] = kind.into();
        return out.json(&shown);
    }
    out.line(kind)?;
    out.line(&text(kv.0.fields().key))?;
    out.line(&text(kv.0.fields().value))
}

pub(super) fn compact(args: &CompactArgs) -> CliResult {
    let revision = connect(&args.endpoint)?.compact(args.revision).map_err(failed)?;
    let mut out = Out::new();
    match args.output.json {
        true => out.json(&json!({ "compact_revision": args.revision, "revision": revision }))?,
        false => out.line(&format!("revisions below {} are forgotten", args.revision))?,
    }
    out.flush()
}
