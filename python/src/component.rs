//! The protocol of components for Python: controller, leases and configuration layers.
//!
//! Inputs are plain values, effects are tuples whose first item names them: see
//! `heliograph._component._engine`, which carries them out. No thread waits here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helio_component::protocol::caller::{
    self, AckSample, Call, Caller, CallerOptions, Cause, DEFAULT_ACK_TIMEOUT, MissingFields,
    Presence,
};
use helio_component::protocol::checks::{Checks, Limits, Nan};
use helio_component::protocol::controller::{
    Address, AuditEntry, CommandSpec, Controller, ControllerOptions, Effect, Lane, LeaseState,
    Phase, StreamSpec,
};
use helio_component::protocol::{
    AckCode, AckHeaders, Acknowledgement, Action, CallHeaders, CallNumber, Done, Ending, Failure,
    HEADER_SIGNATURE, Policy, Progress, Request, SummaryState, Transition, layers, path,
};
use helio_component::{
    AuditRecord, ControlRecord, Interface, KeyFileError, LeaseOptions, LeaseRecord, LeaseStanding,
    PresenceProbe, make_caller_key, read_caller_key,
};
use helio_core::schema::HasSchema;
use helio_core::{Codec, Tai, TraceId, Value};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::bus::RawBus;
use crate::errors;
use crate::interfaces::RawInterfaces;
use crate::sample::Sample;
use crate::schema::Schema;
use crate::time::Time;

/// The lease of a component; held until it is released, lost or dropped.
#[pyclass(frozen, module = "heliograph._heliograph", name = "Lease")]
pub(crate) struct Lease(Mutex<Option<helio_component::Lease>>);

#[pymethods]
impl Lease {
    #[new]
    fn new(
        py: Python<'_>,
        bus: &RawBus,
        interfaces: &RawInterfaces,
        component: &str,
        index: i32,
        software: String,
    ) -> PyResult<Self> {
        let bus = bus.bus(py)?;
        let interface = interfaces.interface(component)?;
        let options = LeaseOptions { software, interface: interface.release().to_owned() };
        let lease = py.detach(|| helio_component::Lease::claim(&bus, &interface, index, options));
        let lease = lease.map_err(|error| errors::raise("LeaseError", &error.to_string()))?;
        Ok(Self(Mutex::new(Some(lease))))
    }

    /// The lease's state (held, lapsed or lost) and this instance's incarnation.
    fn standing(&self, py: Python<'_>) -> (&'static str, u64) {
        let lease = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(lease) = lease else { return ("lost", 0) };
        // Usually this only reads the clock. Releasing the interpreter lock for it would let other
        // threads delay this one.
        let known = lease.known().unwrap_or_else(|| py.detach(|| lease.standing()));
        let standing = match known {
            LeaseStanding::Held => "held",
            LeaseStanding::Lapsed => "lapsed",
            LeaseStanding::Lost => "lost",
        };
        (standing, lease.incarnation())
    }

    /// Why the holder is unknown, while the lease is lapsed.
    fn outage(&self) -> String {
        let lease = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().map_or_else(String::new, |lease| lease.outage().to_string())
    }

    /// Why it was lost to a component of other software, if it was.
    fn foreign(&self) -> Option<String> {
        let lease = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(lease.as_ref()?.foreign()?.to_string())
    }

    /// How often it expired without being taken over.
    #[getter]
    fn lapses(&self) -> u64 {
        let lease = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().map_or(0, helio_component::Lease::lapses)
    }

    /// Releases the lease: another instance may run at once.
    fn release(&self, py: Python<'_>) {
        let lease = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(lease));
    }
}

/// Queries the presence of a component.
#[pyclass(frozen, module = "heliograph._heliograph", name = "PresenceProbe")]
pub(crate) struct RawPresenceProbe {
    /// Held while a query waits for the engine.
    probe: Mutex<PresenceProbe>,
    /// The record of the live instance, as of the last query.
    live: Mutex<Option<LeaseRecord>>,
}

#[pymethods]
impl RawPresenceProbe {
    #[new]
    fn new(
        py: Python<'_>,
        bus: &RawBus,
        interfaces: &RawInterfaces,
        component: &str,
        index: i32,
    ) -> PyResult<Self> {
        let (bus, interface) = (bus.bus(py)?, interfaces.interface(component)?);
        let probe = Mutex::new(PresenceProbe::new(&bus, &interface, index));
        Ok(Self { probe, live: Mutex::new(None) })
    }

