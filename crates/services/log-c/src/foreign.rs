//! Reads and writes C's memory.
//!
//! Each structure is that of the same name in `include/helio_log.h`.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use helio_logging::{Body, LogFigures, LogOptions, MAX_RECORD_BYTES, Site, Spill, Style, Value};

use crate::handle;
use crate::printf_precision::{self, Reach};

/// The longest text that is read: a longer one fits into no record and is reported in its place.
const MAX_TEXT_BYTES: usize = MAX_RECORD_BYTES + 1;
/// The default limit of a spill file.
const SPILL_BYTES: u64 = 256 << 20;
/// The range of a ring's size.
const RING_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 30;
/// The most arguments, and the most data pairs, of a call; the macros allow 16.
const MAX_VALUES: usize = 1_024;

/// `helio_log_options`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct COptions {
    pub(crate) size: usize,
    pub(crate) prefix: *const c_char,
    pub(crate) process: *const c_char,
    pub(crate) host: *const c_char,
    pub(crate) spill_file: *const c_char,
    pub(crate) spill_bytes: u64,
    pub(crate) ring_bytes: usize,
    pub(crate) queue_bytes: usize,
    pub(crate) batch_age_ms: u32,
    pub(crate) batch_records: u32,
    pub(crate) level: c_int,
    pub(crate) keep: c_int,
    pub(crate) urgent: c_int,
}

/// `helio_log_figures`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    pub(crate) offered: u64,
    pub(crate) inherited: u64,
    pub(crate) published: u64,
    pub(crate) shed: u64,
    pub(crate) suppressed: u64,
    pub(crate) waiting: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) spilled_bytes: u64,
    pub(crate) unprinted: u64,
    pub(crate) levels_passed_over: u64,
    pub(crate) rejected: u64,
}

/// `helio_log_site`. Its texts live as long as the process.
#[repr(C)]
#[derive(Debug)]
pub struct CSite {
    pub(crate) text: *const c_char,
    pub(crate) file: *const c_char,
    pub(crate) routine: *const c_char,
    pub(crate) line: u32,
    pub(crate) number: AtomicU64,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Scalar {
    whole: i64,
    natural: u64,
    real: f64,
    at: *const c_void,
}

/// `helio_log_value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CValue {
    kind: u32,
    scalar: Scalar,
    bytes: usize,
}

/// `helio_log_data`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CData {
    name: *const c_char,
    value: CValue,
}

const BOOL: u32 = 1;
const INT: u32 = 2;
const UINT: u32 = 3;
const DOUBLE: u32 = 4;
const STRING: u32 = 5;
const TEXT: u32 = 6;
const BYTES: u32 = 7;

/// A value in C's memory.
enum ValueRef<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
}

impl CValue {
    /// The value; a text with a NUL is read up to `most` bytes.
    ///
    /// # Safety
    /// The scalar is of its kind, and where that is a text or bytes, these are there for `'a`.
    unsafe fn see<'a>(&self, most: usize) -> ValueRef<'a> {
        let Self { kind, scalar, bytes } = *self;
        // SAFETY: each field is read for its own kind only, as the caller has promised, and what a
        // pointer points to is there as far as the kind says.
        unsafe {
            match kind {
                BOOL => ValueRef::Bool(scalar.whole != 0),
                INT => ValueRef::Int(scalar.whole),
                UINT => ValueRef::Uint(scalar.natural),
                DOUBLE => ValueRef::Double(scalar.real),
                STRING => match string(scalar.at.cast(), most) {
                    Some(text) => ValueRef::Text(String::from_utf8_lossy(text)),
                    None => ValueRef::Null,
                },
                TEXT => match counted(scalar.at, bytes) {
                    Some(text) => ValueRef::Text(String::from_utf8_lossy(text)),
                    None => ValueRef::Null,
                },
                BYTES => counted(scalar.at, bytes).map_or(ValueRef::Null, ValueRef::Bytes),
                _ => ValueRef::Null,
            }
        }
    }

    /// The value as a non-negative integer; none for any other value.
    fn count(&self) -> Option<usize> {
        // SAFETY: every bit pattern is a whole number, and it is taken for one only where it is.
        let whole = unsafe { self.scalar.whole };
        (self.kind == INT || self.kind == UINT).then(|| usize::try_from(whole).ok()).flatten()
    }
}

impl ValueRef<'_> {
    fn value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Uint(value) => Value::from(value),
            Self::Double(value) => Value::Double(value),
            Self::Text(text) => Value::Text(text.into_owned()),
            Self::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        }
    }

    fn write(self, body: &mut Body) {
        match self {
            Self::Int(value) => body.argument_int(value),
            Self::Uint(value) if i64::try_from(value).is_ok() => body.argument_int(value as i64),
            Self::Double(value) => body.argument_double(value),
            Self::Text(text) => body.argument_text(&text),
            other => body.argument(&other.value()),
        };
    }
}

