//! The functions of the header.
#![allow(unsafe_code)]
// Each is described in include/helio_log.h, with what it may be given.
#![allow(missing_docs, clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use helio_logging::{Audiences, Level, Site, Style};

use crate::foreign::{self, CData, COptions, CSite, CValue, Figures, Pairs, Values};
use crate::handle::{self, CLogger, Handle};

const OK: c_int = 0;
const TIME_OVER: c_int = 1;
const FAILED: c_int = -1;

/// Nothing unwinds into C: a panic is a bug, which was reported where it happened.
fn guarded<T>(otherwise: T, act: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(otherwise)
}

fn code(done: Option<()>) -> c_int {
    if done.is_some() { OK } else { FAILED }
}

extern "C" fn forked() {
    handle::forked();
}

extern "C" fn ending() {
    guarded((), handle::ending);
}

/// Registers callbacks for forks and the process's end.
fn watch_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions live as long as the process, and may be called at any time. Where
        // there is no room for them, forks and ends are as they are without.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
            libc::atexit(ending);
        }
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_start(
    url: *const c_char,
    producer: *const c_char,
    options: *const COptions,
    error: *mut c_char,
    error_size: usize,
) -> *const Handle {
    let start = || {
        // SAFETY: the texts and options are there, or NULL, as the header asks.
        let (url, producer, options) = unsafe {
            (foreign::text(url), foreign::text(producer), COptions::read(options)?.options()?)
        };
        let url = url.ok_or("the URL is NULL; give one, such as journal:/var/lib/helio")?;
        watch_process();
        Handle::start(&url, producer.as_deref(), options)
    };
    let started = guarded(Err("a fault of the library's own".to_owned()), start);
    let words = started.as_ref().err().map_or("", String::as_str);
    // SAFETY: there is room for so many bytes, as the header asks.
    unsafe { foreign::put(words, error, error_size) };
    started.map_or(std::ptr::null(), |handle| &raw const *handle)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_logger(
    log: *const Handle,
    name: *const c_char,
) -> *const CLogger {
    guarded(std::ptr::null(), || {
        // SAFETY: handles are never freed, and the name is there.
        let (log, name) = unsafe { (log.as_ref::<'static>(), foreign::text(name)) };
        let logger = log.zip(name).and_then(|(log, name)| log.logger(&name, &Audiences::default()));
        logger.map_or(std::ptr::null(), |logger| &raw const *logger)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_to(
    logger: *const CLogger,
    audiences: *const c_char,
) -> *const CLogger {
    guarded(std::ptr::null(), || {
        // SAFETY: loggers are never freed, and the names are there.
        let (logger, names) = unsafe { (logger.as_ref(), foreign::text(audiences)) };
        let names = names.unwrap_or_default();
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let audiences = match names.collect::<Vec<_>>() {
            names if names.is_empty() => return std::ptr::null(),
            names if names.contains(&"*") => Audiences::everyone(),
            names => Audiences::of(names),
        };
        let logger = logger.and_then(|logger| logger.to(&audiences));
        logger.map_or(std::ptr::null(), |logger| &raw const *logger)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_set_level(logger: *const CLogger, level: c_int) -> c_int {
    guarded(FAILED, || {
        // SAFETY: loggers are never freed.
        let logger = unsafe { logger.as_ref() };
        let set =
            logger.zip(handle::level(level)).and_then(|(logger, level)| logger.set_level(level));
        code(set)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_level(name: *const c_char) -> c_int {
    guarded(FAILED, || {
        // SAFETY: the name is there.
        let name = unsafe { foreign::text(name) };
        let level = name.and_then(|name| name.parse::<Level>().ok());
        level.map_or(FAILED, |level| level.number().into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_flush(log: *const Handle, timeout_ms: u32) -> c_int {
    guarded(FAILED, || {
        // SAFETY: handles are never freed.
        let log = unsafe { log.as_ref() };
        let timeout = Duration::from_millis(timeout_ms.into());
        match log.and_then(|log| log.with(|logging| logging.flush(timeout))) {
            Some(true) => OK,
            Some(false) => TIME_OVER,
            None => FAILED,
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_read_figures(log: *const Handle, into: *mut Figures) -> c_int {
    guarded(FAILED, || {
        // SAFETY: handles are never freed.
        let log = unsafe { log.as_ref() };
        let figures = log.and_then(Handle::figures).filter(|_| !into.is_null());
        let written = figures.map(|(figures, rejected)| {
            // SAFETY: it is no NULL, so there is room for them.
            unsafe { into.write(Figures::of(figures, rejected)) }
        });
        code(written)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_trouble(
    log: *const Handle,
    text: *mut c_char,
    size: usize,
) -> c_int {
    guarded(FAILED, || {
        // SAFETY: handles are never freed.
        let log = unsafe { log.as_ref() };
        let trouble = log.and_then(|log| log.with(|logging| logging.trouble().unwrap_or_default()));
        // SAFETY: there is room for so many bytes.
        unsafe { foreign::put(trouble.as_deref().unwrap_or_default(), text, size) };
        code(trouble.map(drop))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_close(log: *const Handle) -> c_int {
    // SAFETY: handles are never freed.
    guarded(FAILED, || code(unsafe { log.as_ref() }.and_then(Handle::close)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_emit(
    logger: *const CLogger,
    level: c_int,
    file: *const c_char,
    line: u32,
    routine: *const c_char,
    text: *const c_char,
    data: *const CData,
    data_count: usize,
) -> c_int {
    guarded(FAILED, || {
        // SAFETY: loggers are never freed.
        let Some(logger) = (unsafe { logger.as_ref() }) else { return FAILED };
        // SAFETY: the texts and the data are there for the call, or NULL.
        let (text, data) = unsafe { (foreign::text(text), Pairs::new(data, data_count)) };
        let (Some(level), Some(text)) = (handle::level(level), text) else {
            logger.reject();
            return FAILED;
        };
        // SAFETY: the same.
        let (file, routine) = unsafe { (foreign::text(file), foreign::text(routine)) };
        let owned = |text: Option<std::borrow::Cow<'_, str>>| text.unwrap_or_default().into_owned();
        let (file, routine) = (owned(file), owned(routine));
        let site = Site { file, line, routine, style: Style::Percent, ..Site::default() };
        code(logger.emit(level, &site, |body| {
            body.text(&text);
            data.write(body);
        }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn helio_log_record(
    logger: *const CLogger,
    level: c_int,
    site: *mut CSite,
    arguments: *const CValue,
    argument_count: usize,
    data: *const CData,
    data_count: usize,
) -> c_int {
    guarded(FAILED, || {
        // SAFETY: loggers are never freed, sites live as long as the process, and arguments and
        // data are there for the call.
        let (logger, site, arguments, data) = unsafe {
            let arguments = Values::new(arguments, argument_count);
            (logger.as_ref(), site.as_ref(), arguments, Pairs::new(data, data_count))
        };
        let Some(logger) = logger else { return FAILED };
        let (Some(level), Some(site)) = (handle::level(level), site) else {
            logger.reject();
            return FAILED;
        };
        // SAFETY: a site's texts live as long as it.
        let describe = || unsafe { site.site() };
        code(logger.record(level, &site.number, describe, |body, precise| {
            // SAFETY: the same.
            let template = precise.then(|| unsafe { site.template() });
            arguments.write(template, body);
            data.write(body);
        }))
    })
}
