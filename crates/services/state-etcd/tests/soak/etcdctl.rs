//! etcd's own client on our store: what it prints is what it prints on etcd, and copies between
//! both are complete.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use helio_bus::Bus;
use helio_state_etcd::client::Client;
use helio_state_etcd::proto::etcdserverpb as pb;
use helio_state_etcd::{ClientTls, Server, saved, transfer};
use helio_state_node::{Options, Store, restore};
use serde_json::Value;

use crate::client::get;
use crate::engine::Etcd;
use crate::support::metrics::{alerts, has, kinds};
use crate::support::{open, serve_node};

/// Keys of a copy, more than its page.
const KEYS: usize = 1_000;

struct Both {
    etcd: Etcd,
    store: Arc<Store>,
    server: Server,
    folder: tempfile::TempDir,
}

fn bus(folder: &std::path::Path, name: &str) -> Bus {
    Bus::connect(&format!("journal:{}", folder.join(name).display())).unwrap()
}

impl Both {
    fn start() -> Option<Self> {
        let etcd = Etcd::start()?;
        let folder = tempfile::tempdir().unwrap();
        let store = open(&bus(folder.path(), "log"), &folder.path().join("store"));
        let server = serve_node(&store);
        Some(Self { etcd, store, server, folder })
    }

    fn urls(&self) -> [String; 2] {
        [self.etcd.url().to_owned(), format!("http://{}", self.server.address())]
    }

