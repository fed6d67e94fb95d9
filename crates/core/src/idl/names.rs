//! Names in IDL: keywords, and unique names within a scope.

use std::collections::{HashMap, HashSet};

use super::MAX_NAME_BYTES;

/// The keywords of IDL 4.2 (section 7.2.4), in lower case: they collide in any case.
const KEYWORDS: &str = "
    abstract alias any attribute bitfield bitmask bitset boolean case char component connector
    const consumes context custom default double emits enum eventtype exception factory false
    finder fixed float getraises getter home import in inout int16 int32 int64 int8 interface
    local long manages map mirrorport module multiple native object octet oneway out port
    porttype primarykey private provides public publishes raises readonly sequence setraises
    setter short string struct supports switch true truncatable typedef typeid typename
    typeprefix uint16 uint32 uint64 uint8 union unsigned uses valuebase valuetype void wchar
    wstring
";

/// Returns the name as written in IDL: keywords are escaped with an underscore, which is no part of
/// the name.
pub(super) fn escaped(name: &str) -> String {
    let small = name.to_ascii_lowercase();
    match KEYWORDS.split_whitespace().any(|keyword| keyword == small) {
        true => format!("_{name}"),
        false => name.to_owned(),
    }
}

/// Returns a scoped name as written in IDL, from the outermost scope.
pub(super) fn scoped(name: &str) -> String {
    let parts: Vec<String> = name.split("::").map(escaped).collect();
    format!("::{}", parts.join("::"))
}

/// Returns why a name is invalid in IDL, if it is.
pub(super) fn problem(name: &str) -> Option<String> {
    if name.starts_with('_') {
        Some(format!("the name {name:?}, which begins with the sign that escapes"))
    } else if name.len() > MAX_NAME_BYTES {
        Some(format!("a name of {} bytes; Cyclone DDS takes {MAX_NAME_BYTES}", name.len()))
    } else {
        None
    }
}

/// The declarations of each module. IDL names that differ only in case are equal.
#[derive(Default)]
pub(super) struct Scopes(HashMap<String, HashSet<String>>);

impl Scopes {
    /// Declares a module, with its parents.
    pub(super) fn module(&mut self, module: &str) {
        let mut outer = String::new();
        for part in module.split("::").filter(|part| !part.is_empty()) {
            self.0.entry(outer.clone()).or_default().insert(part.to_ascii_lowercase());
            outer = if outer.is_empty() { part.to_owned() } else { format!("{outer}::{part}") }
                .to_ascii_lowercase();
            // A module's own name cannot be used inside it.
            self.0.entry(outer.clone()).or_default().insert(part.to_ascii_lowercase());
        }
    }

    /// Returns whether all of `names` are free in a module.
    pub(super) fn free<'a>(&self, module: &str, mut names: impl Iterator<Item = &'a str>) -> bool {
        let taken = self.0.get(&module.to_ascii_lowercase());
        let mut seen = HashSet::new();
        names.all(|name| {
            let small = name.to_ascii_lowercase();
            !taken.is_some_and(|taken| taken.contains(&small)) && seen.insert(small)
        })
    }

    /// Declares names in a module.
    pub(super) fn take<'a>(&mut self, module: &str, names: impl Iterator<Item = &'a str>) {
        let taken = self.0.entry(module.to_ascii_lowercase()).or_default();
        taken.extend(names.map(str::to_ascii_lowercase));
    }
}

/// Splits a scoped name into modules and plain name.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once("::").unwrap_or(("", name))
}

/// Joins modules and a plain name.
pub(super) fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_escaped_in_any_case() {
        assert_eq!(escaped("Native"), "_Native");
        assert_eq!(escaped("sequence"), "_sequence");
        assert_eq!(escaped("elevation"), "elevation");
        assert_eq!(scoped("a::map::T"), "::a::_map::T");
    }
}
