//! Where a journal may lie: on a local file system, in folders that are no links, of an owner who
//! is no stranger.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::JournalError;
use crate::error::IoContext;

/// File systems whose files other machines may change. Maps of them are not shared with those, and
/// neither are locks.
const NETWORK_FILE_SYSTEMS: [&str; 33] = [
    "9p",
    "acfs",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "davfs",
    "fuse.ceph",
    "fuse.cephfs",
    "fuse.davfs2",
    "fuse.glusterfs",
    "fuse.goofys",
    "fuse.juicefs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.seaweedfs",
    "fuse.sshfs",
    "gfs2",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "panfs",
    "prl_fs",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
    "vmhgfs",
];

/// The group's and others' permission to write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Refuses a network file system, by its type's name.
pub(crate) fn check_local(path: &Path) -> Result<(), JournalError> {
    // The folder need not exist yet.
    let Some(device) = path.ancestors().find_map(|part| {
        let part = if part.as_os_str().is_empty() { Path::new(".") } else { part };
        fs::metadata(part).ok().map(|data| data.dev())
    }) else {
        return Ok(());
    };
    // Where it cannot be read, an open for writing fails anyway.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match network_file_system(&mounts, device) {
        None => Ok(()),
        Some(kind) => {
            let (path, kind) = (path.to_owned(), kind.to_owned());
            Err(JournalError::NetworkFileSystem { path, kind })
        }
    }
}

/// Returns the type of the file system on a device if it is one of the network. `mounts` is the
/// text of `/proc/self/mountinfo` (see proc_pid_mountinfo(5)).
fn network_file_system(mounts: &str, device: u64) -> Option<&str> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    let kind = mount.split_once(" - ")?.1.split(' ').next()?;
    NETWORK_FILE_SYSTEMS.contains(&kind).then_some(kind)
}

/// Refuses a symbolic link; a path that does not exist is no link.
pub(crate) fn check_no_link(path: &Path) -> Result<(), JournalError> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() => Err(JournalError::SymbolicLink { path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// Returns a folder's owner if that is neither this process's user nor root, and the two share no
/// group that may write to the folder.
pub(crate) fn stranger(path: &Path) -> Result<Option<u32>, JournalError> {
    let data = fs::metadata(path).at("look at", path)?;
    let (user, owner) = (rustix::process::geteuid().as_raw(), data.uid());
    let in_group = || {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let own = rustix::process::getegid();
        groups.iter().chain([&own]).any(|group| group.as_raw() == data.gid())
    };
    let shared = data.mode() & GROUP_WRITES != 0 && in_group();
    Ok((owner != user && owner != 0 && !shared).then_some(owner))
}

/// Refuses a stranger's folder, to which this user may write only because everybody may: it may
/// have been put there for others. Root may write everywhere.
pub(crate) fn check_owner(path: &Path) -> Result<(), JournalError> {
    let everybody = || fs::metadata(path).is_ok_and(|data| data.mode() & OTHERS_WRITE != 0);
    match stranger(path)? {
        Some(owner) if !rustix::process::geteuid().is_root() && everybody() => {
            Err(JournalError::OtherOwner { path: path.to_owned(), owner })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_name() {
        let mounts = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                      35 27 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw\n\
                      36 35 0:45 / /data rw shared:2 master:1 - nfs4 nas:/data rw,vers=4.2\n\
                      37 35 0:46 / /opt/a\\040b rw - fuse.sshfs host: rw\n\
                      38 35 0:47 / /vault rw - fuse.gocryptfs /v rw\n";
        let kind = |major, minor| network_file_system(mounts, rustix::fs::makedev(major, minor));
        assert_eq!(kind(0, 45), Some("nfs4"));
        assert_eq!(kind(0, 46), Some("fuse.sshfs"));
        assert_eq!((kind(8, 1), kind(0, 47), kind(0, 99)), (None, None, None));
        check_local(Path::new("/proc/no/such/folder")).unwrap();
    }
}
