//! The users of this machine, by name.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use crate::JournalError;
use crate::error::IoContext;

/// Bytes for the texts of a user's entry; doubled while they do not suffice.
const FIRST_ENTRY_BYTES: usize = 1 << 10;
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// Returns the id of a user of this machine, given by name or number. Directory services (NSS) are
/// queried as by other programs.
///
/// # Errors
/// [`JournalError::NoUser`]; [`JournalError`] if the users cannot be queried.
pub fn user_id(user: &str) -> Result<u32, JournalError> {
    let unknown = || JournalError::NoUser { user: user.to_owned() };
    if let Ok(id) = user.parse::<u32>() {
        // The last number is the system's mark for no user.
        return Some(id).filter(|id| *id != u32::MAX).ok_or_else(unknown);
    }
    let name = CString::new(user).map_err(|_| unknown())?;
    let mut texts: Vec<c_char> = vec![0; FIRST_ENTRY_BYTES];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: all places live as long as the call, and the size is that of the texts' place.
        let code = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                texts.as_mut_ptr(),
                texts.len(),
                &raw mut found,
            )
        };
        match code {
            libc::ERANGE if texts.len() < MAX_ENTRY_BYTES => texts.resize(texts.len() * 2, 0),
            // Without such a user, systems return these or none (getpwnam(3)).
            0 | libc::ENOENT | libc::ESRCH if found.is_null() => return Err(unknown()),
            // SAFETY: the call has written the entry and returned its address.
            0 => return Ok(unsafe { (*found).pw_uid }),
            code => {
                let error = std::io::Error::from_raw_os_error(code);
                return Err(error).at("look up a user in", std::path::Path::new("passwd"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(user_id("root").unwrap(), 0);
        assert_eq!(user_id("1234567").unwrap(), 1_234_567);
        for nobody in ["", "no such user", "a\0b", "4294967295", "-1"] {
            let error = user_id(nobody).unwrap_err();
            assert!(matches!(error, JournalError::NoUser { .. }), "{nobody:?}: {error}");
        }
    }
}
