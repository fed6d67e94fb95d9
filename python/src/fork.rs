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

/// Which process made something: to be asked before a lock, which a thread of the parent may have
/// held when the child was forked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maker(u64);

impl Maker {
    pub(crate) fn this() -> Self {
        Self(GENERATION.load(Ordering::Relaxed))
    }

    pub(crate) fn is_this(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }

    /// Refuses what a parent made.
    pub(crate) fn check(self, what: &str) -> PyResult<()> {
        if self.is_this() {
            return Ok(());
        }
        let message = format!("the {what} was opened before a fork; open one in the child");
        Err(errors::raise("ClosedError", &message))
    }
}

/// Something that belongs to the process that made it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    inner: Option<T>,
    maker: Maker,
}

impl<T> Owned<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner: Some(inner), maker: Maker::this() }
    }

    /// The thing, where it is open and ours.
    pub(crate) fn get(&self, what: &str) -> PyResult<&T> {
        self.maker.check(what)?;
        self.inner.as_ref().ok_or_else(|| closed(what))
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, what: &str) -> PyResult<&mut T> {
        self.maker.check(what)?;
        self.inner.as_mut().ok_or_else(|| closed(what))
    }

    /// Takes the thing out, if it is ours; whoever comes later is told that it is closed.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.maker.is_this() { self.inner.take() } else { None }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.maker.is_this() {
            std::mem::forget(self.inner.take());
        }
    }
}

fn closed(what: &str) -> PyErr {
    errors::raise("ClosedError", &format!("the {what} is closed"))
}
