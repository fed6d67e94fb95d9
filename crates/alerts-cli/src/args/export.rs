//! The arguments of `helio-alerts export`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use helio_alert_export::{Compression, Format, Night, StampsChoice};
use helio_console::args::Output;

use super::stream::StreamArg;

/// `helio-alerts export`.
#[derive(Debug, Args)]
#[group(id = "wanted", required = true, multiple = false, args = ["night", "visit"])]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) stream: StreamArg,
    /// The night, by the date of its evening, such as 2026-11-25.
    #[arg(long, value_name = "DATE")]
    pub(crate) night: Option<Night>,
    /// A visit; may be repeated.
    #[arg(long, value_name = "VISIT")]
    pub(crate) visit: Vec<i64>,
    /// The folder, which is created. If it has this export, interrupted or finished, that is
    /// continued.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) to: PathBuf,
    /// The format of the files: parquet or avro.
    #[arg(long, default_value = "parquet", value_name = "FORMAT")]
    pub(crate) format: Format,
    /// Their compression: zstd (parquet), deflate or snappy (avro), or none.
    #[arg(long, value_name = "NAME")]
    pub(crate) compression: Option<Compression>,
    /// Only alerts that a filter matches: a stored one, USER/NAME or USER/NAME@VERSION, a query, or
    /// @FILE with one. There is no cap.
    #[arg(long, value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// The columns of Parquet files, separated by commas, such as `diaSource.ra,prvDiaSources`.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub(crate) columns: Option<Vec<String>>,
    /// The stamps: none, or inline.
    #[arg(long, default_value = "none", value_name = "STAMPS")]
    pub(crate) stamps: StampsChoice,
    #[command(flatten)]
    pub(crate) output: Output,
}
