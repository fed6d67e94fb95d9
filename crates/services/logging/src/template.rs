//! Templates: formats a message from its template and arguments.
//!
//! The result always contains the whole template and all arguments: a placeholder without an
//! argument is kept literally, and arguments without a placeholder are appended.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::record::{Site, Style};
use crate::value::Value;

/// The largest width or precision that is applied. Templates are foreign, and a width costs memory.
const MAX_WIDTH: usize = 256;

/// Formats a site's message with these arguments.
pub(crate) fn fill(site: &Site, arguments: &[Value]) -> String {
    let mut filling = Filling::new(&site.names, arguments, site.template.len());
    match site.style {
        Style::Braces => filling.braces(&site.template),
        Style::Percent => filling.percents(&site.template),
    }
    filling.end()
}

/// The index of the argument with a name or number.
pub(crate) fn place(names: &[String], name: &str) -> Option<usize> {
    names.iter().position(|known| known == name).or_else(|| name.parse().ok())
}

struct Filling<'a> {
    names: &'a [String],
    arguments: &'a [Value],
    used: Vec<bool>,
    next: usize,
    out: String,
}

impl<'a> Filling<'a> {
    fn new(names: &'a [String], arguments: &'a [Value], length: usize) -> Self {
        let (used, out) = (vec![false; arguments.len()], String::with_capacity(length + 32));
        Self { names, arguments, used, next: 0, out }
    }

    fn argument(&mut self, place: Option<usize>) -> Option<&'a Value> {
        let place = place?;
        let value = self.arguments.get(place)?;
        self.used[place] = true;
        Some(value)
    }

    fn following(&mut self) -> Option<&'a Value> {
        let place = self.next;
        self.next += 1;
        self.argument(Some(place))
    }

    fn named(&mut self, name: &str) -> Option<&'a Value> {
        self.argument(place(self.names, name))
    }

    fn braces(&mut self, template: &str) {
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            self.out.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let behind = &rest[at + 1..];
            if behind.starts_with(brace) {
                self.out.push_str(brace);
                rest = &behind[1..];
                continue;
            }
            let Some(end) = behind.find('}').filter(|_| brace == "{") else {
                self.out.push_str(brace);
                rest = behind;
                continue;
            };
            let (inside, after) = (&behind[..end], &behind[end + 1..]);
            let (name, spec) = inside.split_once(':').unwrap_or((inside, ""));
            let value = if name.is_empty() { self.following() } else { self.named(name) };
            match value {
                Some(value) => self.put(value, &Spec::of_braces(spec)),
                None => self.out.push_str(&rest[at..at + end + 2]),
            }
            rest = after;
        }
        self.out.push_str(rest);
    }

    fn percents(&mut self, template: &str) {
        let mut rest = template;
        while let Some(at) = rest.find('%') {
            self.out.push_str(&rest[..at]);
            let behind = &rest[at + 1..];
            if let Some(after) = behind.strip_prefix('%') {
                self.out.push('%');
                rest = after;
                continue;
            }
            let (value, spec, length) = self.directive(behind);
            match value {
                Some(value) => self.put(value, &spec),
                None => self.out.push_str(&rest[at..=at + length]),
            }
            rest = &behind[length..];
        }
        self.out.push_str(rest);
    }

    /// Parses a directive after its per cent sign: its value, its format, and its length.
    fn directive(&mut self, text: &str) -> (Option<&'a Value>, Spec, usize) {
        let named = text.strip_prefix('(').and_then(|text| text.split_once(')'));
        let (name, spec) = named.map_or((None, text), |(name, spec)| (Some(name), spec));
        let flags = spec.find(|c| !"-+ #'0123456789.*hlLqjzt".contains(c)).unwrap_or(spec.len());
        let kind = spec[flags..].chars().next();
        let Some(kind) = kind.filter(|kind| "diouxXeEfFgGcrsapn".contains(*kind)) else {
            return (None, Spec::default(), 0);
        };
        let length = text.len() - spec.len() + flags + kind.len_utf8();
        let flags = self.starless(&spec[..flags]);
        if kind == 'n' {
            // C writes through a pointer here; the argument is appended instead.
            self.next += 1;
            return (None, Spec::default(), length);
        }
        let value = match name {
            None => self.following(),
            Some(name) => self.named(name),
        };
        (value, Spec::of_percents(&flags, kind), length)
    }

    /// Flags, width and precision, with the arguments of stars.
    fn starless<'t>(&mut self, flags: &'t str) -> Cow<'t, str> {
        let mut flags = Cow::Borrowed(flags);
        while let Some(star) = flags.find('*') {
            let number = match self.following() {
                Some(Value::Int(number)) => *number,
                _ => 0,
            };
            let of_precision = flags[..star].ends_with('.');
            // A negative precision is ignored.
            let (begin, number) = match of_precision && number < 0 {
                true => (star - 1, String::new()),
                false => (star, number.to_string()),
            };
            flags.to_mut().replace_range(begin..=star, &number);
        }
        flags
    }

    fn put(&mut self, value: &Value, spec: &Spec) {
        let text = spec.shown(value);
        let fill = spec.width.saturating_sub(text.chars().count());
        if spec.left {
            self.out.push_str(&text);
        }
        if spec.zeros && !spec.left && text.starts_with(['-', '+']) {
            self.out.push_str(&text[..1]);
            self.out.extend(std::iter::repeat_n('0', fill));
            self.out.push_str(&text[1..]);
            return;
        }
        self.out.extend(std::iter::repeat_n(if spec.zeros { '0' } else { ' ' }, fill));
        if !spec.left {
            self.out.push_str(&text);
        }
    }

    /// The message, with the remaining arguments appended.
    fn end(mut self) -> String {
        for (place, value) in self.arguments.iter().enumerate() {
            if self.used[place] {
                continue;
            }
            let space = if self.out.is_empty() { "" } else { " " };
            _ = match self.names.get(place).filter(|name| !name.is_empty()) {
                Some(name) => write!(self.out, "{space}{name}={value}"),
                None => write!(self.out, "{space}{value}"),
            };
        }
        self.out
    }
}

