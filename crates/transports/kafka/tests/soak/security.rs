//! Brokers behind TLS and SASL: accepted logins, and the errors of rejected ones.

use helio_bus::{Bus, Event, Message, Qos, Start, Subscribe, TopicSpec};

use crate::support::{Broker, HANG_TIMEOUT, unique};

/// A broker with TLS, access control and SASL; `None`, with a message, without Java or openssl.
fn broker() -> Option<Broker> {
    Broker::start_with(&["--tls", "--acl", "--sasl", "plain", "--sasl", "scram-sha-512"])
}

/// The options of a user, as a URL has them.
fn options(broker: &Broker, user: &str, mechanism: &str) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let report = &broker.report;
    [
        ("security.protocol", "SASL_SSL".to_owned()),
        ("ssl.ca.location", text(&report["tls"]["ca"])),
        ("sasl.mechanism", mechanism.to_owned()),
        ("sasl.username", user.to_owned()),
        ("sasl.password", text(&report["users"][user]["password"])),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn url(base: &str, options: &[(String, String)]) -> String {
    let options: Vec<_> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{base}?{}", options.join("&"))
}

/// The same options with another value of one; `None` removes it.
fn with(options: &[(String, String)], name: &str, value: Option<&str>) -> Vec<(String, String)> {
    let mut options = options.to_vec();
    options.retain(|(known, _)| known != name);
    options.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    options
}

fn refused(url: &str) -> String {
    Bus::connect(url).map(drop).unwrap_err().to_string()
}

fn has(told: &str, words: &[&str]) {
    assert!(words.iter().all(|word| told.contains(word)), "{words:?} are not in: {told}");
}

#[test]
fn who_is_let_in_and_who_is_not_is_told_why() {
    let Some(broker) = broker() else { return };
    let base = broker.url("").trim_end_matches('?').to_owned();
    let admin = options(&broker, "admin", "SCRAM-SHA-512");
    let name = unique("open");
    for mechanism in ["PLAIN", "SCRAM-SHA-512"] {
        let bus = Bus::connect(&url(&base, &options(&broker, "admin", mechanism))).unwrap();
        let topic = bus.topic(TopicSpec::new(&name).unwrap().qos(Qos::event())).unwrap();
        let message = Message::new(mechanism.as_bytes());
        topic.publisher().unwrap().publish(message).wait_timeout(HANG_TIMEOUT).unwrap();
        let mut samples = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
        let event = samples.next_timeout(HANG_TIMEOUT).unwrap();
        assert!(matches!(event, Some(Event::Sample(_))), "{event:?}");
        let told = refused(&url(
            &base,
            &with(&options(&broker, "admin", mechanism), "sasl.password", Some("no")),
        ));
        has(&told, &["log in", "sasl.password"]);
    }
    let expired = broker.report["tls"]["expired_url"].as_str().unwrap();
    has(&refused(&url(expired, &admin)), &["certificate", "expired", "new one"]);
    has(
        &refused(&url(&base, &with(&admin, "ssl.ca.location", None))),
        &["certificate", "ssl.ca.location"],
    );
    // The same host, by a name that the certificate does not have.
    let other = base.replace("127.0.0.1", "127.1");
    has(&refused(&url(&other, &admin)), &["certificate", "another host"]);
    let internal = broker.report["internal_url"].as_str().unwrap();
    has(&refused(&url(internal, &admin)), &["SSL", "security.protocol"]);
    has(&refused(&base), &["security.protocol"]);
}

#[test]
fn a_permission_that_is_missing_is_named() {
    let Some(broker) = broker() else { return };
    let base = broker.url("").trim_end_matches('?').to_owned();
    let connect = |user| Bus::connect(&url(&base, &options(&broker, user, "PLAIN"))).unwrap();
    let name = unique("guarded");
    let spec = || TopicSpec::new(&name).unwrap();
    let admin = connect("admin");
    let topic = admin.topic(spec().qos(Qos::event())).unwrap();
    topic.publisher().unwrap().publish(Message::new(b"x")).wait_timeout(HANG_TIMEOUT).unwrap();

    let reader = connect("reader");
    let topic = reader.topic(spec()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert!(matches!(samples.next_timeout(HANG_TIMEOUT).unwrap(), Some(Event::Sample(_))));
    let publisher = topic.publisher();
    let told = match publisher {
        Ok(publisher) => publisher
            .publish(Message::new(b"x"))
            .wait_timeout(HANG_TIMEOUT)
            .unwrap_err()
            .to_string(),
        Err(error) => error.to_string(),
    };
    has(&told, &["uthorization", "WRITE"]);
    let new = TopicSpec::new(&unique("new")).unwrap().qos(Qos::event());
    has(&reader.topic(new).map(drop).unwrap_err().to_string(), &["uthorization", "CREATE"]);

    // A group is joined in the background, so its reader gets the error.
    let loner = connect("loner");
    let topic = loner.topic(spec()).unwrap();
    let mut alone = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert!(matches!(alone.next_timeout(HANG_TIMEOUT).unwrap(), Some(Event::Sample(_))));
    let member = topic.subscribe(Subscribe::from(Start::Earliest).group("g"));
    let told = match member {
        Ok(mut member) => member.next_timeout(HANG_TIMEOUT).unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    has(&told, &["roup authorization failed", "READ groups", "access control lists"]);

    let stranger = connect("stranger");
    has(&stranger.topic(spec()).map(drop).unwrap_err().to_string(), &["uthorization", "READ"]);
}
