//! Records of all kinds.

pub(crate) mod bus;
pub(crate) mod kept;

use helio_core::{Tai, TraceId};
use helio_logging::{Audiences, Level, Record, Site, Stack, Style, TextField, Value};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// With every field, as a mount's record may be.
pub(crate) fn whole() -> Record {
    let time = Tai::from_nanos(1_790_000_037_123_456_789);
    Record {
        observed: Some(Tai::from_nanos(1_790_000_037_200_000_000)),
        text: None,
        arguments: vec![Value::Int(-3), Value::Double(0.25), "azimuth".into()],
        site: Site {
            template: "axis {axis} is {}° off after {} tries".to_owned(),
            style: Style::Braces,
            names: vec![String::new(), String::new(), "axis".to_owned()],
            file: "mount/axis.cpp".to_owned(),
            line: 120,
            routine: "Axis::track".to_owned(),
        },
        host: "dv11-abm".to_owned(),
        process: "mountContainer:4711".to_owned(),
        thread: "control".to_owned(),
        context: "tracking".to_owned(),
        audiences: Audiences::of(["Operator", "SciLog"]),
        array: "Array002".to_owned(),
        antenna: "DV11".to_owned(),
        stack: Some(Stack { id: "dv11-99".to_owned(), level: 1 }),
        log_id: "AxisOff".to_owned(),
        uri: "https://example.org/axis".to_owned(),
        trace: Some(TraceId([7; 16])),
        span: Some([8; 8]),
        flags: 1,
        data: vec![
            ("encoder".to_owned(), Value::Map(vec![("a".to_owned(), true.into())])),
            ("raw".to_owned(), Value::Bytes(vec![0, 255])),
        ],
        producer: "CONTROL/DV11".to_owned(),
        sequence: 41,
        // Fields that were added after the golden file stay absent.
        ..Record::new(time, Level::ALERT, "CONTROL/DV11/Mount", "")
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Double),
        Just(Value::Double(f64::NAN)),
        Just(Value::Double(f64::NEG_INFINITY)),
        Just(Value::Double(-0.0)),
        ".{0,12}".prop_map(Value::Text),
        vec(any::<u8>(), 0..12).prop_map(Value::Bytes),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((".{0,6}", inner), 0..4).prop_map(Value::Map),
        ]
    })
}

/// Names of data, also those that are taken, and those of what OTLP has besides.
fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,6}",
        "[a-b]{0,1}",
        "helio\\.(data|time\\.tai|filled|everyone|audiences|arguments|sequence|stack\\.(id|level))",
        "helio\\.(template|template\\.style|template\\.names|context|uri|observed\\.tai)",
        "code\\.(file\\.path|line\\.number|function\\.name|filepath|lineno|function)|thread\\.name",
        "otel\\.(severity_number|severity_text|body|dropped_attributes_count)",
        "otel\\.(scope\\.version|(scope|resource)\\.(schema_url|attributes))",
    ]
}

/// What looks like what OTLP has besides: some of it is, and goes to its place.
fn looks_like() -> impl Strategy<Value = Vec<(String, Value)>> {
    let key = || prop_oneof!["[a-c]", Just("host.name".to_owned())];
    let map = || vec((key(), values()), 0..3).prop_map(Value::Map);
    let pairs = (
        (-2_i32..30).prop_map(Value::from),
        "WARN|INFO|LEVEL7|x|".prop_map(Value::Text),
        values(),
        (-1_i64..3).prop_map(Value::Int),
        ("[v]{0,1}", "[u]{0,1}", map()),
        ("[u]{0,1}", map()),
    );
    (pairs, any::<u16>()).prop_map(|((number, text, body, dropped, scope, resource), there)| {
        let all = [
            ("otel.severity_number", number),
            ("otel.severity_text", text),
            ("otel.body", body),
            ("otel.dropped_attributes_count", dropped),
            ("otel.scope.version", scope.0.into()),
            ("otel.scope.schema_url", scope.1.into()),
            ("otel.scope.attributes", scope.2),
            ("otel.resource.schema_url", resource.0.into()),
            ("otel.resource.attributes", resource.1),
        ];
        let chosen = all.into_iter().enumerate().filter(|(n, _)| there & 1 << n != 0);
        chosen.map(|(_, (name, value))| (name.to_owned(), value)).collect()
    })
}

fn processes() -> impl Strategy<Value = String> {
    prop_oneof![".{0,6}", "[a-z:]{0,3}:[0-9]{0,3}", "[0-9]{1,12}"]
}

fn times() -> impl Strategy<Value = Tai> {
    let times = prop_oneof![
        any::<i64>(),
        0..3_000_000_000_i64,
        1_500_000_000_000_000_000..1_900_000_000_000_000_000_i64,
        // About the leap second at the end of 2016, and in it.
        1_483_228_834_000_000_000..1_483_228_840_000_000_000_i64,
    ];
    times.prop_map(Tai::from_nanos)
}

fn audiences() -> impl Strategy<Value = Audiences> {
    (any::<bool>(), vec("[^\n]{0,4}", 0..4))
        .prop_map(|(everyone, names)| Audiences { everyone, names })
}

prop_compose! {
    fn sites()(
        (template, file, routine) in (".{0,12}", ".{0,6}", ".{0,6}"),
        names in vec("[^\n]{0,4}", 0..3),
        (line, percent) in (any::<u32>(), any::<bool>()),
    ) -> Site {
        let style = if percent { Style::Percent } else { Style::Braces };
        Site { template, style, names, file, line, routine }
    }
}

/// A record with a text in each member.
fn with_texts(texts: Vec<String>) -> Record {
    let mut record = Record::default();
    for (field, text) in TextField::ALL.into_iter().zip(texts) {
        field.member_mut(&mut record).into_iter().for_each(|member| text.clone_into(member));
    }
    record
}

prop_compose! {
    /// Records with much that is hard on a format.
    pub(crate) fn records()(
        (time, observed) in (times(), option::of(times())),
        (level, logger, text) in (1..=11_u8, "[a-z/]{0,8}", option::of(".{0,40}")),
        (arguments, data, last) in
            (vec(values(), 0..4), vec((names(), values()), 0..5), looks_like()),
        (site, audiences) in (sites(), audiences()),
        (process, texts) in (processes(), vec(".{0,3}", TextField::ALL.len())),
        stack in option::of((".{0,4}", any::<i32>())),
        (producer, flags, sequence) in ("[a-b]{0,1}", any::<u8>(), any::<u64>()),
        (trace, span) in (option::of(1..=u128::MAX), option::of(1..=u64::MAX)),
    ) -> Record {
        Record {
            time, observed,
            level: Level::new(level).unwrap(),
            logger, text, arguments, site, process, audiences,
            stack: stack.map(|(id, level)| Stack { id, level }),
            trace: trace.map(|id| TraceId(id.to_be_bytes())),
            span: span.map(u64::to_be_bytes),
            flags,
            data: data.into_iter().chain(last).collect(),
            producer, sequence,
            ..with_texts(texts)
        }
    }
}
