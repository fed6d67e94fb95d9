//! The `helio-alerts` program. All of it is in the library, whose unit tests build without linking
//! twice.

fn main() -> std::process::ExitCode {
    helio_alerts_cli::main()
}
