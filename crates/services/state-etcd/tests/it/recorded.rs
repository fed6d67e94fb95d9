//! The answers to all recorded requests are a real etcd's, but for those of the list.

use std::collections::BTreeMap;

use crate::support::{cases, play, serve};

/// What etcd 3.6.16 answers; the soak records it.
const ETCD: &str = include_str!("../golden/etcd.txt");
/// What differs: the request, our answer, and before it the reason in a comment.
const DIFFERENCES: &str = include_str!("../golden/differences.txt");

fn by_name(lines: &str) -> BTreeMap<&str, &str> {
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": ")).collect()
}

#[test]
fn answers_are_etcds_but_for_the_listed_ones() {
    let server = serve(None);
    let url = format!("http://{}", server.address());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = runtime.block_on(play::play(&url, &cases::all()));
    if std::env::var_os("HELIO_SHOW").is_some() {
        std::fs::write(std::env::temp_dir().join("ours.txt"), &told).unwrap();
    }
    let mut expected = by_name(ETCD);
    assert!(expected.len() >= 60, "{} requests", expected.len());
    for (name, answer) in by_name(DIFFERENCES) {
        let etcds = expected.insert(name, answer);
        assert_ne!(etcds, Some(answer), "{name} is etcd's answer, and is listed as a difference");
    }
    for (name, answer) in by_name(&told) {
        assert_eq!(expected.remove(name), Some(answer), "{name}");
    }
    assert_eq!(expected, BTreeMap::new());
}
