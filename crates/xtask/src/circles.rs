//! Circles of modules that import each other, held to a number a crate that only goes down; and
//! modules that no other may import.
//!
//! A module is a file; an arrow is a path from `crate`, `super` or `self` outside test code. Paths
//! that end in the crate's root (its re-exports) and `mod child;` are not arrows.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::{CIRCLE_MODULES, CIRCLE_RATCHET, FORBIDDEN_IMPORTS};
use crate::rust_source::Source;
use crate::tree::{File, Language, Tree};
use crate::{Finding, metadata::Package};

/// A module's path from the crate's root.
type Module = Vec<String>;
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// The crates whose largest circle is not the number that they are held to.
pub(crate) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    packages.iter().filter_map(|package| check_package(tree, package)).collect()
}

fn check_package(tree: &Tree, package: &Package) -> Option<Finding> {
    let arrows = arrows(tree, &format!("{}/src/", package.folder));
    let largest = circles(&arrows).into_iter().max_by_key(Vec::len).unwrap_or_default();
    let listed = CIRCLE_RATCHET.iter().find(|(folder, _)| *folder == package.folder);
    let limit = listed.map_or(CIRCLE_MODULES, |(_, modules)| *modules);
    let names = || largest.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(", ");
    let message = match largest.len() {
        found if found > limit => {
            format!("{found} modules import each other, {limit} at most: {}", names())
        }
        found if listed.is_some() && found < limit => {
            format!("the largest circle has {found} modules now: write it into xtask's limits.rs")
        }
        _ => return None,
    };
    Some(Finding::new(&format!("{}/Cargo.toml", package.folder), 1, "circles", message))
}

/// Imports of modules that no other module of their crate may import.
pub(crate) fn forbidden(tree: &Tree) -> Vec<Finding> {
    FORBIDDEN_IMPORTS.iter().flat_map(|(folder, module)| importers(tree, folder, module)).collect()
}

/// A finding for each module that imports a forbidden one from outside, or for its absence.
fn importers(tree: &Tree, folder: &str, module: &str) -> Vec<Finding> {
    let forbidden: Module = module.split("::").map(str::to_owned).collect();
    let arrows = arrows(tree, folder);
    if !arrows.contains_key(&forbidden) {
        let message =
            format!("no module {module}, which xtask's limits.rs lists: correct its name");
        return vec![Finding::new(folder, 1, "layers", message)];
    }
    let importing = arrows.iter().filter(|(other, named)| {
        !other.is_empty()
            && !other.starts_with(&forbidden)
            && named.iter().any(|named| named.starts_with(&forbidden))
    });
    let finding = |(other, _): (&Module, _)| {
        let message = format!("{} imports {module}, which lies above it", other.join("::"));
        Finding::new(folder, 1, "layers", message)
    };
    importing.map(finding).collect()
}

/// The modules of a crate's source folder, each with those that it names.
fn arrows(tree: &Tree, folder: &str) -> Arrows {
    let sources = tree.files.iter().filter(|file| file.language() == Language::Rust);
    let sources: BTreeMap<Module, &File> = sources
        .filter(|file| !file.is_test())
        .filter_map(|file| Some((module(file.path.strip_prefix(folder)?)?, file)))
        .collect();
    let named = |(module, file): (&Module, &&File)| {
        let named = names(module, file).filter_map(|path| resolved(path, &sources));
        (module.clone(), named.filter(|other| other != module).collect())
    };
    sources.iter().map(named).collect()
}

/// The module that a file is; none for programs of a library's crate.
fn module(path: &str) -> Option<Module> {
    let path = path.strip_suffix(".rs")?;
    let parts: Module = path.split('/').map(str::to_owned).collect();
    match parts.split_last()? {
        (last, above) if last == "mod" => Some(above.to_vec()),
        (last, []) if last == "lib" || last == "main" => Some(Vec::new()),
        _ => Some(parts),
    }
}

