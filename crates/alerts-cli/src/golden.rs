//! Goldens of what the program shows to others by name: its command line and the keys of its JSON.

#[cfg(test)]
#[path = "../../console/tests/golden/mod.rs"]
mod shared;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;

    use super::shared::{command_line, hold, json_keys};
    use crate::args::Cli;

    const ARGUMENTS: &str = include_str!("../tests/it/golden/arguments.txt");
    const JSON_KEYS: &str = include_str!("../tests/it/golden/json_keys.txt");

    /// Commands, arguments, values, defaults and environment variables.
    #[test]
    fn the_command_line_is_what_it_was() {
        let actual = command_line(Cli::command(), "helio-alerts");
        hold("helio-alerts-arguments.txt", ARGUMENTS, &actual);
    }

    /// The keys and variants of every type of this program that becomes JSON.
    #[test]
    fn the_keys_of_json_are_what_they_were() {
        let keys = json_keys(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        hold("helio-alerts-json_keys.txt", JSON_KEYS, &keys);
    }
}
