//! Callers that are proved by signatures, and forged by a raw writer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use helio_bus::{Headers, Message, Sample, Start, Subscribe, Topic, TopicSpec, TraceId};
use helio_component::protocol::{
    AckCode, CallerKey, HEADER_CALLER, HEADER_EXPIRY, HEADER_INSTANCE, HEADER_KEY,
    HEADER_SIGNATURE, SummaryState,
};
use helio_component::{
    AuditPhase, AuditRecord, Command, Component, Remote, RemoteOptions, Running, Shape,
};
use helio_core::sal::TopicKind;
use helio_core::schema::HasSchema;
use helio_core::{Codec, Value};

use crate::support::{HANG_TIMEOUT, Site, on_every_transport};

/// A component of which alice is proved by her key, and bob is only named.
struct Stage<'a> {
    site: &'a Site,
    ran: Arc<AtomicUsize>,
    component: Running,
    key: CallerKey,
    _folder: tempfile::TempDir,
}

impl<'a> Stage<'a> {
    fn new(site: &'a Site) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = CallerKey::of_seed(&[7; 32]);
        let policy = Self::policy(&folder, &key);
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ran);
        let component = Component::builder(&site.bus(), &site.mount(), 0)
            .initial_state(SummaryState::Enabled)
            .inline("moveToTarget", move |_: &Command| {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .inline("stop", |_: &Command| Ok(()))
            .policy(policy)
            .start()
            .unwrap();
        Self { site, ran, component, key, _folder: folder }
    }

    fn policy(folder: &tempfile::TempDir, key: &CallerKey) -> PathBuf {
        let path = folder.path().join("who.yaml");
        let keys = format!("keys: {{alice: {}}}\n", key.public());
        let rest = "roles: {all: ['*']}\nidentities: {alice: [all], bob: [all]}\n";
        std::fs::write(&path, format!("default: deny\n{keys}{rest}")).unwrap();
        path
    }

    fn remote(&self, caller: &str, key: Option<CallerKey>) -> Remote {
        let options = RemoteOptions { caller: Some(caller.to_owned()), key, ..Default::default() };
        Remote::with_options(&self.site.bus(), &self.site.mount(), 0, options).unwrap()
    }

    fn shape(&self, command: &str) -> Arc<Shape> {
        self.site.mount().shape(TopicKind::Command, command).unwrap()
    }

    /// A command's topic, as any program can open it.
    fn raw(&self, command: &str) -> Topic {
        let shape = self.shape(command);
        let spec = TopicSpec::of(shape.topic().topic_name().clone());
        self.site.bus().topic(spec.qos(shape.topic().qos()).schema(shape.schema())).unwrap()
    }

    /// Sends a signed command; returns its sample.
    fn signed(&self) -> Sample {
        let mut seen = self.raw("moveToTarget").subscribe(Subscribe::from(Start::Latest)).unwrap();
        let alice = self.remote("alice", Some(self.key.clone()));
        let call =
            alice.command("moveToTarget").set("azimuth", 7.0).set("elevation", 8.0).key("night 7");
        call.send().wait().unwrap();
        seen.next_sample().unwrap()
    }

    /// The audit from its beginning: so many records.
    fn audit(&self, records: usize) -> Vec<AuditRecord> {
        let topic = self.site.bus().topic(TopicSpec::new("MTMount/audit").unwrap()).unwrap();
        let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
        let codec = Codec::new(&AuditRecord::schema().unwrap());
        let mut next = || samples.next_timeout(HANG_TIMEOUT).unwrap().unwrap().into_sample();
        let mut records: Vec<AuditRecord> =
            (0..records).map(|_| codec.deserialize(&next().unwrap().payload).unwrap()).collect();
        assert!(samples.try_next().unwrap().is_none());
        records.retain(|record| record.phase == AuditPhase::Finished);
        records
    }
}

/// A signed sample's parts, to be forged.
#[derive(Clone)]
struct Forged {
    payload: Vec<u8>,
    trace: Option<TraceId>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Forged {
    fn of(sample: &Sample) -> Self {
        let headers = sample.headers.as_ref().into_iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
        Self { payload: sample.payload.to_vec(), trace: sample.header.trace, headers }
    }

    fn header(mut self, name: &str, value: Option<&[u8]>) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.extend(value.map(|value| (name.to_owned(), value.to_vec())));
        self
    }

    /// With another number in a field.
    fn field(mut self, shape: &Shape, name: &str, value: Value) -> Self {
        let Ok(Value::Record(mut record)) = shape.codec().decode(&self.payload) else { panic!() };
        let place = shape.schema().fields().iter().position(|field| field.name == name);
        record[place.unwrap()] = value;
        self.payload.clear();
        shape.codec().encode(&Value::Record(record), &mut self.payload).unwrap();
        self
    }

