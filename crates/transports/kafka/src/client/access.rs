//! The brokers' access control lists and logins (SCRAM): calls of librdkafka that its Rust crate
//! does not offer.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::time::Duration;

use rdkafka::bindings;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::client::ffi::{Answer, request};

/// The iterations of a login's hash: twice the brokers' minimum, half of their limit.
const SCRAM_ITERATIONS: i32 = 8192;

/// A resource that a user may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The topic of this name.
    Topic(String),
    /// Consumer groups whose names begin so.
    Groups(String),
}

/// A login with a password.
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) salt: &'a [u8],
}

/// A client, whose requests have a time limit.
pub(crate) struct Access<'a, C: ClientContext> {
    pub(crate) client: &'a Client<C>,
    pub(crate) timeout: Duration,
}

/// Entries of access control lists, destroyed with it.
struct Entries(Vec<*mut bindings::rd_kafka_AclBinding_t>);

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: all entries are this object's own, and none is used afterwards.
        unsafe { bindings::rd_kafka_AclBinding_destroy_array(self.0.as_mut_ptr(), self.0.len()) };
    }
}

/// Whether entries are created or found by their values.
#[derive(Clone, Copy)]
enum Purpose {
    Create,
    Find,
}

/// The entries that let a user read resources, from everywhere; an error for a name that contains
/// a zero.
fn entries(user: &str, resources: &[Resource], purpose: Purpose) -> Result<Entries, Code> {
    let text = |text: &str| CString::new(text).map_err(|_| Code::InvalidArgument);
    let principal = text(&format!("User:{user}"))?;
    let mut entries = Entries(Vec::with_capacity(resources.len()));
    for resource in resources {
        let (kind, name, pattern) = match resource {
            Resource::Topic(name) => (
                bindings::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
                name,
                bindings::rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_LITERAL,
            ),
            Resource::Groups(prefix) => (
                bindings::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_GROUP,
                prefix,
                bindings::rd_kafka_ResourcePatternType_t::RD_KAFKA_RESOURCE_PATTERN_PREFIXED,
            ),
        };
        let create = match purpose {
            Purpose::Create => bindings::rd_kafka_AclBinding_new,
            Purpose::Find => bindings::rd_kafka_AclBindingFilter_new,
        };
        let (name, mut reason) = (text(name)?, [0; 512]);
        // SAFETY: the texts end with zeros and live as long as the call, which copies them.
        let entry = unsafe {
            create(
                kind,
                name.as_ptr(),
                pattern,
                principal.as_ptr(),
                c"*".as_ptr(),
                bindings::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ,
                bindings::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
                reason.as_mut_ptr(),
                reason.len(),
            )
        };
        if entry.is_null() {
            return Err(Code::InvalidArgument);
        }
        entries.0.push(entry);
    }
    Ok(entries)
}

/// The error of a part of an answer; a null is none.
///
/// # Safety
/// The error is alive, or null.
unsafe fn outcome(error: *const bindings::rd_kafka_error_t) -> Result<(), Code> {
    // SAFETY: as promised; the function takes null as no error.
    match Code::from(unsafe { bindings::rd_kafka_error_code(error) }) {
        Code::NoError => Ok(()),
        code => Err(code),
    }
}

/// The parts of an answer; `None` if it is the answer to another request.
///
/// # Safety
/// `parts` returns an array with the number of parts that it writes, which lives as long as the
/// result.
unsafe fn parts<'a, R, P>(
    result: *const R,
    parts: unsafe extern "C" fn(*const R, *mut usize) -> *mut *const P,
) -> Option<&'a [*const P]> {
    if result.is_null() {
        return None;
    }
    let mut count = 0;
    // SAFETY: as promised. An empty array may be null.
    unsafe {
        let first = parts(result, &raw mut count);
        Some(if count == 0 { &[] } else { std::slice::from_raw_parts(first, count) })
    }
}

/// No answer of this kind came.
const UNANSWERED: Code = Code::OperationTimedOut;

