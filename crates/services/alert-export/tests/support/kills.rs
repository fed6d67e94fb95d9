//! Exports by processes that are killed, or whose disk is full, on any bus.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use helio_alert_export::{Export, ExportOptions, FilterQuery, Format, StampsChoice};
use helio_alerts::generator::{GeneratorOptions, WithStamps};
use helio_alerts::producer::TopicLayout;
use helio_alerts::rubin::Version;
use helio_bus::Bus;

use super::{Stream, export, files, generator, job};

const KILLS: u32 = 20;
const URL: &str = "HELIO_EXPORT_URL";
const FOLDER: &str = "HELIO_EXPORT_FOLDER";
const FORMAT: &str = "HELIO_EXPORT_FORMAT";
/// The unit of `ulimit -f` in `sh`, in bytes (POSIX).
const ULIMIT_BLOCK_BYTES: usize = 512;
/// A file may take so long to appear on a loaded machine.
const HANG_TIMEOUT: Duration = Duration::from_secs(600);

/// Small files, so that a night has many.
fn options(format: Format) -> ExportOptions {
    let text = "SELECT * FROM alerts WHERE diaSource.snr > 6".to_owned();
    let filter = Some(FilterQuery { text, ..FilterQuery::default() });
    let (part_bytes, part_input_bytes) = (1 << 20, 4 << 20);
    ExportOptions {
        format,
        filter,
        stamps: StampsChoice::Inline,
        part_bytes,
        part_input_bytes,
        batch_alerts: 8,
        ..ExportOptions::default()
    }
}

/// The work of a process, where a test of the binary is started as one.
pub(crate) fn child() {
    let Some(url) = std::env::var_os(URL) else { return };
    let bus = Bus::builder().producer("exporter").connect(url.to_str().unwrap()).unwrap();
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let format = std::env::var(FORMAT).unwrap().parse().unwrap();
    let mut export = Export::open(&bus, job(&folder), options(format)).unwrap();
    match export.run(&mut ()) {
        Ok(outcome) => assert!(outcome.is_equal(), "{outcome:?}"),
        Err(error) => println!("failed: {error}"),
    }
}

fn command(stream: &Stream, folder: &Path, format: Format, shell: &str) -> Command {
    let child = stream.child.expect("the stream names the test that is started");
    let mut command = Command::new("sh");
    let program = std::env::current_exe().unwrap();
    command.args(["-c", &format!("{shell} exec \"$0\" \"$@\"")]).arg(program);
    command.args(["--exact", child, "--nocapture"]);
    command.env(URL, stream.bus.url().to_string()).env(FOLDER, folder);
    command.env(FORMAT, format.as_str());
    command
}

fn start(stream: &Stream, folder: &Path, format: Format) -> Child {
    command(stream, folder, format, "").stdout(Stdio::null()).spawn().unwrap()
}

/// A night of which exports are killed by the binary's test that calls [`child`]; on a journal of
/// its own unless there is a URL.
pub(crate) fn stream(url: Option<&str>, child: &'static str) -> Stream {
    let options = GeneratorOptions {
        alerts_per_visit: 150,
        stamps: WithStamps::Fits,
        ..generator(Version::LATEST)
    };
    let mut stream = Stream::at(url, options, TopicLayout::Inline);
    stream.child = Some(child);
    stream.publish_night(6);
    stream
}

/// Whether the manifest has files, and its pass is not finished.
fn is_halfway(folder: &Path) -> bool {
    let Ok(text) = std::fs::read(folder.join("export.json")) else { return false };
    let sealed: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let manifest = &sealed["manifest"];
    let has_parts = manifest["parts"].as_array().is_some_and(|parts| !parts.is_empty());
    let passes = manifest["passes"].as_array().unwrap();
    has_parts && passes.iter().any(|pass| pass["is_finished"] == false)
}

/// A number below a limit, by a linear congruential generator.
fn roll(seed: &mut u64, limit: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % limit.max(1)
}

/// Exports a night that is killed twenty times: the files are those of one that is not.
pub(crate) fn kill_twenty_times(stream: &Stream, format: Format) {
    let mut seed = 7;
    let whole = stream.target("whole");
    let outcome = export(stream, &whole, &options(format));
    assert!(outcome.is_equal() && outcome.totals.files > 4, "{:?}", outcome.totals);
    let folder = stream.target("killed");
    let begin = Instant::now();
    assert!(start(stream, &folder, format).wait().unwrap().success());
    let time = begin.elapsed().as_micros() as u64;
    std::fs::remove_dir_all(&folder).unwrap();
    let (mut kills, mut halfway) = (0, 0);
    let until = Instant::now() + HANG_TIMEOUT;
    while kills < KILLS {
        assert!(Instant::now() < until, "{kills} kills");
        let mut child = start(stream, &folder, format);
        std::thread::sleep(Duration::from_micros(roll(&mut seed, time)));
        if let Some(ended) = child.try_wait().unwrap() {
            // It was faster than the first one.
            assert!(ended.success() && files(&whole) == files(&folder));
            std::fs::remove_dir_all(&folder).unwrap();
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        halfway += u32::from(is_halfway(&folder));
    }
    assert!(start(stream, &folder, format).wait().unwrap().success());
    assert!(files(&whole) == files(&folder), "{format:?}");
    println!("{format:?}: {kills} kills, after {halfway} of them the export was half done");
}

/// An export whose files may not grow beyond 500 kB fails by name, and continues later.
pub(crate) fn fill_the_disk(stream: &Stream) {
    for format in [Format::Parquet, Format::Avro] {
        let whole = stream.target(&format!("whole-{format:?}"));
        assert!(export(stream, &whole, &options(format)).is_equal());
        let largest = files(&whole).values().map(Vec::len).max().unwrap();
        // The largest file fits to a half: the signal is ignored, so that writing fails.
        let blocks = largest / 2 / ULIMIT_BLOCK_BYTES;
        assert!(blocks > 0, "{largest}");
        let folder = stream.target(&format!("full-{format:?}"));
        let shell = format!("trap '' XFSZ; ulimit -f {blocks};");
        let output = command(stream, &folder, format, &shell).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("failed: ") && said.contains(".tmp: "), "{said}");
        assert!(export(stream, &folder, &options(format)).is_equal());
        assert!(files(&whole) == files(&folder));
    }
}
