//! The macro [`log!`](crate::log!), and the types that its arguments may have.

use std::fmt::Display;

use crate::body::Body;
use crate::value::Value;

/// An argument of a log message, or a value beside it. It is written with its type, not as text.
/// Types that only implement `Display` are wrapped in [`Shown`].
pub trait Argument {
    /// Writes the value as the message's next argument.
    fn argument(&self, body: &mut Body);
    /// Converts it to a [`Value`].
    fn value(&self) -> Value;
}

macro_rules! argument {
    ($($type:ty: |$body:ident, $value:ident| $write:expr;)*) => {
        $(impl Argument for $type {
            #[inline]
            fn argument(&self, $body: &mut Body) {
                let $value = self;
                $write;
            }

            fn value(&self) -> Value {
                Value::from(self.to_owned())
            }
        })*
    };
}

argument! {
    i64: |body, value| body.argument_int(*value);
    i32: |body, value| body.argument_int((*value).into());
    u32: |body, value| body.argument_int((*value).into());
    u64: |body, value| match i64::try_from(*value) {
        Ok(value) => body.argument_int(value),
        Err(_) => body.argument(&Value::from(*value)),
    };
    usize: |body, value| Argument::argument(&(*value as u64), body);
    f64: |body, value| body.argument_double(*value);
    bool: |body, value| body.argument(&Value::Bool(*value));
    str: |body, value| body.argument_text(value);
    String: |body, value| body.argument_text(value);
    Value: |body, value| body.argument(value);
}

impl<T: Argument + ?Sized> Argument for &T {
    fn argument(&self, body: &mut Body) {
        (**self).argument(body);
    }

    fn value(&self) -> Value {
        (**self).value()
    }
}

/// Wraps a value that is logged as its text.
#[derive(Debug, Clone, Copy)]
pub struct Shown<T>(pub T);

impl<T: Display> Argument for Shown<T> {
    fn argument(&self, body: &mut Body) {
        body.argument_text(&self.0.to_string());
    }

    fn value(&self) -> Value {
        Value::Text(self.0.to_string())
    }
}

/// Logs a record: a logger, a level, a message with placeholders in braces, its arguments, and
/// after a semicolon typed values by name. The arguments are evaluated only if the level is
/// enabled. The record's routine is the module.
///
/// ```
/// use helio_bus::Bus;
/// use helio_logging::{Level, LogOptions, Logging, Shown, log};
///
/// let logging = Logging::start(Bus::connect("memory:")?, LogOptions::default())?;
/// let dome = logging.logger("Dome");
/// let address = std::net::Ipv4Addr::LOCALHOST;
/// log!(dome, Level::INFO, "door {} opened by {}", 2, Shown(address); wind = 7.5, unit = "m/s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! log {
    (
        $logger:expr, $level:expr, $template:literal
        $(, $argument:expr)* $(,)?
        $(; $($name:ident = $value:expr),* $(,)?)?
    ) => {{
        let (logger, level) = (&$logger, $level);
        if logger.is_enabled(level) {
            static SITE: $crate::CallSite =
                $crate::CallSite::new($template, &[], file!(), line!(), module_path!());
            logger.record(level, &SITE, |body| {
                $($crate::Argument::argument(&$argument, body);)*
                $($(body.data(stringify!($name), &$crate::Argument::value(&$value));)*)?
                let _ = body;
            });
        }
    }};
}
