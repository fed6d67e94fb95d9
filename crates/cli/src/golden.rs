//! Goldens of what the program shows to others by name: its command line, the keys of its JSON and
//! its exit codes. They hold the names apart from the Rust identifiers that they come from.
//!
//! Where a change is intended, a failed test leaves the new text beside the build, and names it.

#[cfg(test)]
#[path = "../../console/tests/golden/mod.rs"]
mod shared;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;

    use crate::args::Cli;
    use crate::error::CliError;

    use super::shared::{command_line, hold, json_keys, serialized_types};

    const ARGUMENTS: &str = include_str!("../tests/it/golden/arguments.txt");
    const JSON_KEYS: &str = include_str!("../tests/it/golden/json_keys.txt");

    /// Commands, arguments, values, defaults and environment variables.
    #[test]
    #[cfg(all(feature = "dds", feature = "kafka"))]
    fn the_command_line_is_what_it_was() {
        hold("helio-arguments.txt", ARGUMENTS, &command_line(Cli::command(), "helio"));
    }

    /// The keys and variants of every type of this program that becomes JSON.
    #[test]
    fn the_keys_of_json_are_what_they_were() {
        let keys = json_keys(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        assert!(keys.lines().count() > 100, "{keys}");
        hold("helio-json_keys.txt", JSON_KEYS, &keys);
    }

    #[test]
    fn names_are_found_with_what_changes_them() {
        let source = "\
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = \"lowercase\")]
pub(crate) enum Word {
    /// Here: it is.
    Ready,
    Refused(String, u64),
    Came { a: u64, b: Map<String, (u8, u8)> },
}

#[derive(Serialize)]
struct Row<'a> {
    pub(crate) first: &'a [u8],
    #[serde(rename = \"type\")]
    kind: u8, // here
}
";
        let found = serialized_types(source);
        let word = "(rename_all = \"lowercase\") enum { Ready Refused Came{ a b}}";
        let row = "struct { first (rename = \"type\") kind}";
        let squeezed = |text: &str| text.replace(' ', "");
        assert_eq!(squeezed(&found.join("/")), squeezed(&format!("{word}/{row}")));
    }

    /// What `schema idl --json` calls the forms of types.
    #[test]
    fn the_forms_of_dds_types_are_what_they_were() {
        use helio_core::idl::TopicType;
        use helio_core::schema::Schema;

        let schema: Schema = r#"{"type": "record", "name": "Wind", "fields": [
        {"name": "speed", "type": "double"}]}"#
            .parse()
            .unwrap();
        let forms = [TopicType::new(&schema).unwrap(), TopicType::foreign(&schema).unwrap()]
            .map(|of| crate::schema::idl::form(&of));
        assert_eq!(forms, ["typed", "foreign"]);
        assert_eq!(crate::schema::idl::form(&TopicType::envelope()), "envelope");
    }

    #[test]
    fn exit_codes_are_what_they_were() {
        let text = String::new;
        let codes = [
            (CliError::Pipe, 0),
            (CliError::Failure(text()), 1),
            (CliError::Usage(text()), 2),
            (CliError::NotFound(text()), 3),
            (CliError::Refused(text()), 4),
            (CliError::Lost(text()), 5),
            (CliError::Worker(7), 7),
            (CliError::Interrupted, 130),
            (CliError::Left(text()), 130),
        ];
        for (error, code) in codes {
            assert_eq!(error.code(), code, "{error:?}");
        }
    }
}
