//! Announcements between two sessions.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use helio_bus::SystemClock;
use helio_bus::transport::Opening;
use helio_core::TopicName;

use super::*;
use crate::connection::Connection;
use crate::entity::Domain;
use crate::options::Options;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn opening() -> (Opening, Options) {
    let url = format!("dds://{}?interface=lo&multicast=false", crate::test_domain::domain());
    let opening = Opening { url: url.parse().unwrap(), clock: Arc::new(SystemClock::new()) };
    let options = Options::parse(&opening).unwrap();
    (opening, options)
}

/// A session whose responses the test writes.
fn session(participant: &Arc<Participant>) -> Announcements {
    let (clock, news): (Arc<dyn Clock>, Arc<dyn Fn() + Send + Sync>) =
        (Arc::new(SystemClock::new()), Arc::new(|| ()));
    Announcements::open(participant, &Names::new(""), &clock, &news).unwrap()
}

/// Responds to the requests of sessions that join with the sessions that this one knows; true if
/// there were any.
fn responds_to_joining(this: &Announcements, known: &[&str]) -> bool {
    let mut responded = false;
    for (to, effect) in this.receive() {
        if let Effect::Requested(Request { number, subject: RequestKind::Joining, .. }) = effect {
            let sessions = known.iter().copied().map(str::to_owned).collect();
            let response = Response { number, sessions, ..Response::default() };
            this.respond(&to, response).unwrap();
            responded = true;
        }
    }
    std::thread::yield_now();
    responded
}

#[test]
fn a_session_that_joins_waits_for_those_that_others_know() {
    let (opening, options) = opening();
    let join = || {
        let domain = Domain::open(options.domain, &options.config).unwrap();
        Participant::join(domain, &Qos::new()).unwrap()
    };
    let [known, late] = [join(), join()];
    let known = session(&known);
    let topic: TopicName = "weather/wind".parse().unwrap();
    let joined = std::thread::scope(|scope| {
        let joined = scope.spawn(|| Connection::open(&options, &opening.clock).unwrap());
        let late_session = guid(late.guid());
        let until = Instant::now() + TEST_TIMEOUT;
        while !responds_to_joining(&known, &[&known.session, &late_session]) {
            assert!(Instant::now() < until, "no session joins");
        }
        // It is discovered now. Before, the session that joins has all responses.
        let late = session(&late);
        let announcement = Announcement::Topic {
            topic: topic.clone(),
            qos: helio_core::Qos::event(),
            origin: late.origin(),
        };
        late.announce(announcement).unwrap();
        while !joined.is_finished() {
            responds_to_joining(&known, &[&known.session, &late.session]);
            responds_to_joining(&late, &[]);
        }
        let joined = joined.join().unwrap();
        assert!(joined.announcements.with_state(|state| state.topic(&topic).is_some()));
        joined
    });
    joined.close();
}

#[test]
fn a_session_that_is_not_discovered_costs_few_requests() {
    let (_, options) = opening();
    let participants = [(); 2].map(|()| {
        let domain = Domain::open(options.domain, &options.config).unwrap();
        Participant::join(domain, &Qos::new()).unwrap()
    });
    let [this, joining] = participants.each_ref().map(session);
    let until = Instant::now() + TEST_TIMEOUT;
    while joining.with_fresh_state(|state| state.live.len()) < 2 {
        assert!(Instant::now() < until, "they are not discovered");
        std::thread::yield_now();
    }
    let (missing, requests) = std::thread::scope(|scope| {
        let joined = scope.spawn(|| joining.join().unwrap());
        let mut requests = 0;
        while !joined.is_finished() {
            requests += usize::from(responds_to_joining(&this, &[&this.session, "hidden"]));
            joining.receive();
        }
        (joined.join().unwrap(), requests)
    });
    assert_eq!(missing, ["hidden"]);
    assert!((1..=3).contains(&requests), "{requests}");
}

#[test]
fn a_session_whose_process_has_ended_is_not_named_to_those_that_join() {
    let (_, options) = opening();
    let own = crate::process_identity::own().unwrap();
    // As if this process's number had been another one's before.
    let former = format!("{own}9");
    let [observer, running, ended] = [&own, &own, &former].map(|identity| {
        let domain = Domain::open(options.domain, &options.config).unwrap();
        Participant::join(domain, &Qos::new().user_data(identity.as_bytes())).unwrap()
    });
    let [this, running, ended] = [&observer, &running, &ended].map(session);
    let until = Instant::now() + TEST_TIMEOUT;
    while this.with_fresh_state(|state| state.live.len()) < 3 {
        assert!(Instant::now() < until, "they are not discovered");
        std::thread::yield_now();
    }
    // The second time by what is remembered.
    for _ in 0..2 {
        let named = this.running_sessions(&observer);
        assert!([&this, &running].iter().all(|of| named.contains(&of.session)), "{named:?}");
        assert!(!named.contains(&ended.session), "{named:?}");
        assert_eq!(locked(&this.user_data).len(), 3, "of each participant");
    }
}

#[test]
fn an_announcement_that_cannot_be_read_is_counted_and_withdraws_nothing() {
    let (opening, options) = opening();
    let [one, other] = [(); 2].map(|()| Connection::open(&options, &opening.clock).unwrap());
    let await_state = |reached: &dyn Fn(&mut SharedState) -> bool| {
        let until = Instant::now() + TEST_TIMEOUT;
        while !other.announcements.with_fresh_state(reached) {
            assert!(Instant::now() < until, "it never arrived");
            std::thread::yield_now();
        }
    };
    let topic: TopicName = "weather/wind".parse().unwrap();
    let (announcer, qos) = (&one.announcements, helio_core::Qos::event());
    let announcement =
        Announcement::Topic { topic: topic.clone(), qos, origin: announcer.origin() };
    announcer.announce(announcement.clone()).unwrap();
    await_state(&|state| state.topic(&topic).is_some());
    let unreadable = |count| {
        let session = announcer.session.clone();
        move |state: &mut SharedState| state.unreadable(&session) == count
    };
    // As from a newer version: another form of the quality of service, and an unknown kind.
    let newer = br#"{"v":2,"kind":"topic","topic":"weather/wind","qos":{"newer":1}}"#;
    announcer.write(&announcement.key(), newer).unwrap();
    await_state(&unreadable(1));
    announcer.write("newer weather/wind", br#"{"v":2,"kind":"newer"}"#).unwrap();
    await_state(&unreadable(2));
    let encoded = String::from_utf8(versioned_json::encode(&announcement).unwrap()).unwrap();
    for (version, count) in [(r#""v":1,"#, 3), ("", 4)] {
        let older = encoded.replacen(r#""v":2,"#, version, 1);
        announcer.write(&announcement.key(), older.as_bytes()).unwrap();
        await_state(&unreadable(count));
    }
    for (response, count) in [(&br#"{"v":1}"#[..], 5), (b"{}", 6), (b"null", 7)] {
        let (mut writers, to) = (locked(&announcer.writers), &other.announcements.session);
        let writers = writers.as_mut().unwrap();
        writers.put(&announcer.session, to, response, |writers| &writers.responses).unwrap();
        await_state(&unreadable(count));
    }
    assert!(other.announcements.with_state(|state| state.topic(&topic).is_some()));
    announcer.withdraw(&announcement).unwrap();
    await_state(&|state| state.topic(&topic).is_none());
    one.close();
    other.close();
}
