//! Brokers behind TLS and SASL: accepted logins, the errors of rejected ones, and grants.

use std::time::Instant;

use helio_bus::{
    Bus, ConnectError, Event, Message, Qos, ReadError, Start, Subscribe, Topic, TopicError,
    TopicSpec, TransportError,
};
use helio_core::schema::Schema;

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

/// Connects as a user with a password.
fn log_in(broker: &Broker, user: &str, password: &str) -> Result<Bus, ConnectError> {
    let base = broker.url("").trim_end_matches('?').to_owned();
    let admin = options(broker, "admin", "SCRAM-SHA-512");
    let options = with(&admin, "sasl.username", Some(user));
    Bus::connect(&url(&base, &with(&options, "sasl.password", Some(password))))
}

/// Repeats until it succeeds: brokers apply lists and logins a moment after the controller has
/// accepted them.
fn until<T, E: std::fmt::Display>(mut step: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match step() {
            Ok(done) => return done,
            Err(error) => assert!(began.elapsed() < HANG_TIMEOUT, "{error}"),
        }
        std::thread::yield_now();
    }
}

/// A topic's first sample, in a group or alone.
fn first_sample(bus: &Bus, name: &str, group: Option<&str>) -> Result<Vec<u8>, String> {
    let text = |error: TopicError| error.to_string();
    let topic = bus.topic(TopicSpec::new(name).map_err(text)?).map_err(text)?;
    let start = Subscribe::from(Start::Earliest);
    let start = group.into_iter().fold(start, Subscribe::group);
    let mut samples = topic.subscribe(start).map_err(text)?;
    loop {
        match samples.next_timeout(HANG_TIMEOUT).map_err(|error: ReadError| error.to_string())? {
            Some(Event::Sample(sample)) => {
                if group.is_some() {
                    samples.commit().map_err(|error| error.to_string())?;
                }
                return Ok(sample.payload.to_vec());
            }
            Some(Event::Assigned(_)) => {}
            other => return Err(format!("{other:?}")),
        }
    }
}

/// A topic with a schema and a sample.
fn written(bus: &Bus, name: &str) -> Topic {
    let schema = r#"{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}"#;
    let schema = Schema::parse(schema).unwrap();
    let spec = TopicSpec::new(name).unwrap().qos(Qos::event()).schema(schema);
    let topic = bus.topic(spec).unwrap();
    topic.publisher().unwrap().publish(Message::new(b"\x02")).wait_timeout(HANG_TIMEOUT).unwrap();
    topic
}

#[test]
fn a_granted_user_reads_one_topic_and_nobody_else_s() {
    let Some(broker) = broker() else { return };
    let password =
        |user: &str| broker.report["users"][user]["password"].as_str().unwrap().to_owned();
    let admin = log_in(&broker, "admin", &password("admin")).unwrap();
    let (a, b) = (unique("results-a"), unique("results-b"));
    let (topic_a, topic_b) = (written(&admin, &a), written(&admin, &b));
    let generated = topic_a.grant("alice", None).unwrap().password.expect("alice had no login");
    assert!(generated.len() >= 32 && generated.is_ascii(), "{}", generated.len());
    assert_eq!(topic_b.grant("bob", Some("a password of bob's")).unwrap().password, None);
    assert_eq!(topic_a.grant("alice", None).unwrap().password, None, "alice has a login");

    let alice = until(|| log_in(&broker, "alice", &generated));
    let bob = until(|| log_in(&broker, "bob", "a password of bob's"));
    for (bus, own, other) in [(&alice, &a, &b), (&bob, &b, &a)] {
        assert_eq!(until(|| first_sample(bus, own, None)), b"\x02");
        assert_eq!(until(|| first_sample(bus, own, Some("g"))), b"\x02", "in a group");
        for group in [None, Some("g")] {
            has(&first_sample(bus, other, group).unwrap_err(), &["uthorization"]);
        }
        let listed: Vec<_> = bus.topics().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(listed, [own.as_str()], "only what it may read");
        let topic = bus.topic(TopicSpec::new(own).unwrap()).unwrap();
        let written = match topic.publisher() {
            Ok(publisher) => publisher.publish(Message::new(b"x")).wait_timeout(HANG_TIMEOUT),
            Err(error) => {
                has(&error.to_string(), &["uthorization"]);
                continue;
            }
        };
        has(&written.unwrap_err().to_string(), &["uthorization"]);
    }
    let error = bob.topic(TopicSpec::new(&b).unwrap()).unwrap().grant("eve", None).unwrap_err();
    has(&error.to_string(), &["uthorization", "ALTER"]);
    for user in ["", "*"] {
        has(&topic_a.grant(user, None).unwrap_err().to_string(), &["name one user"]);
    }
    has(&topic_a.grant("alice", Some("")).unwrap_err().to_string(), &["empty password"]);

    // Another password ends the former one, and the end of a grant leaves the login.
    topic_a.grant("alice", Some("another")).unwrap();
    let alice = until(|| log_in(&broker, "alice", "another"));
    until(|| log_in(&broker, "alice", &generated).map_or(Ok(()), |_| Err("still admitted")));
    assert!(topic_a.revoke("alice").unwrap());
    assert!(!topic_a.revoke("alice").unwrap());
    let denied = until(|| first_sample(&alice, &a, None).map_or_else(Ok, |_| Err("still read")));
    has(&denied, &["uthorization"]);
    assert_eq!(first_sample(&bob, &b, None).unwrap(), b"\x02", "another user's grant stays");
}

#[test]
fn brokers_without_access_control_refuse_grants_by_name() {
    let Some(broker) = crate::support::broker() else { return };
    let topic = written(&broker.bus("Admin"), &unique("results"));
    for error in [topic.grant("alice", None).map(drop), topic.revoke("alice").map(drop)] {
        let Err(TopicError::Transport(TransportError::Unsupported { what, remedy, .. })) = error
        else {
            panic!("{error:?}")
        };
        has(&what, &["grant"]);
        has(&remedy, &["authorizer.class.name"]);
    }
}