impl<C: ClientContext> Access<'_, C> {
    fn request(
        &self,
        what: bindings::rd_kafka_admin_op_t,
        send: impl FnOnce(
            *mut bindings::rd_kafka_t,
            *const bindings::rd_kafka_AdminOptions_t,
            *mut bindings::rd_kafka_queue_t,
        ),
    ) -> Result<Answer, Code> {
        let answer = request(self.client, what, self.timeout, send);
        match answer.error() {
            None => Err(UNANSWERED),
            Some(Code::NoError) => Ok(answer),
            Some(code) => Err(code),
        }
    }

    /// Lets a user read resources, from everywhere. Entries that exist stay.
    pub(crate) fn allow(&self, user: &str, resources: &[Resource]) -> Result<(), Code> {
        let mut new = entries(user, resources, Purpose::Create)?;
        let what = bindings::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATEACLS;
        let answer = self.request(what, |client, options, queue| {
            // SAFETY: all are alive, and the call copies the entries.
            unsafe {
                bindings::rd_kafka_CreateAcls(
                    client,
                    new.0.as_mut_ptr(),
                    new.0.len(),
                    options,
                    queue,
                );
            }
        })?;
        // SAFETY: the result and its parts live as long as the answer.
        unsafe {
            let result = bindings::rd_kafka_event_CreateAcls_result(answer.event());
            let created = parts(result, bindings::rd_kafka_CreateAcls_result_acls);
            for created in created.ok_or(UNANSWERED)? {
                outcome(bindings::rd_kafka_acl_result_error(*created))?;
            }
        }
        Ok(())
    }

    /// Removes the entries of [`allow`](Self::allow); returns how many there were.
    pub(crate) fn disallow(&self, user: &str, resources: &[Resource]) -> Result<usize, Code> {
        let mut old = entries(user, resources, Purpose::Find)?;
        let what = bindings::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DELETEACLS;
        let answer = self.request(what, |client, options, queue| {
            // SAFETY: all are alive, and the call copies the entries.
            unsafe {
                bindings::rd_kafka_DeleteAcls(
                    client,
                    old.0.as_mut_ptr(),
                    old.0.len(),
                    options,
                    queue,
                );
            }
        })?;
        let mut removed = 0;
        // SAFETY: the result and its parts live as long as the answer.
        unsafe {
            let result = bindings::rd_kafka_event_DeleteAcls_result(answer.event());
            let responses = parts(result, bindings::rd_kafka_DeleteAcls_result_responses);
            for response in responses.ok_or(UNANSWERED)? {
                outcome(bindings::rd_kafka_DeleteAcls_result_response_error(*response))?;
                let mut count = 0;
                bindings::rd_kafka_DeleteAcls_result_response_matching_acls(
                    *response,
                    &raw mut count,
                );
                removed += count;
            }
        }
        Ok(removed)
    }

    /// Returns whether a user has a login.
    pub(crate) fn has_login(&self, user: &str) -> Result<bool, Code> {
        let user = CString::new(user).map_err(|_| Code::InvalidArgument)?;
        let mut users: [*const c_char; 1] = [user.as_ptr()];
        let what = bindings::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBEUSERSCRAMCREDENTIALS;
        let answer = self.request(what, |client, options, queue| {
            // SAFETY: all are alive, and the call copies the name.
            unsafe {
                bindings::rd_kafka_DescribeUserScramCredentials(
                    client,
                    users.as_mut_ptr(),
                    users.len(),
                    options,
                    queue,
                );
            }
        })?;
        // SAFETY: the result and its parts live as long as the answer.
        unsafe {
            let result =
                bindings::rd_kafka_event_DescribeUserScramCredentials_result(answer.event());
            let described =
                parts(result, bindings::rd_kafka_DescribeUserScramCredentials_result_descriptions);
            for described in described.ok_or(UNANSWERED)? {
                let error = bindings::rd_kafka_UserScramCredentialsDescription_error(*described);
                match outcome(error) {
                    Ok(()) => return Ok(true),
                    Err(Code::ResourceNotFound) => {}
                    Err(code) => return Err(code),
                }
            }
        }
        Ok(false)
    }

    /// Creates a user's login (SCRAM-SHA-512), or changes its password. librdkafka refuses it
    /// without OpenSSL.
    pub(crate) fn set_login(&self, login: &Login<'_>) -> Result<(), Code> {
        let user = CString::new(login.user).map_err(|_| Code::InvalidArgument)?;
        let what = bindings::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_ALTERUSERSCRAMCREDENTIALS;
        let answer = self.request(what, |client, options, queue| {
            // SAFETY: all are alive. The first call copies name, password and salt, the second one
            // the alteration, which is destroyed once.
            unsafe {
                let mut change = bindings::rd_kafka_UserScramCredentialUpsertion_new(
                    user.as_ptr(),
                    bindings::rd_kafka_ScramMechanism_t::RD_KAFKA_SCRAM_MECHANISM_SHA_512,
                    SCRAM_ITERATIONS,
                    login.password.as_ptr(),
                    login.password.len(),
                    login.salt.as_ptr(),
                    login.salt.len(),
                );
                bindings::rd_kafka_AlterUserScramCredentials(
                    client,
                    &raw mut change,
                    1,
                    options,
                    queue,
                );
                bindings::rd_kafka_UserScramCredentialAlteration_destroy(change);
            }
        })?;
        // SAFETY: the result and its parts live as long as the answer.
        unsafe {
            let result = bindings::rd_kafka_event_AlterUserScramCredentials_result(answer.event());
            let changed =
                parts(result, bindings::rd_kafka_AlterUserScramCredentials_result_responses);
            for changed in changed.ok_or(UNANSWERED)? {
                let error =
                    bindings::rd_kafka_AlterUserScramCredentials_result_response_error(*changed);
                outcome(error)?;
            }
        }
        Ok(())
    }
}
