//! Authorization: which caller may send which command.
//!
//! The file is YAML:
//!
//! ```yaml
//! default: allow            # or deny: for callers that no identity names
//! roles:
//!   operator: ["*"]
//!   observer: ["MTMount.trackTarget", "Camera:1.*", "*.setLogLevel"]
//!   engineer: ["*", "!MTMount.enable"]
//! identities:
//!   "alice@summit*": [operator]
//!   "MTPtg": [observer]
//! ```
//!
//! A rule is `Component[:index].command`, or `*` for everything. `*` also matches any text within a
//! part, and a rule without an index is for every index. `!` removes permissions of the same role's
//! other rules. A caller has the roles of all matching identities, and may do what any of them
//! allows. `cancel` (of others' commands), `lock` and `unlock` (others' locks) are commands here,
//! too.

use std::collections::BTreeMap;
use std::fmt;

use helio_core::name::fits;
use serde::Deserialize;
use serde_saphyr::Spanned;
use thiserror::Error;

/// The longest authorization file, in bytes: ten thousand people and rules fit.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

/// The decision on a caller's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The caller may send it.
    Allowed,
    /// The caller may not, for this reason.
    Refused(String),
}

/// Why an authorization file was rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct PolicyError {
    /// The line, from 1, if known.
    pub line: Option<u64>,
    /// The error.
    pub cause: String,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}; {}", self.cause, self.remedy)
    }
}

/// The rights of callers; the default allows everything to everybody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    otherwise: DefaultDecision,
    roles: BTreeMap<String, Vec<Rule>>,
    identities: Vec<(String, Vec<String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DefaultDecision {
    #[default]
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyDocument {
    default: DefaultDecision,
    #[serde(default)]
    roles: BTreeMap<String, Vec<Spanned<String>>>,
    #[serde(default)]
    identities: BTreeMap<String, Vec<Spanned<String>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    gives: bool,
    component: String,
    index: Option<String>,
    command: String,
}

impl Policy {
    /// Parses an authorization file.
    ///
    /// # Errors
    /// [`PolicyError`] with line, cause and remedy.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        if text.len() > MAX_POLICY_BYTES {
            let cause = format!("the file has {} bytes", text.len());
            return Err(refused(None, cause, format!("{MAX_POLICY_BYTES} are the most")));
        }
        let document: PolicyDocument = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map(|at| at.line());
            let cause = error.without_snippet().to_string();
            refused(line, cause, "write `default: allow` or `deny`, then `roles`, `identities`")
        })?;
        let mut roles = BTreeMap::new();
        for (name, rules) in document.roles {
            let rules = rules.iter().map(rule).collect::<Result<_, _>>()?;
            roles.insert(name, rules);
        }
        let mut identities = Vec::new();
        for (pattern, named) in document.identities {
            if let Some(unknown) = named.iter().find(|role| !roles.contains_key(&role.value)) {
                let cause = format!("{pattern:?} has the role {:?}, which is none", unknown.value);
                return Err(refused(line(unknown), cause, known(&roles)));
            }
            identities.push((pattern, named.into_iter().map(|role| role.value).collect()));
        }
        Ok(Self { otherwise: document.default, roles, identities })
    }

    /// The decision whether a caller may send a command to a component.
    #[must_use]
    pub fn permits(&self, caller: &str, component: &str, index: i32, command: &str) -> Decision {
        let matching = self.identities.iter().filter(|(pattern, _)| fits(pattern, caller));
        let mut roles: Vec<&str> =
            matching.clone().flat_map(|(_, roles)| roles.iter().map(String::as_str)).collect();
        if matching.count() == 0 {
            return match self.otherwise {
                DefaultDecision::Allow => Decision::Allowed,
                DefaultDecision::Deny => Decision::Refused(format!(
                    "{caller} is named nowhere in the authorization file, whose default is deny"
                )),
            };
        }
        if roles.iter().any(|role| self.role_permits(role, component, index, command)) {
            return Decision::Allowed;
        }
        roles.sort_unstable();
        roles.dedup();
        let has = match &roles[..] {
            [] => "has no role, hence not".to_owned(),
            [one] => format!("has the role {one}, which does not allow"),
            many => format!("has the roles {}, none of which allows", many.join(", ")),
        };
        let at = if index == 0 { String::new() } else { format!(":{index}") };
        Decision::Refused(format!("{caller} {has} {component}{at}.{command}"))
    }

    fn role_permits(&self, role: &str, component: &str, index: i32, command: &str) -> bool {
        let rules = self.roles.get(role).map_or(&[][..], Vec::as_slice);
        let mut hits = rules.iter().filter(|rule| rule.applies(component, index, command));
        let mut given = false;
        hits.all(|rule| {
            given |= rule.gives;
            rule.gives
        }) && given
    }
}

impl Rule {
    fn applies(&self, component: &str, index: i32, command: &str) -> bool {
        let index_applies =
            self.index.as_ref().is_none_or(|pattern| fits(pattern, &index.to_string()));
        index_applies && fits(&self.component, component) && fits(&self.command, command)
    }
}

