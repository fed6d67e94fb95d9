//! Programs that send syslog in the world: `logger` of util-linux, and rsyslog. Where one is
//! missing its test says so, and fails where `HELIO_ENGINES_REQUIRED` is set.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use helio_log_serve::{Format, Server, Via};
use helio_logging::{Level, Record};

/// The program, where it is there.
fn program(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Daemons are not on everyone's path.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        let why = format!("{name} is not here; on Debian: apt-get install {package}");
        let required =
            std::env::var_os("HELIO_ENGINES_REQUIRED").is_some_and(|set| !set.is_empty());
        assert!(!required, "{why}");
        // Not by `eprintln!`, which a test that passes keeps to itself.
        std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
    }
    found
}

fn wait_for(server: &Server, received: u64) {
    wait_until(|| server.statistics().received >= received);
}

fn found<'a>(records: &'a [Record], text: &str) -> &'a Record {
    let found = records.iter().find(|record| record.message() == text);
    found.unwrap_or_else(|| panic!("{text:?} is not in {:?}", messages(records)))
}

#[test]
fn logger_sends_by_udp_tcp_and_unix_sockets() {
    let Some(logger) = program("logger", "bsdutils") else { return };
    let folder = tempfile::tempdir().unwrap();
    let bus = bus();
    let mut server = Server::start(bus.clone(), options()).unwrap();
    let by_udp = listen(&mut server, Format::Syslog, udp());
    let by_tcp = listen(&mut server, Format::Syslog, tcp());
    let stream = listen(&mut server, Format::Syslog, Via::Unix(folder.path().join("stream")));
    let log = listen(&mut server, Format::Syslog, Via::UnixDatagram(folder.path().join("log")));
    let log_with = |args: &[&str], text: &str| {
        let mut command = Command::new(&logger);
        command.args(["--tag", "mount", "--priority", "local3.warning"]).args(args).arg(text);
        assert!(command.status().unwrap().success(), "{command:?}");
    };
    let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
    let (udp_port, tcp_port) = (port(&by_udp), port(&by_tcp));
    let by_udp = ["--server", "127.0.0.1", "--port", &udp_port, "--udp"];
    let by_tcp = ["--server", "127.0.0.1", "--port", &tcp_port, "--tcp"];
    let mut sent = 0;
    for (way, args) in [("udp", by_udp), ("tcp", by_tcp)] {
        log_with(&[&args[..], &["--rfc3164"]].concat(), &format!("{way} 3164"));
        log_with(
            &[&args[..], &["--rfc5424", "--msgid", "M7"]].concat(),
            &format!("{way} 5424 \u{b0}"),
        );
        sent += 2;
    }
    log_with(&[&by_tcp[..], &["--octet-count"]].concat(), "counted");
    log_with(&["--socket", &stream], "stream");
    log_with(&["--socket", &log, "--id=4711"], "datagram");
    sent += 3;
    wait_for(&server, sent);
    let account = server.end();
    adds_up(&account);
    assert_eq!((account.received, account.published), (sent, sent), "{account:?}");
    let records = records(&bus);
    for record in &records {
        assert_eq!((record.level, record.logger.as_str()), (Level::WARNING, "mount"), "{record:?}");
        assert!(record.data.contains(&("syslog.facility".to_owned(), "local3".into())));
        assert!(!record.host.is_empty());
    }
    for text in ["udp 3164", "tcp 3164", "counted", "stream"] {
        found(&records, text);
    }
    for text in ["udp 5424 \u{b0}", "tcp 5424 \u{b0}"] {
        assert_eq!(found(&records, text).log_id, "M7");
    }
    assert_eq!(found(&records, "datagram").process, "4711");
}

/// An rsyslog of the test's own, which is ended with it.
struct Rsyslog(Child);

impl Rsyslog {
    /// Reads messages from a socket in the folder, and forwards them.
    fn start(program: &Path, folder: &Path, forward: &str) -> Self {
        let config = folder.join("rsyslog.conf");
        let (work, socket) = (folder.display(), folder.join("in").display().to_string());
        let text = format!(
            "global(workDirectory=\"{work}\")\n\
             module(load=\"imuxsock\" SysSock.Use=\"off\")\n\
             input(type=\"imuxsock\" Socket=\"{socket}\" RateLimit.Interval=\"0\")\n\
             {forward}\n"
        );
        std::fs::write(&config, text).unwrap();
        let pid = folder.join("pid");
        let mut command = Command::new(program);
        command.arg("-n").arg("-f").arg(&config).arg("-i").arg(&pid);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        while !folder.join("in").exists() {
            assert!(child.try_wait().unwrap().is_none(), "rsyslogd has ended");
            std::thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn rsyslog_forwards_by_udp_and_by_tcp_with_counted_octets() {
    const MESSAGES: u64 = 500;
    let Some(rsyslogd) = program("rsyslogd", "rsyslog") else { return };
    let folder = tempfile::tempdir().unwrap();
    let bus = bus();
    let mut server = Server::start(bus.clone(), options()).unwrap();
    let address = listen(&mut server, Format::Syslog, udp());
    let by_udp = address.rsplit(':').next().unwrap();
    let address = listen(&mut server, Format::Syslog, tcp());
    let by_tcp = address.rsplit(':').next().unwrap();
    let to = |port: &str, rest: &str| {
        format!("action(type=\"omfwd\" target=\"127.0.0.1\" port=\"{port}\" {rest})")
    };
    let counted = "protocol=\"tcp\" TCP_Framing=\"octet-counted\" \
        template=\"RSYSLOG_SyslogProtocol23Format\"";
    let udp = "protocol=\"udp\" template=\"RSYSLOG_ForwardFormat\"";
    let forward = format!("{}\n{}", to(by_tcp, counted), to(by_udp, udp));
    let sender = Rsyslog::start(&rsyslogd, folder.path(), &forward);
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    socket.connect(folder.path().join("in")).unwrap();
    for n in 0..MESSAGES {
        let message = format!("<163>Nov 22 19:00:00 mount[7]: step {n}, \u{b0} and \"quotes\"");
        socket.send(message.as_bytes()).unwrap();
    }
    wait_for(&server, 2 * MESSAGES);
    drop(sender);
    let account = server.end();
    adds_up(&account);
    assert_eq!(account.dropped.total(), 0, "{account:?}");
    let records = records(&bus);
    assert_eq!(account.published, records.len() as u64);
    for n in 0..MESSAGES {
        let text = format!("step {n}, \u{b0} and \"quotes\"");
        let mut copies = records.iter().filter(|record| record.message().trim_start() == text);
        let both = [copies.next().unwrap(), copies.next().unwrap()];
        assert!(copies.next().is_none(), "{text}");
        for copy in both {
            let seen = (copy.level, copy.logger.as_str(), copy.process.as_str());
            assert_eq!(seen, (Level::ERROR, "mount", "7"), "{copy:?}");
            assert!(!copy.host.is_empty());
        }
    }
}
