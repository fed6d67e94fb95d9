//! The house's limits, each with its reason.

/// A function fits on a screen, signature to closing brace.
pub(crate) const FUNCTION_LINES: usize = 70;

/// Two files side by side fit on a laptop's screen.
pub(crate) const LINE_COLUMNS: usize = 100;

/// A file is read in one sitting.
pub(crate) const FILE_LINES: usize = 1_200;

/// Modules of a crate that may import each other in a circle: so many are read together.
pub(crate) const CIRCLE_MODULES: usize = 5;

/// The crates whose largest circle is larger, with its size. The numbers only go down.
pub(crate) const CIRCLE_RATCHET: &[(&str, usize)] = &[];

/// Modules that no other module of their crate may import: the source folder, and the module. The
/// crate's root may declare and re-export them.
pub(crate) const FORBIDDEN_IMPORTS: &[(&str, &str)] =
    &[("crates/transports/dds/src/", "durability")];

/// Where `unsafe` may stand, each with what needs it. Every other file is held to safe Rust.
pub(crate) const UNSAFE_MODULES: &[(&str, &str)] = &[
    ("bench/compare/src/cyclone.rs", "Cyclone DDS has a C API"),
    ("bench/compare/src/harness.rs", "processor time comes from libc"),
    ("crates/cli/src/bench/mapped.rs", "the floor bench maps files itself, without the journal"),
    ("crates/journal/src/futex.rs", "waiting and waking across processes"),
    ("crates/journal/src/lock.rs", "a lock that processes share and that outlives its holder"),
    ("crates/journal/src/map.rs", "mapped files, behind bounds-checked access"),
    ("crates/journal/src/presence.rs", "locks of an open file's bytes come from libc"),
    ("crates/journal/src/sigbus.rs", "a mapped file that is cut short reads as zeros"),
    ("crates/journal/src/segment.rs", "copies in and out of a mapped segment"),
    ("crates/journal/src/users.rs", "the machine's users are looked up by libc"),
    ("crates/services/log-c/src/calls.rs", "the functions are called by C"),
    (
        "crates/services/log-c/src/foreign.rs",
        "what C gives is read, and what it is told is written",
    ),
    ("crates/transports/dds/src/entity/builtin.rs", "what Cyclone DDS tells of others is C's"),
    ("crates/transports/dds/src/entity/domain.rs", "domains and handles are Cyclone DDS's"),
    ("crates/transports/dds/src/entity/error.rs", "Cyclone DDS's texts are C's"),
    ("crates/transports/dds/src/entity/listener.rs", "Cyclone DDS calls closures of ours"),
    ("crates/transports/dds/src/entity/log.rs", "Cyclone DDS complains to a function of ours"),
    ("crates/transports/dds/src/entity/participant.rs", "participants are Cyclone DDS's"),
    ("crates/transports/dds/src/entity/qos.rs", "policies are Cyclone DDS's"),
    ("crates/transports/dds/src/entity/reader.rs", "samples are taken from Cyclone DDS"),
    ("crates/transports/dds/src/entity/sample.rs", "samples are read where Cyclone DDS has them"),
    ("crates/transports/dds/src/entity/topic.rs", "topics are Cyclone DDS's"),
    ("crates/transports/dds/src/entity/types.rs", "types are described to Cyclone DDS"),
    ("crates/transports/dds/src/entity/writer.rs", "samples are given to Cyclone DDS"),
    (
        "crates/transports/kafka/src/client/access.rs",
        "access control lists by librdkafka, which its Rust crate does not offer",
    ),
    (
        "crates/transports/kafka/src/client/ffi.rs",
        "calls of librdkafka that its Rust crate does not offer",
    ),
    ("python/src/alerts/capsules.rs", "what Python gives of Arrow is C's structures"),
    ("crates/services/state-node/src/map.rs", "snapshots are mapped for reading"),
    ("python/src/buffer.rs", "Python's buffer protocol is C's"),
    ("python/src/ndarray.rs", "numpy arrays over the bytes of a sample, without a copy"),
];

/// What does no I/O, reads no clock and starts no thread, and what it is called.
pub(crate) const PURE_SOURCES: &[(&str, &str)] = &[
    ("crates/core/src/", "the core"),
    ("crates/filter/src/", "filters"),
    ("crates/services/detector/src/", "the detector service"),
    ("crates/services/logging/src/predicate/", "predicates"),
    ("crates/services/state/src/", "the state store"),
    (PROTOCOL_SOURCES[0], "a protocol"),
    (PROTOCOL_SOURCES[1], "a protocol"),
];

/// The rules between components and callers and those of a visit, which know no bus either.
pub(crate) const PROTOCOL_SOURCES: [&str; 2] =
    ["crates/services/component/src/protocol/", "crates/services/alerts/src/visit/"];

/// What [`PURE_SOURCES`] must not name.
pub(crate) const PURE_FORBIDDEN: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Transports' names, which the bus knows in its URL registry only.
pub(crate) const TRANSPORTS: &[&str] = &["amqp", "dds", "kafka", "pva", "zenoh"];

/// The folder of transports that live with the bus, and the file that gives them names.
pub(crate) const BUS_SOURCE: &str = "crates/bus/src/";
/// The one place in the bus that may name transports.
pub(crate) const BUS_REGISTRY: &str = "crates/bus/src/transport/registry.rs";
/// The one folder in the bus that may use the journal.
pub(crate) const BUS_JOURNAL: &str = "crates/bus/src/transport/journal";
