//! Who may read a topic: the mode of its folder, and users in its access control list.
//!
//! Constraints. The owner stays: an owner can change the mode, and can cut short a file that others
//! have mapped. Processes that create files need not know of a grant: a folder's default list is
//! that of its new files, whatever their umask. Symbolic links are not followed: root runs this in
//! folders that others may write to.
//!
//! Format (acl(5), `linux/posix_acl_xattr.h`): the attributes `system.posix_acl_access` and
//! `system.posix_acl_default` have the version 2 as 32 bits, then entries of tag and permissions,
//! 16 bits each, and an id, 32 bits; little-endian, in the order of tags and ids.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, fstat, openat,
};
use rustix::io::Errno;

use crate::JournalError;
use crate::error::IoContext;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
/// The kernel's limit of an attribute.
const MAX_LIST_BYTES: usize = 64 << 10;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
/// The id of entries that need none.
const NO_ID: u32 = u32::MAX;

const WRITE: u16 = 0o2;
/// To pass through a folder.
pub(crate) const ENTER: u16 = 0o1;
/// To read a file.
pub(crate) const READ: u16 = 0o4;
/// To list a folder, and to read what is in it.
pub(crate) const BROWSE: u16 = READ | ENTER;

/// The deepest folder below a topic's: `groups`, or a partition.
const MAX_DEPTH: usize = 4;
/// The limit of repetitions while files are renamed by running writers.
const MAX_PASSES: usize = 100;

/// The access control list of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AccessList {
    /// Permissions by tag and id, without the mask.
    entries: BTreeMap<(u16, u32), u16>,
}

impl AccessList {
    /// The list of an open file or folder.
    fn of(file: impl AsFd) -> Result<Self, Errno> {
        let mut bytes = vec![0; MAX_LIST_BYTES];
        match fgetxattr(&file, ACCESS, &mut bytes[..]) {
            Ok(length) => Self::parse(&bytes[..length]).ok_or(Errno::INVAL),
            Err(Errno::NODATA) => Ok(Self::of_mode(fstat(&file)?.st_mode)),
            Err(error) => Err(error),
        }
    }

    /// The list of a mode.
    fn of_mode(mode: u32) -> Self {
        let part = |shift: u32| (mode >> shift & 0o7) as u16;
        let entries = [(OWNER, part(6)), (OWNING_GROUP, part(3)), (OTHERS, part(0))];
        Self { entries: entries.map(|(tag, may)| ((tag, NO_ID), may)).into() }
    }

    /// Parses an attribute's value, and applies the mask.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION || !rest.len().is_multiple_of(ENTRY_BYTES) {
            return None;
        }
        let mut entries: BTreeMap<_, _> = rest
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| {
                let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
                let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
                ((half(0), id), half(2))
            })
            .collect();
        if let Some(mask) = entries.remove(&(MASK, NO_ID)) {
            let masked = entries.iter_mut().filter(|((tag, _), _)| is_masked(*tag));
            masked.for_each(|(_, may)| *may &= mask);
        }
        Some(Self { entries })
    }

    /// The attribute's value with at most these permissions.
    fn bytes(&self, most: u16) -> Vec<u8> {
        let mut entries = self.entries.clone();
        if entries.keys().any(|(tag, _)| [USER, GROUP].contains(tag)) {
            let masked = entries.iter().filter(|((tag, _), _)| is_masked(*tag));
            let mask = masked.fold(0, |all, (_, may)| all | may);
            entries.insert((MASK, NO_ID), mask);
        }
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for ((tag, id), may) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend((may & most).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn others(&mut self) -> &mut u16 {
        self.entries.entry((OTHERS, NO_ID)).or_default()
    }

    /// Admits a user, unless everybody is admitted.
    fn admit(&mut self, user: u32, to: u16) {
        if *self.others() & to != to {
            self.entries.insert((USER, user), to);
        }
    }

    /// Excludes everybody but the owner, users and groups with entries, and the folder's group if
    /// it may write: that is the group of the journal's writers.
    fn exclude_others(&mut self) {
        *self.others() = 0;
        let group = self.entries.entry((OWNING_GROUP, NO_ID)).or_default();
        if *group & WRITE == 0 {
            *group = 0;
        }
    }
}

fn is_masked(tag: u16) -> bool {
    [USER, OWNING_GROUP, GROUP].contains(&tag)
}

/// Lets a user read a topic's folder, and closes it to all who have no entry of their own.
pub(crate) fn grant(topic: &Path, user: u32) -> Result<(), JournalError> {
    change_tree(topic, |list| {
        list.exclude_others();
        list.admit(user, BROWSE);
    })
}

/// Lets a user read everything in a folder, unless everybody may.
pub(crate) fn share(folder: &Path, user: u32) -> Result<(), JournalError> {
    change_tree(folder, |list| list.admit(user, BROWSE))
}

/// Lets a user read a file, or enter a folder, itself only.
pub(crate) fn share_only(path: &Path, user: u32, to: u16) -> Result<(), JournalError> {
    let changed = open(CWD, path).and_then(|file| {
        let mut list = AccessList::of(&file)?;
        let before = list.clone();
        list.admit(user, to);
        match list == before {
            true => Ok(()),
            false => fsetxattr(&file, ACCESS, &list.bytes(0o7), XattrFlags::empty()),
        }
    });
    changed.map_err(|error| refused(path, error))
}

/// Removes a user from a topic's folder, which stays closed; returns whether there was an entry.
pub(crate) fn revoke(topic: &Path, user: u32) -> Result<bool, JournalError> {
    let list = open(CWD, topic).and_then(AccessList::of).map_err(|error| refused(topic, error))?;
    if !list.entries.contains_key(&(USER, user)) {
        return Ok(false);
    }
    change_tree(topic, |list| {
        list.entries.remove(&(USER, user));
    })?;
    Ok(true)
}

/// Gives the folder of a topic that replaces another one the same list, if that was granted.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), JournalError> {
    let read = || {
        let from = open(CWD, from)?;
        match fgetxattr(&from, DEFAULT, &mut vec![0; MAX_LIST_BYTES][..]) {
            Ok(_) => AccessList::of(&from).map(Some),
            // Never granted, or a file system on which nothing can be.
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(error),
        }
    };
    match read().map_err(|error| refused(from, error))? {
        Some(list) => change_tree(to, |own| *own = list.clone()),
        None => Ok(()),
    }
}

