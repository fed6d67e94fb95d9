//! Generates Rust from Protobuf, in Rust: neither `protoc` nor anything of the system is needed.

use std::fs;
use std::path::Path;

use protox::prost_reflect::prost_types::FileDescriptorSet;

use crate::generated::{SETS, Set, header, sum};

/// Writes all generated files.
///
/// # Errors
/// If a source is no Protobuf, or a file cannot be read or written.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    SETS.iter().try_for_each(|set| write_set(root, set))
}

fn write_set(root: &Path, set: &Set) -> Result<(), String> {
    let folder = root.join(set.folder);
    let compiled = protox::compile([set.root], [&folder]).map_err(|error| format!("{error:?}"))?;
    let body = generate(compiled).map_err(|error| format!("{}: {error}", set.folder))?;
    let text = header(sources(&folder)?, &body) + &body;
    let output = root.join(set.output);
    fs::write(&output, text).map_err(|error| format!("{}: {error}", output.display()))
}

fn sources(folder: &Path) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".proto") {
            sources.push((name, fs::read_to_string(&path).map_err(failed)?));
        }
    }
    Ok(sum(sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()))
}

/// One file with a module for each package, without comments: the sources have them.
fn generate(mut compiled: FileDescriptorSet) -> std::io::Result<String> {
    for file in &mut compiled.file {
        file.source_code_info = None;
    }
    let made = tempfile::tempdir()?;
    let mut config = tonic_prost_build::Config::new();
    config.include_file("all.rs");
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .build_transport(false)
        .bytes(".")
        // Kept encoded, from the log to the answer.
        .extern_path(".mvccpb.KeyValue", "crate::KeyValue")
        .out_dir(made.path())
        .compile_fds_with_config(compiled, config)?;
    inline(made.path())
}

/// The modules of `all.rs`, with the files that it includes in their places.
fn inline(made: &Path) -> std::io::Result<String> {
    let mut body = String::new();
    for line in fs::read_to_string(made.join("all.rs"))?.lines() {
        let included = line.trim().strip_prefix("include!(\"").and_then(|l| l.strip_suffix("\");"));
        let included = included.or_else(|| {
            let name = line.trim().strip_prefix("include!(concat!(env!(\"OUT_DIR\"), \"/")?;
            name.strip_suffix("\"));")
        });
        match included {
            Some(name) => body += &fs::read_to_string(made.join(name))?,
            None => body += line,
        }
        body.push('\n');
    }
    Ok(body)
}