    /// The presence now, and the instance: here, gone or unknown; away if the bus does not answer.
    /// Waits for the engine.
    fn query(&self, py: Python<'_>) -> PyResult<(&'static str, u64)> {
        let presence = py.detach(|| {
            let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
            let presence = probe.query();
            let live = probe.live_instance().cloned();
            *self.live.lock().unwrap_or_else(PoisonError::into_inner) = live;
            presence
        });
        match presence {
            Err(error) if error.is_outage() => Ok(("away", 0)),
            presence => presence.map(row).map_err(|error| errors::topic(&error, "SubscribeError")),
        }
    }

    /// The same, as of a few milliseconds ago; None if only a query can tell. Never waits.
    fn known(&self) -> Option<(&'static str, u64)> {
        self.probe.try_lock().ok()?.known().map(row)
    }

    /// Why the instance that was live at the last query cannot run a command; None if it can.
    fn missing_command(&self, command: &str) -> Option<String> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.as_ref()?.missing_command(command)
    }
}

/// A presence for Python: its name, and the instance.
fn row(presence: Presence) -> (&'static str, u64) {
    match presence {
        Presence::Here { incarnation } => ("here", incarnation),
        Presence::Gone => ("gone", 0),
        Presence::Unknown => ("unknown", 0),
    }
}

/// A command's name, whether it has a handler, whether it may run concurrently, and a stream's
/// margin in seconds.
type CommandRow = (String, bool, bool, Option<f64>);

/// The component's side of the protocol.
#[pyclass(frozen, module = "heliograph._heliograph", name = "Controller")]
pub(crate) struct RawController(Mutex<Controller>);

fn tai(nanos: i64) -> Tai {
    Tai::from_nanos(nanos)
}

fn failure((ending, error, text): (String, i32, String)) -> PyResult<Failure> {
    let ending = match ending.as_str() {
        "failed" => Ending::Failed,
        "aborted" => Ending::Aborted,
        "timeout" => Ending::Timeout,
        "noperm" => Ending::NoPerm,
        other => return Err(PyValueError::new_err(format!("no ending is called {other:?}"))),
    };
    Ok(Failure { ending, error, text })
}

impl RawController {
    fn controller(&self) -> MutexGuard<'_, Controller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sample's header and sender: `private_seqNum`, identity, origin.
struct ReceivedRequest<'a> {
    sample: &'a Sample,
    head: (i32, String, i32),
    time: Option<i64>,
    refusal: Option<String>,
    arguments: String,
}

impl ReceivedRequest<'_> {
    fn request(self, action: Action, command: String) -> Request {
        let (headers, unread) = match self.sample.call_headers() {
            Ok(headers) => (headers, None),
            Err(error) => (CallHeaders::default(), Some(error.to_string())),
        };
        let (seq_num, identity, origin) = self.head;
        Request {
            action,
            command,
            seq_num,
            identity,
            origin,
            caller: headers.caller,
            instance: headers.instance,
            expiry: headers.expiry,
            key: headers.key,
            trace: self.sample.trace_id(),
            signature: headers.signature,
            time: self.time.map(tai),
            refusal: unread.or(self.refusal),
            arguments: self.arguments,
        }
    }
}

#[pymethods]
impl RawController {
    #[new]
    fn new(component: String, index: i32, commands: Vec<CommandRow>, state: i32) -> PyResult<Self> {
        let spec = |(name, has_handler, concurrent, margin): CommandRow| {
            let lane = if concurrent { Lane::Concurrent } else { Lane::Serial };
            let margin = margin.map(Duration::try_from_secs_f64).transpose();
            let margin = margin.map_err(|error| PyValueError::new_err(error.to_string()))?;
            let stream = margin.map(|margin| StreamSpec { margin });
            Ok(CommandSpec { name, has_handler, lane, stream })
        };
        let commands = commands.into_iter().map(spec).collect::<PyResult<_>>()?;
        let unknown = || PyValueError::new_err(format!("no state has the number {state}"));
        let state = SummaryState::from_number(state).ok_or_else(unknown)?;
        let options = ControllerOptions { component, index, commands, state };
        Ok(Self(Mutex::new(Controller::new(options))))
    }

