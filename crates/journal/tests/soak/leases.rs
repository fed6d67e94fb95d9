//! Claims with an expired lease, taken over at the moment at which the holder renews.

use std::sync::Barrier;
use std::time::Duration;

use helio_core::{ProducerName, Tai, TopicName};
use helio_journal::{Journal, JournalOptions, Lease, Ownership, TopicConfig, WriterOptions};

/// Often enough that the two meet in every order on two processors.
const ROUNDS: u64 = 500;
/// The number of moments at which the holder renews.
const SPREAD: u64 = 250;

fn exclusive(name: &str) -> WriterOptions {
    let producer = ProducerName::new(name).unwrap();
    WriterOptions { producer, ownership: Ownership::Exclusive }
}

#[test]
fn never_do_both_the_holder_and_its_successor_go_on() {
    for successor in ["holder", "successor"] {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("j"), JournalOptions::default()).unwrap();
        let name = TopicName::new("mount/lease").unwrap();
        let topic = journal.create_topic(&name, &TopicConfig::default()).unwrap();
        let (mut taken, mut kept) = (0, 0);
        for round in 1..=ROUNDS {
            let at = |ms: u64| Lease {
                time: Duration::from_secs(1),
                now: Duration::from_secs(10 * round) + Duration::from_millis(ms),
            };
            let holder = topic.claim_for(&exclusive("holder"), at(0)).unwrap();
            let begin = Barrier::new(2);
            let (asserted, claimed) = std::thread::scope(|scope| {
                let asserting = scope.spawn(|| {
                    begin.wait();
                    // A claim opens files before it checks, so the renewal comes earlier and later
                    // in it.
                    (0..round % SPREAD * 20).for_each(|_| std::hint::spin_loop());
                    holder.assert_alive(Tai::from_nanos(1), at(5_000).now)
                });
                begin.wait();
                let claimed = topic.claim_for(&exclusive(successor), at(5_000));
                (asserting.join().unwrap(), claimed)
            });
            let goes_on = asserted.is_ok();
            assert!(!(goes_on && claimed.is_ok()), "two in round {round} of {successor}");
            taken += u64::from(claimed.is_ok());
            kept += u64::from(goes_on);
        }
        assert!(taken + kept > 0, "neither ever went on");
    }
}