    fn publish(&self, topic: &Topic) {
        let headers = self
            .headers
            .iter()
            .fold(Headers::new(), |all, (name, value)| all.with(name, value.clone()).unwrap());
        let message = Message::new(&self.payload).headers(headers.as_ref());
        let message = match self.trace {
            Some(trace) => message.trace(trace),
            None => message,
        };
        topic.publisher().unwrap().publish(message).wait().unwrap();
    }
}

#[test]
fn a_raw_writer_can_forge_no_proved_caller() {
    on_every_transport(|site: &Site| {
        let stage = Stage::new(site);
        let genuine = Forged::of(&stage.signed());
        assert_eq!(stage.ran.load(Ordering::SeqCst), 1);
        let (shape, raw) = (stage.shape("moveToTarget"), stage.raw("moveToTarget"));
        let real = || genuine.clone();
        let late = i64::MAX.to_le_bytes();
        let forged = [
            real().header(HEADER_SIGNATURE, None),
            real().header(HEADER_SIGNATURE, None).header(HEADER_CALLER, Some(b"bob")),
            real().header(HEADER_SIGNATURE, Some(&[0; 64])),
            real().header(HEADER_CALLER, Some(b"bob")),
            real().header(HEADER_CALLER, None).field(&shape, "private_identity", "alice".into()),
            real().field(&shape, "azimuth", Value::Double(8.0)),
            real().field(&shape, "private_seqNum", Value::Int(1)),
            real().field(&shape, "private_origin", Value::Int(1)),
            real().header(HEADER_EXPIRY, Some(&late)),
            real().header(HEADER_EXPIRY, None),
            real().header(HEADER_INSTANCE, None),
            real().header(HEADER_KEY, Some(b"night 8")),
            Forged { trace: Some(TraceId([1; 16])), ..real() },
            Forged { trace: None, ..real() },
        ];
        forged.iter().for_each(|forged| forged.publish(&raw));
        // The same bytes again.
        genuine.publish(&raw);
        let stop = stage.remote("bob", None).command("stop").send().wait().unwrap_err();
        assert_eq!(stop.code(), Some(AckCode::NoPerm));
        let records = stage.audit(1 + 1 + forged.len() + 1 + 1);
        // Topics have no common order.
        let (stops, records): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.command == "stop");
        assert_eq!((stops.len(), &*stops[0].caller), (1, "declared:bob"));
        let refused = &records[1..];
        assert_eq!((&*records[0].caller, records[0].ack), ("alice", AckCode::Complete.number()));
        for (record, at) in refused.iter().zip(0..) {
            assert_eq!(record.ack, AckCode::NoPerm.number(), "{at}: {record:?}");
            let proved = at == forged.len();
            assert_eq!(record.caller.starts_with("declared:"), !proved, "{at}: {record:?}");
        }
        assert!(refused[forged.len()].result.contains("a copy"), "{refused:?}");
        assert_eq!(stage.ran.load(Ordering::SeqCst), 1);
        stage.component.stop().unwrap();
    });
}

#[test]
fn a_copy_does_not_end_its_caller_s_call() {
    on_every_transport(|site: &Site| {
        let stage = Stage::new(site);
        let raw = stage.raw("moveToTarget");
        let mut acks = {
            let shape = stage.site.mount().shape(TopicKind::Ack, "ackcmd").unwrap();
            let spec = TopicSpec::of(shape.topic().topic_name().clone());
            let topic = site.bus().topic(spec.qos(shape.topic().qos()).schema(shape.schema()));
            topic.unwrap().subscribe(Subscribe::from(Start::Latest)).unwrap()
        };
        let sample = stage.signed();
        for _ in 0..3 {
            Forged::of(&sample).publish(&raw);
        }
        let alice = stage.remote("alice", Some(stage.key.clone()));
        alice.command("stop").send().wait().unwrap();
        let mut traces = [(); 2].map(|()| acks.next_sample().unwrap().header.trace);
        traces.sort_by_key(|trace| *trace != sample.header.trace);
        assert_eq!(traces[0], sample.header.trace);
        assert_ne!(traces[1], sample.header.trace);
        assert!(acks.try_next().unwrap().is_none());
        stage.component.stop().unwrap();
    });
}

#[test]
fn every_request_of_a_proved_caller_is_signed() {
    on_every_transport(|site: &Site| {
        let stage = Stage::new(site);
        let (alice, forger) = (stage.remote("alice", Some(stage.key.clone())), "alice");
        let forger = stage.remote(forger, Some(CallerKey::of_seed(&[8; 32])));
        let bob = stage.remote("bob", None);
        alice.command("moveToTarget").set("azimuth", 1.0).set("elevation", 8.0).validate().unwrap();
        alice.lock(std::time::Duration::from_secs(60)).unwrap();
        for other in [&forger, &bob] {
            let refused = [
                other.unlock().unwrap_err(),
                other.lock(std::time::Duration::from_secs(60)).unwrap_err(),
                other.command("stop").validate().unwrap_err(),
                other.command("stop").send().wait().unwrap_err(),
            ];
            for error in refused {
                assert_eq!(error.code(), Some(AckCode::NoPerm), "{error}");
            }
        }
        alice.command("stop").send().wait().unwrap();
        alice.unlock().unwrap();
        stage.component.stop().unwrap();
    });
}

/// A script that locks in vain and unlocks at its end must not take another's lock.
#[test]
fn without_an_authorization_file_only_the_holder_unlocks() {
    let site = Site::memory();
    let component = Component::builder(&site.bus(), &site.mount(), 0).start().unwrap();
    let named = |name: &str| {
        let options = RemoteOptions { caller: Some(name.to_owned()), ..Default::default() };
        Remote::with_options(&site.bus(), &site.mount(), 0, options).unwrap()
    };
    let (alice, bob) = (named("alice"), named("bob"));
    alice.lock(std::time::Duration::from_secs(60)).unwrap();
    let refused = bob.unlock().unwrap_err();
    assert_eq!(refused.code(), Some(AckCode::NoPerm));
    assert!(refused.to_string().contains("only alice may unlock it"), "{refused}");
    alice.unlock().unwrap();
    bob.unlock().unwrap();
    component.stop().unwrap();
}
