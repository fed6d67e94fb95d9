//! Converts syslog messages to records.

use std::borrow::Cow;

use helio_core::{Tai, TraceId};

use super::write::{DATA, FIELDS};
use super::{Arrival, FACILITIES, FACILITY, MAX_MESSAGE_BYTES, RAW, SyslogError};
use crate::fields::TextField;
use crate::formats::json::from_hex;
use crate::formats::shown;
use crate::formats::utc::{self, Civil, Digit};
use crate::level::Level;
use crate::record::{Audiences, Record};
use crate::value::Value;

/// Reads a message without a frame. A trailing line end or zero byte is ignored.
///
/// ```
/// use helio_logging::Level;
/// use helio_logging::formats::syslog::{Arrival, read};
///
/// let now = "2026-11-22T18:00:00Z".parse()?;
/// let message = b"<29>Nov 22 17:59:58 gas01 ntpd[812]: synchronised";
/// let record = read(message, &Arrival { now, offset_s: 0 })?;
/// assert_eq!((record.level, record.logger.as_str()), (Level::NOTICE, "ntpd"));
/// assert_eq!(record.message(), "synchronised");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`SyslogError`].
pub fn read(bytes: &[u8], arrival: &Arrival) -> Result<Record, SyslogError> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(SyslogError::TooLarge(bytes.len()));
    }
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let ends: [&[u8]; 2] = [b"\r\n", b"\n"];
    let bytes = ends.iter().find_map(|end| bytes.strip_suffix(*end)).unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let no_priority = || SyslogError::Priority(shown(bytes));
    let (priority, rest) = priority(&text).ok_or_else(no_priority)?;
    let mut record = Record {
        time: arrival.now,
        observed: Some(arrival.now),
        level: Level::from_syslog(priority),
        data: vec![(FACILITY.to_owned(), FACILITIES[usize::from(priority / 8)].into())],
        ..Record::default()
    };
    match rest.strip_prefix("1 ") {
        Some(rest) => rfc5424(rest, &mut record)
            .map_err(|field| SyslogError::Header { field, message: shown(bytes) })?,
        None => rfc3164(rest, arrival, &mut record),
    }
    if let Cow::Owned(_) = text {
        record.data.push((RAW.to_owned(), Value::Bytes(bytes.to_vec())));
    }
    Ok(record)
}

/// The number in brackets (facility and severity), and the rest.
fn priority(text: &str) -> Option<(u8, &str)> {
    let (number, rest) = text.strip_prefix('<')?.split_once('>')?;
    let right = (1..=3).contains(&number.len()) && number.bytes().all(|c| c.is_ascii_digit());
    let priority = number.parse().ok().filter(|priority| right && *priority < 192);
    Some((priority?, rest))
}

/// Reads the part after the version; fails with the name of the wrong field.
fn rfc5424(text: &str, record: &mut Record) -> Result<(), &'static str> {
    let (time, rest) = field(text).ok_or("TIMESTAMP")?;
    if time != "-" {
        // A zone is required only here.
        let (civil, zone) = utc::parse(time).ok_or("TIMESTAMP")?;
        record.time = civil.to_tai(zone.ok_or("TIMESTAMP")?).ok_or("TIMESTAMP")?;
    }
    let mut rest = rest;
    let mut next = |name: &'static str| -> Result<String, &'static str> {
        let (found, behind) = field(rest).ok_or(name)?;
        rest = behind;
        Ok(if found == "-" { String::new() } else { found.to_owned() })
    };
    record.host = next("HOSTNAME")?;
    record.logger = next("APP-NAME")?;
    record.process = next("PROCID")?;
    record.log_id = next("MSGID")?;
    let message = match rest.strip_prefix('-') {
        Some(rest) => rest,
        None => structured_data(rest, record).ok_or("STRUCTURED-DATA")?,
    };
    record.text = match message.strip_prefix(' ') {
        // The mark declares UTF-8, which was checked before.
        Some(text) => Some(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned()),
        None if message.is_empty() => None,
        None => return Err("STRUCTURED-DATA"),
    };
    Ok(())
}

/// The text up to the next space, at least one character, and the rest.
fn field(text: &str) -> Option<(&str, &str)> {
    text.split_once(' ').filter(|(field, _)| !field.is_empty())
}

/// Reads elements in brackets, at least one, and returns the rest.
fn structured_data<'a>(text: &'a str, record: &mut Record) -> Option<&'a str> {
    let mut rest = text.strip_prefix('[')?;
    loop {
        let end = rest.find([' ', ']']).filter(|end| *end > 0)?;
        let id = &rest[..end];
        rest = &rest[end..];
        let mut empty = true;
        while let Some(found) = rest.strip_prefix(' ') {
            let (name, behind) = found.split_once("=\"")?;
            if name.is_empty() || name.contains([' ', ']', '"']) {
                return None;
            }
            let (value, behind) = quoted(behind)?;
            parameter(record, id, name, value);
            (rest, empty) = (behind, false);
        }
        if empty {
            record.data.push((id.to_owned(), Value::Null));
        }
        rest = rest.strip_prefix(']')?;
        match rest.strip_prefix('[') {
            Some(next) => rest = next,
            None => return Some(rest),
        }
    }
}

/// Takes a parameter: fields that `write` wrote are restored, others become data.
fn parameter(record: &mut Record, id: &str, name: &str, value: String) {
    if id == DATA {
        record.data.push((name.to_owned(), Value::Text(value)));
    } else if id != FIELDS || field_of_record(record, name, &value).is_none() {
        record.data.push((format!("{id}.{name}"), Value::Text(value)));
    }
}

