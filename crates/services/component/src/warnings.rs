//! The destination of a library's warnings: standard error, unless its user sets another.

use std::sync::{Arc, Mutex, PoisonError};

type WarningCallback = Arc<dyn Fn(&str) + Send + Sync>;

/// The function that receives warnings. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Option<WarningCallback>>>);

impl Warnings {
    /// Sets the function that receives the warnings from now on.
    pub(crate) fn go_to(&self, call: impl Fn(&str) + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(call));
    }

    pub(crate) fn tell(&self, text: &str) {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match call {
            Some(call) => call(text),
            None => eprintln!("{text}"),
        }
    }
}
