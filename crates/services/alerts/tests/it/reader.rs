//! Readers of a stream: alone, with stamps.

use std::collections::BTreeMap;

use helio_alerts::layout::Layout;
use helio_alerts::producer::{ProducerOptions, TopicLayout};
use helio_alerts::reader::{Stamps, Start, VisitEvent};
use helio_alerts::rubin::Version;
use helio_alerts::stamps::Packing;

use crate::support::{
    DETECTORS, SHUTTER_CLOSE_NS, bus, made, open, options, packets_of, places, publish_visit,
    read_until,
};

#[test]
fn a_reader_returns_a_visit_closes_it_and_audits_it() {
    places("whole", |url| {
        let (visit, _) = packets_of(0, Version::LATEST);
        let bus = bus(url, "reader");
        publish_visit(url, 0, Version::LATEST, &options());
        let mut reader = open(&bus, Start::Earliest, Stamps::Inline);
        let found = read_until(&mut reader, |found| !found.decided.is_empty());
        assert_eq!(found.alerts.len(), 22);
        let alerts = found.alerts.iter().map(|alert| (alert.id, alert.datum.to_vec()));
        assert!(alerts.collect::<BTreeMap<_, _>>() == made(0, Version::LATEST));
        assert!(matches!(&found.events[0], VisitEvent::Opened(opening) if opening.visit == visit));
        let closing = &found.decided[0];
        assert!(closing.is_complete() && closing.closer == "reader", "{closing:?}");
        assert!(reader.audit(visit).unwrap().is_equal());
        assert_eq!(reader.lag(), 0);
        for alert in &found.alerts {
            assert_eq!((alert.visit, alert.layout.schema()), (visit, Version::LATEST.schema()));
            assert!((0..DETECTORS.into()).contains(&alert.detector));
            let stages = alert.stages;
            assert_eq!(stages.shutter_close.unwrap().nanos(), SHUTTER_CLOSE_NS);
            assert!(stages.produced.unwrap() <= stages.published);
            assert!(stages.published <= stages.read);
        }
    });
}

#[test]
fn stamps_come_from_any_layout_as_any_kind_with_equal_bytes() {
    let version = Version::LATEST;
    let (whole, layout) = (made(0, version), Layout::new(version.schema()));
    let layouts = [
        TopicLayout::Inline,
        TopicLayout::Split(Packing::Plain),
        TopicLayout::Split(Packing::ShuffleZstd),
    ];
    for (number, of) in layouts.into_iter().enumerate() {
        places(&format!("stamps{number}"), |url| {
            publish_visit(url, 0, version, &ProducerOptions { layout: of, ..options() });
            let bus = bus(url, "reader");
            for stamps in [Stamps::None, Stamps::Linked, Stamps::Inline] {
                let mut reader = open(&bus, Start::Earliest, stamps);
                let found = read_until(&mut reader, |found| found.alerts.len() == whole.len());
                for alert in &found.alerts {
                    let datum = &whole[&alert.id];
                    let mut metadata = Vec::new();
                    let files = layout.split(datum, &mut metadata).unwrap();
                    match stamps {
                        Stamps::Inline => assert!(alert.datum == *datum),
                        _ => assert!(alert.datum == metadata),
                    }
                    let found = alert
                        .stamps
                        .as_ref()
                        .map(|files| files.iter().map(Option::as_deref).collect::<Vec<_>>());
                    assert!(found == (stamps == Stamps::Linked).then_some(files));
                }
                assert!(reader.dropped().is_empty(), "{:?}", reader.dropped());
            }
        });
    }
}
