//! The terminal's alternate screen, restored at the end.
//!
//! Constraints. The screen must not scroll, and long lines are cut. Every orderly end (a key, a
//! signal, an error, a panic) restores the terminal; so does Ctrl-Z before it stops the program.
//!
//! Operation. The cursor is hidden. With keys, the terminal neither echoes them nor waits for whole
//! lines; Ctrl-C remains a signal.

use std::io::IsTerminal;

use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::error::CliResult;
use crate::out::Out;

/// The alternate screen, without a cursor; long lines are cut.
const TAKE: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const GIVE_BACK: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The largest number of bytes of keys that are read at once and buffered.
const KEYS_MAX: usize = 256;

/// The meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Quit,
    Suspend,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
}

/// The byte sequences of keys.
const KEYS: [(&[u8], Key); 23] = [
    (b"q", Key::Quit),
    (b"Q", Key::Quit),
    (b"\x1a", Key::Suspend),
    (b"k", Key::Up),
    (b"\x1b[A", Key::Up),
    (b"\x1bOA", Key::Up),
    (b"j", Key::Down),
    (b"\x1b[B", Key::Down),
    (b"\x1bOB", Key::Down),
    (b"b", Key::PageUp),
    (b"\x1b[5~", Key::PageUp),
    (b" ", Key::PageDown),
    (b"\x1b[6~", Key::PageDown),
    (b"g", Key::Top),
    (b"\x1b[H", Key::Top),
    (b"\x1bOH", Key::Top),
    (b"\x1b[1~", Key::Top),
    (b"\x1b[7~", Key::Top),
    (b"G", Key::Bottom),
    (b"\x1b[F", Key::Bottom),
    (b"\x1bOF", Key::Bottom),
    (b"\x1b[4~", Key::Bottom),
    (b"\x1b[8~", Key::Bottom),
];

/// The action that the user requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserAction {
    /// None.
    None,
    /// Redraw the screen.
    Draw,
    /// Quit.
    Quit,
}

/// The screen. Dropping it restores the terminal.
pub struct Screen {
    out: Out,
    keyboard: Option<Keyboard>,
    colours: bool,
    /// The number of rows above the first visible one.
    above: usize,
    /// The number of rows, and of visible ones.
    rows: (usize, usize),
    drawn: (usize, usize),
}

impl Screen {
    /// Switches the terminal to the alternate screen.
    pub fn begin() -> CliResult<Self> {
        let mut screen = Self {
            out: Out::new(),
            keyboard: None,
            colours: std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
            above: 0,
            rows: (0, 0),
            drawn: size(),
        };
        screen.take()?;
        Ok(screen)
    }

    /// Reads keys too, if standard input is a terminal.
    pub fn with_keys(mut self) -> Self {
        self.keyboard = Keyboard::take();
        self
    }

    fn take(&mut self) -> CliResult {
        self.out.raw(TAKE)?;
        self.out.flush()
    }

    fn give_back(&mut self) -> CliResult {
        self.out.raw(GIVE_BACK)?;
        self.out.flush()
    }

    /// Shows fixed lines at the top, and below them the rows that fit.
    pub fn show(&mut self, head: &[String], rows: &[String]) -> CliResult {
        let (columns, lines) = size();
        self.drawn = (columns, lines);
        let foot = usize::from(self.keyboard.is_some());
        self.rows = (rows.len(), lines.saturating_sub(head.len() + foot));
        self.scroll(0);
        let (count, room) = self.rows;
        let shown = rows.iter().skip(self.above).take(room);
        let mut at = 0;
        for line in head.iter().chain(shown).take(lines) {
            at += 1;
            self.line(at, line, columns)?;
        }
        if at < lines {
            self.out.raw(format!("\x1b[{};1H\x1b[J", at + 1).as_bytes())?;
        }
        if foot == 1 && lines > at {
            let end = (self.above + room).min(count);
            let help = match count > room {
                true => {
                    format!("{}-{end} of {count}; arrows and pages scroll, q ends", self.above + 1)
                }
                false => "q ends".to_owned(),
            };
            self.line(lines, &help, columns)?;
        }
        self.out.flush()
    }

    fn line(&mut self, at: usize, line: &str, columns: usize) -> CliResult {
        let mut text: String = line.chars().take(columns).collect();
        // A full line needs no clearing, which could erase its last character.
        let clear = if text.chars().count() < columns { "\x1b[K" } else { "" };
        if self.colours {
            text = coloured(&text);
        }
        self.out.raw(format!("\x1b[{at};1H{text}{clear}").as_bytes())
    }

