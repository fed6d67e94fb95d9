//! Where the warnings of a library go: to standard error, until its user says otherwise.

use std::sync::{Arc, Mutex, PoisonError};

type Call = Arc<dyn Fn(&str) + Send + Sync>;

/// What hears warnings. Cloning shares it.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Option<Call>>>);

impl Warnings {
    /// Has a function called with each warning from now on.
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
