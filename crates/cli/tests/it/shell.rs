//! `component shell` in a terminal, as an operator has it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::terminal::Terminal;
use crate::support::{OWN, Site};
use helio_bus::Bus;
use helio_component::protocol::SummaryState;
use helio_component::{Command, Component, Failed, Interface, Running};
use rustix::process::{Signal, kill_process};

const PROMPT: &str = "MTMount>";
/// Events of a flood.
const FLOOD: u32 = 20_000;

/// A mount whose `moveToTarget` runs until it is cancelled, and whose `stop` until it may end.
struct Mount {
    site: Site,
    running: Running,
}

impl Mount {
    fn start(may_end: Receiver<()>) -> Self {
        let site = Site::new();
        let bus = Bus::connect(&site.url).unwrap();
        let interfaces = helio_bus::read_interfaces(OWN).unwrap();
        let interface = Interface::of(&interfaces, "MTMount").unwrap();
        let may_end = Mutex::new(may_end);
        let running = Component::builder(&bus, &interface, 0)
            .initial_state(SummaryState::Enabled)
            .on("moveToTarget", |command: &Command| {
                command.in_progress(Duration::from_secs(600), "moving", None);
                command.pause(Duration::from_secs(3600))
            })
            .on("stop", move |command: &Command| {
                command.in_progress(Duration::from_secs(600), "slowing down", None);
                // Deaf: a cancelled command need not hear of it.
                let _ = may_end.lock().unwrap().recv();
                Ok::<_, Failed>(())
            })
            .start()
            .unwrap();
        Self { site, running }
    }

    fn idle() -> Self {
        Self::start(channel().1)
    }

    fn shell(&self) -> Terminal {
        let terminal =
            Terminal::start(self.site.helio(&["component", "shell", "MTMount"]), 24, 100);
        terminal.wait_text("MTMount is here, ENABLED; Tab completes");
        terminal.wait_line(PROMPT);
        terminal
    }

    fn publish(&self, azimuth: f64) {
        self.running.event("target").unwrap().set("azimuth", azimuth).force().write().unwrap();
    }
}

impl Terminal {
    /// Waits until the line where the cursor is says this, and nothing else.
    fn wait_line(&self, text: &str) {
        self.wait_for(&format!("the line {text:?}"), |screen| {
            let line = screen.rows(0, screen.size().1.get()).nth(screen.cursor_position().0.into());
            (line?.trim_end() == text).then_some(())
        });
    }

    /// Types a line, and waits for what comes of it and for the next prompt.
    fn enter(&self, line: &str, said: &str) {
        self.type_in(&format!("{line}\r"));
        self.wait_text(said);
        self.wait_line(PROMPT);
    }
}

