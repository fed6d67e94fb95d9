//! The demo's camera: it takes images, reports progress and can be interrupted.

use std::time::Duration;

use helio_component::protocol::checks::{Limits, Nan};
use helio_component::{Builder, Command, Failed};
use helio_core::Value;
use helio_core::sal::TopicKind;
use helio_logging::Level;

use super::component_process::ReportingTopic;
use super::logging;
use super::mount::enabled;
use crate::worker::say;

/// Progress acknowledgements of an exposure.
const PROGRESS_ACKS: u32 = 10;
/// The time that an exposure may take beyond its own.
const EXPOSURE_GRACE: Duration = Duration::from_secs(60);

/// Events of an exposure's stages, whose names differ between interfaces.
const BEGINS: &[&str] = &["startExposure", "startIntegration"];
const ENDS: &[&str] = &["endExposure", "endIntegration"];
const READOUT: &[&str] = &["startReadout"];
const READ: &[&str] = &["endReadout", "imageStored"];

/// Adds the camera's commands to a component.
pub(crate) fn attach(builder: Builder) -> Builder {
    let at_least = |min| Limits { min: Some(min), max: None, nan: Nan::Refused };
    builder.on("takeImages", take_images).limit("takeImages", "numImages", at_least(1.0)).limit(
        "takeImages",
        "expTime",
        at_least(0.0),
    )
}

fn take_images(command: &Command) -> Result<String, Failed> {
    enabled(command)?;
    let (images, seconds) = (command.integer("numImages"), command.number("expTime"));
    let mut last = String::new();
    for image in 1..=images {
        last = format!("demo-{:08}-{image}", command.seq_num());
        logging::note(Level::DEBUG, &format!("exposes {last} for {seconds} s"));
        tell(command, BEGINS, &last, image)?;
        for part in 0..PROGRESS_ACKS {
            let done = (image - 1) as f64 + f64::from(part) / f64::from(PROGRESS_ACKS);
            let text = format!("image {image} of {images}");
            let left =
                Duration::from_secs_f64(seconds * (images - image + 1) as f64) + EXPOSURE_GRACE;
            command.in_progress(left, &text, Some(done / images as f64));
            command.pause(Duration::from_secs_f64(seconds / f64::from(PROGRESS_ACKS)))?;
        }
        tell(command, ENDS, &last, image)?;
        tell(command, READOUT, &last, image)?;
        tell(command, READ, &last, image)?;
        logging::note(Level::INFO, &format!("{last} is read"));
    }
    Ok(last)
}

/// Publishes those of the events that the interface has.
fn tell(command: &Command, events: &[&str], image: &str, number: i64) -> Result<(), Failed> {
    let component = command.component();
    let known = |name: &&&str| component.interface().has(TopicKind::Event, name);
    for name in events.iter().filter(known) {
        let now = || Value::Double(component.now().seconds());
        let values = [
            ("imageName", image.into()),
            ("imageIndex", Value::Long(number)),
            ("imagesInSequence", Value::Long(command.integer("numImages"))),
            ("exposureTime", Value::Double(command.number("expTime"))),
            ("requestedExposureTime", Value::Double(command.number("expTime"))),
            ("timestampAcquisitionStart", now()),
            ("timestampEndOfReadout", now()),
        ];
        if let Some(word) = ReportingTopic::open(component.event(name)?)?.write(values)? {
            say(&word)?;
        }
    }
    Ok(())
}
