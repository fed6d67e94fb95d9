//! The demo's script: brings all components to ENABLED, takes images, is notified of the mount's
//! death, resumes when it is back, and brings all components to OFFLINE.

use std::sync::mpsc::{Receiver, TryRecvError};

use helio_bus::Bus;
use helio_bus::transport::Reach;
use helio_component::CallBuilder;
use helio_component::protocol::caller::Cause;
use helio_component::protocol::{AckCode, SummaryState, path};
use helio_core::sal::{SalType, Topic, TopicKind};
use helio_logging::Level;

use super::caller::{COMMAND_TIMEOUT, Callee, Ended};
use super::logging;
use super::messages::{Order, ProcessMessage, ScriptTask, Step};
use crate::clock::{cpu_s, monotonic_ns, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::sal;
use crate::service_error::ServiceResult;
use crate::worker::{orders, say};

/// The script's caller name.
pub(crate) const IDENTITY: &str = "Script:1";
/// Images per command.
const IMAGES: i32 = 2;

/// The command to take images with the shutter open; all else is the camera's to choose.
fn take_images(camera: &Callee, number: i32, seconds: f64) -> CallBuilder {
    let call = camera.command("takeImages").set("numImages", number).set("expTime", seconds);
    let topic = camera.remote.interface().component().topic(TopicKind::Command, "takeImages");
    let fields = topic.into_iter().flat_map(Topic::fields);
    let texts = fields.filter(|field| field.sal_type() == Some(SalType::String));
    texts.fold(call.set("shutter", true), |call, text| call.set(&text.name, ""))
}

/// Runs the process.
pub(crate) fn run(task: &ScriptTask) -> CliResult {
    let interfaces = sal::folder_or_own(task.world.interfaces.as_deref())?;
    let bus = Bus::connect(&task.world.url)?;
    let open = |of: &(String, i32)| Callee::open(&bus, &interfaces, of, IDENTITY);
    let all = task.components.iter().map(open).collect::<CliResult<Vec<_>>>()?;
    let place = |of: &(String, i32)| task.components.iter().position(|known| known == of);
    let mount = place(&(task.mount.clone(), 0))
        .ok_or_else(|| CliError::Failure(format!("the script has no component {}", task.mount)))?;
    let camera = task.camera.as_ref().and_then(place);
    logging::begin(&bus, "Script")?;
    say(&ProcessMessage::Ready)?;
    let (exposure_s, orders) = (task.exposure_s, orders());
    let reach = bus.capabilities().reach;
    Script { all, mount, camera, exposure_s, orders, reach, ends: false, images: 0 }.play()?;
    let logged = logging::end();
    say(&ProcessMessage::End { cpu_s: cpu_s(), rss_mb: peak_rss_mb(), logged })
}

struct Script {
    all: Vec<Callee>,
    mount: usize,
    camera: Option<usize>,
    exposure_s: f64,
    orders: Receiver<Order>,
    reach: Reach,
    ends: bool,
    images: i32,
}

impl Script {
    fn play(mut self) -> CliResult {
        if !matches!(self.orders.recv(), Ok(Order::Begin { .. })) {
            return Ok(());
        }
        self.begin()?;
        while !self.ends {
            match self.camera {
                Some(camera) => {
                    self.expose(camera)?;
                    self.attend()?;
                }
                None => match self.orders.recv() {
                    Ok(order) => self.follow(order)?,
                    Err(_) => self.ends = true,
                },
            }
        }
        self.leave()
    }

    fn begin(&self) -> CliResult {
        let begun = monotonic_ns();
        for callee in &self.all {
            lead(callee, SummaryState::Enabled)?;
        }
        let (all, ms) = (self.all.len(), ms_since(begun));
        story(format!("{all} components from STANDBY to ENABLED in {ms:.0} ms"))?;
        self.track()?;
        if let Some(camera) = self.camera {
            self.refused(camera)?;
        }
        say(&ProcessMessage::Came(Step::Began))
    }

    fn track(&self) -> CliResult {
        let ended = self.all[self.mount].ask("startTracking");
        let met = ended.completed();
        ended.account(met)
    }

    /// Sends a command with an invalid value, which must be rejected.
    fn refused(&self, camera: usize) -> CliResult {
        let callee = &self.all[camera];
        let ended = callee.send("takeImages", take_images(callee, 0, 1.0)).wait();
        story(format!("{} refuses takeImages of 0 images: {}", callee.name(), ended.text))?;
        let met = ended.cause == Some(Cause::Acknowledged)
            && ended.called.code == AckCode::Failed.number();
        ended.account(met)
    }

    /// Takes images and follows orders.
    fn expose(&mut self, camera: usize) -> CliResult {
        let callee = &self.all[camera];
        let (name, seconds) = (callee.name(), self.exposure_s);
        let mut sent = callee.send("takeImages", take_images(callee, IMAGES, seconds));
        let mut told = 0;
        let ended = loop {
            match sent.next() {
                Ok(ack) => {
                    told += 1;
                    let percent = ack.progress.unwrap_or(0.0) * 100.0;
                    say(&ProcessMessage::Doing(format!(
                        "{name} takes {}: {percent:.0} %",
                        ack.result
                    )))?;
                    self.attend()?;
                }
                Err(ended) => break ended,
            }
        };
        if self.images == 0 {
            let text = format!(
                "{name} takes {IMAGES} images of {seconds:.1} s, says {told} times how far it is, \
                 and is done: {}",
                ended.text
            );
            story(text)?;
        }
        self.images += IMAGES;
        let met = ended.completed();
        ended.account(met)
    }

    /// Follows the pending orders.
    fn attend(&mut self) -> CliResult {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.follow(order)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => {
                    self.ends = true;
                    return Ok(());
                }
            }
        }
    }

    fn follow(&mut self, order: Order) -> CliResult {
        match order {
            Order::Died => self.told_gone(),
            Order::Returned => self.resume(),
            Order::End => {
                self.ends = true;
                Ok(())
            }
            Order::Begin { .. } | Order::Rest | Order::Burst { .. } => Ok(()),
        }
    }

    /// Commands the mount while it is gone.
    fn told_gone(&self) -> CliResult {
        let Ended { called, cause, text } = self.all[self.mount].ask("stop");
        // On engines that detect a death only by the lease, the command may have been sent.
        let gone = matches!(cause, Some(Cause::WentAway)) && self.reach == Reach::Network;
        logging::note(Level::ALERT, &format!("the mount is gone: {text}"));
        let (after_ns, met) = (called.took_ns, gone || cause == Some(Cause::NobodyThere));
        story(format!("stop of the mount ends after {:.1} ms: {text}", after_ns as f64 * 1e-6))?;
        Ended { called, cause, text }.account(met)?;
        say(&ProcessMessage::Came(Step::ToldGone { after_ns }))
    }

    fn resume(&self) -> CliResult {
        lead(&self.all[self.mount], SummaryState::Enabled)?;
        self.track()?;
        story(format!("{} is ENABLED and tracks again", self.all[self.mount].name()))?;
        say(&ProcessMessage::Came(Step::Resumed))
    }

    fn leave(&self) -> CliResult {
        if self.images > 0 {
            story(format!("{} images were taken; the night is over", self.images))?;
        }
        let ended = self.all[self.mount].ask("stop");
        let met = ended.completed();
        ended.account(met)?;
        for callee in &self.all {
            lead(callee, SummaryState::Offline)?;
        }
        story(format!("{} components to STANDBY, and away by exitControl", self.all.len()))
    }
}

/// Brings a component to a state by the fewest commands, as [`Remote::set_state`] does, and reports
/// each of them.
///
/// [`Remote::set_state`]: helio_component::Remote::set_state
fn lead(callee: &Callee, target: SummaryState) -> CliResult {
    let commands = callee.remote.state().or_cli()?.and_then(|state| path(state, target));
    let commands = commands.ok_or_else(|| {
        CliError::Failure(format!("no commands lead {} to {target}", callee.name()))
    })?;
    for command in commands {
        let call = callee.remote.state_command(command, "").timeout(COMMAND_TIMEOUT);
        let ended = callee.send(command.name(), call).wait();
        let (met, text) = (ended.completed(), ended.text.clone());
        ended.account(met)?;
        if !met {
            let text = format!("{} of {} did not end well: {text}", command.name(), callee.name());
            return Err(CliError::Failure(text));
        }
    }
    Ok(())
}

fn story(text: String) -> CliResult {
    logging::note(Level::NOTICE, &text);
    say(&ProcessMessage::Story(format!("script: {text}")))
}

fn ms_since(begun_ns: u64) -> f64 {
    monotonic_ns().saturating_sub(begun_ns) as f64 * 1e-6
}
