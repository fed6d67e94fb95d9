//! Nights in files.

use crate::support::Site;

/// Publishes visits, and closes them.
fn closed(site: &Site, visits: &str) {
    site.produce(&["--visits", visits, "--no-stamps"]);
    let close = ["consume", "--from", "earliest", "--verify", "--visits", visits, "--json"];
    assert_eq!(site.run(&close).code, Some(0));
}

#[test]
fn visits_become_files_which_a_second_run_verifies() {
    let site = Site::new();
    closed(&site, "2");
    for (format, compression) in [("parquet", "zstd"), ("avro", "snappy")] {
        let folder = site.folder.path().join(format);
        let to = folder.to_str().unwrap();
        let visits = ["--visit", "1000000", "--visit", "1000001"];
        let options = ["--format", format, "--compression", compression, "--to", to, "--json"];
        let args = [&["export"], &visits[..], &options[..]].concat();
        let first = site.run(&args);
        let report = &first.lines()[0];
        assert_eq!(
            (first.code, &report["ended"], &report["equal"]),
            (Some(0), &"finished".into(), &true.into()),
            "{first:?}"
        );
        assert_eq!(report["totals"]["rows"], 60, "{first:?}");
        let again = site.run(&args);
        assert_eq!((again.code, &again.lines()[0]["ended"]), (Some(0), &"verified".into()));
        let other = site.run(&["export", "--visit", "1000000", "--format", format, "--to", to]);
        assert_eq!((other.code, other.out.as_str()), (Some(4), ""), "{other:?}");
        // A damaged file is named.
        let mut files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let file = files.find(|path| path.extension().is_some_and(|e| e == format)).unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let damaged = site.run(&args);
        assert_eq!((damaged.code, damaged.out.as_str()), (Some(1), ""), "{damaged:?}");
        assert!(damaged.err.contains(format), "{}", damaged.err);
    }
}

#[test]
fn an_open_visit_is_named_and_added_later() {
    let site = Site::new();
    site.produce(&["--no-stamps"]);
    let folder = site.folder.path().join("files");
    let args = ["export", "--visit", "1000000", "--to", folder.to_str().unwrap(), "--json"];
    let open = site.run(&args);
    assert_eq!(
        (open.code, &open.lines()[0]["open"]),
        (Some(5), &vec![1_000_000].into()),
        "{open:?}"
    );
    let close = ["consume", "--from", "earliest", "--verify", "--visits", "1", "--json"];
    assert_eq!(site.run(&close).code, Some(0));
    let later = site.run(&args);
    assert_eq!(
        (later.code, &later.lines()[0]["totals"]["rows"]),
        (Some(0), &30.into()),
        "{later:?}"
    );
}

#[test]
fn wrong_exports_are_refused() {
    let site = Site::new();
    closed(&site, "1");
    let folder = site.folder.path().join("files");
    let to = folder.to_str().unwrap();
    let cases: [(&[&str], i32); 7] = [
        (&[], 2),
        (&["--visit", "1000000", "--night", "2026-11-25"], 2),
        (&["--visit", "7"], 3),
        (&["--night", "2020-01-01"], 3),
        (&["--visit", "1000000", "--format", "avro", "--compression", "zstd"], 2),
        (&["--visit", "1000000", "--filter", "SELECT * FROM alerts WHERE snir > 1"], 2),
        (&["--visit", "1000000", "--filter", "ada/snr"], 3),
    ];
    for (args, code) in cases {
        let ran = site.run(&[&["export", "--to", to], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
    }
}