/// Changes a folder's list, which then becomes that of everything in it, now and later.
fn change_tree(folder: &Path, change: impl FnOnce(&mut AccessList)) -> Result<(), JournalError> {
    let failed = |error: Errno| refused(folder, error);
    let root = open(CWD, folder).map_err(failed)?;
    let mut list = AccessList::of(&root).map_err(failed)?;
    change(&mut list);
    for _ in 0..MAX_PASSES {
        let mut vanished = false;
        apply(&root, &list, MAX_DEPTH, &mut vanished).map_err(failed)?;
        // A file that was renamed between its listing and its opening may have kept its old list.
        if !vanished {
            return Ok(());
        }
    }
    let busy = io::Error::from(io::ErrorKind::ResourceBusy);
    Err(busy).at("change the access to", folder)
}

/// Sets the list of an open folder and of what is in it. The default comes first: what is created
/// after it needs no change.
fn apply(
    folder: &OwnedFd,
    list: &AccessList,
    depth: usize,
    vanished: &mut bool,
) -> Result<(), Errno> {
    let set = |file: &OwnedFd, name: &str, most: u16| {
        fsetxattr(file, name, &list.bytes(most), XattrFlags::empty())
    };
    set(folder, ACCESS, 0o7)?;
    set(folder, DEFAULT, 0o7)?;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if [c".", c".."].contains(&entry.file_name()) {
            continue;
        }
        let file = match open(folder, entry.file_name()) {
            Ok(file) => file,
            Err(Errno::NOENT) => {
                *vanished = true;
                continue;
            }
            // A symbolic link is not ours.
            Err(Errno::LOOP) => continue,
            Err(error) => return Err(error),
        };
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::Directory if depth > 0 => apply(&file, list, depth - 1, vanished)?,
            FileType::RegularFile => set(&file, ACCESS, !ENTER)?,
            _ => {}
        }
    }
    Ok(())
}

fn open(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    // Opening a pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

fn refused(path: &Path, error: Errno) -> JournalError {
    let path = path.to_owned();
    match error {
        Errno::PERM | Errno::ACCESS => JournalError::NotOwner { path },
        Errno::NOTSUP => JournalError::NoAccessLists { path },
        error => JournalError::io("change the access to", &path, error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_list_are_the_kernel_s() {
        let mut list = AccessList::of_mode(0o40755);
        list.exclude_others();
        list.admit(1000, BROWSE);
        // As `setfacl -m u:1000:rx,g::-,o::-` writes it.
        let hex: String = list.bytes(0o7).iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = [
            "02000000",
            "01000700ffffffff",
            "02000500e8030000",
            "04000000ffffffff",
            "10000500ffffffff",
            "20000000ffffffff",
        ];
        assert_eq!(hex, expected.concat());
        assert_eq!(AccessList::parse(&list.bytes(0o7)), Some(list));
        assert_eq!(AccessList::parse(b"\x01\0\0\0"), None);
        assert_eq!(AccessList::parse(b"\x02\0\0\0\x01"), None);
    }

    #[test]
    fn the_writers_group_and_users_with_entries_stay_and_everybody_needs_no_entry() {
        let mut shared = AccessList::of_mode(0o2775);
        shared.admit(1000, BROWSE);
        assert_eq!(shared, AccessList::of_mode(0o775), "everybody may read");
        shared.exclude_others();
        assert_eq!(shared, AccessList::of_mode(0o770));
        shared.admit(1000, BROWSE);
        assert_eq!(shared.entries[&(USER, 1000)], BROWSE);
        // A mode that was changed afterwards is the mask of such a list.
        let mut bytes = shared.bytes(0o7);
        let mask = bytes.len() - 2 * ENTRY_BYTES + 2;
        assert_eq!(bytes[mask], 0o7);
        bytes[mask] = 0o5;
        let masked = AccessList::parse(&bytes).unwrap();
        assert_eq!(masked.entries[&(OWNING_GROUP, NO_ID)], 0o5);
    }
}
