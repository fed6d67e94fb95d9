//! The layer, and the filter that tells `tracing` what is enabled.
//!
//! Constraints. A disabled event costs no more than in `tracing` itself: the interest of each call
//! site is cached, and rebuilt when levels change. Other layers of the same subscriber are not
//! affected.
//!
//! Operation. A thread examines a call site at its first event ([`Callsites`]). Fields of spans are
//! stored with the span as values; an event's fields are encoded as they are visited.

use std::sync::Arc;

use helio_bus::{Clock as _, SystemClock, TraceId};
use helio_logging::{Body, Logging, TextField, Value};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber, callsite, span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use crate::callsites::{CallsiteInfo, Callsites, Heading};
use crate::visitor::{EventVisitor, Overrides, SpanVisitor};

/// A layer that logs events, with the fields of the spans around them.
///
/// The layer does not own the `Logging`. The caller drops it at the end of the program, which
/// publishes all earlier records, even if the subscriber is global and never dropped. The
/// subscriber may have other layers; the loggers' levels do not affect them.
///
/// # What becomes a record
/// - The logger is the target, with slashes: `mount::axis` logs as `mount/axis`; a field `logger`
///   overrides it. The logger's level decides what is enabled, also of spans.
/// - TRACE, DEBUG, INFO, WARN and ERROR are the levels of these names. A field `level` overrides
///   the level by name or number: `error!(level = "ALERT", …)`. Events of such a call site are
///   always visited, since only their fields have the level.
/// - A field `audience` has the audiences, separated by commas; `*` means everyone.
/// - `message` is the message; other fields are data of their types, or texts if they only
///   implement `Display` or `Debug`. An invalid `level` stays data.
/// - The call site is the event's; its routine is the module.
/// - Fields of spans are data `SPAN.FIELD`; the context is the innermost span's name.
/// - Fields `trace_id` and `span_id` with 32 and 16 hexadecimal digits, of the event or else of
///   the innermost span that has them, are the record's; others are data.
///
/// # Records of the crate `log`
/// arrive by `tracing_log::LogTracer` with their own target and call site. These are not call sites
/// of `tracing`, so each is looked up by name, which costs more.
///
/// # What the bus says while it publishes records
/// is ignored, as are all events of the publishing thread. Events of a transport's other threads
/// for each sample are not: set their loggers to a higher level.
pub fn layer<S>(logging: &Arc<Logging>) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    logging.on_levels(callsite::rebuild_interest_cache);
    let places = Arc::new(Callsites::new(logging));
    let records = Records { places: Arc::clone(&places), clock: SystemClock::new() };
    records.with_filter(Levels(places))
}

/// The filter of call sites.
struct Levels(Arc<Callsites>);

impl<S> Filter<S> for Levels {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.0.of(metadata) {
            Some(place) if place.takes() => Interest::always(),
            _ => Interest::never(),
        }
    }

    /// Called if another layer's interest differs, and by `tracing-log`.
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.0.takes(metadata)
    }

    // There is no level hint: call sites with a field `level` may have any level.
}

/// Writes records.
struct Records {
    places: Arc<Callsites>,
    clock: SystemClock,
}

/// The stored fields of a span.
#[derive(Default)]
pub(crate) struct SpanFields {
    /// Values by their names in a record, in order.
    pub(crate) data: Vec<(String, Value)>,
    pub(crate) trace: Option<TraceId>,
    pub(crate) span: Option<[u8; 8]>,
}

impl<S> Layer<S> for Records
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let Some(span) = context.span(id).filter(|_| !attributes.fields().is_empty()) else {
            return;
        };
        let mut kept = SpanFields::default();
        attributes.record(&mut SpanVisitor { span: span.name(), kept: &mut kept });
        span.extensions_mut().replace(kept);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(kept) = extensions.get_mut::<SpanFields>() {
            values.record(&mut SpanVisitor { span: span.name(), kept });
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(place) = self.places.of(event.metadata()) else { return };
        if !place.chooses() {
            return self.record(event, &context, &place, &place.heading);
        }
        let choice = Overrides::of(event, &place.roles);
        if let Some(heading) = self.places.heading(&place, choice) {
            self.record(event, &context, &place, &heading);
        }
    }
}

impl Records {
    fn record<S>(
        &self,
        event: &Event<'_>,
        context: &Context<'_, S>,
        place: &CallsiteInfo,
        of: &Heading,
    ) where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if !of.logger.is_enabled(of.level) {
            return;
        }
        of.logger.record_at(self.clock.now(), of.level, of.site, |body| {
            let mut writer = EventVisitor::new(place, of, body);
            event.record(&mut writer);
            let (has_trace, has_span) = (writer.has_trace, writer.has_span);
            spans(body, event, context, (has_trace, has_span));
        });
    }
}

/// Adds the fields of the spans around an event, the innermost first.
fn spans<S>(body: &mut Body, event: &Event<'_>, context: &Context<'_, S>, has: (bool, bool))
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let (mut has_trace, mut has_span) = has;
    for (depth, span) in context.event_scope(event).into_iter().flatten().enumerate() {
        if depth == 0 {
            body.member(TextField::Context, span.name());
        }
        let extensions = span.extensions();
        let Some(kept) = extensions.get::<SpanFields>() else { continue };
        if let Some(trace) = kept.trace.filter(|_| !has_trace) {
            body.trace(trace);
            has_trace = true;
        }
        if let Some(id) = kept.span.filter(|_| !has_span) {
            body.span(id);
            has_span = true;
        }
        kept.data.iter().for_each(|(name, value)| _ = body.data(name, value));
    }
}
