//! Watch lists and regions, live.

use helio_alert_filters::{ChangeError, FilterStore, ListKind};
use helio_bus::Bus;

use crate::support::{Alert, Night, Process, TOPIC, chosen, generated, sql, until_decided};

fn near(alerts: &[Alert]) -> Vec<[f64; 2]> {
    alerts.iter().map(|alert| [alert.ra, alert.dec]).collect()
}

#[test]
fn a_watch_list_changes_under_its_filter() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    let far: Vec<[f64; 2]> = (0..100_000).map(|n| [f64::from(n) * 0.003, 80.0]).collect();
    let head = store.put_watch_list("mine", far.clone(), 1.0).unwrap();
    assert_eq!((head.entries, head.revision), (100_000, 1));
    sql(&bus, "ada", "watched", "SELECT diaSourceId FROM alerts WHERE in_watchlist('mine')");
    let mut process = [Process::open(&bus)];
    night.visit(0);
    until_decided(&mut process, 1);
    assert!(chosen(&bus, "ada").is_empty());
    night.open(1);
    let packets = night.packets(1, 0);
    let targets = crate::support::alerts(&packets);
    let list = far.into_iter().skip(10).chain(near(&targets[..3])).collect();
    assert_eq!(store.put_watch_list("mine", list, 1.0).unwrap().revision, 2);
    night.publish_packets(1, 0, &packets);
    night.close(1);
    until_decided(&mut process, 2);
    let mut found = chosen(&bus, "ada")[&night.id(1)].clone();
    found.sort_unstable();
    assert_eq!(found, targets[..3].iter().map(|alert| alert.id).collect::<Vec<_>>());
}

#[test]
fn lists_are_checked_and_removed() {
    let bus = Bus::connect("memory:").unwrap();
    Night::new(&bus, generated(12));
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    assert!(store.put_watch_list("w", vec![[0.0, 91.0]], 1.0).is_err());
    assert!(store.put_region("r", vec![1..2, 5..5]).is_err());
    store.put_region("r", vec![0..1 << 40, 1 << 41..1 << 42]).unwrap();
    let other = store.put_watch_list("r", vec![[0.0, 1.0]], 1.0).unwrap_err();
    assert!(matches!(other, ChangeError::OtherKind(_)), "{other}");
    assert!(store.check(helio_alert_filters::Language::Sql, IN_REGION).is_ok());
    let reader = FilterStore::open(&bus, TOPIC).unwrap();
    assert_eq!(reader.lists()["r"].kind, ListKind::Region);
    store.remove_list("r").unwrap();
    assert!(store.lists().is_empty());
    assert!(store.check(helio_alert_filters::Language::Sql, IN_REGION).is_err());
    assert!(matches!(store.remove_list("r"), Err(ChangeError::NoList(_))));
}

const IN_REGION: &str = "SELECT * FROM alerts WHERE in_moc('r')";