/// Sets a field without a place in the header; none for an unknown field or an invalid value.
fn field_of_record(record: &mut Record, name: &str, value: &str) -> Option<()> {
    match name {
        // A relay that changed the severity has not changed this.
        "level" => {
            let level = value.parse::<Level>().ok();
            record.level = level.filter(|level| level.syslog() == record.level.syslog())?;
        }
        "line" => record.site.line = value.parse().ok()?,
        "sequence" => record.sequence = value.parse().ok()?,
        "trace_id" => record.trace = Some(TraceId(from_hex(value)?)),
        "span_id" => record.span = Some(from_hex(value)?),
        "stack_id" => value.clone_into(&mut record.stack.get_or_insert_default().id),
        "stack_level" => {
            let level = value.parse().ok()?;
            record.stack.get_or_insert_default().level = level;
        }
        "audiences" if value == "*" => record.audiences = Audiences::everyone(),
        "audiences" => record.audiences = Audiences::of(value.split(' ')),
        name => value.clone_into(TextField::of_name(name)?.member_mut(record)?),
    }
    Some(())
}

/// A value up to its quote, and the rest. A backslash before anything but a quote, a backslash or a
/// bracket is literal (section 6.3.3).
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let at = rest.find(['"', '\\'])?;
        value.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if rest[at..].starts_with('"') {
            return Some((value, behind));
        }
        let escaped = behind.chars().next().filter(|c| matches!(c, '"' | '\\' | ']'));
        value.push(escaped.unwrap_or('\\'));
        rest = &behind[escaped.map_or(0, char::len_utf8)..];
    }
}

/// Reads the part after the priority. Text that is not certainly a header belongs to the message.
fn rfc3164(text: &str, arrival: &Arrival, record: &mut Record) {
    let Some((time, rest)) = time(text, arrival) else {
        record.text = Some(text.to_owned());
        return;
    };
    record.time = time;
    let (first, behind) = rest.split_once(' ').unwrap_or((rest, ""));
    let (named, rest) = match tag(first) {
        // The form that programs write to their machine's socket.
        Some(named) => (Some(named), behind),
        None => {
            first.clone_into(&mut record.host);
            let (second, rest) = behind.split_once(' ').unwrap_or((behind, ""));
            match tag(second) {
                Some(named) => (Some(named), rest),
                None => (None, behind),
            }
        }
    };
    if let Some((logger, process)) = named {
        logger.clone_into(&mut record.logger);
        process.clone_into(&mut record.process);
    }
    record.text = Some(rest.to_owned());
}

/// A tag's name and process: `name:`, `name[process]:` or `name[process]`.
fn tag(word: &str) -> Option<(&str, &str)> {
    let bare = word.strip_suffix(':');
    let inner = bare.unwrap_or(word);
    let bracketed = inner.strip_suffix(']').and_then(|inner| inner.split_once('['));
    let (name, process) = match (bracketed, bare) {
        (Some(parts), _) => parts,
        (None, Some(name)) => (name, ""),
        (None, None) => return None,
    };
    (!name.is_empty()).then_some((name, process))
}

/// The time at a message's start, and the rest: in the form of RFC 3164, with or without a year, or
/// of RFC 3339, which rsyslog sends.
fn time<'a>(text: &'a str, arrival: &Arrival) -> Option<(Tai, &'a str)> {
    let offset = i64::from(arrival.offset_s);
    if let Some((word, rest)) = text.split_once(' ')
        && let Some((civil, zone)) = utc::parse(word)
    {
        return Some((civil.to_tai(zone.unwrap_or(offset))?, rest));
    }
    let month = month(text.get(..3)?)?;
    let mut digits = Digit(&text.as_bytes()[3..]);
    digits.behind(b" ")?;
    // A day below 10 has a space before it, or none.
    let padded = digits.behind(b" ").is_some();
    let two = !padded && digits.0.get(1).is_some_and(u8::is_ascii_digit);
    let day = digits.number(if two { 2 } else { 1 })?;
    digits.behind(b" ")?;
    let year = match digits.0.get(4) {
        Some(b' ') => Some(i64::from(digits.number(4)?)),
        _ => None,
    };
    if year.is_some() {
        digits.behind(b" ")?;
    }
    let hour = digits.number(2)?;
    let minute = digits.behind(b":")?.number(2)?;
    let second = digits.behind(b":")?.number(2)?;
    let nanos = if digits.behind(b".").is_some() { digits.fraction()? } else { 0 };
    _ = digits.behind(b":");
    let rest = text.get(text.len() - digits.0.len()..)?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(' ')? };
    let civil = |year| Civil { year, month, day, hour, minute, second, nanos };
    let time = match year {
        Some(year) => civil(year).to_tai(offset)?,
        None => nearest(arrival.now, |year| civil(year).to_tai(offset))?,
    };
    Some((time, rest))
}

fn month(name: &str) -> Option<u32> {
    const NAMES: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let place = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?;
    Some(place as u32 + 1)
}

/// The time in the year in which it is closest to now.
fn nearest(now: Tai, of: impl Fn(i64) -> Option<Tai>) -> Option<Tai> {
    let year = Civil::of(now).year;
    // Four, for the 29th of February.
    let times = (year - 4..=year + 4).filter_map(of);
    times.min_by_key(|time| time.nanos().abs_diff(now.nanos()))
}
