//! Grants of topics on a journal, as other users see them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::HANG_TIMEOUT;
use helio_bus::{
    Bus, Event, Message, Qos, Start, Subscribe, TopicError, TopicSpec, TransportError,
};
use helio_core::schema::Schema;

const ALICE: u32 = 65_534;
const BOB: u32 = 65_533;

/// Runs in a thread of another user, whose own threads are that user's, too.
fn as_user<T: Send>(id: u32, run: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    let run = || {
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        run()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn reading(folder: &Path) -> Bus {
    Bus::builder().read_only().connect(&format!("journal:{}", folder.display())).unwrap()
}

/// The payloads of a topic and its schema, as a reader gets them.
fn read(folder: &Path, topic: &str, count: usize) -> Result<(), TopicError> {
    let bus = reading(folder);
    let schema = bus.schemas_of(&topic.parse().unwrap())?.expect("it exists");
    let schema = bus.schema_text(schema[0])?;
    let topic = bus.topic(TopicSpec::new(topic)?.schema(schema))?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest))?;
    for _ in 0..count {
        let event = samples.next_timeout(HANG_TIMEOUT).unwrap();
        assert!(matches!(event, Some(Event::Sample(_))), "{event:?}");
    }
    Ok(())
}

#[test]
fn a_user_reads_the_topic_and_its_schema_and_no_other_one() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("two users: skipped, it needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = folder.path().join("j");
    let bus = Bus::connect(&format!("journal:{}", folder.display())).unwrap();
    // As a umask of 077 would have made it.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let schema = r#"{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}"#;
    let schema = Schema::parse(schema).unwrap();
    for (name, user) in [("results/a", "65534"), ("results/b", "65533")] {
        let spec = TopicSpec::new(name).unwrap().qos(Qos::event()).schema(&schema);
        let topic = bus.topic(spec).unwrap();
        topic.publisher().unwrap().publish(Message::new(b"\x02")).wait().unwrap();
        assert_eq!(topic.grant(user, None).unwrap().password, None);
        topic.publisher().unwrap().publish(Message::new(b"\x04")).wait().unwrap();
        let given = topic.grant(user, Some("secret")).unwrap_err();
        let unsupported = TransportError::Unsupported {
            transport: "journal".to_owned(),
            what: format!("grant {name} with a password"),
            remedy: "name a user of this machine, and no password".to_owned(),
        };
        assert_eq!(given.to_string(), unsupported.to_string());
        let unknown = topic.grant("no such user", None).unwrap_err().to_string();
        assert!(unknown.contains("has no user \"no such user\""), "{unknown}");
    }
    for (user, own, other) in [(ALICE, "results/a", "results/b"), (BOB, "results/b", "results/a")] {
        as_user(user, || {
            read(&folder, own, 2).unwrap();
            let denied = read(&folder, other, 2).unwrap_err().to_string();
            assert!(denied.contains("no permission to read"), "{denied}");
            let listed = reading(&folder).topics().unwrap();
            assert_eq!(listed.iter().map(ToString::to_string).collect::<Vec<_>>(), [own]);
            let written = Bus::connect(&format!("journal:{}", folder.display())).unwrap_err();
            assert!(written.to_string().contains("no permission to write"), "{written}");
        });
    }
}
