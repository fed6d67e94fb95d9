//! Attributes: exact types, changes only, and the state as of each frame.

use helio_bus::{Bus, Event, Message, Qos, Start, Subscribe, TopicSpec};
use helio_core::schema::{DType, HasSchema};
use helio_core::{Codec, Schema};
use helio_detector::{
    Attribute, AttributeChanges, AttributeError, AttributeSource, AttributeValue as V,
    AttributeView, AttributesAt, Frame, MAX_ATTRIBUTES, MAX_CHANGES_AHEAD,
};
use proptest::prelude::*;

use crate::bus::places;
use crate::frames::{decoded, encoded};

fn schema() -> Schema {
    AttributeChanges::schema().unwrap()
}

fn datum(changes: &AttributeChanges) -> Vec<u8> {
    let mut out = Vec::new();
    Codec::new(&schema()).serialize(changes, &mut out).unwrap();
    out
}

fn read(datum: &[u8]) -> AttributeChanges {
    Codec::new(&schema()).deserialize(datum).unwrap()
}

fn int(dtype: DType, number: i128) -> V {
    V::Integer(dtype, number)
}

#[test]
fn values_keep_their_exact_type() {
    let mut values = vec![V::Boolean(true), V::Text("détecteur".to_owned()), V::Float32(0.1)];
    values.extend([V::Float64(0.1), V::Float64(-0.0), V::Float32(f32::INFINITY)]);
    for dtype in DType::ALL {
        let Some((least, most)) = dtype.range() else { continue };
        values.extend([int(dtype, least), int(dtype, most), int(dtype, 1)]);
    }
    let mut source = AttributeSource::new("llrf", 0, 10);
    for (i, value) in values.iter().enumerate() {
        source.set(&format!("a{i:02}"), value.clone()).unwrap();
    }
    let changes = source.changes(5).unwrap();
    let back = read(&datum(&changes));
    assert_eq!(back, changes);
    for (attribute, value) in back.changed.iter().zip(&values) {
        assert!(attribute.value.is_same(value), "{attribute:?}");
    }
}

#[test]
fn what_is_no_value_is_refused() {
    let mut source = AttributeSource::new("llrf", 0, 10);
    let error = source.set("a", int(DType::Uint8, 256)).unwrap_err();
    assert_eq!(error.to_string(), "the attribute \"a\": 256 is no uint8");
    assert!(source.set(&"n".repeat(256), V::Boolean(true)).is_err());
    assert!(source.set("a", V::Text("t".repeat(4097))).is_err());
    for i in 0..MAX_ATTRIBUTES {
        source.set(&i.to_string(), V::Boolean(true)).unwrap();
    }
    assert_eq!(source.set("more", V::Boolean(true)), Err(AttributeError::TooMany));
    source.set("5", V::Boolean(false)).unwrap();
    // A hostile sample: a kind that its value is not.
    let mut bytes = datum(&changes_of(1, true, &[("x", int(DType::Uint8, 200))]));
    let place = bytes.iter().position(|byte| *byte == b'x').unwrap() + 1;
    assert_eq!(bytes[place], 2, "the index of uint8");
    bytes[place] = 0;
    let error = Codec::new(&schema()).deserialize::<AttributeChanges>(&bytes).unwrap_err();
    assert!(error.to_string().contains("is no int8"), "{error}");
}

fn changes_of(revision: u64, complete: bool, changed: &[(&str, V)]) -> AttributeChanges {
    let attribute =
        |(name, value): &(&str, V)| Attribute { name: (*name).to_owned(), value: value.clone() };
    let changed = changed.iter().map(attribute).collect();
    let source = "llrf".to_owned();
    AttributeChanges { source, revision, complete, time: 0, changed, removed: Vec::new() }
}

#[test]
fn only_changes_travel() {
    let mut source = AttributeSource::new("llrf", 7, 3);
    assert_eq!(source.changes(0), None);
    source.set("gain", V::Float64(f64::NAN)).unwrap();
    source.set("name", V::Text("A".to_owned())).unwrap();
    let first = source.changes(1).unwrap();
    assert_eq!((first.revision, first.complete, first.changed.len()), (8, true, 2));
    source.set("gain", V::Float64(f64::NAN)).unwrap();
    assert_eq!((source.changes(2), source.revision()), (None, 8));
    source.set("gain", V::Float32(f32::NAN)).unwrap();
    let second = source.changes(3).unwrap();
    assert_eq!((second.revision, second.complete, second.changed.len()), (9, false, 1));
    source.remove("gain");
    let third = source.changes(4).unwrap();
    assert_eq!((third.complete, &third.removed[..]), (false, &["gain".to_owned()][..]));
    source.set("mode", int(DType::Int16, -1)).unwrap();
    let fourth = source.changes(5).unwrap();
    assert_eq!((fourth.revision, fourth.complete, fourth.changed.len()), (11, true, 2));
}