    /// Processes a command from its own topic.
    #[pyo3(signature = (now, sample, command, head, time, refusal, arguments))]
    #[expect(clippy::too_many_arguments, reason = "private to the package, and called once there")]
    fn received(
        &self,
        now: i64,
        sample: &Bound<'_, Sample>,
        command: String,
        head: (i32, String, i32),
        time: Option<i64>,
        refusal: Option<String>,
        arguments: String,
    ) -> u64 {
        let received = ReceivedRequest { sample: sample.get(), head, time, refusal, arguments };
        self.controller().received(tai(now), received.request(Action::Run, command)).0
    }

    /// Processes a request from the topic `control`; `asked` has its fields.
    #[pyo3(signature = (now, sample, asked, time, refusal, arguments))]
    fn control(
        &self,
        now: i64,
        sample: &Bound<'_, Sample>,
        asked: &Bound<'_, PyDict>,
        time: Option<i64>,
        refusal: Option<String>,
        arguments: String,
    ) -> PyResult<u64> {
        let get = |name: &str| asked.as_any().get_item(name);
        let action = match get("action")?.extract::<String>()?.as_str() {
            "validate" => Action::Validate,
            "cancel" => Action::Cancel { target: get("target")?.extract()? },
            "lock" => Action::Lock { seconds: get("seconds")?.extract()? },
            _ => Action::Unlock,
        };
        let head =
            (get("seqNum")?.extract()?, get("identity")?.extract()?, get("origin")?.extract()?);
        let received = ReceivedRequest { sample: sample.get(), head, time, refusal, arguments };
        let request = received.request(action, get("command")?.extract()?);
        Ok(self.controller().received(tai(now), request).0)
    }

    /// Runs a command for the component itself; the effect `answer` reports its end.
    fn ask(&self, now: i64, command: &str) -> u64 {
        self.controller().ask(tai(now), command).0
    }

    /// Whether a handler or its check is to begin; if not, it has ended.
    fn take_up(&self, now: i64, call: u64) -> bool {
        self.controller().take_up(tai(now), CallNumber(call))
    }

    /// Audit records cannot be published from now on, and are queued.
    fn audit_lost(&self, now: i64) {
        self.controller().audit_lost(tai(now));
    }

    /// All audit records have been published.
    fn audit_back(&self) {
        self.controller().audit_back();
    }

    /// Processes the end of the steps before a change of state: None, or the failure.
    #[pyo3(signature = (now, call, failed))]
    fn begun(&self, now: i64, call: u64, failed: Option<(String, i32, String)>) -> PyResult<()> {
        let ended = failed.map(failure).transpose()?.map_or(Ok(()), Err);
        self.controller().begun(tai(now), CallNumber(call), ended);
        Ok(())
    }

    /// A handler has succeeded.
    #[pyo3(signature = (now, call, result, typed))]
    fn done(&self, now: i64, call: u64, result: String, typed: Option<String>) {
        self.controller().finished(tai(now), CallNumber(call), Ok(Done { result, typed }));
    }

    /// A handler has failed.
    fn failed(
        &self,
        now: i64,
        call: u64,
        ending: String,
        error: i32,
        text: String,
    ) -> PyResult<()> {
        let ended = Err(failure((ending, error, text))?);
        self.controller().finished(tai(now), CallNumber(call), ended);
        Ok(())
    }

    /// A handler reports its progress.
    #[pyo3(signature = (now, call, timeout_s, result, progress, typed))]
    fn progress(
        &self,
        now: i64,
        call: u64,
        timeout_s: f64,
        result: String,
        progress: Option<f64>,
        typed: Option<String>,
    ) {
        let progress = Progress { timeout_s, result, progress, typed };
        self.controller().in_progress(tai(now), CallNumber(call), progress);
    }

    /// Reports an error that needs an operator.
    fn fault(&self, now: i64, error: i32, report: &str) {
        self.controller().fault(tai(now), error, report);
    }

    /// Processes the lease's state and instance, as from `Lease.standing`.
    fn lease(&self, now: i64, standing: &str, incarnation: u64) {
        let state = match standing {
            "held" => LeaseState::Held { incarnation },
            "lapsed" => LeaseState::Lapsed { incarnation },
            _ => LeaseState::Lost,
        };
        self.controller().lease(tai(now), state);
    }

    /// Applies the text of an authorization file. Raises ValueError.
    fn set_policy(&self, text: &str) -> PyResult<()> {
        let policy = Policy::parse(text).map_err(|e| PyValueError::new_err(e.to_string()))?;
        self.controller().set_policy(policy);
        Ok(())
    }

