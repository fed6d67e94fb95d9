//! From samples to requests: received data is decoded and validated here, and judged by the
//! controller.

use std::borrow::Cow;
use std::sync::Arc;

use helio_bus::{Sample, Tai, Undecodable};
use helio_core::{Codec, SchemaId, Value};

use super::cancel::Cancel;
use super::command::ReceivedCommand;
use super::engine::{CommandEntry, Engine};
use super::generics::LogLevel;
use crate::fields::Fields;
use crate::protocol::{Action, CallHeaders, Request};
use crate::read::Reading;
use crate::records::{ControlAction, ControlRecord};
use crate::sender::Sender;

impl Engine {
    /// Receives a command.
    pub(super) fn command(self: &Arc<Self>, name: &str, sample: Sample) {
        self.command_or_refusal(name, sample, None);
    }

    /// Receives a command, which is refused if there is a reason to.
    fn command_or_refusal(self: &Arc<Self>, name: &str, sample: Sample, refusal: Option<String>) {
        let Some(known) = self.commands.get(name) else { return };
        let (mut request, _) = blank(Action::Run, name, &sample);
        request.refusal = request.refusal.or(refusal);
        let fields = match Reading::decode(&known.shape, sample.clone(), self.now()) {
            Ok(reading) => {
                (request.seq_num, request.origin) = (reading.seq_num(), reading.origin());
                reading.identity().clone_into(&mut request.identity);
                let fields = reading.into_fields();
                self.check_values(known, &fields, &mut request);
                fields
            }
            Err(error) => {
                let Some(from) = Sender::of(&known.shape, &sample.payload) else { return };
                from.fill(&mut request);
                refuse(&mut request, error.to_string());
                Fields::new(&known.shape)
            }
        };
        self.take(request, fields);
    }

    /// Answers a command whose schema cannot be resolved, or lacks fields; its sender is notified.
    pub(super) fn unreadable(self: &Arc<Self>, name: &str, wrong: Undecodable) {
        let Some(known) = self.commands.get(name) else { return };
        if wrong.sample.header.schema == known.shape.schema().id() {
            // Converted: its values are known, for its signature and for the audit.
            let reason = format!("{}: {}", known.shape.topic(), wrong.reason);
            return self.command_or_refusal(name, wrong.sample, Some(reason));
        }
        let (mut request, _) = blank(Action::Run, name, &wrong.sample);
        let Some(from) = Sender::of(&known.shape, &wrong.sample.payload) else { return };
        from.fill(&mut request);
        refuse(&mut request, wrong.reason);
        self.take(request, Fields::new(&known.shape));
    }

