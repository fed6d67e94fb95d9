//! Stored results, one file a transport, and the tables of `docs/conformance.md` generated from
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use super::{CheckResult, Report, Verdict, checks};

/// If set, [`compare_with_stored`] writes the results.
const KEEP_VARIABLE: &str = "HELIO_CONFORMANCE_KEEP";

/// The results by check.
type Verdicts = BTreeMap<String, Verdict>;

/// Compares a report on all checks with the file `NAME.json` of a folder, or replaces the file if
/// `HELIO_CONFORMANCE_KEEP` is set. Reasons are not compared.
///
/// # Errors
/// The differences, or the error of the file.
pub fn compare_with_stored(folder: &Path, name: &str, report: &Report) -> Result<(), String> {
    let path = folder.join(format!("{name}.json"));
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let verdict = |line: &CheckResult| (line.check.to_owned(), lasting(&line.verdict));
    let now: Verdicts = report.lines.iter().map(verdict).collect();
    if std::env::var_os(KEEP_VARIABLE).is_some() {
        let text = serde_json::to_string_pretty(&now).map_err(|error| error.to_string())? + "\n";
        return fs::write(&path, text).map_err(failed);
    }
    let before = read(&path).map_err(failed)?;
    // New checks are ignored until their results are stored.
    let names = before.keys();
    let kind = |verdict: Option<&Verdict>| verdict.map(std::mem::discriminant);
    let changed = names.filter(|name| kind(before.get(*name)) != kind(now.get(*name)));
    let changed: std::collections::BTreeSet<_> = changed.collect();
    if changed.is_empty() {
        return Ok(());
    }
    let mut told = format!("{} differs; `make conformance` rewrites it", path.display());
    for check in changed {
        let _ = write!(told, "\n{check}: {:?}, was {:?}", now.get(check), before.get(check));
    }
    Err(told)
}

/// The result without the names of this run's topics and the address of its engine.
fn lasting(verdict: &Verdict) -> Verdict {
    match verdict {
        Verdict::Refused(why) => {
            let why = why.split(' ').map(lasting_word).collect::<Vec<_>>().join(" ");
            Verdict::Refused(why)
        }
        other => other.clone(),
    }
}

fn lasting_word(word: &str) -> String {
    if word.starts_with("conformance/") {
        return format!("a topic{}", if word.ends_with(':') { ":" } else { "" });
    }
    let Some((scheme, address)) = word.split_once("://") else { return word.to_owned() };
    let end = address.find(['`', ',', ';']).unwrap_or(address.len());
    format!("{scheme}://…{}", &address[end..])
}

fn read(path: &Path) -> io::Result<Verdicts> {
    serde_json::from_str(&fs::read_to_string(path)?).map_err(io::Error::other)
}

/// The tables of a folder of results, as Markdown with one column a transport.
///
/// # Errors
/// [`io::Error`] if the results cannot be read.
pub fn tables(folder: &Path) -> io::Result<String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        all.insert(name, read(&path)?);
    }
    let mut text = String::from("| promise |");
    all.keys().for_each(|name| text += &format!(" {name} |"));
    text += "\n|";
    text += &" --- |".repeat(all.len() + 1);
    for check in checks() {
        text += &format!("\n| {} |", check.promise);
        for verdicts in all.values() {
            text += match verdicts.get(check.name) {
                Some(Verdict::Passed) => " yes |",
                Some(Verdict::Refused(_)) => " refused |",
                Some(Verdict::Skipped(_)) => " – |",
                Some(Verdict::Broken(_)) => " **no** |",
                None => " not held |",
            };
        }
    }
    text += "\n";
    for (name, verdicts) in &all {
        text += &reasons(name, verdicts);
    }
    Ok(text)
}

/// A transport's reasons of refusals, each once.
fn reasons(name: &str, verdicts: &Verdicts) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for check in checks() {
        let why = match verdicts.get(check.name) {
            Some(Verdict::Refused(why) | Verdict::Skipped(why) | Verdict::Broken(why)) => why,
            Some(Verdict::Passed) | None => continue,
        };
        reasons.entry(why).or_default().push(check.promise);
    }
    let mut text = String::new();
    if !reasons.is_empty() {
        text += &format!("\n### {name}\n\n| why | promises |\n| --- | --- |\n");
    }
    for (why, promises) in reasons {
        text += &format!("| {} | {} |\n", why.replace('\n', " "), promises.join("; "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of `docs/conformance` and the example's `--json`.
    #[test]
    fn the_json_of_results_is_golden() {
        let verdicts = [
            Verdict::Passed,
            Verdict::Refused("a".to_owned()),
            Verdict::Skipped("b".to_owned()),
            Verdict::Broken("c".to_owned()),
        ];
        let text = r#"[
            {"verdict":"passed"},
            {"verdict":"refused","why":"a"},
            {"verdict":"skipped","why":"b"},
            {"verdict":"broken","why":"c"}
        ]"#;
        let text: String = text.split_whitespace().collect();
        assert_eq!(serde_json::to_string(&verdicts).unwrap(), text);
        assert_eq!(serde_json::from_str::<Vec<Verdict>>(&text).unwrap(), verdicts);
        let line = CheckResult { check: "x", promise: "y", verdict: Verdict::Passed };
        let text = r#"{"lines":[{"check":"x","promise":"y","verdict":"passed"}]}"#;
        assert_eq!(serde_json::to_string(&Report { lines: vec![line] }).unwrap(), text);
    }

    #[test]
    fn reasons_name_neither_the_topics_nor_the_address_of_a_run() {
        let refused = |why: &str| Verdict::Refused(why.to_owned());
        let of_a_run = "dds refuses conformance/a-7: start `helio dds durability --url \
                        dds://61?interface=lo&multicast=false`, or not";
        let kept = "dds refuses a topic: start `helio dds durability --url dds://…`, or not";
        assert_eq!(lasting(&refused(of_a_run)), refused(kept));
        assert_eq!(lasting(&refused(kept)), refused(kept));
    }

    #[test]
    fn the_names_of_checks_are_golden() {
        let mut names: Vec<&str> = checks().map(|check| check.name).collect();
        names.sort_unstable();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance/memory.json");
        assert!(names.into_iter().eq(read(&file).unwrap().keys()));
    }
}
