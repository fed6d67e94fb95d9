//! Measures the CPU time of publishing and of reading a message.
//!
//! `cargo run --release -p helio-bus --example cost -- journal:/dev/shm/cost 256 1000000`

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Instant;

use helio_bus::{
    Batch, Bus, EventRef, Lagging, Message, Qos, ReadError, Start, Subscribe, Subscription,
    TopicSpec,
};

/// This thread's CPU time.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn start() -> (Instant, u64) {
    (Instant::now(), cpu_ns())
}

/// Reads samples and keeps the newest ones, as a reader that works on batches does.
fn read(samples: &mut Subscription, count: usize, kept: usize) -> Result<(), ReadError> {
    let mut newest = VecDeque::new();
    for _ in 0..count {
        newest.push_back(samples.next_sample()?);
        if newest.len() > kept {
            newest.pop_front();
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let bytes: usize = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let count: usize = arguments.next().map_or(Ok(500_000), |text| text.parse())?;
    let bus = Bus::connect(&url)?;
    let name = format!("cost/{}-{}", std::process::id(), bytes);
    let topic = bus.topic(TopicSpec::new(&name)?.qos(Qos::stream()))?;
    let publisher = topic.publisher()?;
    let options = || Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
    let pinned = || options().pinned(1 << 30);
    let (mut batched, mut visited) = (topic.subscribe(options())?, topic.subscribe(options())?);
    let readers = [
        ("next_sample, owned", topic.subscribe(options())?, 1),
        ("next_sample, pinned if large", topic.subscribe(pinned())?, 1),
        ("256 kept, owned", topic.subscribe(options())?, 256),
        ("256 kept, pinned if large", topic.subscribe(pinned())?, 256),
    ];
    let payload = vec![7; bytes];
    let told = |what: &str, since: (Instant, u64)| {
        let wall = since.0.elapsed().as_nanos() as f64 / count as f64;
        let cpu = (cpu_ns() - since.1) as f64 / count as f64;
        println!("{what:34} {wall:8.0} ns a message, {cpu:8.0} ns of CPU");
    };

    let since = start();
    for _ in 0..count {
        publisher.publish(Message::new(&payload)).wait()?;
    }
    told("publish, one by one", since);

    for (what, mut samples, kept) in readers {
        let since = start();
        read(&mut samples, count, kept)?;
        told(what, since);
    }

    let mut batch = Batch::new();
    let (mut seen, since) = (0, start());
    while seen < count {
        seen += batched.poll_batch(1_000, &mut batch)?;
    }
    told("poll_batch, into an arena", since);

    let (mut sum, since) = (0, start());
    while visited.visit(1_000, |event| {
        if let EventRef::Sample(sample) = event {
            sum += sample.payload.len();
        }
        ControlFlow::Continue(())
    })? > 0
    {}
    told("visit, in place", since);
    assert_eq!(sum, count * bytes, "every byte was seen");

    let messages = vec![Message::new(&payload); 100];
    let since = start();
    for _ in 0..count / 100 {
        publisher.publish_batch(&messages).wait()?;
    }
    told("publish_batch of 100", since);
    Ok(())
}
