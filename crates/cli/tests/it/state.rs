//! `helio state`: TLS of the commands that ask, snapshots on schedule, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use helio_state_etcd::ClientTls;
use helio_state_etcd::client::Client;
use helio_state_etcd::proto::etcdserverpb as pb;

use crate::authority::Authority;
use crate::support::{helio, interrupt, line_of, run};

/// How long a test waits for what comes at once.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);
/// What a command ends with: no store at the URL, refused, not found, and bad arguments.
const OUTAGE: i32 = 1;
const REFUSED: i32 = 4;
const NOT_FOUND: i32 = 3;
const USAGE: i32 = 2;

/// A store that is served, and killed when it is dropped.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = helio();
        command.args(["state", "serve", "--json", "--listen", "127.0.0.1:0", "--dir"]).arg(dir);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let said: serde_json::Value = serde_json::from_str(&line_of(&mut child)).unwrap();
        Self { child, url: said["url"].as_str().unwrap().to_owned() }
    }

    fn stop(mut self) {
        assert_eq!(interrupt(&mut self.child), Some(0));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn put(client: &Client, key: &str, value: &str) {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    let put = pb::PutRequest { key, value, ..Default::default() };
    let operation = pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) };
    client.txn(pb::TxnRequest { success: vec![operation], ..Default::default() }).unwrap();
}

/// The options of TLS, with a prefix before their names.
fn tls(authority: &Authority, prefix: &str, client: &str) -> Vec<String> {
    let path = |name: &str| text(&authority.path(name)).to_owned();
    [("cacert", path("ca.crt")), ("cert", path(&format!("{client}.crt")))]
        .into_iter()
        .chain([("key", path(&format!("{client}.key")))])
        .flat_map(|(name, file)| [format!("--{prefix}{name}"), file])
        .collect()
}

fn run_all(args: &[&str], more: &[String]) -> crate::support::Ran {
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    run(&[&["state"], args, &more].concat())
}

#[test]
fn commands_ask_over_tls_with_a_certificate() {
    let (ours, foreign) = (Authority::new(), Authority::new());
    for (authority, name) in [(&ours, "server"), (&ours, "client"), (&ours, "other")] {
        authority.vouch(name, "subjectAltName=IP:127.0.0.1\n");
    }
    foreign.vouch("client", "subjectAltName=IP:127.0.0.1\n");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let files = ["server.crt", "server.key", "ca.crt"].map(|name| ours.path(name));
    let [cert, key, ca] = files.each_ref().map(|file| text(file));
    let secured = ["--cert", cert, "--key", key, "--client-ca", ca, "--allow-name", "client"];
    let serving = Serving::start(&at("one"), &secured);
    let url = serving.url.as_str();
    assert!(url.starts_with("https://"), "{url}");
    let with = ClientTls {
        authorities: Some(ours.path("ca.crt")),
        certificate: Some(ours.path("client.crt")),
        key: Some(ours.path("client.key")),
    };
    let client = Client::connect(url, &with).unwrap();
    put(&client, "/lamp", "on");
    put(&client, "/door", "shut");

    let good = tls(&ours, "", "client");
    let endpoint = ["--endpoint", url];
    let ask = |args: &[&str], more: &[String]| run_all(&[args, &endpoint].concat(), more);
    assert_eq!(ask(&["status", "--json"], &good).json()["revision"], 3);
    assert_eq!(ask(&["get", "/lamp"], &good).ok(), "/lamp\non\n");
    let mut watching = helio();
    watching.args(["state", "watch", "/", "--prefix", "--from", "2", "--json"]).args(endpoint);
    let mut watching = watching.args(&good).stdout(Stdio::piped()).spawn().unwrap();
    assert!(line_of(&mut watching).contains("\"/lamp\""));
    assert!(line_of(&mut watching).contains("\"/door\""));
    assert_eq!(interrupt(&mut watching), Some(0));
    ask(&["snapshot", text(&at("saved"))], &good).ok();
    let restored = run(&["state", "restore", text(&at("saved")), "--dir", text(&at("restored"))]);
    assert!(restored.ok().contains("2 keys"));
    let imported =
        run_all(&["import", url, "--json", "--dir", text(&at("two"))], &tls(&ours, "", "client"));
    assert_eq!(imported.lines().last().unwrap()["keys"], 2);
    let third = Serving::start(&at("three"), &secured);
    let both = [good.clone(), tls(&ours, "target-", "client")].concat();
    ask(&["export", &third.url], &both).ok();
    let exported = run_all(&["get", "/door", "--endpoint", &third.url], &good);
    assert_eq!(exported.ok(), "/door\nshut\n");

    // Who is not admitted, and to whom it is not said, gets no answer.
    let refused = |more: &[String]| {
        let ran = ask(&["get", "/lamp"], more);
        assert_eq!(ran.out, "");
        (ran.code, ran.err)
    };
    for (what, more) in [
        ("another name", tls(&ours, "", "other")),
        ("another authority's server", tls(&foreign, "", "client")),
        ("no certificate", good[..2].to_vec()),
    ] {
        let (code, said) = refused(&more);
        assert!(matches!(code, Some(OUTAGE | REFUSED)), "{what}: {code:?} {said}");
        assert!(said.starts_with("helio: "), "{what}: {said}");
    }
    let (code, said) = refused(&[]);
    assert_eq!(code, Some(REFUSED), "{said}");
    assert!(said.contains("needs the authorities of the server's certificate"), "{said}");
    let (code, said) = refused(&["--cacert".to_owned(), text(&at("none")).to_owned()]);
    assert_eq!(code, Some(REFUSED), "{said}");
    assert!(said.contains(text(&at("none"))), "{said}");
    third.stop();
    serving.stop();
}

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some()).collect();
    files.sort();
    files
}