#[test]
fn lines_are_completed_kept_and_corrected() {
    let mount = Mount::idle();
    let terminal = mount.shell();
    terminal.type_in("moveToT\t");
    terminal.wait_line("MTMount> moveToTarget");
    terminal.type_in("az\t1 ele\t");
    terminal.wait_line("MTMount> moveToTarget azimuth=1 elevation=");
    terminal.enter("high", "elevation");
    terminal.type_in("\x1b[A");
    terminal.wait_line("MTMount> moveToTarget azimuth=1 elevation=high");
    terminal.type_in("\x03");
    terminal.wait_line(PROMPT);
    terminal.type_in(".show evt_summ\t");
    terminal.wait_line("MTMount> .show evt_summaryState");
    terminal.enter("", r#"evt_summaryState {"summaryState":2}"#);
    terminal.enter("fly", "MTMount has no command fly");
    terminal.enter("moveToTarget azimuth=1", "moveToTarget: no value for elevation");
    terminal.enter(".set-state ENABLD", "is no state to go to");
    terminal.type_in(".\t\t");
    terminal.wait_text(".telemetry");
    terminal.type_in("\x15\x04");
    assert_eq!(terminal.end().0, Some(0), "Ctrl-D on an empty line ends it");
}

#[test]
fn ctrl_c_cancels_what_runs_and_not_the_commander() {
    let (end, may_end) = channel();
    let mount = Mount::start(may_end);
    let terminal = mount.shell();
    terminal.type_in("moveToTarget azimuth=1 elevation=2\r");
    terminal.wait_text("CMD_INPROGRESS: moving");
    terminal.type_in("\x03");
    terminal.wait_text("CMD_ABORTED");
    terminal.wait_line(PROMPT);
    terminal.enter(".state", "\nENABLED");

    // One that does not hear: who has asked twice waits no longer.
    terminal.type_in("stop\r");
    terminal.wait_text("CMD_INPROGRESS: slowing down");
    terminal.type_in("\x03");
    terminal.wait_for("the second is being cancelled", |screen| {
        (screen.contents().matches("cancelling;").count() == 2).then_some(())
    });
    terminal.type_in("\x03");
    terminal.wait_text("the wait has ended");
    terminal.wait_line(PROMPT);
    end.send(()).unwrap();
    terminal.enter(".validate stop", "CMD_COMPLETE");
    terminal.type_in(".quit\r");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn a_command_that_is_interrupted_is_cancelled() {
    let mount = Mount::idle();
    let moves = ["MTMount", "moveToTarget", "azimuth=1", "elevation=2", "--json"];
    let args = [&["component", "command"], &moves[..]].concat();
    let mut child = mount.site.start(&args);
    while !crate::support::line_of(&mut child).contains("moving") {}
    assert_eq!(crate::support::interrupt(&mut child), Some(130));
    assert!(crate::support::line_of(&mut child).contains("CMD_ABORTED"));
}

#[test]
fn events_come_above_the_line_that_is_written() {
    let mount = Mount::idle();
    let terminal = mount.shell();
    terminal.type_in(".show evt_sum");
    terminal.wait_line("MTMount> .show evt_sum");
    mount.publish(1.0);
    mount.publish(2.0);
    terminal.wait_text(r#"evt_target {"azimuth":2.0"#);
    terminal.wait_line("MTMount> .show evt_sum");
    terminal.enter("maryState", "evt_summaryState {");

    terminal.enter(".events off", "MTMount> .events off");
    mount.publish(3.0);
    terminal.enter(".show evt_target", r#"evt_target {"azimuth":3.0"#);
    let seen = |screen: &vt100::Screen| screen.contents().matches("azimuth\":3.0").count();
    assert_eq!(terminal.wait_for("the screen", |screen| Some(seen(screen))), 1);
    terminal.type_in("\x04");
    assert_eq!(terminal.end().0, Some(0));
}

/// The editor takes lines only while one is written: nothing may wait for it meanwhile. Nor may
/// what is typed ahead be lost.
#[test]
fn a_flood_of_events_holds_nobody_up() {
    let mount = Arc::new(Mount::idle());
    let terminal = mount.shell();
    let over = Arc::new(AtomicBool::new(false));
    let (flooding, ended) = (Arc::clone(&mount), Arc::clone(&over));
    let flood = std::thread::spawn(move || {
        // Far more than can be printed meanwhile, and little for a disk.
        for n in 0..FLOOD {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            flooding.publish(f64::from(n % 360));
        }
    });
    terminal.wait_text("evt_target");
    for _ in 0..20 {
        terminal.type_in(".state\r");
    }
    terminal.type_in(".quit\r");
    let (code, screen) = terminal.end();
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert_eq!(code, Some(0), "{}", screen.contents());
}

#[test]
fn sigterm_gives_the_terminal_back() {
    let mount = Mount::idle();
    let terminal = mount.shell();
    terminal.type_in(".sho");
    terminal.wait_line("MTMount> .sho");
    kill_process(terminal.process(), Signal::TERM).unwrap();
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn who_goes_away_is_named() {
    let mount = Mount::idle();
    let terminal = mount.shell();
    drop(mount.running);
    terminal.wait_text("MTMount is gone");
    terminal.wait_line(PROMPT);
    terminal.enter("stop", "nobody there");
    terminal.type_in("\x04");
    assert_eq!(terminal.end().0, Some(0));
}

/// A terminal that nobody can write all over still has a person before it.
#[test]
fn a_plain_terminal_has_no_editor() {
    let mount = Mount::idle();
    let mut command = mount.site.helio(&["component", "shell", "MTMount"]);
    command.env("TERM", "dumb");
    let terminal = Terminal::start(command, 24, 100);
    terminal.type_in("moveToTarget azimuth=east\r");
    terminal.wait_text("helio: ");
    terminal.type_in(".state\r");
    terminal.wait_text("\nENABLED");
    terminal.type_in("\x04");
    assert_eq!(terminal.end().0, Some(0));
}
