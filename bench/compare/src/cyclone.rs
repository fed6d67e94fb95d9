//! Eclipse Cyclone DDS by the crate cyclors: reliable, keep-all, volatile, unicast on the loopback;
//! a type made at run time (`struct { sequence<uint8> body; }`), a waitset for the blocking
//! subscriber.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;

use cyclors::*;

use crate::harness::{Publish, Subscribe, Work};

/// Samples taken at once.
const BATCH: usize = 256;

/// Longest time a write may block while the reader catches up: ample on a loaded machine.
const WRITE_LIMIT_NANOS: i64 = 60_000_000_000;

/// With the heartbeats and bounds that our transport asks for too: Cyclone's own of 100 ms would
/// make a publisher slow that awaits each acknowledgement.
const CONFIG: &str = "<Internal><HeartbeatInterval min=\"1 ms\" minsched=\"1 ms\">2 ms\
    </HeartbeatInterval><Watermarks><WhcHigh>500 kB</WhcHigh><WhcHighInit>500 kB</WhcHighInit>\
    <WhcAdaptive>false</WhcAdaptive></Watermarks></Internal>\
    <General><Interfaces><NetworkInterface name=\"lo\" multicast=\"false\"/></Interfaces>\
    <AllowMulticast>false</AllowMulticast></General><Discovery>\
    <ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>\
    <Peers><Peer address=\"127.0.0.1\"/></Peers></Discovery>";

/// The C layout of the type: one sequence of octets.
#[repr(C)]
struct Body {
    body: dds_sequence,
}

fn text(value: &str) -> CString {
    CString::new(value).expect("no text of ours has a zero in it")
}

/// A positive handle, or the end of the run with the engine's own error number.
fn sure(what: &str, value: i32) -> i32 {
    assert!(value >= 0, "Cyclone DDS: {what} failed with {value}");
    value
}

/// Makes participant, topic and quality of service.
unsafe fn topic(name: &str) -> (dds_entity_t, dds_entity_t, *mut dds_qos_t) {
    // SAFETY: every pointer that is handed over outlives its call, and Cyclone copies what it
    // keeps.
    unsafe {
        sure("the domain", dds_create_domain(0, text(CONFIG).as_ptr()));
        let participant = sure("the participant", dds_create_participant(0, null(), null()));
        let mut sequence: dds_dynamic_type_descriptor = std::mem::zeroed();
        sequence.kind = dds_dynamic_type_kind_DDS_DYNAMIC_SEQUENCE;
        sequence.element_type.kind = dds_dynamic_type_spec_kind_DDS_DYNAMIC_TYPE_KIND_PRIMITIVE;
        sequence.element_type.type_.primitive = dds_dynamic_type_kind_DDS_DYNAMIC_UINT8;
        let octets_name = text("octets");
        sequence.name = octets_name.as_ptr();
        let octets = dds_dynamic_type_create(participant, sequence);
        let mut structure: dds_dynamic_type_descriptor = std::mem::zeroed();
        structure.kind = dds_dynamic_type_kind_DDS_DYNAMIC_STRUCTURE;
        let (type_name, member_name) = (text("Body"), text("body"));
        structure.name = type_name.as_ptr();
        let mut body = dds_dynamic_type_create(participant, structure);
        let mut member: dds_dynamic_member_descriptor = std::mem::zeroed();
        member.name = member_name.as_ptr();
        member.id = 0x0f00_0000;
        member.index = u32::MAX;
        member.type_.kind = dds_dynamic_type_spec_kind_DDS_DYNAMIC_TYPE_KIND_DEFINITION;
        member.type_.type_.type_ = octets;
        sure("the member", dds_dynamic_type_add_member(&mut body, member));
        let mut info = null_mut();
        sure("the type", dds_dynamic_type_register(&mut body, &mut info));
        let mut descriptor = null_mut();
        let scope = dds_find_scope_DDS_FIND_SCOPE_LOCAL_DOMAIN;
        let made = dds_create_topic_descriptor(scope, participant, info, 0, &mut descriptor);
        sure("the descriptor", made);
        let qos = dds_create_qos();
        dds_qset_reliability(qos, dds_reliability_kind_DDS_RELIABILITY_RELIABLE, WRITE_LIMIT_NANOS);
        dds_qset_history(qos, dds_history_kind_DDS_HISTORY_KEEP_ALL, 0);
        let topic = dds_create_topic(participant, descriptor, text(name).as_ptr(), qos, null());
        (participant, sure("the topic", topic), qos)
    }
}