#[test]
fn snapshots_on_schedule_are_kept_in_number_and_are_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, saved) = (folder.path().join("store"), folder.path().join("saved"));
    fs::create_dir(&saved).unwrap();
    // What a killed process left, and what is not ours.
    fs::write(saved.join("state-0000000000000001.part"), "half").unwrap();
    fs::write(saved.join("state-of-the-art.snapshot"), "mine").unwrap();
    let schedule =
        ["--snapshots", text(&saved), "--snapshot-every", "50ms", "--snapshot-keep", "2"];
    let serving = Serving::start(&dir, &schedule);
    let client = Client::connect(&serving.url, &ClientTls::default()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut written = 0;
    // Each snapshot is of another revision, while writes continue.
    let deadline = Instant::now() + HANG_TIMEOUT;
    while seen.len() < 4 {
        assert!(Instant::now() < deadline, "no more than {} snapshots", seen.len());
        put(&client, &format!("/{written}"), "v");
        written += 1;
        seen.extend(snapshots(&saved).into_iter().filter(|path| !text(path).ends_with(".part")));
    }
    serving.stop();
    let mut kept = snapshots(&saved);
    assert_eq!(kept.pop().unwrap(), saved.join("state-of-the-art.snapshot"));
    assert!(kept.len() <= 2 && !kept.is_empty(), "{kept:?}");
    let newest = kept.pop().unwrap();
    let name = newest.file_stem().unwrap().to_str().unwrap();
    let revision = i64::from_str_radix(name.strip_prefix("state-").unwrap(), 16).unwrap();
    let new = folder.path().join("new");
    let restored = run(&["state", "restore", text(&newest), "--json", "--dir", text(&new)]).json();
    // A store begins at revision 1, and each write has one.
    assert_eq!(
        (&restored["from_revision"], &restored["keys"]),
        (&revision.into(), &(revision - 1).into())
    );
    // A restart waits for the rest of the interval: the newest is an hour away.
    let hourly = ["--snapshots", text(&saved), "--snapshot-every", "1h", "--snapshot-keep", "2"];
    let serving = Serving::start(&dir, &hourly);
    put(&Client::connect(&serving.url, &ClientTls::default()).unwrap(), "/last", "v");
    serving.stop();
    assert!(snapshots(&saved).contains(&newest));
    assert!(snapshots(&saved).len() <= 3);
}