/// The format of a value.
#[derive(Debug, Default, PartialEq)]
struct Spec {
    width: usize,
    precision: Option<usize>,
    left: bool,
    zeros: bool,
    plus: bool,
    prefix: bool,
    /// The number has 64 bits: C's `l`, `ll`, `j`, `z` or `t`.
    long: bool,
    kind: char,
}

impl Spec {
    /// Parses the part after a colon in braces: `>8.3f`, `#x`, `?`. Only the side of an alignment
    /// is applied, not its fill.
    fn of_braces(text: &str) -> Self {
        let left = text.starts_with('<');
        let text = text.trim_start_matches(['<', '>', '^']);
        let kind = text.chars().next_back().filter(|c| c.is_ascii_alphabetic());
        let flags = &text[..text.len() - kind.map_or(0, char::len_utf8)];
        let spec = Self::of_percents(flags.trim_end_matches('?'), kind.unwrap_or('s'));
        Self { left: left || spec.left, ..spec }
    }

    fn of_percents(flags: &str, kind: char) -> Self {
        let numbers = flags.trim_start_matches(['-', '+', ' ', '#', '0', '\'']);
        let signs = &flags[..flags.len() - numbers.len()];
        let (width, precision) = numbers.split_once('.').unwrap_or((numbers, ""));
        let number = |text: &str| {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            digits.parse::<usize>().ok().map(|number| number.min(MAX_WIDTH))
        };
        let precise = numbers.contains('.').then(|| number(precision).unwrap_or(0));
        // A precision gives the digits of an integer; the flag 0 is then ignored.
        let digits = precise.is_some() && "diouxX".contains(kind);
        Self {
            width: number(width).unwrap_or(0),
            precision: precise,
            left: signs.contains('-'),
            zeros: signs.contains('0') && !digits,
            plus: signs.contains('+'),
            prefix: signs.contains('#'),
            long: flags.contains(['l', 'q', 'j', 'z', 't']),
            kind,
        }
    }

