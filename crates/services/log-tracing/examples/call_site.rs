//! What a line that logs costs the thread that it stands in: `log!` and `tracing`, enabled and not.
//!
//! `cargo run --release -p helio-log-tracing --example call_site [-- --json]`
//!
//! Calls come in bursts that a ring takes without shedding; between two bursts all is published.
//! `cpu_ns` is the thread's processor time of all bursts by the number of calls; `p50_ns` and
//! `p99_ns` are of the means of 20 calls in a row, by the clock on the wall.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_logging::{Level, LogOptions, Logger, Logging, log};
use rustix::time::{ClockId, clock_gettime};
use tracing_subscriber::layer::SubscriberExt as _;

/// Calls in a row of which one time is taken.
const ROW: usize = 20;
/// Rows of a burst: its bytes are less than half of a ring.
const ROWS: usize = 100;
const BURSTS: usize = 500;

struct Cost {
    name: &'static str,
    cpu_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn measure(logging: &Logging, name: &'static str, call: impl Fn(i64)) -> Cost {
    let mut rows = Vec::with_capacity(BURSTS * ROWS);
    let mut spent = Duration::ZERO;
    // The first bursts find what others find as well: they do not count.
    for burst in 0..BURSTS + BURSTS / 10 {
        let before = cpu();
        for _ in 0..ROWS {
            let start = Instant::now();
            (0..ROW as i64).for_each(&call);
            rows.push(start.elapsed().as_nanos() as f64 / ROW as f64);
        }
        spent += cpu() - before;
        if burst + 1 == BURSTS / 10 {
            rows.clear();
            spent = Duration::ZERO;
        }
        assert!(logging.flush(Duration::from_secs(60)), "the bus takes nothing");
    }
    rows.sort_by(f64::total_cmp);
    let at = |share: f64| rows[(share * (rows.len() - 1) as f64) as usize];
    let cpu_ns = spent.as_nanos() as f64 / (BURSTS * ROWS * ROW) as f64;
    Cost { name, cpu_ns, p50_ns: at(0.5), p99_ns: at(0.99) }
}

fn of_log(logging: &Logging, logger: &Logger) -> Vec<Cost> {
    let of = |name, call: &dyn Fn(i64)| measure(logging, name, call);
    vec![
        of("the loop alone", &|n| _ = black_box(n)),
        of("log!, disabled", &|n| log!(logger, Level::TRACE, "axis {}", n)),
        of("log!, no argument", &|_| log!(logger, Level::INFO, "the axis stands")),
        of("log!, 2 arguments", &|n| log!(logger, Level::INFO, "axis {} at {}", n, 0.25)),
        of("log!, 2 arguments, 2 data", &|n| {
            log!(logger, Level::INFO, "axis {} at {}", n, 0.25; encoder = n, unit = "degrees");
        }),
        of("log!, a text of 200 bytes", &|_| {
            log!(logger, Level::INFO, "{}", black_box(TEXT));
        }),
    ]
}

const TEXT: &str = "\
The telescope mount has reached the commanded position on both axes, the dome follows with an offset
of less than one degree, and the tracking loop is closed; guiding may begin when a star is found.";

fn of_tracing(logging: &Logging) -> Vec<Cost> {
    let of = |name, call: &dyn Fn(i64)| measure(logging, name, call);
    let mut costs = vec![
        of("tracing, disabled", &|n| tracing::trace!("axis {n}")),
        of("tracing, no argument", &|_| tracing::info!("the axis stands")),
        of("tracing, 2 arguments", &|n| tracing::info!("axis {} at {}", n, 0.25)),
        of("tracing, 2 data", &|n| tracing::info!(encoder = n, unit = "degrees", "axis")),
    ];
    let _span = tracing::info_span!("slew", axis = "azimuth").entered();
    costs.push(of("tracing, in a span", &|_| tracing::info!("the axis stands")));
    costs
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let logging = Logging::start(Bus::connect("memory:")?, LogOptions::default())?;
    let logging = Arc::new(logging);
    let logger = logging.logger("CONTROL/DV11/Mount");
    let mut costs = of_log(&logging, &logger);
    let subscriber = tracing_subscriber::registry().with(helio_log_tracing::layer(&logging));
    tracing::subscriber::set_global_default(subscriber)?;
    costs.extend(of_tracing(&logging));
    let shed = logging.figures().shed;
    if std::env::args().any(|argument| argument == "--json") {
        let cost = |Cost { name, cpu_ns, p50_ns, p99_ns }: &Cost| {
            format!(
                "{{\"call\": \"{name}\", \"cpu_ns\": {cpu_ns:.1}, \"p50_ns\": {p50_ns:.1}, \
                 \"p99_ns\": {p99_ns:.1}}}"
            )
        };
        let costs: Vec<_> = costs.iter().map(cost).collect();
        println!("{{\"shed\": {shed}, \"costs\": [{}]}}", costs.join(", "));
        return Ok(());
    }
    println!("{:<28} {:>8} {:>8} {:>8}", "call", "cpu_ns", "p50_ns", "p99_ns");
    for Cost { name, cpu_ns, p50_ns, p99_ns } in costs {
        println!("{name:<28} {cpu_ns:>8.1} {p50_ns:>8.1} {p99_ns:>8.1}");
    }
    println!("{shed} records were shed");
    Ok(())
}
