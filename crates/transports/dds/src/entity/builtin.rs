//! Discovery data: identities, and matched endpoints.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ptr::{null, null_mut};

use cyclors::{dds_builtintopic_endpoint, dds_entity_t, dds_guid_t, dds_qos_t, dds_return_t};

use super::error::checked;
use super::{DdsError, Entity};

/// The most endpoints that one endpoint may be matched with.
const MAX_MATCHED: usize = 65_536;

/// An entity's identity in the domain: 12 bytes of its participant, 4 of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.0.iter().enumerate() {
            if n > 0 && n % 4 == 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// A reader or writer somewhere in the domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its own identity.
    pub guid: Guid,
    /// Its participant's.
    pub participant: Guid,
    /// Its participant's handle in this process; see [`super::Participant::process`].
    pub participant_handle: u64,
    /// Its topic.
    pub topic: String,
    /// Its type's name.
    pub type_name: String,
    /// The policy USER_DATA.
    pub user_data: Vec<u8>,
    /// Its DDS partitions; an empty list is the default partition.
    pub partitions: Vec<String>,
}

pub(super) fn guid_of(entity: &Entity) -> Result<Guid, DdsError> {
    let mut guid = dds_guid_t { v: [0; 16] };
    // SAFETY: the call writes the identity.
    let code = unsafe { cyclors::dds_get_guid(entity.handle(), &raw mut guid) };
    checked("read an identity", code)?;
    Ok(Guid(guid.v))
}

/// Reads the handles of all matched endpoints, growing the list as needed.
pub(super) fn matched(
    what: &str,
    ask: impl Fn(*mut u64, usize) -> dds_return_t,
) -> Result<Vec<u64>, DdsError> {
    let mut list = vec![0_u64; 64];
    loop {
        let count = checked(what, ask(list.as_mut_ptr(), list.len()))?.unsigned_abs() as usize;
        if count <= list.len() || list.len() >= MAX_MATCHED {
            list.truncate(count);
            return Ok(list);
        }
        list.resize(count.min(MAX_MATCHED), 0);
    }
}

pub(super) fn publication(reader: &Entity, writer: u64) -> Option<Endpoint> {
    // SAFETY: plain values; `endpoint` frees the returned description.
    let data = unsafe { cyclors::dds_get_matched_publication_data(reader.handle(), writer) };
    endpoint(data)
}

pub(super) fn subscription(writer: &Entity, reader: u64) -> Option<Endpoint> {
    // SAFETY: plain values; `endpoint` frees the returned description.
    let data = unsafe { cyclors::dds_get_matched_subscription_data(writer.handle(), reader) };
    endpoint(data)
}

/// Copies Cyclone's description of an endpoint, and frees the original.
fn endpoint(data: *mut dds_builtintopic_endpoint) -> Option<Endpoint> {
    if data.is_null() {
        return None;
    }
    // SAFETY: the structure is valid until it is freed, and its names end with zeros.
    unsafe {
        let found = Endpoint {
            guid: Guid((*data).key.v),
            participant: Guid((*data).participant_key.v),
            participant_handle: (*data).participant_instance_handle,
            topic: owned((*data).topic_name),
            type_name: owned((*data).type_name),
            user_data: user_data((*data).qos),
            partitions: partitions((*data).qos),
        };
        cyclors::dds_builtintopic_free_endpoint(data);
        Some(found)
    }
}

/// The pseudo handle of the built-in topic of participants: bindgen skips Cyclone's macro.
const PARTICIPANTS: dds_entity_t = 0x7fff_0001;

/// The process of a participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its name, number and host, as far as the participant tells them; empty if it tells none.
    pub name: String,
    /// The participant's policy USER_DATA.
    pub user_data: Vec<u8>,
}

/// Reads the process's name, number and host from a participant's properties, which Cyclone sets.
pub(super) fn process_of(reading: dds_entity_t, handle: u64) -> Option<Process> {
    // SAFETY: the reader is deleted with `reader`; the loan is returned before; the names end with
    // zeros.
    unsafe {
        let made = cyclors::dds_create_reader(reading, PARTICIPANTS, null(), null());
        let reader = Entity::made("read the participants", made).ok()?;
        let mut loan: *mut c_void = null_mut();
        let mut info = std::mem::MaybeUninit::zeroed();
        let (place, info) = (&raw mut loan, info.as_mut_ptr());
        if cyclors::dds_read_instance(reader.handle(), place, info, 1, 1, handle) < 1 {
            return None;
        }
        let qos = (*loan.cast::<cyclors::dds_builtintopic_participant>()).qos;
        let [name, process, host] =
            [c"__ProcessName", c"__Pid", c"__Hostname"].map(|key| property(qos, key));
        let user_data = user_data(qos);
        cyclors::dds_return_loan(reader.handle(), place, 1);
        let text = |name: Option<String>, with: &str| name.map(|name| format!("{with}{name}"));
        let all = [text(name, ""), text(process, "process "), text(host, "host ")];
        let name = all.into_iter().flatten().collect::<Vec<_>>().join(", ");
        Some(Process { name, user_data })
    }
}

/// Copies the policy USER_DATA.
///
/// # Safety
/// A live set of policies.
unsafe fn user_data(qos: *const dds_qos_t) -> Vec<u8> {
    let (mut bytes, mut length): (*mut c_void, usize) = (null_mut(), 0);
    // SAFETY: the caller's policies; the returned bytes are ours, and have that length.
    unsafe {
        if !cyclors::dds_qget_userdata(qos, &raw mut bytes, &raw mut length) || bytes.is_null() {
            return Vec::new();
        }
        let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), length).to_vec();
        cyclors::dds_free(bytes);
        copy
    }
}

/// # Safety
/// A live set of policies.
unsafe fn property(qos: *const dds_qos_t, key: &CStr) -> Option<String> {
    let mut value: *mut std::ffi::c_char = null_mut();
    // SAFETY: the caller's policies; the returned text is ours.
    unsafe {
        if !cyclors::dds_qget_prop(qos, key.as_ptr(), &raw mut value) || value.is_null() {
            return None;
        }
        let text = owned(value);
        cyclors::dds_free(value.cast::<c_void>());
        Some(text)
    }
}

/// Copies the names of partitions, and frees the originals.
///
/// # Safety
/// A live set of policies.
unsafe fn partitions(qos: *const dds_qos_t) -> Vec<String> {
    let (mut count, mut names): (u32, *mut *mut std::ffi::c_char) = (0, null_mut());
    // SAFETY: the caller's policies; the returned list and its `count` names are ours.
    unsafe {
        if !cyclors::dds_qget_partition(qos, &raw mut count, &raw mut names) || names.is_null() {
            return Vec::new();
        }
        let list = std::slice::from_raw_parts(names, count as usize);
        let copies = list.iter().map(|name| owned(*name)).collect();
        list.iter().for_each(|name| cyclors::dds_free(name.cast::<c_void>()));
        cyclors::dds_free(names.cast::<c_void>());
        copies
    }
}

/// # Safety
/// Null, or ends with a zero.
unsafe fn owned(name: *const std::ffi::c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