    /// Decodes a command inside a control request, with this interface's schema.
    fn inside(
        &self,
        known: &CommandEntry,
        payload: &[u8],
        schema: Option<SchemaId>,
    ) -> Result<Fields, String> {
        let payload = match schema.filter(|id| *id != known.shape.schema().id()) {
            None => Cow::Borrowed(payload),
            Some(id) => {
                let topic = known.topic(&self.outputs.bus);
                let payload = topic.and_then(|topic| topic.resolve(id, payload));
                Cow::Owned(payload.map_err(|error| error.to_string())?)
            }
        };
        match known.shape.codec().decode(&payload) {
            Ok(Value::Record(values)) => Ok(Fields::of(&known.shape, values)),
            Ok(other) => Err(format!("it is a {}", other.word())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Receives a control request.
    pub(super) fn control(self: &Arc<Self>, codec: &Codec, sample: &Sample) {
        let record = match codec.deserialize::<ControlRecord>(&sample.payload) {
            Ok(record) => record,
            Err(error) => return self.unreadable_request(&error.to_string()),
        };
        if record.index != self.outputs.author.index {
            return;
        }
        let action = match record.action {
            ControlAction::Cancel => Action::Cancel { target: record.target },
            ControlAction::Validate => Action::Validate,
            ControlAction::Lock => Action::Lock { seconds: record.seconds },
            ControlAction::Unlock => Action::Unlock,
        };
        let (mut request, schema) = blank(action, &record.command, sample);
        (request.seq_num, request.origin) = (record.seq_num, record.origin);
        request.identity = record.identity;
        let known = self.commands.get(&request.command);
        let fields = match (action, known) {
            (Action::Validate, Some(known)) => match self.inside(known, &record.payload, schema) {
                Ok(fields) => {
                    self.check_values(known, &fields, &mut request);
                    fields
                }
                Err(reason) => {
                    refuse(&mut request, reason);
                    Fields::new(&known.shape)
                }
            },
            (_, Some(known)) => Fields::new(&known.shape),
            // Control requests without a command have no fields; these are placeholders.
            (_, None) => Fields::new(self.outputs.acks.shape()),
        };
        self.take(request, fields);
    }

    /// Logs a control request that cannot be decoded: its sender is unknown.
    pub(super) fn unreadable_request(self: &Arc<Self>, reason: &str) {
        let text = format!("a request on control cannot be read: {reason}");
        self.log(LogLevel::Warning, &text, "");
    }

    /// Records the results of the value checks in the request.
    fn check_values(&self, known: &CommandEntry, fields: &Fields, request: &mut Request) {
        let mut rules = known.checks.rules().iter().zip(fields.record());
        if let Err(error) = rules.try_for_each(|(rule, value)| rule.check(value)) {
            refuse(request, error.to_string());
        }
        let time =
            known.time_at.map(|at| (&known.shape.schema().fields()[at].name, &fields.record()[at]));
        if let Some((field, Value::Double(seconds))) = time {
            request.time = stream_time(*seconds);
            if request.time.is_none() {
                refuse(request, format!("{field} is {seconds}, which is not a valid time"));
            }
        }
        request.arguments = fields.to_json().to_string();
    }

    fn take(self: &Arc<Self>, request: Request, fields: Fields) {
        let taken = ReceivedCommand {
            name: request.command.clone(),
            fields,
            caller: request.who().to_owned(),
            identity: request.identity.clone(),
            seq_num: request.seq_num,
            expiry: request.expiry,
            cancel: Cancel::default(),
        };
        self.request(taken, |controller, now| controller.received(now, request));
    }
}

/// The instant of a number of TAI seconds; `None` for invalid numbers, which must not run.
fn stream_time(seconds: f64) -> Option<Tai> {
    // Slightly less than 64 bits of nanoseconds: the years 1685 to 2255.
    (seconds.abs() < 9e9).then(|| Tai::from_nanos((seconds * 1e9).round() as i64))
}

fn refuse(request: &mut Request, reason: String) {
    request.refusal.get_or_insert(reason);
}

/// A request with the headers beside the payload, and the schema of a nested payload.
fn blank(action: Action, command: &str, sample: &Sample) -> (Request, Option<SchemaId>) {
    let (headers, refusal) = match CallHeaders::decode(sample.headers.as_ref()) {
        Ok(headers) => (headers, None),
        Err(error) => (CallHeaders::default(), Some(error.to_string())),
    };
    let request = Request {
        action,
        command: command.to_owned(),
        seq_num: 0,
        identity: String::new(),
        origin: 0,
        caller: headers.caller,
        instance: headers.instance,
        expiry: headers.expiry,
        key: headers.key,
        trace: sample.header.trace,
        signature: headers.signature,
        time: None,
        refusal,
        arguments: String::new(),
    };
    (request, headers.schema)
}

impl Sender<'_> {
    fn fill(self, request: &mut Request) {
        (request.seq_num, request.origin) = (self.seq_num, self.origin);
        self.identity.clone_into(&mut request.identity);
    }
}

#[cfg(test)]
mod tests {
    use super::stream_time;

    #[test]
    fn seconds_that_are_no_instant_are_none() {
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e12, -1e10] {
            assert_eq!(stream_time(wrong), None, "{wrong}");
        }
        assert_eq!(stream_time(1.5).map(|time| time.nanos()), Some(1_500_000_000));
        assert_eq!(stream_time(-1.0).map(|time| time.nanos()), Some(-1_000_000_000));
    }
}