/// Bytes up to a NUL, at most this many.
///
/// # Safety
/// The pointer is NULL, or these are there for `'a`.
unsafe fn string<'a>(at: *const c_char, most: usize) -> Option<&'a [u8]> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the bytes up to the NUL, or to the limit, are there.
    unsafe {
        let length = libc::strnlen(at, most.min(MAX_TEXT_BYTES));
        Some(std::slice::from_raw_parts(at.cast(), length))
    }
}

/// This many bytes, truncated to the limit of a record.
///
/// # Safety
/// The pointer is NULL, or these are there for `'a`.
unsafe fn counted<'a>(at: *const c_void, bytes: usize) -> Option<&'a [u8]> {
    if at.is_null() {
        return (bytes == 0).then_some(&[]);
    }
    // SAFETY: so many bytes, or fewer, are there.
    Some(unsafe { std::slice::from_raw_parts(at.cast(), bytes.min(MAX_TEXT_BYTES)) })
}

/// A text with a NUL; none if the pointer is NULL.
///
/// # Safety
/// The pointer is NULL, or the text is there for `'a`.
pub(crate) unsafe fn text<'a>(at: *const c_char) -> Option<Cow<'a, str>> {
    // SAFETY: as the caller has promised.
    unsafe { string(at, MAX_TEXT_BYTES) }.map(String::from_utf8_lossy)
}

/// An array; empty if the pointer is NULL.
///
/// # Safety
/// The pointer is NULL, or so many values are there for `'a`.
unsafe fn array<'a, T>(at: *const T, count: usize) -> &'a [T] {
    if at.is_null() || !at.is_aligned() {
        return &[];
    }
    // SAFETY: so many values, or fewer, are there.
    unsafe { std::slice::from_raw_parts(at, count.min(MAX_VALUES)) }
}

/// Arguments of a call.
pub(crate) struct Values<'a>(&'a [CValue]);

impl<'a> Values<'a> {
    /// # Safety
    /// The pointer is NULL, or so many values are there for `'a`, with what they point to.
    pub(crate) unsafe fn new(at: *const CValue, count: usize) -> Self {
        // SAFETY: as the caller has promised.
        Self(unsafe { array(at, count) })
    }

    /// Adds the values as the message's arguments. `template` is given if the message may have
    /// precisions.
    pub(crate) fn write(&self, template: Option<&[u8]>, body: &mut Body) {
        for (place, value) in self.0.iter().enumerate() {
            let most = template.map_or(MAX_TEXT_BYTES, |template| self.most(template, place));
            // SAFETY: what they point to is there, as whoever made this has promised.
            unsafe { value.see(most) }.write(body);
        }
    }

    fn most(&self, template: &[u8], place: usize) -> usize {
        match printf_precision::reach(template, place) {
            Reach::End => MAX_TEXT_BYTES,
            Reach::Bytes(bytes) => bytes,
            // A negative precision is ignored.
            Reach::Argument(star) => {
                self.0.get(star).and_then(CValue::count).unwrap_or(MAX_TEXT_BYTES)
            }
        }
    }
}

/// Data pairs of a call.
pub(crate) struct Pairs<'a>(&'a [CData]);

impl<'a> Pairs<'a> {
    /// # Safety
    /// The pointer is NULL, or so many pairs are there for `'a`, with what they point to.
    pub(crate) unsafe fn new(at: *const CData, count: usize) -> Self {
        // SAFETY: as the caller has promised.
        Self(unsafe { array(at, count) })
    }

    pub(crate) fn write(&self, body: &mut Body) {
        for CData { name, value } in self.0 {
            // SAFETY: what they point to is there, as whoever made this has promised.
            let (name, value) = unsafe { (text(*name), value.see(MAX_TEXT_BYTES)) };
            body.data(&name.unwrap_or_default(), &value.value());
        }
    }
}

impl COptions {
    /// Reads the options of a program built with this or an older header, which has fewer options.
    ///
    /// # Safety
    /// The pointer is NULL, or options are there, as many bytes as they say.
    pub(crate) unsafe fn read(at: *const Self) -> Result<Self, String> {
        // SAFETY: NULL pointers and zeroes are values of all its fields.
        let mut options: Self = unsafe { std::mem::zeroed() };
        if at.is_null() {
            return Ok(options);
        }
        // SAFETY: the size is their first field.
        let size = unsafe { at.cast::<usize>().read_unaligned() };
        if !(size_of::<usize>()..=size_of::<Self>()).contains(&size) {
            return Err(format!(
                "helio_log_options says that it has {size} bytes, and it has {}: begin with \
                 helio_log_default_options(), and build with the library's own helio_log.h",
                size_of::<Self>()
            ));
        }
        // SAFETY: so many bytes are there, and no more of ours than ours are written.
        unsafe {
            std::ptr::copy_nonoverlapping(at.cast::<u8>(), (&raw mut options).cast::<u8>(), size);
        }
        Ok(options)
    }
}

