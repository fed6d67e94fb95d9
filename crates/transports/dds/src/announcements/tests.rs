//! Announcements between two sessions.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use helio_bus::SystemClock;
use helio_bus::transport::Opening;
use helio_core::{Qos, TopicName};

use super::*;
use crate::connection::Connection;
use crate::options::Options;

#[test]
fn an_announcement_that_cannot_be_read_is_counted_and_withdraws_nothing() {
    let url = format!("dds://{}?interface=lo&multicast=false", crate::test_domain::domain());
    let opening = Opening { url: url.parse().unwrap(), clock: Arc::new(SystemClock::new()) };
    let options = Options::parse(&opening).unwrap();
    let [one, other] = [(); 2].map(|()| Connection::open(&options, &opening.clock).unwrap());
    let await_state = |reached: &dyn Fn(&mut SharedState) -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !other.announcements.with_fresh_state(reached) {
            assert!(Instant::now() < until, "it never arrived");
            std::thread::yield_now();
        }
    };
    let topic: TopicName = "weather/wind".parse().unwrap();
    let (announcer, qos) = (&one.announcements, Qos::event());
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
