//! Sums over visits, for a monitoring system.

use helio_alert_filters::FilterTotals;
use helio_alert_filters::totals::FilterTotal;
use helio_bus::Bus;

use crate::support::{
    Night, Process, RANKED, TOPIC, chosen, generated, results, sql, until_decided,
};

fn of(totals: &FilterTotals, user: &str, label: &str) -> FilterTotal {
    totals.filters[&(user.to_owned(), label.to_owned())]
}

#[test]
fn a_visit_counts_once_from_the_start_on() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    // The topics of the service do not exist yet.
    let mut early = FilterTotals::new(&bus, TOPIC);
    assert!(early.refresh().unwrap().is_empty());
    assert_eq!((early.active, early.filters.len()), (0, 0));
    sql(&bus, "ada", "ranked", RANKED);
    sql(&bus, "bob", "none", "SELECT * FROM alerts WHERE diaSource.snr < -1e9");
    early.refresh().unwrap();
    // A filter is there before its first visit.
    assert_eq!((early.active, of(&early, "bob", "none@1")), (2, FilterTotal::default()));
    let mut process = [Process::open(&bus)];
    night.visit(0);
    until_decided(&mut process, 1);
    let decided = early.refresh().unwrap();
    assert_eq!(decided.iter().map(|one| one.visit).collect::<Vec<_>>(), [night.id(0)]);
    assert!(early.refresh().unwrap().is_empty());
    let mut late = FilterTotals::new(&bus, TOPIC);
    assert!(late.refresh().unwrap().is_empty(), "it was decided before");
    night.visit(1);
    until_decided(&mut process, 2);
    for (totals, visits) in [(&mut early, 2), (&mut late, 1)] {
        let decided = totals.refresh().unwrap();
        assert_eq!(decided.iter().map(|one| one.visit).collect::<Vec<_>>(), [night.id(1)]);
        let bob = of(totals, "bob", "none@1");
        assert_eq!((totals.visits, bob.visits), (visits, visits));
        assert_eq!((bob.sums.alerts, bob.sums.matches, bob.capped_visits), (60 * visits, 0, 0));
    }
    let ada = of(&early, "ada", "ranked@1");
    assert_eq!(early.users["ada"].results, results(&bus, "ada").len() as u64);
    let capped = chosen(&bus, "ada").values().filter(|ids| ids.len() == 20).count() as u64;
    assert!(ada.sums.matches > 0 && ada.capped_visits <= capped, "{ada:?}");
}
