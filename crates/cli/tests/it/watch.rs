//! `component watch` in a terminal, as an operator has it.

use crate::support::terminal::{Terminal, row};
use crate::support::{OWN, Simulated, Site};
use rustix::process::{Signal, kill_process};
use rustix::termios::LocalModes;
use vt100::Color;

fn watch(site: &Site, rest: &[&str], (lines, columns): (u16, u16)) -> Terminal {
    let command = site.helio(&[&["component", "watch"], rest].concat());
    Terminal::start(command, lines, columns)
}

/// Waits until the row of a component has a word, and gives the word's colour.
fn wait_word(terminal: &Terminal, component: &str, word: &str) -> Color {
    terminal.wait_for(&format!("{component} is {word}"), |screen| {
        let (line, text) = row(screen, component)?;
        let column = text.find(word)?;
        Some(screen.cell(line, column as u16).unwrap().fgcolor())
    })
}

#[test]
fn the_table_lives_until_q() {
    let site = Site::new();
    let _mount = Simulated::start(&site, &["MTMount", "--state", "STANDBY"]);
    let mast = Simulated::start(&site, &["ESS:2"]);
    let terminal = watch(&site, &["--every", "100ms"], (24, 80));
    assert_eq!(wait_word(&terminal, "MTMount", "STANDBY"), Color::Idx(6));
    assert_eq!(wait_word(&terminal, "ESS:2", "ENABLED"), Color::Idx(2));
    terminal.wait_for("a screen of its own", |screen| {
        (screen.alternate_screen() && screen.hide_cursor()).then_some(())
    });
    assert!(has_keys(&terminal));

    site.run(&["component", "set-state", "MTMount", "ENABLED"]).ok();
    wait_word(&terminal, "MTMount", "ENABLED");
    mast.interrupt();
    assert_eq!(wait_word(&terminal, "ESS:2", "gone"), Color::Idx(1));
    terminal.wait_text("2 components,");
    terminal.wait_text("1 gone: ESS:2");

    terminal.type_in("xq");
    let (code, screen) = terminal.end();
    assert_eq!((code, screen.contents().trim()), (Some(0), ""), "nothing is left behind");
}

