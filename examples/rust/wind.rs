//! A weather station publishes wind; a reader gets the newest sample, then each one that comes.
//!
//!     cargo run -p helio-bus --example wind [URL]        # journal:site without one
//!
//! Start it twice, or beside `examples/python/wind.py`: each sees what all publish.

use std::time::Duration;

use helio_bus::{Bus, Qos, Start, Subscribe, TypedEvent, TypedTopic};
use serde::{Deserialize, Serialize};

/// Wind at the weather mast.
#[derive(Debug, Serialize, Deserialize)]
struct Wind {
    speed: f64,
    gusts: Vec<f32>,
}

helio_core::has_schema!(Wind, "Wind", {
    speed: f64 [units("m/s")],
    gusts: Vec<f32> [length(64), units("m/s")],
});

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn publish(wind: &TypedTopic<Wind>) -> Result<(), Failure> {
    for n in 0..5_u8 {
        let gusts: Vec<f32> = (0..64).map(|i| 7.5 + f32::from((n * 7 + i) % 5) * 0.4).collect();
        let speed = f64::from(gusts.iter().sum::<f32>()) / 64.0;
        wind.publish(&Wind { speed, gusts }).wait()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "journal:site".to_owned());
    let bus = Bus::connect(&url)?; // or kafka://…, dds://0 …
    let wind = bus.typed::<Wind>("weather/wind", Qos::telemetry())?;
    wind.publish(&Wind { speed: 7.5, gusts: vec![7.5; 64] }).wait()?;
    let mut samples = wind.subscribe(Subscribe::from(Start::Last(1)))?;
    let publishing = std::thread::spawn(move || publish(&wind));
    for _ in 0..6 {
        match samples.next_timeout(Duration::from_secs(5))? {
            Some(TypedEvent::Value(received)) => {
                let gust = received.value.gusts.iter().copied().fold(f32::MIN, f32::max);
                let (header, speed) = (&received.sample.header, received.value.speed);
                print!("{}  {speed:5.2} m/s, gusts to {gust:5.2} m/s", header.time);
                println!("  from {}, lost {}", header.producer.name, samples.stats().lost);
            }
            Some(TypedEvent::Other(event)) => println!("{event:?}"),
            None => return Err("nothing came for five seconds".into()),
        }
    }
    publishing.join().expect("the publisher returns")
}
