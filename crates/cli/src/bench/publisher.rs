//! A bench's publisher process: messages by a schedule, or at full speed.

use helio_bus::{Bus, Message, Publisher};

use super::content::Payloads;
use super::messages::{
    Go, PublisherReport, PublisherTask, STAMP_EVERY, Schedule, Used, writer_name,
};
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb, wait_until};
use crate::error::CliResult;
use crate::receipts::Receipts;
use crate::worker::{hear, say};

/// Runs the process.
pub(crate) fn run(task: &PublisherTask) -> CliResult {
    let bus = Bus::builder().producer(&writer_name(task.writer)).connect(&task.place.url)?;
    let mut payloads = Payloads::new(&task.place.content)?;
    let publisher = bus.topic(payloads.spec(&task.place)?)?.publisher()?;
    // The writer opens here, not at the first message.
    let _ = publisher.producer();
    say(&())?;
    let Some(go) = hear::<Go>()? else { return Ok(()) };
    let cpu = cpu_s();
    let mut run = Run { task, publisher: &publisher, receipts: Receipts::new(task.window) };
    let stamps = match task.schedule {
        Some(schedule) => run.paced(&mut payloads, go.start_ns, schedule)?,
        None => run.fast(&mut payloads, go.start_ns)?,
    };
    let acknowledged = run.receipts.finish()?;
    say(&PublisherReport {
        acknowledged,
        end_ns: monotonic_ns(),
        stamps,
        payload_bytes: payloads.bytes(),
        used: Used { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() },
    })
}

struct Run<'a> {
    task: &'a PublisherTask,
    publisher: &'a Publisher,
    receipts: Receipts,
}

impl Run<'_> {
    /// An open loop: each message is due at its time, however late the previous one was.
    fn paced(
        &mut self,
        payloads: &mut Payloads,
        start: u64,
        schedule: Schedule,
    ) -> CliResult<Vec<u64>> {
        for number in 0..self.task.count {
            wait_until(schedule.due(start, number));
            self.one(payloads.write(number)?)?;
        }
        Ok(Vec::new())
    }

    fn fast(&mut self, payloads: &mut Payloads, start: u64) -> CliResult<Vec<u64>> {
        wait_until(start);
        if self.task.batch > 1 {
            return self.batches(payloads);
        }
        let mut stamps = Vec::with_capacity((self.task.count / STAMP_EVERY + 1) as usize);
        for number in 0..self.task.count {
            if (number + 1).is_multiple_of(STAMP_EVERY) {
                stamps.push(monotonic_ns());
            }
            self.one(payloads.write(number)?)?;
        }
        Ok(stamps)
    }

    fn one(&mut self, payload: &[u8]) -> CliResult {
        let message = Message::new(payload).guarantee(self.task.guarantee);
        self.receipts.take(self.publisher.publish(message))
    }

    fn batches(&mut self, payloads: &mut Payloads) -> CliResult<Vec<u64>> {
        let mut stamps = Vec::with_capacity((self.task.count / STAMP_EVERY + 1) as usize);
        let mut bodies = vec![Vec::new(); self.task.batch];
        let mut number = 0;
        while number < self.task.count {
            let size = self.task.batch.min((self.task.count - number) as usize);
            let mut at = number;
            for body in &mut bodies[..size] {
                body.clear();
                body.extend_from_slice(payloads.write(at)?);
                at += 1;
            }
            let now = monotonic_ns();
            stamps.extend((number + 1..=at).filter(|n| n.is_multiple_of(STAMP_EVERY)).map(|_| now));
            let messages: Vec<Message<'_>> =
                bodies[..size].iter().map(|body| Message::new(body)).collect();
            self.publisher.publish_batch(&messages).wait()?;
            self.receipts.add(size as u64);
            number = at;
        }
        Ok(stamps)
    }
}
