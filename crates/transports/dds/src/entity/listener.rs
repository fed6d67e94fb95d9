//! Listeners: status events of a reader or writer, passed to a closure in Cyclone's threads.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;

use cyclors::{dds_entity_t, dds_listener_t};

use super::Policy;

/// A status event of a reader or writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusEvent {
    /// Samples are available. (Readers.)
    Data,
    /// An endpoint of the other kind was matched or unmatched.
    Matched {
        /// The number matched now.
        now: u32,
        /// The one that came or went.
        end: u64,
    },
    /// An endpoint of the topic has an incompatible policy: no samples are exchanged with it.
    Incompatible(Policy),
    /// The liveliness of a writer changed. (Readers.)
    Liveliness {
        /// The number of live writers.
        alive: u32,
        /// The number of writers that are not alive.
        gone: u32,
        /// The one that changed.
        writer: u64,
    },
    /// This writer did not assert its liveliness in time. (Writers.)
    LivelinessLost,
    /// A key was not written within the deadline: offered by a writer, requested by a reader.
    DeadlineMissed {
        /// The key's handle.
        instance: u64,
    },
    /// That many further samples were lost. (Readers.)
    Lost(u32),
    /// A sample exceeded the reader's resource limits. (Readers.)
    Rejected,
}

/// A closure that receives the events. It must not block, nor drop an entity.
pub type Listener = Box<dyn Fn(StatusEvent) + Send + Sync>;

/// The kind of entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Reader,
    Writer,
}

/// A closure with Cyclone's listener that calls it. To be dropped after its entity.
pub(super) struct NativeListener {
    listener: *mut dds_listener_t,
    // The closure behind the pointer in `arg`, boxed twice so that the pointer is thin and stable.
    _told: Box<Listener>,
}

// SAFETY: the closure may be called from any thread; the pointer is only used by `drop`.
unsafe impl Send for NativeListener {}
// SAFETY: as above.
unsafe impl Sync for NativeListener {}

impl NativeListener {
    pub(super) fn new(kind: Kind, told: Listener) -> Self {
        let told = Box::new(told);
        let arg = (&raw const *told).cast_mut().cast::<c_void>();
        // SAFETY: the closure outlives the listener's entity, which readers and writers ensure; the
        // functions have the types that Cyclone calls.
        let listener = unsafe {
            let listener = cyclors::dds_create_listener(arg);
            match kind {
                Kind::Reader => reader_news(listener),
                Kind::Writer => writer_news(listener),
            }
            listener
        };
        Self { listener, _told: told }
    }

    pub(super) fn pointer(native: Option<&Self>) -> *const dds_listener_t {
        native.map_or(std::ptr::null(), |native| native.listener.cast_const())
    }
}

impl Drop for NativeListener {
    fn drop(&mut self) {
        // SAFETY: created in `new`, freed once; entities have copies.
        unsafe { cyclors::dds_delete_listener(self.listener) };
    }
}

impl fmt::Debug for NativeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Native")
    }
}

/// # Safety
/// `arg` is what [`NativeListener::new`] made, and alive.
unsafe fn tell(arg: *mut c_void, news: StatusEvent) {
    // SAFETY: guaranteed by the caller.
    unsafe { (*arg.cast::<Listener>())(news) }
}

/// One function for each status, as Cyclone calls it.
macro_rules! told {
    ($name:ident, $status:ty, $news:expr) => {
        unsafe extern "C" fn $name(_: dds_entity_t, status: $status, arg: *mut c_void) {
            let news: fn($status) -> StatusEvent = $news;
            // SAFETY: Cyclone passes the argument of the listener.
            unsafe { tell(arg, news(status)) }
        }
    };
}

unsafe extern "C" fn data(_: dds_entity_t, arg: *mut c_void) {
    // SAFETY: Cyclone passes the argument of the listener.
    unsafe { tell(arg, StatusEvent::Data) }
}

told!(subscribed, cyclors::dds_subscription_matched_status_t, |s| StatusEvent::Matched {
    now: s.current_count,
    end: s.last_publication_handle
});
told!(published, cyclors::dds_publication_matched_status_t, |s| StatusEvent::Matched {
    now: s.current_count,
    end: s.last_subscription_handle
});
told!(requested, cyclors::dds_requested_incompatible_qos_status_t, |s| StatusEvent::Incompatible(
    Policy::of(s.last_policy_id)
));
told!(offered, cyclors::dds_offered_incompatible_qos_status_t, |s| StatusEvent::Incompatible(
    Policy::of(s.last_policy_id)
));
told!(liveliness, cyclors::dds_liveliness_changed_status_t, |s| StatusEvent::Liveliness {
    alive: s.alive_count,
    gone: s.not_alive_count,
    writer: s.last_publication_handle
});
told!(liveliness_lost, cyclors::dds_liveliness_lost_status_t, |_| StatusEvent::LivelinessLost);
told!(requested_deadline, cyclors::dds_requested_deadline_missed_status_t, |s| {
    StatusEvent::DeadlineMissed { instance: s.last_instance_handle }
});
told!(offered_deadline, cyclors::dds_offered_deadline_missed_status_t, |s| {
    StatusEvent::DeadlineMissed { instance: s.last_instance_handle }
});
told!(lost, cyclors::dds_sample_lost_status_t, |s| StatusEvent::Lost(
    s.total_count_change.unsigned_abs()
));
told!(rejected, cyclors::dds_sample_rejected_status_t, |_| StatusEvent::Rejected);

/// # Safety
/// A live listener.
unsafe fn reader_news(listener: *mut dds_listener_t) {
    // SAFETY: the caller's listener; the functions have the types that Cyclone calls.
    unsafe {
        cyclors::dds_lset_data_available(listener, Some(data));
        cyclors::dds_lset_subscription_matched(listener, Some(subscribed));
        cyclors::dds_lset_requested_incompatible_qos(listener, Some(requested));
        cyclors::dds_lset_liveliness_changed(listener, Some(liveliness));
        cyclors::dds_lset_requested_deadline_missed(listener, Some(requested_deadline));
        cyclors::dds_lset_sample_lost(listener, Some(lost));
        cyclors::dds_lset_sample_rejected(listener, Some(rejected));
    }
}

/// # Safety
/// A live listener.
unsafe fn writer_news(listener: *mut dds_listener_t) {
    // SAFETY: the caller's listener; the functions have the types that Cyclone calls.
    unsafe {
        cyclors::dds_lset_publication_matched(listener, Some(published));
        cyclors::dds_lset_offered_incompatible_qos(listener, Some(offered));
        cyclors::dds_lset_liveliness_lost(listener, Some(liveliness_lost));
        cyclors::dds_lset_offered_deadline_missed(listener, Some(offered_deadline));
    }
}
