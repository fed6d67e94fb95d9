//! Stamps by URL: the process that serves them, and how members get them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_alert_serve::{Observer, Service, StampStore, router};
use helio_alerts::generator::{Generator, WithStamps};
use helio_alerts::reader::Alert;
use helio_alerts::services::StampUrls;
use helio_bus::Bus;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::worker::{hear, say};
use helio_http::Limits;
use ureq::Agent;

use super::messages::{End, ServiceReply, StampsTask, Survey};
use crate::serve::announce_stamps;

/// The longest wait for one answer: 110 members may ask at the same time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a member waits for an alert that the service has not read yet.
const UNREAD_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The most requests at the same time: all members are one peer.
const MAX_REQUESTS: usize = 256;

/// Runs the process.
pub(super) fn run(task: &StampsTask) -> CliResult {
    let failed = |error: std::io::Error| CliError::Failure(format!("the stamps' server: {error}"));
    let bus = open::connect(Some(&task.survey.url), Some("stamps"))?;
    let topic = &task.survey.topic;
    let (requests, requests_per_peer) = (MAX_REQUESTS, MAX_REQUESTS);
    let limits = Limits { requests, requests_per_peer, ..Limits::default() };
    let listening = helio_http::listen("127.0.0.1:0", "alerts-http", limits).map_err(failed)?;
    let urls = StampUrls::below(&format!("http://{}", listening.address()));
    announce_stamps(&bus, topic, &urls)?;
    let observer = Arc::new(Observer::start(&bus, topic).map_err(failed)?);
    let stamps = StampStore::new(&bus, topic, Some(Arc::clone(&observer)));
    let server = listening.serve(router(Arc::new(Service::new(observer, stamps))));
    say(&ServiceReply::Ready)?;
    if hear::<End>()?.is_none() {
        return Ok(());
    }
    drop(server);
    say(&ServiceReply::End(std::iter::empty().collect()))?;
    hear::<End>().map(drop)
}

/// Gets stamps and compares them with what was published.
pub(super) struct Fetch<'a> {
    bus: &'a Bus,
    survey: &'a Survey,
    agent: Agent,
    urls: Option<StampUrls>,
    generator: Generator,
}

impl<'a> Fetch<'a> {
    pub(super) fn new(bus: &'a Bus, survey: &'a Survey) -> Self {
        let config = Agent::config_builder().timeout_global(Some(ANSWER_TIMEOUT)).build();
        let (agent, generator) = (config.into(), survey.generator(WithStamps::Fits));
        Self { bus, survey, agent, urls: None, generator }
    }

    /// Gets the stamps of those alerts of which they are wanted; returns their bytes.
    pub(super) fn stamps(&mut self, alerts: &[Alert]) -> CliResult<u64> {
        let wanted = alerts.iter().filter(|alert| self.survey.is_fetched(alert.id));
        let wanted: Vec<_> = wanted.collect();
        wanted.into_iter().map(|alert| self.alert(alert)).sum()
    }

    fn alert(&mut self, alert: &Alert) -> CliResult<u64> {
        let (mut datum, mut metadata, mut bytes) = (Vec::new(), Vec::new(), 0);
        if let Some(number) = Survey::number(alert.id) {
            self.generator.write(number, &mut datum);
        }
        let published = alert.layout.split(&datum, &mut metadata);
        let published = published.map_err(|error| CliError::Failure(error.to_string()))?;
        for (name, file) in alert.layout.stamps().zip(published) {
            let url = self.urls()?.url(alert.id, name);
            let got = self.get(&url)?;
            if Some(&got[..]) != file {
                return Err(CliError::Failure(format!("{url} differs from what was published")));
            }
            bytes += got.len() as u64;
        }
        Ok(bytes)
    }

    fn urls(&mut self) -> CliResult<&StampUrls> {
        if self.urls.is_none() {
            let found = StampUrls::of_stream(self.bus, &self.survey.topic);
            self.urls = found.map_err(|error| CliError::Failure(error.to_string()))?;
        }
        let none = || CliError::Failure("no service of stamps is announced".to_owned());
        self.urls.as_ref().ok_or_else(none)
    }

    /// Gets a file; waits while the service has not read as far as this member.
    fn get(&self, url: &str) -> CliResult<Vec<u8>> {
        let failed = |error: ureq::Error| CliError::Failure(format!("{url}: {error}"));
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match self.agent.get(url).call() {
                Err(ureq::Error::StatusCode(404)) if Instant::now() < until => {
                    std::thread::sleep(UNREAD_RETRY_INTERVAL);
                }
                answer => {
                    return answer.map_err(failed)?.body_mut().read_to_vec().map_err(failed);
                }
            }
        }
    }
}
