//! The same work on Heliograph and on its peers, in one run, as one table.
//!
//! `compare [--helio PATH] [--dir DIR] [--runs 3] [--latency-count 400] [--json FILE]` runs each
//! mechanism's latency (20 Hz, blocking subscriber) and throughput (one writer, one reader) in
//! turn, over and over (A B A B), and prints the median of the runs. Heliograph and the floor are
//! measured by `helio bench`, the peers here, all by the method of `src/harness.rs`. Outside CI:
//! its peers take minutes to build.
//!
//! `compare peer NAME latency|throughput --payload BYTES --count N [--rate HZ] [--url kafka://HOST:PORT,…]
//! [--set NAME=VALUE]… [--window N] [--replication N]` measures one of them, once, and prints its
//! figures as a line of JSON: what `bench/run` takes turns with.

#[cfg(feature = "cyclonedds")]
mod cyclone;
mod harness;
#[cfg(feature = "iceoryx2")]
mod iceoryx;
#[cfg(feature = "librdkafka")]
mod librdkafka;
mod table;
#[cfg(feature = "zenoh")]
mod zenoh_peer;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use harness::{End, Kind, Work};
use serde_json::{Value, json};

/// The peers of the table, by name; librdkafka needs brokers, and is measured with them alone.
const PEERS: [&str; 3] = ["cyclonedds", "iceoryx2", "zenoh"];

/// Payload sizes in bytes, as in the reference tables.
const PAYLOADS: [usize; 3] = [64, 256, 6144];

/// What the command line says.
struct Options {
    helio: PathBuf,
    dir: PathBuf,
    runs: usize,
    latency_count: u64,
    json: Option<PathBuf>,
}

const USAGE: &str =
    "usage: compare [--helio PATH] [--dir DIR] [--runs N] [--latency-count N] [--json FILE]";

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        helio: "helio".into(),
        dir: std::env::temp_dir().join(format!("helio-compare-{}", std::process::id())),
        runs: 3,
        latency_count: 400,
        json: None,
    };
    while let Some(name) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number; {USAGE}"));
        match name.as_str() {
            "--helio" => options.helio = value.into(),
            "--dir" => options.dir = value.into(),
            "--runs" => options.runs = number()?.max(1) as usize,
            "--latency-count" => options.latency_count = number()?.max(20),
            "--json" => options.json = Some(value.into()),
            _ => return Err(format!("{name} is no option; {USAGE}")),
        }
    }
    Ok(options)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some("--role") {
        return role(&args.collect::<Vec<_>>());
    }
    let result = if first.as_deref() == Some("peer") {
        peer(args)
    } else {
        options(first.into_iter().chain(args)).and_then(|options| compare(&options))
    };
    if let Err(message) = result {
        eprintln!("compare: {message}");
        std::process::exit(2);
    }
}

/// One end of a peer's run, in a process of its own: `--role PEER pub|sub WORK-JSON`.
fn role(args: &[String]) {
    let [peer, end, work] = args else { panic!("--role takes a peer, an end and the work") };
    let work: Work = serde_json::from_str(work).expect("the parent writes legal work");
    let report = match (peer.as_str(), end.as_str()) {
        #[cfg(feature = "iceoryx2")]
        ("iceoryx2", "pub") => harness::publish(&work, &mut iceoryx::Sender::open(&work)),
        #[cfg(feature = "iceoryx2")]
        ("iceoryx2", _) => harness::subscribe(&work, &mut iceoryx::Receiver::open(&work)),
        #[cfg(feature = "zenoh")]
        ("zenoh", "pub") => harness::publish(&work, &mut zenoh_peer::Sender::open(&work)),
        #[cfg(feature = "zenoh")]
        ("zenoh", _) => harness::subscribe(&work, &mut zenoh_peer::Receiver::open(&work)),
        #[cfg(feature = "librdkafka")]
        ("librdkafka", "pub") => harness::publish(&work, &mut librdkafka::Sender::open(&work)),
        #[cfg(feature = "librdkafka")]
        ("librdkafka", _) => harness::subscribe(&work, &mut librdkafka::Receiver::open(&work)),
        #[cfg(feature = "cyclonedds")]
        ("cyclonedds", "pub") => harness::publish(&work, &mut cyclone::Sender::open(&work)),
        #[cfg(feature = "cyclonedds")]
        ("cyclonedds", _) => harness::subscribe(&work, &mut cyclone::Receiver::open(&work)),
        (other, _) => {
            eprintln!("compare: {other} is no peer, or was left out when this was built");
            std::process::exit(2);
        }
    };
    println!("{}", serde_json::to_string(&report).expect("figures are JSON"));
}

/// Measures one peer, once.
fn peer(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    const USAGE: &str = "usage: compare peer NAME latency|throughput [--payload BYTES] [--count N] \
        [--rate HZ] [--url kafka://HOST:PORT,…] [--set NAME=VALUE]… [--window N] [--replication N]";
    let (Some(name), Some(kind)) = (args.next(), args.next()) else { return Err(USAGE.to_owned()) };
    let kind = match kind.as_str() {
        "latency" => Kind::Latency,
        "throughput" => Kind::Throughput,
        _ => return Err(USAGE.to_owned()),
    };
    let mut work = Work::new(kind, 256, 1_000);
    while let Some(option) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|_| format!("{option} needs a number"));
        match option.as_str() {
            "--payload" => work.payload_bytes = number()? as usize,
            "--count" => work.count = number()?.max(1),
            "--rate" => work.rate_hz = number()?.max(1) as f64,
            "--window" => work.window = Some(number()?.max(1)),
            "--replication" => work.replication = number()? as i32,
            "--url" => work.brokers = value.trim_start_matches("kafka://").to_owned(),
            "--set" => {
                let (name, value) = value.split_once('=').ok_or("--set takes NAME=VALUE")?;
                work.settings.push((name.to_owned(), value.to_owned()));
            }
            _ => return Err(format!("{option} is no option; {USAGE}")),
        }
    }
    println!("{}", run(&name, &work)?);
    Ok(())
}

