//! The kernel's count of dropped datagrams of UDP sockets (`/proc/net/udp`).

use std::os::fd::AsFd;

/// A socket, by its inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode(u64);

impl Inode {
    pub(crate) fn of(socket: &impl AsFd) -> Option<Self> {
        rustix::fs::fstat(socket).ok().map(|stat| Self(stat.st_ino))
    }
}

/// The datagrams of these sockets that were dropped because they were not read in time; 0 if the
/// system does not report it.
pub(crate) fn dropped(sockets: &[Inode]) -> u64 {
    if sockets.is_empty() {
        return 0;
    }
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(read);
    tables.iter().map(|table| of_table(table, sockets)).sum()
}

/// The tenth column is the inode, the last one the number of drops.
fn of_table(table: &str, sockets: &[Inode]) -> u64 {
    let dropped = |line: &str| {
        let columns: Vec<_> = line.split_ascii_whitespace().collect();
        let inode = columns.get(9)?.parse().ok()?;
        sockets.contains(&Inode(inode)).then(|| columns.last()?.parse::<u64>().ok())?
    };
    table.lines().skip(1).filter_map(dropped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_what_was_dropped() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
            retrnsmt   \
            uid  timeout inode ref pointer drops\n\
            1: 0100007F:1538 00000000:0000 07 0:0 00:0 0 0 0 4711 2 00000000 17\n\
            2: 0100007F:1539 00000000:0000 07 0:0 00:0 0 0 0 4712 2 00000000 5\n";
        assert_eq!(of_table(table, &[Inode(4711)]), 17);
        assert_eq!(of_table(table, &[Inode(4712), Inode(4711)]), 22);
        assert_eq!(of_table("", &[Inode(4711)]), 0);
    }

    #[test]
    fn what_is_not_read_is_counted() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
        let inode = Inode::of(&socket).unwrap();
        assert_eq!(dropped(&[inode]), 0);
        for _ in 0..100 {
            socket.send_to(&[0; 1_000], socket.local_addr().unwrap()).unwrap();
        }
        assert!(dropped(&[inode]) > 0);
    }
}
