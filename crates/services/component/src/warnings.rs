//! The destination of a library's warnings: standard error, unless its user sets another.

use std::sync::{Arc, Mutex};

use helio_bus::transport::locked;

type WarningCallback = Arc<dyn Fn(&str) + Send + Sync>;

/// The function that receives warnings. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Option<WarningCallback>>>);

impl Warnings {
    /// Sets the function that receives the warnings from now on.
    pub(crate) fn go_to(&self, call: impl Fn(&str) + Send + Sync + 'static) {
        *locked(&self.0) = Some(Arc::new(call));
    }

    pub(crate) fn tell(&self, text: &str) {
        let call = locked(&self.0).clone();
        match call {
            Some(call) => call(text),
            None => eprintln!("{text}"),
        }
    }
}