#[test]
fn options_that_cannot_be_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "no folder").unwrap();
    let (dir, file) = (text(folder.path()), text(&file));
    let cases: [(&[&str], i32, &str); 15] = [
        (&["serve", "--dir", dir, "--cert", file], USAGE, "--key"),
        (&["serve", "--dir", dir, "--client-ca", file], USAGE, "--cert"),
        (&["serve", "--dir", dir, "--allow-name", "a"], USAGE, "--client-ca"),
        (&["serve", "--dir", dir, "--snapshot-every", "1h"], USAGE, "--snapshots"),
        (&["serve", "--dir", dir, "--snapshots", dir, "--snapshot-keep", "0"], USAGE, "0"),
        (&["serve", "--dir", dir, "--snapshots", dir, "--snapshot-every", "0s"], USAGE, "0s"),
        (&["serve", "--dir", dir, "--durability", "none"], USAGE, "disk, interval"),
        (&["serve", "--dir", dir, "--listen", "nowhere"], 1, "cannot listen at nowhere"),
        (&["serve", "--dir", file, "--listen", "127.0.0.1:0"], 1, file),
        (&["get", "a", "--cert", file], USAGE, "--key"),
        (&["get", "a", "--endpoint", "ftp://127.0.0.1"], OUTAGE, "http:// or https://"),
        (
            &["get", "a", "--endpoint", "http://127.0.0.1:1"],
            OUTAGE,
            "cannot reach http://127.0.0.1:1",
        ),
        (&["watch", "a", "--from", "soon"], USAGE, "soon"),
        (&["restore", file, "--dir", "/dev/null/x"], 1, "/dev/null/x"),
        (&["restore", "/nowhere", "--dir", dir], 1, "/nowhere"),
    ];
    for (args, code, said) in cases {
        let ran = run(&[&["state"], args].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_store_is_served_once_and_tells_what_it_has_not() {
    let folder = tempfile::tempdir().unwrap();
    let dir = text(folder.path());
    let serving = Serving::start(folder.path(), &[]);
    let endpoint = ["--endpoint", serving.url.as_str()];
    let ask = |args: &[&str]| run(&[&["state"], args, &endpoint].concat());
    let none = ask(&["get", "absent"]);
    assert_eq!(
        (none.code, none.err.contains("\"absent\"")),
        (Some(NOT_FOUND), true),
        "{}",
        none.err
    );
    for args in [&["get", "a", "--revision", "99"][..], &["compact", "99"]] {
        let ran = ask(args);
        assert_eq!(ran.code, Some(REFUSED));
        assert!(ran.err.contains("required revision is a future revision"), "{}", ran.err);
    }
    let second = run(&["state", "serve", "--dir", dir, "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, Some(1));
    assert!(second.err.contains("helio state serve, helio"), "{}", second.err);
    let existing = folder.path().join("file");
    fs::write(&existing, "mine").unwrap();
    let refused = ask(&["snapshot", text(&existing)]);
    assert!(refused.err.contains(text(&existing)), "{}", refused.err);
    assert_eq!(fs::read_to_string(&existing).unwrap(), "mine");
    let no_snapshot = run(&["state", "restore", text(&existing), "--dir", text(&existing)]);
    assert_ne!(no_snapshot.code, Some(0));
    serving.stop();
    // Another cluster's clients would be given its ids: they are not made a second time in silence.
    fs::write(folder.path().join("identity.json"), "{}").unwrap();
    let damaged = run(&["state", "serve", "--dir", dir, "--listen", "127.0.0.1:0"]);
    assert_eq!(damaged.code, Some(1));
    assert!(damaged.err.contains("identity.json is damaged"), "{}", damaged.err);
}