/// The sending end.
pub struct Sender {
    writer: dds_entity_t,
    /// How many writes until the next wait for all acknowledgements; `None` never waits.
    window: Option<u64>,
    sent: u64,
}

impl Sender {
    /// Joins domain 0 and makes the writer.
    pub fn open(work: &Work) -> Self {
        // SAFETY: the handles come from `topic`.
        let writer = unsafe {
            let (participant, topic, qos) = topic(&work.topic);
            sure("the writer", dds_create_writer(participant, topic, qos, null()))
        };
        Self { writer, window: work.window, sent: 0 }
    }
}

impl Publish for Sender {
    fn wait_for_subscriber(&mut self) {
        loop {
            // SAFETY: the status is plain data and lives through the call.
            let matched = unsafe {
                let mut status: dds_publication_matched_status_t = std::mem::zeroed();
                dds_get_publication_matched_status(self.writer, &mut status);
                status.current_count
            };
            if matched > 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn send(&mut self, payload: &[u8]) {
        let length = payload.len() as u32;
        let body = dds_sequence {
            _maximum: length,
            _length: length,
            _buffer: payload.as_ptr().cast_mut(),
            _release: false,
        };
        let sample = Body { body };
        // SAFETY: the sample has the type's C layout and lives through the call, which copies it.
        sure("a write", unsafe { dds_write(self.writer, (&raw const sample).cast::<c_void>()) });
        self.sent += 1;
        if self.window.is_some_and(|window| self.sent.is_multiple_of(window)) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        // SAFETY: the writer is alive.
        sure("the last acks", unsafe { dds_wait_for_acks(self.writer, WRITE_LIMIT_NANOS) });
    }
}

/// The receiving end.
pub struct Receiver {
    participant: dds_entity_t,
    reader: dds_entity_t,
    waitset: dds_entity_t,
}

impl Receiver {
    /// Joins domain 0 and makes the reader and its waitset.
    pub fn open(work: &Work) -> Self {
        // SAFETY: the handles come from `topic` and the calls before.
        unsafe {
            let (participant, topic, qos) = topic(&work.topic);
            let reader = sure("the reader", dds_create_reader(participant, topic, qos, null()));
            let condition = sure("the condition", dds_create_readcondition(reader, DDS_ANY_STATE));
            let waitset = sure("the waitset", dds_create_waitset(participant));
            sure("attaching", dds_waitset_attach(waitset, condition, 0));
            Self { participant, reader, waitset }
        }
    }
}

impl Subscribe for Receiver {
    fn receive(&mut self, limit: Duration, each: &mut dyn FnMut(&[u8])) {
        let mut samples: [*mut c_void; BATCH] = [null_mut(); BATCH];
        // SAFETY: the loan's pointers are valid until it is returned, and its sequences have their
        // length.
        unsafe {
            let limit_nanos = limit.as_nanos() as i64;
            sure("waiting", dds_waitset_wait(self.waitset, null_mut(), 0, limit_nanos));
            let mut infos: [dds_sample_info_t; BATCH] = std::mem::zeroed();
            let (buffer, info) = (samples.as_mut_ptr(), infos.as_mut_ptr());
            let taken = sure("taking", dds_take(self.reader, buffer, info, BATCH, BATCH as u32));
            for (sample, info) in samples.iter().zip(&infos).take(taken as usize) {
                if info.valid_data {
                    let body = &(*sample.cast::<Body>()).body;
                    each(std::slice::from_raw_parts(body._buffer, body._length as usize));
                }
            }
            if taken > 0 {
                sure("the loan's return", dds_return_loan(self.reader, buffer, taken));
            }
        }
    }
}

impl Drop for Receiver {
    /// Says that it goes: a writer would wait for its acknowledgements until its lease is over.
    fn drop(&mut self) {
        // SAFETY: the participant is alive; its reader and waitset go with it.
        unsafe { dds_delete(self.participant) };
    }
}