    /// Commands of a stream were lost.
    fn lost(&self, command: &str, commands: u64) {
        self.controller().stream_lost(command, commands);
    }

    /// Processes what is due.
    fn tick(&self, now: i64) {
        self.controller().tick(tai(now));
    }

    /// The latest time of the next `tick`.
    fn wake_at(&self) -> Option<i64> {
        self.controller().wake_at().map(Tai::nanos)
    }

    /// Accepts no more commands.
    fn close(&self, now: i64) {
        self.controller().close(tai(now));
    }

    /// Aborts the running commands.
    fn give_up(&self, now: i64) {
        self.controller().give_up(tai(now));
    }

    /// The number of the summary state.
    #[getter]
    fn summary_state(&self) -> i32 {
        self.controller().state().number()
    }

    /// The error code and the report of the fault; None in other states.
    #[getter]
    fn fault_report(&self) -> Option<(i32, String)> {
        self.controller().fault_report().map(|(error, report)| (error, report.to_owned()))
    }

    /// The caller that has locked the component, and until when.
    #[getter]
    fn locked(&self) -> Option<(String, i64)> {
        self.controller().lock().map(|lock| (lock.holder.clone(), lock.until.nanos()))
    }

    /// A stream's counters: received, late, lost, missing, most missing in a row.
    fn stream(&self, command: &str) -> Option<(u64, u64, u64, u64, u64)> {
        let of = self.controller().stream(command)?;
        Some((of.received, of.late, of.lost, of.missing, of.most_missing))
    }

    /// The pending effects, in order: tuples that begin with a name.
    fn effects<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let effects: Vec<Effect> = self.controller().effects().collect();
        effects.into_iter().map(|effect| controller_effect(py, effect)).collect()
    }
}

fn controller_effect(py: Python<'_>, effect: Effect) -> PyResult<Bound<'_, PyTuple>> {
    let change = |name: &str, call: CallNumber, t: Transition| {
        (name, call.0, t.command.name(), t.from.number(), t.to.number()).into_pyobject(py)
    };
    match effect {
        Effect::Run { call } => ("run", call.0).into_pyobject(py),
        Effect::Validate { call } => ("validate", call.0).into_pyobject(py),
        Effect::Begin { call, transition } => change("begin", call, transition),
        Effect::End { call, transition } => change("end", call, transition),
        Effect::Discard { call } => ("discard", call.0).into_pyobject(py),
        Effect::Interrupt { call } => ("interrupt", call.0).into_pyobject(py),
        Effect::Answer { call, ack } => {
            ("answer", call.0, ack.code.number(), ack.result).into_pyobject(py)
        }
        Effect::Acknowledge { address, ack } => {
            ("ack", address_row(py, address), outgoing_ack_row(py, ack)?).into_pyobject(py)
        }
        Effect::Error { code, report } => ("error", code, report).into_pyobject(py),
        Effect::State(state) => ("state", state.number()).into_pyobject(py),
        Effect::Audit(entry) => ("audit", audit(py, entry)?).into_pyobject(py),
        Effect::Warn(text) => ("warn", text).into_pyobject(py),
        Effect::Quit => ("quit",).into_pyobject(py),
    }
}

type AddressRow<'py> = (i32, String, i32, Option<Bound<'py, PyBytes>>, Option<String>);

fn address_row(py: Python<'_>, of: Address) -> AddressRow<'_> {
    let trace = of.trace.map(|trace| PyBytes::new(py, &trace.0));
    (of.seq_num, of.identity, of.origin, trace, of.command)
}

type OutgoingAckRow<'py> = (i32, i32, String, f64, Option<Bound<'py, PyDict>>);

