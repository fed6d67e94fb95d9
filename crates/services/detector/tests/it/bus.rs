//! Frames through real topics: memory and journal.

use helio_bus::{Bus, Event, Message, Qos, Start, Subscribe, TopicSpec};
use helio_core::schema::{DType, HasSchema};
use helio_detector::{Assembled, Assembler, AssemblyLimits, Frame, MAX_HEADER_BYTES};

use crate::frames::{decoded, encoded};

/// A place for topics on each transport of one machine.
pub(crate) fn places(test: &str, each: impl Fn(&str)) {
    each(&format!("memory:detector-{test}"));
    let folder = tempfile::tempdir().unwrap();
    each(&format!("journal:{}", folder.path().display()));
}

#[test]
fn a_frame_above_the_limit_arrives_whole() {
    places("parts", |url| {
        let bus = Bus::builder().producer("camera").connect(url).unwrap();
        let spec = TopicSpec::new("detector/frames").unwrap().qos(Qos::event());
        let topic = bus.topic(spec.schema(Frame::schema().unwrap())).unwrap();
        let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        let publisher = topic.publisher().unwrap();
        let pixels: Vec<u8> = (0..300_000_u32).flat_map(|i| (i as u16).to_le_bytes()).collect();
        let whole =
            Frame { unique_id: 41, ..Frame::new("camera", DType::Uint16, &[600, 500], &pixels) };
        let small = Frame { unique_id: 42, ..Frame::new("camera", DType::Int8, &[3], &[1, 2, 3]) };
        for frame in [&whole, &small] {
            for part in frame.parts(MAX_HEADER_BYTES + 64_000).unwrap() {
                let datum = encoded(&part);
                publisher.publish(Message::new(&datum).key(b"camera")).wait().unwrap();
            }
        }
        let mut assembler = Assembler::new(AssemblyLimits::default());
        let mut found = Vec::new();
        let mut count = 0;
        while let Some(event) = samples.try_next().unwrap() {
            let Event::Sample(sample) = event else { panic!("{event:?}") };
            count += 1;
            let part = decoded(&sample.payload);
            if let Assembled::Whole(frame) = assembler.push(part, &mut Vec::new()).unwrap() {
                found.push(frame.into_owned());
            }
        }
        assert_eq!(count, 600_000_usize.div_ceil(64_000) + 1);
        assert_eq!(found, [whole.into_owned(), small.into_owned()]);
    });
}