    fn shown(&self, value: &Value) -> String {
        let signed = |text: String| match self.plus && !text.starts_with('-') {
            true => format!("+{text}"),
            false => text,
        };
        match (self.kind, value) {
            ('f' | 'F', Value::Double(number)) => {
                signed(format!("{number:.0$}", self.precision.unwrap_or(6)))
            }
            ('f' | 'F', Value::Int(number)) => {
                signed(format!("{:.1$}", *number as f64, self.precision.unwrap_or(6)))
            }
            ('e', Value::Double(number)) => signed(self.scientific(*number)),
            ('E', Value::Double(number)) => signed(self.scientific(*number).to_uppercase()),
            ('d' | 'i' | 'u', Value::Double(number)) => signed(format!("{:.0}", number.trunc())),
            ('g' | 'G', Value::Double(number)) => signed(self.general(*number)),
            ('x' | 'X' | 'o', Value::Int(number)) => self.radix(self.bits(*number)),
            // Numbers above the range of `Value::Int` are texts.
            ('x' | 'X' | 'o', Value::Text(text)) if text.parse::<u64>().is_ok() => {
                self.radix(text.parse().unwrap_or_default())
            }
            ('p', Value::Int(number)) => format!("{number:#x}"),
            ('c', Value::Int(number)) => {
                let shown = u32::try_from(*number).ok().and_then(char::from_u32);
                shown.map_or_else(|| number.to_string(), String::from)
            }
            ('d' | 'i' | 'u', Value::Int(number)) => {
                let sign = if *number < 0 { "-" } else { "" };
                let digits = number.unsigned_abs();
                signed(format!("{sign}{digits:00$}", self.precision.unwrap_or(0)))
            }
            ('r' | 'a', Value::Text(text)) => format!("{text:?}"),
            (_, Value::Double(number)) => match self.precision {
                Some(precision) => signed(format!("{number:.precision$}")),
                None => signed(number.to_string()),
            },
            (_, Value::Int(number)) => signed(number.to_string()),
            (_, value) => match self.precision {
                Some(most) => value.to_string().chars().take(most).collect(),
                None => value.to_string(),
            },
        }
    }

    /// With at least two digits in the exponent, as in C.
    fn scientific(&self, number: f64) -> String {
        let text = format!("{number:.0$e}", self.precision.unwrap_or(6));
        let Some((digits, exponent)) = text.split_once('e') else { return text };
        let power: i32 = exponent.parse().unwrap_or(0);
        format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
    }