fn throughput_count(payload: usize) -> u64 {
    if payload > 1000 { 50_000 } else { 400_000 }
}

/// Runs everything `runs` times, in turn, and prints the table.
fn compare(options: &Options) -> Result<(), String> {
    std::fs::create_dir_all(&options.dir).map_err(|e| format!("{}: {e}", options.dir.display()))?;
    let mut results = Vec::new();
    for run in 0..options.runs {
        results.push(floor(options)?);
        for payload in PAYLOADS {
            for kind in [Kind::Latency, Kind::Throughput] {
                eprintln!("run {} of {}: {payload} bytes, {kind:?}", run + 1, options.runs);
                results.push(heliograph(options, kind, payload)?);
                for peer in PEERS {
                    results.push(measure(options, peer, kind, payload)?);
                }
            }
        }
    }
    if let Some(path) = &options.json {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.map_err(|e| format!("{}: {e}", path.display()))?;
        for result in &results {
            writeln!(file, "{result}").map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    print!("{}", table::render(&results));
    std::fs::remove_dir_all(&options.dir).map_err(|e| format!("{}: {e}", options.dir.display()))
}

fn output(command: &mut Command) -> Result<Value, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name} ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{name} printed no JSON: {e}"))
}

fn floor(options: &Options) -> Result<Value, String> {
    eprintln!("floor in {}", options.dir.display());
    let mut command = Command::new(&options.helio);
    let mut figures =
        output(command.args(["bench", "floor", "--json", "--dir"]).arg(&options.dir))?;
    figures["mechanism"] = "floor".into();
    Ok(figures)
}

fn heliograph(options: &Options, kind: Kind, payload: usize) -> Result<Value, String> {
    let folder = options.dir.join("journal");
    let url = format!("journal:{}", folder.display());
    let mut command = Command::new(&options.helio);
    let name = if kind == Kind::Latency { "latency" } else { "throughput" };
    let count =
        if kind == Kind::Latency { options.latency_count } else { throughput_count(payload) };
    command.args(["bench", name, "--url", &url, "--json"]);
    command.args(["--payload", &payload.to_string(), "--count", &count.to_string()]);
    if kind == Kind::Latency {
        command.args(["--rate", "20"]);
    }
    let mut figures = output(&mut command)?;
    figures["mechanism"] = "heliograph".into();
    std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(figures)
}

fn measure(options: &Options, peer: &str, kind: Kind, payload: usize) -> Result<Value, String> {
    let count =
        if kind == Kind::Latency { options.latency_count } else { throughput_count(payload) };
    run(peer, &Work::new(kind, payload, count))
}

/// Runs both ends of a peer in processes of their own.
fn run(peer: &str, work: &Work) -> Result<Value, String> {
    let text = serde_json::to_string(work).expect("work is JSON");
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let start = |end: &str| {
        let mut command = Command::new(&this);
        command.args(["--role", peer, end, &text]).stdout(Stdio::piped()).spawn()
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let sub = start("sub").map_err(|e| e.to_string())?;
    let publ = start("pub").map_err(|e| e.to_string())?;
    let ends = [sub, publ].map(|child| child.wait_with_output().map_err(|e| e.to_string()));
    let [sub, publ] = ends.map(|o| {
        o.and_then(|o| serde_json::from_slice::<End>(&o.stdout).map_err(|e| format!("{peer}: {e}")))
    });
    Ok(report(work, peer, &sub?, &publ?, load.split(' ').next().unwrap_or_default()))
}

fn report(work: &Work, peer: &str, sub: &End, publ: &End, load: &str) -> Value {
    let names = ["mean", "stdev", "min", "p50", "p99", "p999", "max"];
    let latency: serde_json::Map<_, _> =
        names.iter().zip(sub.latency_us).map(|(n, v)| ((*n).to_owned(), json!(v))).collect();
    json!({
        "mechanism": peer,
        "workload": work.kind,
        "payload_bytes": work.payload_bytes,
        "rate_hz": if work.kind == Kind::Latency { Some(work.rate_hz) } else { None },
        "count": work.count,
        "received": sub.count,
        "lost": work.count.saturating_sub(sub.count),
        "duplicated": sub.duplicated,
        "latency_us": latency,
        "write_per_s": publ.count as f64 / publ.seconds,
        "read_per_s": sub.count as f64 / sub.seconds,
        "cpu_s": { "publisher": publ.cpu_s, "subscriber": sub.cpu_s },
        "rss_mb": { "publisher": publ.rss_mb, "subscriber": sub.rss_mb },
        "load": load.parse::<f64>().unwrap_or_default(),
        "window": work.window,
        "settings": work.settings,
    })
}
