//! `helio state import` and `export`: copies from a running etcd, and to one.

use std::fs;

use helio_state_etcd::ClientTls;
use helio_state_etcd::client::Client;
use helio_state_etcd::transfer::{self, Copied, TransferError};
use serde_json::json;

use super::ask::{connect, failed, tls};
use super::serve;
use crate::args::{StateExportArgs, StateImportArgs};
use crate::error::{CliError, CliResult};
use crate::out::{Out, Progress};
use crate::units::human_count;

/// The copy, while it is not a store yet.
const PART_FILE: &str = "import.part";

fn shown(progress: &mut Progress, verb: &str, at: transfer::Progress) {
    progress.show(|| format!("{verb} {} of {} keys", human_count(at.keys), human_count(at.of)));
}

fn refused(error: TransferError) -> CliError {
    match error {
        TransferError::Server { whose, error } => match failed(error) {
            CliError::Outage(text) => CliError::Outage(format!("{whose}: {text}")),
            error => CliError::Failure(format!("{whose}: {error}")),
        },
        TransferError::NotEmpty(_) => CliError::Refused(error.to_string()),
        _ => CliError::Failure(error.to_string()),
    }
}

/// Makes a store from a running server.
pub(super) fn import(args: &StateImportArgs) -> CliResult {
    let source = Client::connect(&args.url, &tls(&args.tls)).map_err(failed)?;
    serve::refuse_store(&args.dir)?;
    fs::create_dir_all(&args.dir).map_err(|error| CliError::file(&args.dir, &error))?;
    let part = args.dir.join(PART_FILE);
    let mut progress = Progress::new();
    let copied = transfer::import(&source, args.prefix.as_bytes(), &part, &mut |at| {
        shown(&mut progress, "imported", at);
    });
    drop(progress);
    let copied = copied.map_err(refused)?;
    let restored = serve::restore_from(&part, &args.dir, "helio state import");
    // It is in the store now, or of no use.
    drop(fs::remove_file(&part));
    let to = restored?.to;
    let folder = args.dir.display();
    let text = format!(
        "{folder} has {} keys and {} leases of {} as of revision {}, at revision {to}",
        human_count(copied.keys),
        human_count(copied.leases),
        args.url,
        copied.revision,
    );
    report(&copied, Some(to), text, args.output.json)
}

/// Fills an empty server.
pub(super) fn export(args: &StateExportArgs) -> CliResult {
    let source = connect(&args.source)?;
    let files = ClientTls {
        authorities: args.target_cacert.clone(),
        certificate: args.target_cert.clone(),
        key: args.target_key.clone(),
    };
    let target = Client::connect(&args.url, &files).map_err(failed)?;
    let mut progress = Progress::new();
    let copied = transfer::export(&source, args.prefix.as_bytes(), &target, &mut |at| {
        shown(&mut progress, "exported", at);
    });
    drop(progress);
    let copied = copied.map_err(refused)?;
    let text = format!(
        "{} has {} keys and {} leases of {} as of revision {}; {} keys expired meanwhile",
        args.url,
        human_count(copied.keys),
        human_count(copied.leases),
        args.source.endpoint,
        copied.revision,
        human_count(copied.expired),
    );
    report(&copied, None, text, args.output.json)
}

fn report(copied: &Copied, revision: Option<i64>, text: String, json: bool) -> CliResult {
    let mut out = Out::new();
    if json {
        out.json(&json!({
            "from_revision": copied.revision, "revision": revision, "keys": copied.keys,
            "leases": copied.leases, "expired_keys": copied.expired,
        }))?;
    } else {
        out.line(&text)?;
    }
    out.flush()
}