    /// The action of the keys typed since the last call, or of a new terminal size.
    pub fn wish(&mut self) -> CliResult<UserAction> {
        let mut wish = if size() == self.drawn { UserAction::None } else { UserAction::Draw };
        while let Some(key) = self.keyboard.as_mut().and_then(Keyboard::next) {
            let page = i64::try_from(self.rows.1.saturating_sub(1)).unwrap_or(0);
            match key {
                Key::Quit => return Ok(UserAction::Quit),
                Key::Suspend => self.suspend()?,
                Key::Up => self.scroll(-1),
                Key::Down => self.scroll(1),
                Key::PageUp => self.scroll(-page),
                Key::PageDown => self.scroll(page),
                Key::Top => self.scroll(i64::MIN),
                Key::Bottom => self.scroll(i64::MAX),
            }
            wish = UserAction::Draw;
        }
        Ok(wish)
    }

    fn scroll(&mut self, rows: i64) {
        let (count, room) = self.rows;
        let above = i64::try_from(self.above).unwrap_or(0).saturating_add(rows).max(0);
        self.above = usize::try_from(above).unwrap_or(0).min(count.saturating_sub(room));
    }

    /// Stops the program as Ctrl-Z does, until the shell resumes it.
    fn suspend(&mut self) -> CliResult {
        self.keyboard = None;
        self.give_back()?;
        // It fails only without a shell to return to.
        let _ = kill_current_process_group(Signal::TSTP);
        self.take()?;
        self.keyboard = Keyboard::take();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        let _ = self.give_back();
    }
}

/// The terminal in key mode. Dropping it restores line mode.
struct Keyboard {
    before: Termios,
    read: Vec<u8>,
}

impl Keyboard {
    /// Switches to key mode; `None` if standard input is no terminal.
    fn take() -> Option<Self> {
        let input = std::io::stdin();
        if !input.is_terminal() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut own = before.clone();
        own.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // Reads must not block. Ctrl-Z and Ctrl-\ would leave the alternate screen active.
        for index in [
            SpecialCodeIndex::VMIN,
            SpecialCodeIndex::VTIME,
            SpecialCodeIndex::VSUSP,
            SpecialCodeIndex::VQUIT,
        ] {
            own.special_codes[index] = 0;
        }
        tcsetattr(&input, OptionalActions::Now, &own).ok()?;
        Some(Self { before, read: Vec::new() })
    }

    /// The next typed key, if any.
    fn next(&mut self) -> Option<Key> {
        let mut typed = [0; KEYS_MAX];
        let room = KEYS_MAX.saturating_sub(self.read.len());
        if let Ok(count) = rustix::io::read(std::io::stdin(), &mut typed[..room]) {
            self.read.extend(&typed[..count]);
        }
        first(&mut self.read)
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // Unread keys are not meant for the shell.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Takes the first complete key of the typed bytes.
fn first(typed: &mut Vec<u8>) -> Option<Key> {
    while !typed.is_empty() {
        if let Some((bytes, key)) = KEYS.iter().find(|(bytes, _)| typed.starts_with(bytes)) {
            typed.drain(..bytes.len());
            return Some(*key);
        }
        if KEYS.iter().any(|(bytes, _)| bytes.starts_with(typed)) {
            return None;
        }
        typed.remove(0);
    }
    None
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    match tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Colours the states of a line: red for trouble, green for ENABLED.
fn coloured(line: &str) -> String {
    let colours =
        [(" FAULT ", 31), (" gone ", 31), (" ENABLED ", 32), (" DISABLED ", 33), (" STANDBY ", 36)];
    match colours.iter().find(|(word, _)| line.contains(word)) {
        Some((word, colour)) => line.replacen(word, &format!("\x1b[{colour}m{word}\x1b[0m"), 1),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_look_is_red() {
        assert_eq!(coloured("a  FAULT  here"), "a \x1b[31m FAULT \x1b[0m here");
        assert_eq!(coloured("a  ENABLED  gone  x"), "a  ENABLED \x1b[31m gone \x1b[0m x");
        assert_eq!(
            coloured("a  ENABLED  here  DEFAULT"),
            "a \x1b[32m ENABLED \x1b[0m here  DEFAULT"
        );
        assert_eq!(coloured("nothing"), "nothing");
    }

    #[test]
    fn keys_are_known_in_whatever_pieces_they_come() {
        let mut typed = b"x\x1b[15~j\x1b[5~\x1b[".to_vec();
        assert_eq!(first(&mut typed), Some(Key::Down), "keys that mean nothing are passed over");
        assert_eq!(first(&mut typed), Some(Key::PageUp));
        assert_eq!(first(&mut typed), None);
        typed.push(b'B');
        assert_eq!(first(&mut typed), Some(Key::Down));
        typed.extend(b"\x1bq");
        assert_eq!(first(&mut typed), Some(Key::Quit), "Escape alone means nothing");
    }
}