#[test]
fn lost_changes_make_the_state_unknown_until_a_complete_one() {
    let mut view = AttributeView::default();
    assert_eq!(view.advance(0), AttributesAt::Known);
    assert_eq!(view.advance(1), AttributesAt::Early);
    view.push(changes_of(1, true, &[("a", V::Boolean(true))]));
    view.push(changes_of(3, false, &[("b", V::Boolean(true))]));
    assert_eq!((view.advance(1), view.values().len()), (AttributesAt::Known, 1));
    assert_eq!(view.advance(2), AttributesAt::Unknown);
    assert_eq!((view.advance(3), view.values().len()), (AttributesAt::Unknown, 0));
    assert_eq!(view.advance(1), AttributesAt::Unknown);
    view.push(changes_of(2, true, &[]));
    view.push(changes_of(4, true, &[("c", V::Boolean(true))]));
    assert_eq!((view.advance(4), view.values().len()), (AttributesAt::Known, 1));
    // Changes that no frame asks for are not kept for ever.
    for revision in 5..=10 + MAX_CHANGES_AHEAD as u64 {
        view.push(changes_of(revision, false, &[("c", int(DType::Uint64, revision.into()))]));
    }
    assert_eq!(view.advance(5), AttributesAt::Unknown);
    assert_eq!(view.advance(10), AttributesAt::Known);
    assert_eq!(view.values()["c"], int(DType::Uint64, 10));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A reader that joins anywhere has the state of each frame from its first complete one on.
    #[test]
    fn readers_have_the_state_of_every_frame(
        steps in prop::collection::vec((0_usize..8, prop::option::of(0_i128..4)), 1..60),
        complete_every in 1_u64..6,
        join in 0_usize..60,
    ) {
        let mut source = AttributeSource::new("llrf", 0, complete_every);
        let mut states = Vec::new();
        let mut log = Vec::new();
        let mut now = std::collections::BTreeMap::new();
        for (name, number) in steps {
            let name = format!("a{name}");
            match number {
                Some(number) => {
                    source.set(&name, int(DType::Int32, number)).unwrap();
                    now.insert(name, int(DType::Int32, number));
                }
                None => {
                    source.remove(&name);
                    now.remove(&name);
                }
            }
            log.extend(source.changes(0));
            states.push((source.revision(), now.clone()));
        }
        let joined = &log[join.min(log.len())..];
        let first = joined.iter().find(|changes| changes.complete).map(|first| first.revision);
        let mut view = AttributeView::default();
        joined.iter().for_each(|changes| view.push(read(&datum(changes))));
        for (revision, state) in states {
            match view.advance(revision) {
                AttributesAt::Known if revision > 0 => {
                    prop_assert!(first.is_some_and(|first| revision >= first));
                    prop_assert_eq!(view.values(), &state);
                }
                _ => prop_assert!(first.is_none_or(|first| revision < first)),
            }
        }
    }
}

#[test]
fn a_late_joiners_first_frame_has_all_attributes_as_of_it() {
    places("attributes", |url| {
        let bus = Bus::builder().producer("llrf").connect(url).unwrap();
        let topic = |name: &str, schema: Schema| {
            bus.topic(TopicSpec::new(name).unwrap().qos(Qos::event()).schema(schema)).unwrap()
        };
        let attributes = topic("detector/attributes", schema());
        let frames = topic("detector/frames", Frame::schema().unwrap());
        let (changes_to, frames_to) =
            (attributes.publisher().unwrap(), frames.publisher().unwrap());
        let mut source = AttributeSource::new("llrf", 0, 1000);
        for i in 0..200 {
            source.set(&format!("static{i}"), int(DType::Uint16, i)).unwrap();
        }
        let mut late = None;
        for unique_id in 1..=10_u64 {
            source.set("temperature", V::Float32(unique_id as f32)).unwrap();
            let changes = datum(&source.changes(0).unwrap());
            changes_to.publish(Message::new(&changes).key(b"llrf")).wait().unwrap();
            let revision = source.revision();
            let frame = Frame {
                unique_id,
                attributes: revision,
                ..Frame::new("llrf", DType::Int8, &[1], &[7])
            };
            frames_to.publish(Message::new(&encoded(&frame)).key(b"llrf")).wait().unwrap();
            if unique_id == 5 {
                late = Some(frames.subscribe(Subscribe::from(Start::Latest)).unwrap());
            }
        }
        // All changes were published before the joiner reads its first frame.
        let mut view = AttributeView::default();
        let mut stored = attributes.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        while let Some(event) = stored.try_next().unwrap() {
            let Event::Sample(sample) = event else { panic!("{event:?}") };
            view.push(read(&sample.payload));
        }
        let mut late = late.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = late.try_next().unwrap() {
            let Event::Sample(sample) = event else { panic!("{event:?}") };
            let frame = decoded(&sample.payload);
            assert_eq!(view.advance(frame.attributes), AttributesAt::Known);
            assert_eq!(view.values().len(), 201);
            assert_eq!(view.values()["static199"], int(DType::Uint16, 199));
            assert_eq!(view.values()["temperature"], V::Float32(frame.unique_id as f32));
            seen.push(frame.unique_id);
        }
        assert_eq!(seen, [6, 7, 8, 9, 10]);
    });
}