fn rule(text: &Spanned<String>) -> Result<Rule, PolicyError> {
    let wrong = || {
        let cause = format!("{:?} is no rule", text.value);
        refused(line(text), cause, "write `Component.command`, `Component:1.command` or `*`")
    };
    let (gives, rest) = match text.value.strip_prefix('!') {
        Some(rest) => (false, rest),
        None => (true, text.value.as_str()),
    };
    let (component, command) =
        if rest == "*" { ("*", "*") } else { split(rest).ok_or_else(wrong)? };
    let (component, index) = match component.split_once(':') {
        Some((component, index)) => (component, Some(index)),
        None => (component, None),
    };
    let name = |part: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '*';
        !part.is_empty() && part.chars().all(legal)
    };
    let number = |part: &str| part == "*" || part.parse::<i32>().is_ok();
    if !name(component) || !name(command) || !index.is_none_or(number) {
        return Err(wrong());
    }
    let (component, command) = (component.to_owned(), command.to_owned());
    Ok(Rule { gives, component, index: index.map(str::to_owned), command })
}

fn split(rule: &str) -> Option<(&str, &str)> {
    rule.split_once('.')
}

fn line(text: &Spanned<String>) -> Option<u64> {
    Some(text.referenced.line()).filter(|line| *line > 0)
}

fn known(roles: &BTreeMap<String, Vec<Rule>>) -> String {
    let names: Vec<&str> = roles.keys().map(String::as_str).collect();
    match &names[..] {
        [] => "define it under `roles`".to_owned(),
        names => format!("the roles are: {}", names.join(", ")),
    }
}

fn refused(line: Option<u64>, cause: String, remedy: impl Into<String>) -> PolicyError {
    PolicyError { line, cause, remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
default: deny
roles:
  operator: [\"*\"]
  observer: [\"MTMount.trackTarget\", \"Camera:1.*\", \"*.setLogLevel\"]
  engineer: [\"*\", \"!MTMount.enable\"]
identities:
  \"alice@summit*\": [operator]
  \"MTPtg\": [observer]
  \"eve\": [engineer]
  \"eve*\": [observer]
  \"nobody\": []
";

    fn allowed(caller: &str, component: &str, index: i32, command: &str) -> bool {
        let policy = Policy::parse(FILE).unwrap();
        policy.permits(caller, component, index, command) == Decision::Allowed
    }

    #[test]
    fn rules_are_followed() {
        assert!(allowed("alice@summit3", "MTMount", 0, "enable"));
        assert!(!allowed("alice@base", "MTMount", 0, "enable"));
        assert!(allowed("MTPtg", "MTMount", 0, "trackTarget"));
        assert!(!allowed("MTPtg", "MTMount", 0, "enable"));
        assert!(allowed("MTPtg", "Camera", 1, "enable"));
        assert!(!allowed("MTPtg", "Camera", 2, "enable"));
        assert!(allowed("MTPtg", "Dome", 0, "setLogLevel"));
        assert!(allowed("eve", "MTMount", 0, "start") && !allowed("eve", "MTMount", 0, "enable"));
        assert_eq!(Policy::default().permits("x", "Y", 0, "z"), Decision::Allowed);
    }

    #[test]
    fn the_reason_is_told() {
        let policy = Policy::parse(FILE).unwrap();
        let reason = |caller| match policy.permits(caller, "MTMount", 2, "enable") {
            Decision::Allowed => String::new(),
            Decision::Refused(reason) => reason,
        };
        let named_nowhere = "bob is named nowhere in the authorization file, whose default is deny";
        assert_eq!(reason("bob"), named_nowhere);
        let not_allowed = "MTPtg has the role observer, which does not allow MTMount:2.enable";
        assert_eq!(reason("MTPtg"), not_allowed);
        let none = "eve has the roles engineer, observer, none of which allows MTMount:2.enable";
        assert_eq!(reason("eve"), none);
        assert_eq!(reason("nobody"), "nobody has no role, hence not MTMount:2.enable");
    }

    #[test]
    fn a_wrong_file_is_told_with_its_line() {
        let error = |text: &str| Policy::parse(text).unwrap_err();
        let wrong_rule = error("default: deny\nroles:\n  a:\n    - \"MTMount\"\n");
        assert_eq!((wrong_rule.line, &*wrong_rule.cause), (Some(4), "\"MTMount\" is no rule"));
        let wrong_role = error("default: deny\nroles: {a: [\"*\"]}\nidentities:\n  bob: [b]\n");
        assert_eq!(wrong_role.line, Some(4));
        assert_eq!(wrong_role.remedy, "the roles are: a");
        for (text, line) in [
            ("default: maybe\n", 1),
            ("default: deny\nrolls: {}\n", 2),
            ("default: deny\nroles: 3\n", 2),
            ("default: deny\nroles: {a: [], a: []}\n", 2),
            ("default: [", 1),
        ] {
            assert_eq!(error(text).line, Some(line), "{text:?}: {}", error(text));
        }
        assert!(Policy::parse("").is_err());
        assert!(Policy::parse(&"#".repeat(MAX_POLICY_BYTES + 1)).is_err());
        for rule in ["", "!", "a.b.c", "a b.c", ".c", "a.", "a:x.c", "é.c"] {
            let text = format!("default: allow\nroles: {{a: [{rule:?}]}}\n");
            assert_eq!(error(&text).cause, format!("{rule:?} is no rule"));
        }
    }

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "acb", false),
            ("*ab", "aab", true),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }
}