#[test]
fn ctrl_c_and_signals_end_it_in_order() {
    let site = Site::new();
    let _mount = Simulated::start(&site, &["MTMount"]);
    for (rest, code) in [(&[][..], 0), (&["--for", "1h"], 130)] {
        let terminal = watch(&site, rest, (24, 80));
        terminal.wait_text("MTMount");
        terminal.type_in("\x03");
        assert_eq!(terminal.end().0, Some(code), "{rest:?}");

        let terminal = watch(&site, rest, (24, 80));
        terminal.wait_text("MTMount");
        kill_process(terminal.process(), Signal::TERM).unwrap();
        assert_eq!(terminal.end().0, Some(code), "{rest:?}");
    }
    let terminal = watch(&site, &["--for", "10ms"], (24, 80));
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn what_does_not_fit_is_scrolled_and_every_size_is_taken() {
    let site = Site::new();
    let _all = Simulated::start(&site, &["--all"]);
    let terminal = watch(&site, &["--every", "1h"], (6, 40));
    let shows = |first: &str, last: &str, foot: &str| {
        terminal.wait_for(&format!("{first} to {last}, {foot}"), |screen| {
            let rows: Vec<String> = screen.rows(0, 40).collect();
            let seen = rows[2].starts_with(first)
                && rows[rows.len() - 2].starts_with(last)
                && rows[rows.len() - 1].starts_with(foot);
            seen.then_some(())
        });
    };
    shows("Camera:1", "ESS:1", "1-3 of 6; ");
    terminal.type_in("\x1b[B");
    shows("Camera:2", "ESS:2", "2-4 of 6; ");
    terminal.type_in("\x1b[6~");
    shows("ESS:2", "MTMount", "4-6 of 6; ");
    terminal.type_in("jjj\x1b[A");
    shows("ESS:1", "MTM1M3", "3-5 of 6; ");
    terminal.type_in("G\x1b[5~g");
    shows("Camera:1", "ESS:1", "1-3 of 6; ");

    // Nothing but its new size says that it is to be drawn again.
    terminal.resize(9, 100);
    shows("Camera:1", "MTMount", "q ends");
    terminal.wait_for("the last column", |screen| {
        screen.rows(0, 100).nth(1).unwrap().trim_end().ends_with("log").then_some(())
    });
    terminal.resize(2, 20);
    terminal.wait_for("at least who needs a look", |screen| {
        screen.rows(0, 20).next().unwrap().starts_with("6 components").then_some(())
    });
    terminal.type_in("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn colours_and_the_screen_can_be_refused() {
    let site = Site::new();
    let _mount = Simulated::start(&site, &["MTMount"]);
    let mut command = site.helio(&["component", "watch"]);
    command.env("NO_COLOR", "1");
    let terminal = Terminal::start(command, 24, 80);
    assert_eq!(wait_word(&terminal, "MTMount", "ENABLED"), Color::Default);
    terminal.type_in("q");
    assert_eq!(terminal.end().0, Some(0));

    let mut command = site.helio(&["component", "watch"]);
    command.env("TERM", "dumb");
    let terminal = Terminal::start(command, 24, 120);
    terminal.wait_text("MTMount state ENABLED");
    terminal.wait_for("no screen of its own", |screen| (!screen.alternate_screen()).then_some(()));
    terminal.type_in("\x03");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_takes_it_again() {
    let site = Site::new();
    let _mount = Simulated::start(&site, &["MTMount"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-i"]).env("PS1", "ready: ").env("PATH_TO_HELIO", env!("CARGO_BIN_EXE_helio"));
    shell.env("HELIO_URL", &site.url).env_remove("ENV");
    let terminal = Terminal::start(shell, 24, 80);
    terminal.wait_text("ready: ");
    terminal.type_in("\"$PATH_TO_HELIO\" component watch\r");
    wait_word(&terminal, "MTMount", "ENABLED");
    terminal.type_in("\x1a");
    terminal.wait_for("the shell's screen", |screen| {
        let free = !screen.alternate_screen() && !screen.hide_cursor();
        (free && screen.contents().matches("ready: ").count() == 2).then_some(())
    });
    assert!(!has_keys(&terminal), "the shell has them");
    terminal.type_in("fg\r");
    wait_word(&terminal, "MTMount", "ENABLED");
    terminal.type_in("q");
    // Its prompt: what is typed before that is the program's still.
    terminal.wait_for("the shell again", |screen| {
        let again = screen.contents().matches("ready: ").count() == 3;
        (!screen.alternate_screen() && again).then_some(())
    });
    terminal.type_in("exit\r");
    assert_eq!(terminal.end().0, Some(0));
}

/// Whether keys come one by one and unseen, as a program takes them that has the whole screen.
fn has_keys(terminal: &Terminal) -> bool {
    let modes = terminal.settings().local_modes;
    !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
}

#[test]
fn who_was_never_there_is_named() {
    let site = Site::new();
    let _mount = Simulated::start(&site, &["MTMount"]);
    let terminal = watch(&site, &["MTMuont"], (24, 80));
    terminal.wait_text("no component that fits MTMuont was ever on this bus");
    terminal.type_in("q");
    assert_eq!(terminal.end().0, Some(0));
    let ran = site.run(&["component", "watch", "MTMuont", "--for", "10ms", "--interfaces", OWN]);
    assert_eq!(ran.code, Some(2), "it needs no interfaces: {}", ran.err);
    let ran = site.run(&["component", "watch", "MTMuont", "--for", "10ms"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""));
    assert!(ran.err.contains("no component that fits MTMuont"), "{}", ran.err);
}