/// The paths from the crate's root that a module's code names.
fn names(module: &Module, file: &File) -> impl Iterator<Item = Module> {
    let source = Source::new(&file.text);
    let above = &module[..module.len().saturating_sub(1)];
    let mut found = Vec::new();
    for (root, base) in [("crate", &[][..]), ("super", above), ("self", module)] {
        for (_, path) in source.paths(root).into_iter().filter(|(at, _)| !source.is_test(*at)) {
            let mut full = base.to_vec();
            for part in path.split("::").skip(1) {
                if part == "super" {
                    full.pop();
                } else {
                    full.push(part.to_owned());
                }
            }
            found.push(full);
        }
    }
    found.into_iter()
}

/// The module in which a path ends; none for the crate's root.
fn resolved(mut path: Module, modules: &BTreeMap<Module, &File>) -> Option<Module> {
    while !path.is_empty() && !modules.contains_key(&path) {
        path.pop();
    }
    (!path.is_empty()).then_some(path)
}

/// The groups of two and more modules of which each reaches each.
fn circles(arrows: &Arrows) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        arrows.keys().map(|module| (module, reach(module, arrows))).collect();
    let mut found: Vec<Vec<Module>> = Vec::new();
    for (module, others) in &reached {
        if others.contains(module) && !found.iter().any(|circle| circle.contains(module)) {
            let back = others.iter().filter(|other| reached[*other].contains(module));
            found.push(back.map(|other| (*other).clone()).collect());
        }
    }
    found
}

/// All modules that a module names, directly or not.
fn reach<'a>(module: &Module, arrows: &'a Arrows) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = arrows[module].iter().collect();
    while let Some(other) = next.pop() {
        if reached.insert(other) {
            next.extend(arrows.get(other).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let contents = files
            .iter()
            .map(|(path, text)| (format!("crates/a/src/{path}"), Some((*text).to_owned())));
        Tree::new(".".into(), contents.collect())
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let circles = circles(&arrows(&tree(files), "crates/a/src/"));
        circles.into_iter().flatten().map(|module| module.join("::")).collect()
    }

    #[test]
    fn modules_that_name_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::{c::inner::C, other};"),
            ("c/mod.rs", "mod inner;"),
            ("c/inner.rs", "use super::super::a::A;"),
        ];
        assert_eq!(found(&files), ["a", "b", "c::inner"]);
    }

    #[test]
    fn tests_re_exports_and_own_children_make_no_circle() {
        let files = [
            ("lib.rs", "pub use a::A;"),
            ("a.rs", "use crate::B;\n#[cfg(test)]\nmod tests { use crate::b::B; }"),
            ("b.rs", "use crate::a::A;"),
            ("b/tests.rs", "use crate::b::B;"),
            ("c/mod.rs", "mod child; use child::Child;"),
            ("c/child.rs", "use super::C;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn imports_of_a_forbidden_module_and_its_absence_are_found() {
        let files = [
            ("lib.rs", "pub mod top; mod a; mod b; pub use top::Top;"),
            ("a.rs", "use crate::top::inner::Inner;"),
            ("b.rs", "use crate::a::A;\n#[cfg(test)]\nmod tests { use crate::top::Top; }"),
            ("top/mod.rs", "mod inner; use crate::b::B;"),
            ("top/inner.rs", "use super::Top;"),
        ];
        let found = importers(&tree(&files), "crates/a/src/", "top");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].to_string().starts_with("crates/a/src/:1: layers: a imports top"));
        assert_eq!(importers(&tree(&files), "crates/a/src/", "gone").len(), 1);
    }

    #[test]
    fn a_circle_over_the_limit_is_found() {
        let text = |next: usize| format!("use crate::m{next}::X;");
        let texts: Vec<(String, String)> = (0..=CIRCLE_MODULES)
            .map(|n| (format!("m{n}.rs"), text((n + 1) % (CIRCLE_MODULES + 1))))
            .collect();
        let files: Vec<(&str, &str)> =
            texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let package = Package { folder: "crates/a".into(), ..Package::default() };
        assert_eq!(check(&tree(&files), std::slice::from_ref(&package)).len(), 1);
        assert_eq!(check(&tree(&files[1..]), &[package]).len(), 0);
    }
}
