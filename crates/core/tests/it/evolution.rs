//! The report of differences and the resolution must agree.

use std::collections::BTreeMap;

use crate::common::{gzip_json_lines, shared_data};
use crate::random::{Random, any_schema, evolved};
use helio_core::evolution::{Change, Evolution, TopicChange, compare, compare_topics};
use helio_core::resolve::{Resolution, ResolveOptions, UnitsPolicy};
use helio_core::schema::Schema;

/// Compatible schemas by the report resolve, and schemas that do not resolve are reported
/// incompatible.
fn agree(old: &Schema, new: &Schema) -> Evolution {
    let report = compare(old, new);
    let backward = Resolution::new(old, new);
    let forward = Resolution::new(new, old);
    assert!(!report.level.is_backward() || backward.is_ok(), "{old} to {new}: {report:?}");
    assert!(!report.level.is_forward() || forward.is_ok(), "{new} to {old}: {report:?}");
    report
}

#[test]
fn on_schemas_at_random() {
    let random = &mut Random::new(5);
    let mut changed = 0;
    for _ in 0..2000 {
        let json = any_schema(random);
        let old = Schema::from_json(&json).unwrap();
        assert!(agree(&old, &old).differences.is_empty());
        let new = Schema::from_json(&evolved(random, &json)).unwrap();
        changed += usize::from(!agree(&old, &new).differences.is_empty());
    }
    assert!(changed > 500, "{changed}");
}

#[test]
fn on_two_releases_of_real_interfaces() {
    let release = |name: &str| -> Option<BTreeMap<String, Schema>> {
        let path = shared_data(&format!("sal-golden/{name}/schemas.jsonl.gz"))?;
        let topic = |line: &serde_json::Value| {
            let name = line["kafka_name"].as_str().unwrap().to_owned();
            (name, Schema::from_json(&line["schema"]).unwrap())
        };
        Some(gzip_json_lines(&path).iter().map(topic).collect())
    };
    let (Some(old), Some(new)) = (release("v26.0.0"), release("v27.1.1")) else { return };
    let names = |all: &BTreeMap<String, Schema>| all.len();
    assert_eq!((names(&old), names(&new)), (3131, 3166));
    let (old, new) = (borrowed(&old), borrowed(&new));
    let changes = compare_topics(&old, &new);
    let mut kinds = BTreeMap::new();
    for (name, change) in &changes {
        let TopicChange::Changed(report) = change else { continue };
        assert_eq!(*report, agree(&old[name], &new[name]));
        for difference in &report.differences {
            *kinds.entry(difference.change).or_insert(0) += 1;
        }
        let options = ResolveOptions { units: UnitsPolicy::Report };
        let units = report.differences.iter().filter(|d| d.change == Change::Units).count();
        if units > 0 {
            assert!(Resolution::new(&old[name], &new[name]).is_err(), "{name}");
            let resolution = Resolution::with_options(&old[name], &new[name], options);
            assert!(resolution.is_err() || resolution.is_ok_and(|r| !r.cautions().is_empty()));
        }
    }
    println!("{} topics changed: {kinds:?}", changes.len());
    assert!(kinds[&Change::FieldAdded] > 0 && kinds[&Change::FieldRemoved] > 0);
}

fn borrowed(all: &BTreeMap<String, Schema>) -> BTreeMap<&str, Schema> {
    all.iter().map(|(name, schema)| (name.as_str(), schema.clone())).collect()
}