fn outgoing_ack_row(py: Python<'_>, ack: Acknowledgement) -> PyResult<OutgoingAckRow<'_>> {
    let headers = AckHeaders { progress: ack.progress, typed: ack.typed };
    let encoded = headers.encode().unwrap_or_default();
    let headers = if encoded.is_empty() {
        None
    } else {
        let made = PyDict::new(py);
        for (name, value) in encoded {
            made.set_item(name, PyBytes::new(py, &value))?;
        }
        Some(made)
    };
    Ok((ack.code.number(), ack.error, ack.result, ack.timeout_s, headers))
}

fn audit(py: Python<'_>, entry: AuditEntry) -> PyResult<Bound<'_, PyDict>> {
    let phase = match entry.phase {
        Phase::Received => "received",
        Phase::Finished => "finished",
    };
    let made = PyDict::new(py);
    made.set_item("time", Bound::new(py, Time::from(entry.time))?)?;
    made.set_item("command", entry.command)?;
    made.set_item("seqNum", entry.seq_num)?;
    made.set_item("caller", entry.caller)?;
    made.set_item("identity", entry.identity)?;
    made.set_item("origin", entry.origin)?;
    made.set_item("phase", phase)?;
    made.set_item("ack", entry.ack.map_or(0, |code| code.number()))?;
    made.set_item("error", entry.error)?;
    made.set_item("result", entry.result)?;
    made.set_item("duration", entry.duration_s)?;
    made.set_item("arguments", entry.arguments)?;
    Ok(made)
}

/// Merges named YAML texts in order; the result is JSON. Raises ValueError.
#[pyfunction]
pub(crate) fn merge_layers(texts: Vec<(String, String)>) -> PyResult<String> {
    let mut read = Vec::new();
    for (name, text) in &texts {
        let wrong =
            |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{name}: {error}"));
        let values: Option<serde_json::Map<String, serde_json::Value>> =
            serde_saphyr::from_str(text).map_err(|error| wrong(&error.without_snippet()))?;
        read.push((name.as_str(), values.unwrap_or_default()));
    }
    let merged = layers::merge(read).map_err(|error| PyValueError::new_err(error.to_string()))?;
    serde_json::to_string(&merged).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The fewest commands from one state to another, by their numbers; None if there is no way.
#[pyfunction]
pub(crate) fn state_path(from: i32, to: i32) -> PyResult<Option<Vec<&'static str>>> {
    let state = |number: i32| {
        let unknown = || PyValueError::new_err(format!("no state has the number {number}"));
        SummaryState::from_number(number).ok_or_else(unknown)
    };
    let commands = path(state(from)?, state(to)?);
    Ok(commands.map(|all| all.iter().map(|command| command.name()).collect()))
}

/// Whether commands are sent with defaults for fields that their caller left out: the caller's
/// choice, else the environment's. Raises ValueError.
#[pyfunction]
#[pyo3(signature = (missing_fields))]
pub(crate) fn sends_defaults(missing_fields: Option<&str>) -> PyResult<bool> {
    let choice = match missing_fields {
        Some(name) => MissingFields::from_name(name).ok_or_else(|| {
            PyValueError::new_err(format!(
                "missing_fields is {name:?}; it may be refuse or default"
            ))
        }),
        None => MissingFields::of_environment().map_err(|e| PyValueError::new_err(e.to_string())),
    };
    Ok(choice? == MissingFields::Default)
}

/// The schema and the quality of service, both as JSON, of Heliograph's own topics of a component:
/// `control` or `audit`.
#[pyfunction]
pub(crate) fn service_topic(kind: &str) -> PyResult<(String, String)> {
    let (schema, qos) = match kind {
        "control" => (ControlRecord::schema(), ControlRecord::qos()),
        "audit" => (AuditRecord::schema(), AuditRecord::qos()),
        other => return Err(PyValueError::new_err(format!("no topic is called {other:?}"))),
    };
    let schema = schema.map_err(|error| crate::schema::refused(&error))?;
    let qos = serde_json::to_string(&qos)
        .map_err(|error| errors::raise("QosRefused", &error.to_string()))?;
    Ok((schema.to_string(), qos))
}

/// Creates all topics that an instance of a component will open. The error of a topic is reported
/// when it is opened.
#[pyfunction]
pub(crate) fn create_topics(
    py: Python<'_>,
    bus: &RawBus,
    interfaces: &RawInterfaces,
    component: &str,
    index: i32,
) -> PyResult<()> {
    let (bus, interface) = (bus.bus(py)?, interfaces.interface(component)?);
    let made = py.detach(|| helio_component::create_topics(&bus, [(&interface, index)], |_, _| {}));
    made.map_err(|error| errors::topic(&error, "StorageError"))
}

impl RawInterfaces {
    /// A component's interface, for the Rust engine.
    pub(crate) fn interface(&self, component: &str) -> PyResult<Interface> {
        let interface = Interface::of(self.all(), component);
        interface.map_err(|error| errors::raise("SchemaError", &error.to_string()))
    }
}

/// The constraints on a command's values beyond their encoding.
#[pyclass(frozen, module = "heliograph._heliograph", name = "Checks")]
pub(crate) struct RawChecks {
    codec: Codec,
    checks: Checks,
}

/// A field, its smallest and its largest value, and whether NaN is refused.
type LimitRow = (String, Option<f64>, Option<f64>, bool);

#[pymethods]
impl RawChecks {
    /// Raises ValueError for a limit that cannot be set.
    #[new]
    fn new(schema: &Schema, limits: Vec<LimitRow>) -> PyResult<Self> {
        let mut checks = Checks::new(schema.schema());
        for (field, min, max, refuse_nan) in limits {
            let nan = if refuse_nan { Nan::Refused } else { Nan::Allowed };
            let set = checks.limit(&field, Limits { min, max, nan });
            set.map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        Ok(Self { codec: Codec::new(schema.schema()), checks })
    }

    /// The fault of an encoded value, naming the field; None if it is valid. Skips the fields in
    /// `unset`.
    #[pyo3(signature = (payload, unset = Vec::new()))]
    fn refusal(&self, payload: &[u8], unset: Vec<String>) -> Option<String> {
        let value = match self.codec.decode(payload) {
            Ok(value) => value,
            Err(error) => return Some(error.to_string()),
        };
        let mut refusals = self.refusals(&value);
        let first = refusals.find(|(name, _)| !unset.iter().any(|field| field == name));
        first.map(|(_, refusal)| refusal)
    }

    /// The fields whose encoding carries more numbers than their SAL type or their labels allow.
    #[getter]
    fn narrow(&self) -> Vec<&str> {
        let narrow = self.checks.rules().iter().filter(|rule| !rule.is_open());
        narrow.map(|rule| rule.name.as_str()).collect()
    }

    /// The fault of an integer or integers for a field; None if there is none, or if it is not an
    /// integer, which encoding reports.
    fn refusal_of(&self, field: &str, value: &Bound<'_, PyAny>) -> Option<String> {
        let rule = self.checks.rules().iter().find(|rule| rule.name == field)?;
        let refused = match value.extract::<i64>() {
            Ok(number) => rule.check_integer(None, number),
            Err(_) => (0..).zip(value.try_iter().ok()?).try_for_each(|(at, item)| {
                let number = item.and_then(|item| item.extract::<i64>());
                number.map_or(Ok(()), |number| rule.check_integer(Some(at), number))
            }),
        };
        refused.err().map(|error| error.to_string())
    }

    /// An encoded value's fields from `first` to before `end` as JSON text, as in the audit.
    /// Numbers that JSON lacks are texts.
    fn arguments(&self, payload: &[u8], first: usize, end: usize) -> String {
        let Ok(Value::Record(values)) = self.codec.decode(payload) else { return String::new() };
        let end = end.min(values.len());
        let public = self.codec.fields_to_json(&values, first.min(end)..end);
        public.map_or_else(|_| String::new(), |all| serde_json::Value::Object(all).to_string())
    }
}

impl RawChecks {
    /// The fields with invalid values, each with its fault.
    fn refusals<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = (&'a str, String)> {
        let values: &[Value] = if let Value::Record(values) = value { values } else { &[] };
        let checked = self.checks.rules().iter().zip(values);
        checked.filter_map(|(rule, value)| {
            rule.check(value).err().map(|error| (rule.name.as_str(), error.to_string()))
        })
    }
}

/// The caller's side of the protocol.
#[pyclass(frozen, module = "heliograph._heliograph", name = "Caller")]
pub(crate) struct RawCaller(Mutex<Caller>);

impl RawCaller {
    fn caller(&self) -> MutexGuard<'_, Caller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn span(seconds: f64) -> PyResult<Duration> {
    let wrong = |_| PyValueError::new_err(format!("{seconds} s is not a valid timeout"));
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

/// Rejects a caller's name or a key that no command can carry.
fn legal(caller: Option<String>, key: Option<String>) -> PyResult<()> {
    let headers = CallHeaders { caller, key, ..CallHeaders::default() };
    headers.encode().map(drop).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// An error of a caller's key file: OSError for the file, ValueError for its contents.
fn key_error(error: &KeyFileError) -> PyErr {
    match error {
        KeyFileError::File(..) => PyOSError::new_err(error.to_string()),
        KeyFileError::Key(..) | KeyFileError::Open(..) => PyValueError::new_err(error.to_string()),
    }
}

/// Makes a key for a caller in a new file; returns the public key.
#[pyfunction]
#[pyo3(name = "make_caller_key")]
pub(crate) fn make_key(path: PathBuf) -> PyResult<String> {
    let key = make_caller_key(&path).map_err(|error| key_error(&error))?;
    Ok(key.public().to_string())
}

/// The action of a request, by name and number.
fn action(name: &str, number: f64) -> PyResult<Action> {
    Ok(match name {
        "run" => Action::Run,
        "validate" => Action::Validate,
        "cancel" => Action::Cancel { target: number as i32 },
        "lock" => Action::Lock { seconds: number },
        "unlock" => Action::Unlock,
        other => return Err(PyValueError::new_err(format!("nothing is called {other:?}"))),
    })
}

#[pymethods]
impl RawCaller {
    #[new]
    #[pyo3(signature = (component, identity, origin, caller, seed, stream_lead_s, key=None))]
    fn new(
        component: String,
        identity: String,
        origin: i32,
        caller: Option<String>,
        seed: u128,
        stream_lead_s: f64,
        key: Option<PathBuf>,
    ) -> PyResult<Self> {
        let stream_lead = span(stream_lead_s)?;
        legal(caller.clone(), None)?;
        let key = key.map(|path| read_caller_key(&path)).transpose();
        let key = key.map_err(|error| key_error(&error))?;
        let options = CallerOptions { component, identity, origin, caller, key, seed, stream_lead };
        Ok(Self(Mutex::new(Caller::new(options))))
    }

    /// Whether it signs its requests.
    #[getter]
    fn has_key(&self) -> bool {
        self.caller().has_key()
    }

    /// The header with the signature of a request that is about to be published. `what` and
    /// `publish` (number, trace, headers) are those of the effect `publish`. None if it cannot be
    /// signed.
    fn sign<'py>(
        &self,
        py: Python<'py>,
        what: (String, f64),
        command: &str,
        publish: (i32, [u8; 16], BTreeMap<String, Vec<u8>>),
        arguments: &str,
    ) -> PyResult<Option<(&'static str, Bound<'py, PyBytes>)>> {
        let (seq_num, trace, headers) = publish;
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let mut headers =
            CallHeaders::decode(pairs).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let (action, trace) = (action(&what.0, what.1)?, TraceId(trace));
        let request = caller::Outgoing { action, command, seq_num, trace, arguments };
        self.caller().sign(&request, &mut headers);
        let signature = headers.signature.map(|signature| PyBytes::new(py, &signature.0));
        Ok(signature.map(|signature| (HEADER_SIGNATURE, signature)))
    }

    /// The timeout of a request in seconds; raises ValueError for what `send` would refuse.
    #[staticmethod]
    #[pyo3(signature = (timeout_s, key))]
    fn check(timeout_s: Option<f64>, key: Option<String>) -> PyResult<f64> {
        legal(None, key)?;
        Ok(timeout_s.map_or(Ok(DEFAULT_ACK_TIMEOUT), span)?.as_secs_f64())
    }

    /// Sends a request; `what` is its name and, to cancel or to lock, its number. Without a timeout
    /// it has the default one.
    #[pyo3(signature = (now, what, command, timeout_s, expiry, key, time))]
    #[expect(clippy::too_many_arguments, reason = "private to the package, and called once there")]
    fn send(
        &self,
        now: i64,
        what: (String, f64),
        command: String,
        timeout_s: Option<f64>,
        expiry: Option<i64>,
        key: Option<String>,
        time: Option<i64>,
    ) -> PyResult<u64> {
        let action = action(&what.0, what.1)?;
        legal(None, key.clone())?;
        let timeout = timeout_s.map_or(Ok(DEFAULT_ACK_TIMEOUT), span)?;
        let (expiry, time) = (expiry.map(tai), time.map(tai));
        let call = Call { action, command, timeout, expiry, key, time };
        Ok(self.caller().send(tai(now), call).0)
    }

    /// Processes an acknowledgement of any caller's command.
    fn acknowledged(
        &self,
        now: i64,
        sample: &Bound<'_, Sample>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let Some(code) = AckCode::from_number(value.getattr("ack")?.extract()?) else {
            return Ok(());
        };
        let sample = sample.get();
        // Invalid headers do not invalidate the acknowledgement.
        let headers = sample.ack_headers().unwrap_or_default();
        let ack = Acknowledgement {
            code,
            error: value.getattr("error")?.extract()?,
            result: value.getattr("result")?.extract()?,
            timeout_s: value.getattr("timeout")?.extract()?,
            progress: headers.progress,
            typed: headers.typed,
        };
        let received = AckSample {
            trace: sample.trace_id(),
            identity: value.getattr("identity")?.extract()?,
            origin: value.getattr("origin")?.extract()?,
            seq_num: value.getattr("private_seqNum")?.extract()?,
            ack,
        };
        self.caller().acknowledged(tai(now), received);
        Ok(())
    }

    /// The component's presence: here with its incarnation, gone, or unknown.
    #[pyo3(signature = (known, instance))]
    fn presence(&self, known: &str, instance: u64) {
        self.caller().presence(presence_of(known, instance));
    }

    /// Whether that presence would end calls, whose acknowledgements are read before.
    fn would_end(&self, known: &str, instance: u64) -> bool {
        self.caller().would_end(presence_of(known, instance))
    }

    /// Processes a command that could not be published.
    fn publish_failed(&self, call: u64, why: &str) {
        self.caller().publish_failed(CallNumber(call), why);
    }

    /// Acknowledgements can no longer be read: all calls end with an unknown outcome.
    fn unheard(&self, why: &str) {
        self.caller().unheard(why);
    }

    /// The caller no longer waits for a call.
    fn abandon(&self, call: u64) {
        self.caller().abandon(CallNumber(call));
    }

    /// Processes what is due.
    fn tick(&self, now: i64) {
        self.caller().tick(tai(now));
    }

    /// The latest time of the next `tick`.
    fn wake_at(&self) -> Option<i64> {
        self.caller().wake_at().map(Tai::nanos)
    }

    /// The number of a pending call.
    fn seq_num(&self, call: u64) -> Option<i32> {
        self.caller().seq_num(CallNumber(call))
    }

    /// Whether the component was present and is not now.
    #[getter]
    fn is_gone(&self) -> bool {
        self.caller().is_gone()
    }

    /// The number of pending calls.
    #[getter]
    fn pending(&self) -> usize {
        self.caller().pending()
    }

    /// The number of stream commands that were sent too late.
    #[getter]
    fn late_sent(&self) -> u64 {
        self.caller().late_sent()
    }

    /// The pending effects, in order: tuples that begin with a name.
    fn effects<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let effects: Vec<caller::Effect> = self.caller().effects().collect();
        effects.into_iter().map(|effect| caller_effect(py, effect)).collect()
    }
}

fn presence_of(known: &str, instance: u64) -> Presence {
    match known {
        "here" => Presence::Here { incarnation: instance },
        "gone" => Presence::Gone,
        _ => Presence::Unknown,
    }
}

fn caller_effect(py: Python<'_>, effect: caller::Effect) -> PyResult<Bound<'_, PyTuple>> {
    match effect {
        caller::Effect::Publish { call, action, seq_num, trace, headers } => {
            let (name, number) = match action {
                Action::Run => ("run", 0.0),
                Action::Validate => ("validate", 0.0),
                Action::Cancel { target } => ("cancel", f64::from(target)),
                Action::Lock { seconds } => ("lock", seconds),
                Action::Unlock => ("unlock", 0.0),
            };
            let encoded =
                headers.encode().map_err(|error| PyValueError::new_err(error.to_string()))?;
            let made = PyDict::new(py);
            for (name, value) in encoded {
                made.set_item(name, PyBytes::new(py, &value))?;
            }
            let trace = PyBytes::new(py, &trace.0);
            ("publish", call.0, name, number, seq_num, trace, made).into_pyobject(py)
        }
        caller::Effect::Progress { call, ack } => {
            ("progress", call.0, ack_row(ack)).into_pyobject(py)
        }
        caller::Effect::Done { call, ack, cause } => {
            let cause = match cause {
                Cause::Acknowledged => "acknowledged",
                Cause::TimedOut => "timed out",
                Cause::NobodyThere => "nobody there",
                Cause::WentAway => "went away",
                Cause::Unheard => "unheard",
                Cause::NotSent => "not sent",
            };
            ("done", call.0, ack_row(ack), cause).into_pyobject(py)
        }
        caller::Effect::Warn(text) => ("warn", text).into_pyobject(py),
    }
}

/// An acknowledgement: code, error, result, timeout, progress, typed result.
type AckRow = (i32, i32, String, f64, Option<f64>, Option<String>);

fn ack_row(ack: Acknowledgement) -> AckRow {
    (ack.code.number(), ack.error, ack.result, ack.timeout_s, ack.progress, ack.typed)
}
