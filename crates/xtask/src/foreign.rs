//! No file names a path of the machine that it was written on.

use crate::{File, Finding};

/// Folders of somebody's own machine, in halves so that this file does not name them itself.
const HOMES: &[(&str, &str)] =
    &[("/ho", "me/"), ("/ro", "ot/"), ("/wo", "rk/"), ("/Use", "rs/"), ("/tmp/ta", "rget/")];

fn names_a_home(line: &str) -> bool {
    HOMES.iter().map(|(a, b)| format!("{a}{b}")).any(|home| {
        line.match_indices(&home).any(|(at, _)| {
            // A folder of that name inside a longer path is not one.
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}~".contains(c))
        })
    })
}

pub(crate) fn check(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().zip(1..).filter(|(line, _)| names_a_home(line));
    let message = "a path of somebody's machine; name it relative to the checkout, or from ~";
    lines.map(|(_, number)| Finding::new(&file.path, number, "machine-path", message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_machine_is_found() {
        let text = |path: &str| File { path: "a.md".into(), text: format!("see `{path}`\n") };
        assert_eq!(check(&text(&["/ho", "me/anna/site"].concat())).len(), 1);
        assert_eq!(check(&text(&["/wo", "rk/main"].concat())).len(), 1);
        assert_eq!(check(&text(&["net", "/wo", "rk/main"].concat())), []);
        assert_eq!(check(&text("/var/lib/helio")), []);
    }
}
