//! What must not be used, or tidied up, in a child that was forked.
//!
//! A forked child has its parent's memory but not its threads: closing the parent's writers, groups
//! and bells from there would harm the parent. So the child forgets them, and whoever uses them is
//! told.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::errors;

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Called by Python in a child that was forked.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Something that belongs to the process that made it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    inner: Option<T>,
    generation: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner: Some(inner), generation: GENERATION.load(Ordering::Relaxed) }
    }

    fn is_ours(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }

    fn check(&self, what: &str) -> PyResult<()> {
        let message = match (self.is_ours(), &self.inner) {
            (true, Some(_)) => return Ok(()),
            (true, None) => format!("the {what} is closed"),
            (false, _) => format!("the {what} was opened before a fork; open one in the child"),
        };
        Err(errors::raise("ClosedError", &message))
    }

    /// The thing, where it is open and ours.
    pub(crate) fn get(&self, what: &str) -> PyResult<&T> {
        self.check(what)?;
        self.inner.as_ref().ok_or_else(|| errors::raise("ClosedError", what))
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, what: &str) -> PyResult<&mut T> {
        self.check(what)?;
        self.inner.as_mut().ok_or_else(|| errors::raise("ClosedError", what))
    }

    /// Takes the thing out, if it is ours; whoever comes later is told that it is closed.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_ours() { self.inner.take() } else { None }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.inner.take());
        }
    }
}