impl COptions {
    /// Converts the options; NULL and 0 mean the default.
    ///
    /// # Safety
    /// The texts are NULL, or there.
    pub(crate) unsafe fn options(&self) -> Result<LogOptions, String> {
        // SAFETY: as the caller has promised.
        let (prefix, process, host, file) = unsafe {
            (text(self.prefix), text(self.process), text(self.host), text(self.spill_file))
        };
        let level = |name: &str, number: c_int| match handle::level(number) {
            None if number != 0 => Err(format!(
                "helio_log_options.{name}: {number} is no level; they go from HELIO_TRACE, 1, to \
                 HELIO_EMERGENCY, 11"
            )),
            level => Ok(level),
        };
        if self.ring_bytes != 0 && !RING_BYTES.contains(&self.ring_bytes) {
            return Err(format!(
                "helio_log_options.ring_bytes: {} is not from {} to {}",
                self.ring_bytes,
                RING_BYTES.start(),
                RING_BYTES.end()
            ));
        }
        let mut options = LogOptions::default();
        prefix.iter().for_each(|prefix| options.lanes = options.lanes.clone().prefix(prefix));
        if let Some(urgent) = level("urgent", self.urgent)? {
            options.lanes = options.lanes.urgent(urgent);
        }
        options.level = level("level", self.level)?.unwrap_or(options.level);
        options.keep = level("keep", self.keep)?;
        options.process = process.map_or(options.process, Cow::into_owned);
        options.host = host.map_or(options.host, Cow::into_owned);
        options.spill = file.map(|file| Spill {
            file: PathBuf::from(file.into_owned()),
            bytes: or(self.spill_bytes, SPILL_BYTES),
        });
        options.ring_bytes = or(self.ring_bytes, options.ring_bytes);
        options.queue_bytes = or(self.queue_bytes, options.queue_bytes);
        if self.batch_age_ms != 0 {
            options.batch_age = Duration::from_millis(self.batch_age_ms.into());
        }
        options.batch_records = or(self.batch_records as usize, options.batch_records);
        Ok(options)
    }
}

/// The first, if it is not 0.
fn or<T: Default + PartialEq>(given: T, otherwise: T) -> T {
    if given == T::default() { otherwise } else { given }
}

impl Figures {
    pub(crate) fn of(figures: LogFigures, rejected: u64) -> Self {
        let LogFigures {
            offered,
            inherited,
            published,
            shed,
            suppressed,
            waiting,
            packets,
            bytes,
            spilled_bytes,
            unprinted,
            levels_passed_over,
        } = figures;
        Self {
            offered,
            inherited,
            published,
            shed,
            suppressed,
            waiting,
            packets,
            bytes,
            spilled_bytes,
            unprinted,
            levels_passed_over,
            rejected,
        }
    }
}

impl CSite {
    /// Converts the site.
    ///
    /// # Safety
    /// Its texts are NULL, or there.
    pub(crate) unsafe fn site(&self) -> Site {
        // SAFETY: as the caller has promised.
        let (template, file, routine) =
            unsafe { (text(self.text), text(self.file), text(self.routine)) };
        let owned = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
        Site {
            template: owned(template),
            style: Style::Percent,
            names: Vec::new(),
            file: owned(file),
            line: self.line,
            routine: owned(routine),
        }
    }

    /// The site's message.
    ///
    /// # Safety
    /// It is NULL, or there.
    pub(crate) unsafe fn template(&self) -> &[u8] {
        // SAFETY: as the caller has promised.
        unsafe { string(self.text, MAX_TEXT_BYTES) }.unwrap_or_default()
    }
}

/// Writes a text and a NUL, truncated to the buffer.
///
/// # Safety
/// The pointer is NULL, or there are so many bytes to be written to.
pub(crate) unsafe fn put(text: &str, at: *mut c_char, size: usize) {
    if at.is_null() || size == 0 {
        return;
    }
    let most = text.len().min(size - 1);
    let length = (0..=most).rev().find(|length| text.is_char_boundary(*length)).unwrap_or(0);
    // SAFETY: there is room for the text, cut as it is, and a NUL.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), at.cast(), length);
        at.add(length).write(0);
    }
}
