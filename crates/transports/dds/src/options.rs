//! The options of a `dds:` URL: the domain, discovery, and limits.

use std::fmt::Write as _;
use std::time::Duration;

use helio_bus::transport::Opening;
use helio_bus::{BusUrl, ConnectError};

/// All options.
const OPTIONS: [&str; 9] = [
    "peers",
    "interface",
    "multicast",
    "lease_s",
    "discovery_ms",
    "service_ms",
    "prefix",
    "name",
    "config",
];
/// The largest domain whose ports fit (RTPS: 7400 + 250 times the domain).
const MAX_DOMAIN: u32 = 230;
/// The most processes of one host and domain that find each other without multicast.
const MAX_PROCESSES: u32 = 119;

/// The largest payload, in bytes: as Kafka's, so that a bridge between both loses nothing.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 8 << 20;
/// The largest key, in bytes: as the journal's.
pub(crate) const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// The most bytes of a key's samples that the writers of telemetry and logs keep for readers that
/// lag: the traffic of one lease at 25 MB/s, and as much as a reader may have waiting.
pub(crate) const CACHE_BYTES: usize = 256 << 20;
/// The same in samples, so that the budget holds for samples up to [`LARGE_SAMPLE_BYTES`], which
/// are almost all. Cyclone's index of a key has 8 bytes for each.
pub(crate) const CACHE_DEPTH: u32 = 2_048;
/// Larger samples are counted: above the budget their writer waits, as other writers do.
pub(crate) const LARGE_SAMPLE_BYTES: usize = CACHE_BYTES / CACHE_DEPTH as usize;
/// Heartbeat: how soon a writer requests the acknowledgement of its last sample, because receipts
/// wait for it. Cyclone's default is 100 ms.
/// Watermarks: how many unacknowledged bytes a writer may have, constant from the first sample on.
/// Cyclone starts with 30 kB and lowers the limit after each retransmission, so a burst would be
/// refused.
/// Locator pruning is off. After a minute Cyclone would stop probing silent hosts, and without
/// multicast they would not find each other after a longer network partition.
const INTERNAL_CONFIG: &str = "<Internal><HeartbeatInterval min=\"1 ms\" minsched=\"1 ms\">2 ms\
    </HeartbeatInterval><Watermarks><WhcHigh>500 kB</WhcHigh><WhcHighInit>500 kB</WhcHighInit>\
    <WhcAdaptive>false</WhcAdaptive></Watermarks></Internal><Discovery>\
    <DiscoveredLocatorPruneDelay>inf</DiscoveredLocatorPruneDelay></Discovery>";
/// How long a process that is new in a domain waits for discovery: the number of participants is
/// unknown.
const DEFAULT_DISCOVERY_MS: u64 = 300;
/// Cyclone's own lease.
const DEFAULT_LEASE: Duration = Duration::from_secs(10);
/// The longest interval between a participant's discovery messages.
const SPDP_INTERVAL: Duration = Duration::from_secs(30);
/// How long opening waits for the other sessions' responses.
pub(crate) const PEER_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after connecting to wait for a durability service.
const DEFAULT_SERVICE_MS: u64 = 3_000;

/// The options of a URL, validated.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) url: String,
    pub(crate) domain: u32,
    pub(crate) prefix: String,
    /// The domain's name for bridges.
    pub(crate) name: String,
    pub(crate) discovery: Duration,
    /// How long after connecting to wait for a durability service.
    pub(crate) service_timeout: Duration,
    /// A participant that is silent for so long counts as gone.
    pub(crate) lease: Duration,
    /// Cyclone's configuration, as XML.
    pub(crate) config: String,
}

impl Options {
    pub(crate) fn parse(opening: &Opening) -> Result<Self, ConnectError> {
        let url = &opening.url;
        url.allow_options(&OPTIONS)?;
        let wrong =
            |reason: &str| ConnectError::Url { url: url.to_string(), reason: reason.to_owned() };
        let rest = url.rest().trim_start_matches('/').trim_end_matches('/');
        let domain: u32 = rest.parse().map_err(|_| wrong("a DDS domain is a number: dds://0"))?;
        if domain > MAX_DOMAIN {
            return Err(wrong("a DDS domain is 0 to 230"));
        }
        let prefix = url.option("prefix").unwrap_or_default();
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        if !prefix.chars().all(legal) {
            let reason = "a prefix is made of letters, digits, '.', '_', '-' and '/'";
            return Err(url.bad_option("prefix", prefix, reason));
        }
        // No property of DDS identifies the network of a domain, so URLs name it.
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let name = match url.option("name") {
            Some(name) if !name.is_empty() && name.chars().all(legal) => format!("dds-{name}"),
            Some(name) => {
                let reason = "a name is made of letters, digits, '.', '_' and '-'";
                return Err(url.bad_option("name", name, reason));
            }
            None => format!("dds-{domain}-{}", prefix.replace('/', ".")),
        };
        let discovery = url.number("discovery_ms")?.unwrap_or(DEFAULT_DISCOVERY_MS);
        let service = url.number("service_ms")?.unwrap_or(DEFAULT_SERVICE_MS);
        let lease =
            url.number::<u32>("lease_s")?.map_or(DEFAULT_LEASE, |s| Duration::from_secs(s.into()));
        Ok(Self {
            url: url.to_string(),
            domain,
            prefix: prefix.to_owned(),
            name,
            discovery: Duration::from_millis(discovery),
            service_timeout: Duration::from_millis(service),
            lease,
            config: config(url)?,
        })
    }
}