    fn command(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.etcd.program("etcdctl"));
        command.args(["--endpoints", url]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, url: &str, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(url, arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What it prints, the same on both.
    fn same(&self, arguments: &[&str], input: &str) -> String {
        let [etcd, ours] = self.urls().map(|url| {
            let output = self.run(&url, arguments, input);
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        });
        assert_eq!(ours, etcd, "{arguments:?}");
        ours.1
    }

    /// What it prints on ours, where ids and times differ.
    fn ours(&self, arguments: &[&str]) -> String {
        let [_, url] = self.urls();
        let output = self.run(&url, arguments, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn client(&self, which: usize) -> Client {
        Client::connect(&self.urls()[which], &ClientTls::default()).unwrap()
    }
}

fn line(child: &mut BufReader<std::process::ChildStdout>) -> String {
    let mut line = String::new();
    child.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    child.wait().unwrap();
}

#[test]
fn keys_transactions_and_watches_print_what_they_print_on_etcd() {
    let Some(both) = Both::start() else { return };
    for n in 0..30 {
        both.same(&["put", &format!("k{n:02}"), &format!("v{n}")], "");
    }
    assert_eq!(both.same(&["put", "k00", "again", "--prev-kv"], ""), "OK\nk00\nv0\n");
    both.same(&["get", "k", "--prefix", "--limit", "7", "--sort-by", "MODIFY"], "");
    both.same(&["get", "k05", "k09", "--order", "DESCEND", "--print-value-only"], "");
    both.same(&["get", "k00", "--rev", "2"], "");
    both.same(&["del", "k0", "--prefix", "--prev-kv"], "");
    let txn = "value(\"k11\") = \"v11\"\n\nput k11 new\nget k12\n\nput k11 other\n\n";
    assert!(both.same(&["txn"], txn).contains("SUCCESS"));
    assert!(both.same(&["txn"], txn).contains("FAILURE"));
    let seen = both.urls().map(|url| {
        let mut child =
            both.command(&url, &["watch", "k", "--prefix", "--rev", "2"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // 31 puts of 3 lines each; deletions have an empty one for the value.
        let seen: Vec<String> = (0..31 * 3 + 10 * 3).map(|_| line(&mut lines)).collect();
        end(child);
        seen
    });
    assert_eq!(seen[1], seen[0]);
    both.same(&["compact", "20"], "");
    let compacted = both.same(&["get", "k11", "--rev", "3"], "");
    assert_eq!(compacted, "");
}

#[test]
fn leases_locks_and_elections_work() {
    let Some(both) = Both::start() else { return };
    let granted = both.ours(&["lease", "grant", "300"]);
    let lease = granted.split(' ').nth(1).unwrap();
    both.ours(&["put", "leased", "v", "--lease", lease]);
    let times = both.ours(&["lease", "timetolive", lease, "--keys"]);
    assert!(times.contains("granted with TTL(300s)") && times.contains("[leased]"), "{times}");
    assert!(both.ours(&["lease", "keep-alive", "--once", lease]).contains("TTL(300)"));
    assert_eq!(both.ours(&["lease", "list"]), format!("found 1 leases\n{lease}\n"));
    both.ours(&["lease", "revoke", lease]);
    assert_eq!(both.ours(&["get", "leased"]), "");
    let [_, url] = both.urls();
    let mut held = both.command(&url, &["lock", "mutex"]).spawn().unwrap();
    let key = line(&mut BufReader::new(held.stdout.take().unwrap()));
    assert!(key.starts_with("mutex/"), "{key}");
    let mut waits = both.command(&url, &["lock", "mutex"]).spawn().unwrap();
    let mut second = BufReader::new(waits.stdout.take().unwrap());
    end(held);
    assert!(line(&mut second).starts_with("mutex/"));
    end(waits);
    let mut leads = both.command(&url, &["elect", "chair", "ours"]).spawn().unwrap();
    let mut printed = BufReader::new(leads.stdout.take().unwrap());
    assert!(line(&mut printed).starts_with("chair/"));
    assert_eq!(line(&mut printed), "ours");
    end(leads);
}

#[test]
fn maintenance_of_a_store_works_by_etcdctl() {
    let Some(both) = Both::start() else { return };
    for n in 0..10 {
        both.ours(&["put", &format!("k{n}"), "v"]);
    }
    assert!(both.ours(&["endpoint", "health"]).contains("is healthy"));
    let status: Value =
        serde_json::from_str(&both.ours(&["endpoint", "status", "-w", "json"])).unwrap();
    let status = &status[0]["Status"];
    assert_eq!((&status["version"], &status["header"]["revision"]), (&"3.6.16".into(), &11.into()));
    let sums: Value =
        serde_json::from_str(&both.ours(&["endpoint", "hashkv", "-w", "json"])).unwrap();
    assert_eq!(u64::from(both.store.hash_kv(0).unwrap()), sums[0]["HashKV"]["hash"]);
    assert!(both.ours(&["member", "list"]).contains("started"));
    assert!(both.ours(&["defrag"]).contains("Finished defragmenting"));
    assert_eq!(both.ours(&["alarm", "list"]), "");
    assert_eq!(both.ours(&["alarm", "disarm"]), "");
    let file = both.folder.path().join("saved");
    both.ours(&["snapshot", "save", file.to_str().unwrap()]);
    let (copy, new) = (both.folder.path().join("copy"), both.folder.path().join("new"));
    saved::unseal(&file, &copy).unwrap();
    let options = Options::new("soak");
    let restored = restore(&bus(both.folder.path(), "new-log"), &copy, &new, &options).unwrap();
    assert_eq!((restored.keys, restored.from), (10, 11));
    both.ours(&["compact", "11", "--physical"]);
}

fn put(n: usize, lease: i64) -> pb::RequestOp {
    let (key, value) = (format!("/k/{n}").into(), n.to_string().into());
    let put = pb::PutRequest { key, value, lease, ..Default::default() };
    pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) }
}

#[test]
fn keys_and_leases_go_from_etcd_to_ours_and_back() {
    let Some(both) = Both::start() else { return };
    let [etcd, _] = both.urls();
    let granted = both.run(&etcd, &["lease", "grant", "600"], "").stdout;
    let granted = String::from_utf8(granted).unwrap();
    let lease = granted.split(' ').nth(1).unwrap();
    let id = i64::from_str_radix(lease, 16).unwrap();
    let source = both.client(0);
    for from in (0..KEYS).step_by(100) {
        let success = (from..from + 100).map(|n| put(n, if n == from { id } else { 0 })).collect();
        source.txn(pb::TxnRequest { success, ..Default::default() }).unwrap();
    }
    let file = both.folder.path().join("imported");
    let copied = transfer::import(&source, b"", &file, &mut |_| {}).unwrap();
    assert_eq!((copied.keys, copied.leases), (KEYS as u64, 1));
    let (bus, new) = (bus(both.folder.path(), "new-log"), both.folder.path().join("new"));
    restore(&bus, &file, &new, &Options::new("soak")).unwrap();
    let imported = open(&bus, &new);
    let server = serve_node(&imported);
    let url = format!("http://{}", server.address());
    let all = ["get", "", "--prefix"];
    assert_eq!(both.run(&url, &all, "").stdout, both.run(&etcd, &all, "").stdout);
    assert_eq!(imported.lease_status(id).keys.len(), KEYS / 100);
    // An etcd with keys is refused; an empty one is filled.
    let source = Client::connect(&url, &ClientTls::default()).unwrap();
    let refused = transfer::export(&source, b"", &both.client(0), &mut |_| {});
    assert!(matches!(refused, Err(transfer::TransferError::NotEmpty(_))));
    let empty = Etcd::start().unwrap();
    let target = Client::connect(empty.url(), &ClientTls::default()).unwrap();
    let exported = transfer::export(&source, b"", &target, &mut |_| {}).unwrap();
    assert_eq!((exported.keys, exported.leases), (KEYS as u64, 1));
    assert_eq!(both.run(empty.url(), &all, "").stdout, both.run(&etcd, &all, "").stdout);
}

#[test]
fn etcd_has_the_metrics_that_ours_are_named_after() {
    let Some(both) = Both::start() else { return };
    let [theirs, ours] = both
        .urls()
        .map(|url| get(url.strip_prefix("http://").unwrap().parse().unwrap(), "/metrics").1);
    let of_etcd = kinds(&theirs);
    let extensive = "grpc_server_handling_seconds histogram";
    for kind in kinds(&ours) {
        assert!(kind == extensive || of_etcd.contains(&kind), "{kind}");
    }
    // etcd has what its alerts ask for, but for that of peers and of `--metrics extensive`.
    for (series, outcome) in alerts() {
        let beyond = outcome.contains("no peers") || outcome.contains("extensive");
        assert_eq!(has(&theirs, series), !beyond, "{series}");
    }
}
