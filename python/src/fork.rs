//! Guards objects of a parent process in a forked child.
//!
//! A forked child has its parent's memory but not its threads. Closing the parent's writers, groups
//! and bells in the child would harm the parent. So the child leaks them; using them is an error.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::errors;

/// The number of forks between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Called by Python in a child that was forked.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The process that created an object. Check it before a lock: a thread of the parent may have held
/// the lock at the fork.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Generation(u64);

impl Generation {
    pub(crate) fn current() -> Self {
        Self(GENERATION.load(Ordering::Relaxed))
    }

    pub(crate) fn is_current(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }

    /// Rejects an object of a parent.
    pub(crate) fn check(self, what: &str) -> PyResult<()> {
        if self.is_current() {
            return Ok(());
        }
        let message = format!("the {what} was opened before a fork; open one in the child");
        Err(errors::raise("ClosedError", &message))
    }
}

/// An object that belongs to the process that created it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    inner: Option<T>,
    generation: Generation,
}

impl<T> Owned<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner: Some(inner), generation: Generation::current() }
    }

    /// The object, if it is open and of this process.
    pub(crate) fn get(&self, what: &str) -> PyResult<&T> {
        self.generation.check(what)?;
        self.inner.as_ref().ok_or_else(|| closed(what))
    }

    /// The same, mutable.
    pub(crate) fn get_mut(&mut self, what: &str) -> PyResult<&mut T> {
        self.generation.check(what)?;
        self.inner.as_mut().ok_or_else(|| closed(what))
    }

    /// Takes the object if it is of this process; later uses report that it is closed.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.generation.is_current() { self.inner.take() } else { None }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.generation.is_current() {
            std::mem::forget(self.inner.take());
        }
    }
}

fn closed(what: &str) -> PyErr {
    errors::raise("ClosedError", &format!("the {what} is closed"))
}