/// Cyclone's configuration: our defaults, then the named file, then the other options. Later parts
/// override earlier ones.
fn config(url: &BusUrl) -> Result<String, ConnectError> {
    let mut xml = INTERNAL_CONFIG.to_owned();
    if let Some(file) = url.option("config") {
        std::fs::metadata(file)
            .map_err(|error| url.bad_option("config", file, &error.to_string()))?;
        let _ = write!(xml, ",file://{file},");
    } else {
        found_again(&mut xml, DEFAULT_LEASE);
    }
    let multicast = multicast(url)?;
    let peers = peers(url)?;
    if let Some(interface) = url.option("interface") {
        plain(url, "interface", interface)?;
        // Linux does not flag the loopback as capable of multicast, but it works if requested.
        let on = if multicast == Some(true) { "true" } else { "default" };
        let on = if multicast == Some(false) { "false" } else { on };
        let named = if interface.parse::<std::net::IpAddr>().is_ok() { "address" } else { "name" };
        let _ = write!(
            xml,
            "<General><Interfaces><NetworkInterface {named}=\"{interface}\" multicast=\"{on}\"/>\
             </Interfaces></General>"
        );
    }
    if let Some(multicast) = multicast {
        let _ = write!(xml, "<General><AllowMulticast>{multicast}</AllowMulticast></General>");
    }
    if !peers.is_empty() {
        let _ = write!(
            xml,
            "<Discovery><ParticipantIndex>auto</ParticipantIndex>\
             <MaxAutoParticipantIndex>{MAX_PROCESSES}</MaxAutoParticipantIndex><Peers>"
        );
        for peer in peers {
            let _ = write!(xml, "<Peer address=\"{peer}\"/>");
        }
        xml.push_str("</Peers></Discovery>");
    }
    if let Some(lease) = url.number::<u32>("lease_s")? {
        if lease == 0 {
            return Err(url.bad_option("lease_s", "0", "a second at least"));
        }
        let _ = write!(xml, "<Discovery><LeaseDuration>{lease} s</LeaseDuration></Discovery>");
        found_again(&mut xml, Duration::from_secs(lease.into()));
    }
    Ok(xml)
}

/// Sets the discovery interval below the lease, so that participants that lost each other by
/// unicast meet again within a lease. Cyclone's default is 30 s.
fn found_again(xml: &mut String, lease: Duration) {
    let interval = (lease * 4 / 5).min(SPDP_INTERVAL).as_millis();
    let _ = write!(xml, "<Discovery><SPDPInterval>{interval} ms</SPDPInterval></Discovery>");
}

fn multicast(url: &BusUrl) -> Result<Option<bool>, ConnectError> {
    match url.option("multicast") {
        None => Ok(None),
        Some("true" | "1") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(other) => Err(url.bad_option("multicast", other, "true or false")),
    }
}

/// The hosts to probe for participants: this host if there is no multicast.
fn peers(url: &BusUrl) -> Result<Vec<String>, ConnectError> {
    let named = url.option("peers").unwrap_or_default();
    plain(url, "peers", named)?;
    let named: Vec<_> =
        named.split(',').filter(|peer| !peer.is_empty()).map(str::to_owned).collect();
    if named.is_empty() && multicast(url)? == Some(false) {
        return Ok(vec!["127.0.0.1".to_owned()]);
    }
    Ok(named)
}

/// Checks that a value contains no XML.
fn plain(url: &BusUrl, option: &str, value: &str) -> Result<(), ConnectError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || ".:-_,%".contains(c);
    if value.chars().all(legal) {
        return Ok(());
    }
    Err(url.bad_option(
        option,
        value,
        "hosts, addresses and interfaces have letters, digits and . : - _ , % only",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn parse(url: &str) -> Result<Options, ConnectError> {
        let clock = Arc::new(helio_bus::SystemClock::new());
        Options::parse(&Opening { url: url.parse()?, clock })
    }

    #[test]
    fn a_url_names_a_domain_and_how_others_are_found() {
        let options = parse("dds://7?peers=10.0.0.1,summit&lease_s=3&prefix=sim.").unwrap();
        assert_eq!((options.domain, &*options.prefix), (7, "sim."));
        assert!(options.config.contains("<Peer address=\"summit\"/>"), "{}", options.config);
        let lease = options.config.split_once("3 s</LeaseDuration>").unwrap();
        assert!(lease.1.contains("<SPDPInterval>2400 ms"), "{}", options.config);
        assert_eq!(options.name, "dds-7-sim.");
        assert_eq!(parse("dds://0?name=summit").unwrap().name, "dds-summit");
        let plain = parse("dds://0").unwrap().config;
        assert!(
            plain.starts_with(INTERNAL_CONFIG) && plain.contains("<SPDPInterval>8000 ms"),
            "{plain}"
        );
        let local = parse("dds://0?interface=lo&multicast=false").unwrap().config;
        assert!(local.contains("name=\"lo\" multicast=\"false\""), "{local}");
        assert!(local.contains("<Peer address=\"127.0.0.1\"/>"), "{local}");
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (url, named) in [
            ("dds://", "a number"),
            ("dds://x", "a number"),
            ("dds://231", "0 to 230"),
            ("dds://0?acks=1", "acks"),
            ("dds://0?multicast=maybe", "multicast"),
            ("dds://0?peers=<x>", "peers"),
            ("dds://0?lease_s=0", "lease_s"),
            ("dds://0?prefix=a%20b", "prefix"),
            ("dds://0?name=a@b", "name"),
            ("dds://0?config=/no/such/file.xml", "config"),
        ] {
            let told = parse(url).unwrap_err().to_string();
            assert!(told.contains(named), "{url}: {told}");
        }
    }
}