    /// With this many significant digits and no trailing zeros, in fixed notation if that is short.
    fn general(&self, number: f64) -> String {
        if !number.is_finite() {
            return number.to_string();
        }
        let digits = self.precision.unwrap_or(6).max(1);
        let spec = Self { precision: Some(digits - 1), ..Self::default() };
        let scientific = spec.scientific(number);
        let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, ""));
        let exponent: i32 = power.parse().unwrap_or(0);
        let short = |text: &str| match text.contains('.') && !self.prefix {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text.to_owned(),
        };
        if !(-4..digits as i32).contains(&exponent) {
            let letter = if self.kind == 'G' { 'E' } else { 'e' };
            return format!("{}{letter}{power}", short(mantissa));
        }
        short(&format!("{number:.0$}", (digits as i32 - 1 - exponent) as usize))
    }

    /// The number as C's unsigned conversions read it: as an int unless it has 64 bits.
    fn bits(&self, number: i64) -> u64 {
        let short = i32::try_from(number).ok().filter(|number| *number < 0 && !self.long);
        short.map_or(number.cast_unsigned(), |number| number.cast_unsigned().into())
    }

    fn radix(&self, number: u64) -> String {
        let least = self.precision.unwrap_or(0);
        let (prefix, digits) = match self.kind {
            'x' => ("0x", format!("{number:00$x}", least)),
            'X' => ("0X", format!("{number:00$X}", least)),
            _ => ("0o", format!("{number:00$o}", least)),
        };
        if self.prefix { format!("{prefix}{digits}") } else { digits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(style: Style, template: &str, names: &[&str], arguments: &[Value]) -> String {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let site = Site { template: template.to_owned(), style, names, ..Site::default() };
        fill(&site, arguments)
    }

    #[test]
    fn braces_take_arguments_by_place_and_by_name() {
        let arguments = [Value::from(7_i64), Value::from("DV11"), Value::from(1.5)];
        let braces = |template| shown(Style::Braces, template, &["n", "antenna"], &arguments);
        assert_eq!(braces("{} of {}: {}"), "7 of DV11: 1.5");
        assert_eq!(braces("{antenna} {n} {2}"), "DV11 7 1.5");
        assert_eq!(braces("{{}} {n:>4}|{antenna:<6}|{2:.3}"), "{}    7|DV11  |1.500");
        assert_eq!(braces("{n:#x} {n:03}"), "0x7 007 antenna=DV11 1.5");
    }

    #[test]
    fn what_cannot_be_filled_stays_and_what_has_no_place_comes_behind() {
        let arguments = [Value::from("x")];
        assert_eq!(shown(Style::Braces, "{} {} }{", &[], &arguments), "x {} }{");
        assert_eq!(shown(Style::Braces, "{missing}", &[], &arguments), "{missing} x");
        assert_eq!(
            shown(Style::Percent, "100 % %y %(q)s %", &[], &arguments),
            "100 % %y %(q)s % x"
        );
        assert_eq!(shown(Style::Percent, "", &["a"], &arguments), "a=x");
    }

    #[test]
    fn directives_are_those_of_c_and_python() {
        let percent = |template, value: Value| shown(Style::Percent, template, &[], &[value]);
        for (template, value, expected) in [
            ("%d%%", Value::from(7_i64), "7%"),
            ("%5.2f|", Value::from(1.256), " 1.26|"),
            ("%-5d|", Value::from(-7_i64), "-7   |"),
            ("%05d", Value::from(-7_i64), "-0007"),
            ("%+d", Value::from(7_i64), "+7"),
            ("%lu", Value::from(7_i64), "7"),
            ("%#x", Value::from(255_i64), "0xff"),
            ("%f", Value::from(2_i64), "2.000000"),
            ("%e", Value::from(12345.678), "1.234568e+04"),
            ("%s", Value::Bool(true), "true"),
            ("%r", Value::from("a\"b"), r#""a\"b""#),
            ("%.3s", Value::from("antenna"), "ant"),
            ("%d", Value::from(2.7), "2"),
            ("%c", Value::from(65_i64), "A"),
            ("%c", Value::from(-1_i64), "-1"),
            ("%p", Value::from(4096_i64), "0x1000"),
            ("%s", Value::Null, "null"),
            ("%zu|%hhd", Value::from(7_i64), "7|%hhd"),
            ("%.3d", Value::from(-7_i64), "-007"),
            ("%08.3d|", Value::from(7_i64), "     007|"),
            ("%'d", Value::from(1234_i64), "1234"),
            ("%x", Value::from(-1_i64), "ffffffff"),
            ("%llx", Value::from(-1_i64), "ffffffffffffffff"),
            ("%.4X", Value::from(171_i64), "00AB"),
            ("%#lx", Value::from(u64::MAX), "0xffffffffffffffff"),
            ("%lu", Value::from(u64::MAX), "18446744073709551615"),
            ("%g", Value::from(0.25), "0.25"),
            ("%g", Value::from(1e100), "1e+100"),
            ("%.3g", Value::from(12345.678), "1.23e+04"),
            ("%G", Value::from(0.000_012_5), "1.25E-05"),
            ("%#.3g", Value::from(1.0), "1.00"),
            ("%g", Value::from(f64::INFINITY), "inf"),
            ("%m", Value::from(7_i64), "%m 7"),
        ] {
            assert_eq!(percent(template, value), expected, "{template}");
        }
        let named = shown(Style::Percent, "%(b)s-%(a)d", &["a", "b"], &[1_i64.into(), "x".into()]);
        assert_eq!(named, "x-1");
    }

    #[test]
    fn stars_are_arguments_and_n_writes_nothing() {
        let ints =
            [Value::from(6_i64), Value::from(-2_i64), Value::from("abc"), Value::from(9_i64)];
        let percent =
            |template, arguments: &[Value]| shown(Style::Percent, template, &[], arguments);
        assert_eq!(percent("%*d|", &ints[..2]), "    -2|");
        assert_eq!(percent("%*s|%d", &ints[1..]), "abc|9");
        assert_eq!(percent("%.*s|", &[2_i64.into(), "abc".into()]), "ab|");
        assert_eq!(percent("%.*s|", &ints[1..3]), "abc|");
        assert_eq!(percent("%-*.*f|", &[8_i64.into(), 2_i64.into(), 1.256.into()]), "1.26    |");
        assert_eq!(percent("%*d|", &[]), "%*d|");
        assert_eq!(percent("%n%d", &[4096_i64.into(), 7_i64.into()]), "%n7 4096");
    }

    proptest! {
        #[test]
        fn no_template_is_too_much(
            template in "[%{}():.*#0-9a-z+\\- äß]{0,40}",
            numbers in proptest::collection::vec(any::<i64>(), 0..4),
        ) {
            let arguments: Vec<Value> = numbers.into_iter().map(Value::Int).collect();
            for style in [Style::Braces, Style::Percent] {
                let text = shown(style, &template, &["a"], &arguments);
                let most = template.len() * (MAX_WIDTH + 32) + arguments.len() * 32;
                prop_assert!(text.len() <= most);
            }
        }
    }
}
