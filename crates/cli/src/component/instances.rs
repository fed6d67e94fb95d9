//! The simulated instances of a component, by the rules of `--instances`.

use helio_core::name::fits;
use helio_core::sal::{Component, Indexing};

use crate::args::instances::Instances;
use crate::error::{CliError, CliResult};

/// The indices of a component's instances by the last matching rule; 0 if it is not indexed.
pub(crate) fn indices(component: &Component, rules: &[Instances]) -> Vec<i32> {
    let fit = |rule: &&Instances| match rule {
        Instances::Named | Instances::One => true,
        Instances::Of(pattern, _) => fits(pattern, component.name()),
    };
    let named = named(component);
    let wanted = match rules.iter().rev().find(fit) {
        Some(Instances::One) => 1,
        Some(Instances::Of(_, number)) => *number as usize,
        Some(Instances::Named) | None => named.len(),
    };
    if !component.indexed() {
        return named.into_iter().take(wanted).collect();
    }
    // Named indices first, then unnamed ones.
    let further = (1..).filter(|index| !named.contains(index));
    named.iter().copied().chain(further).take(wanted).collect()
}

/// The indices that the interface names; 1 if it names none.
fn named(component: &Component) -> Vec<i32> {
    let Indexing::Named(names) = component.indexing() else {
        return vec![i32::from(component.indexed())];
    };
    let index = |(_, index): &(String, i64)| i32::try_from(*index).ok().filter(|index| *index > 0);
    let mut indices: Vec<i32> = names.iter().filter_map(index).collect();
    indices.sort_unstable();
    indices.dedup();
    if indices.is_empty() { vec![1] } else { indices }
}

/// Checks that each rule matches a component.
pub(crate) fn check<'a>(
    rules: &[Instances],
    components: impl Iterator<Item = &'a Component> + Clone,
) -> CliResult {
    for rule in rules {
        let Instances::Of(pattern, number) = rule else { continue };
        let mut fitting = components.clone().filter(|component| fits(pattern, component.name()));
        let Some(first) = fitting.next() else {
            let text = format!("--instances {pattern}={number}: no component that runs fits");
            return Err(CliError::Usage(text));
        };
        if *number > 1 && !first.indexed() && fitting.all(|component| !component.indexed()) {
            let text = format!("--instances {pattern}={number}: {} is not indexed", first.name());
            return Err(CliError::Usage(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sal::folder_or_own;

    #[test]
    fn the_last_rule_that_fits_counts() {
        let own = folder_or_own(None).unwrap();
        let of = |name: &str, rules: &[&str]| {
            let rules: Vec<Instances> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            indices(own.component(name).unwrap(), &rules)
        };
        assert_eq!(of("ESS", &[]), [1, 2]);
        assert_eq!(of("MTMount", &["*=3"]), [0]);
        assert_eq!(of("ESS", &["one"]), [1]);
        assert_eq!(of("ESS", &["one", "*=3", "Camera=5"]), [1, 2, 3]);
        assert_eq!(of("ESS", &["ESS=4", "named"]), [1, 2]);
        assert_eq!((of("ESS", &["ESS=0"]), of("MTMount", &["MT*=0"])), (vec![], vec![]));
    }

    #[test]
    fn rules_that_say_nothing_are_mistakes() {
        let own = folder_or_own(None).unwrap();
        let wrong = |rule: &str| {
            let checked = check(&[rule.parse().unwrap()], own.components().iter());
            checked.err().map(|error| error.to_string())
        };
        assert_eq!(wrong("*=3"), None);
        assert_eq!(wrong("MTMount=1"), None);
        assert!(wrong("Dome=2").unwrap().contains("no component that runs fits"));
        assert!(wrong("MTMount=2").unwrap().contains("MTMount is not indexed"));
    }
}
