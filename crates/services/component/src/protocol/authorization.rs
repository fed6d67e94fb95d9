//! Authorization: which caller may send which command.
//!
//! The file is YAML:
//!
//! ```yaml
//! default: allow            # or deny: for callers that no identity names
//! trust: declared           # or signed, as without it; see below
//! keys:
//!   "alice@summit3": MCowBQYDK2VwAyEARSZZVIdY4MwF4Pgi1g9izaWdRB+MdUW386eXf1cJY8k=
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
//!
//! A caller's name is *declared* unless the command has a [signature](super::SignedCommand) by a
//! key of that name under `keys`, an Ed25519 public key or a list of them. A name with a key is
//! never accepted without a signature. With `default: deny`, declared names are refused, unless
//! `trust` is `declared`.

use std::collections::BTreeMap;
use std::fmt;

use helio_core::name::fits;
use serde::Deserialize;
use serde_saphyr::Spanned;
use thiserror::Error;

use super::{PublicKey, Request, SignedCommand};

/// The longest authorization file, in bytes: ten thousand people and rules fit.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

/// The most keys of one caller: each costs the verification of a signature.
const MAX_KEYS: usize = 8;

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
    trust: Trust,
    keys: BTreeMap<String, Vec<PublicKey>>,
    roles: BTreeMap<String, Vec<Rule>>,
    identities: Vec<(String, Vec<String>)>,
    /// Whether it is of a file, and not the default.
    is_written: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DefaultDecision {
    #[default]
    Allow,
    Deny,
}

/// The names that `default: deny` accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Trust {
    #[default]
    Signed,
    Declared,
}

/// The public keys of a caller: several while one replaces another.
#[derive(Deserialize)]
#[serde(untagged)]
enum Keys {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyDocument {
    default: DefaultDecision,
    #[serde(default)]
    trust: Trust,
    #[serde(default)]
    keys: BTreeMap<String, Keys>,
    #[serde(default)]
    roles: BTreeMap<String, Vec<Spanned<String>>>,
    #[serde(default)]
    identities: BTreeMap<String, Vec<Spanned<String>>>,
}

/// What is known of a caller's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The command names it, and anybody may write that name.
    Declared,
    /// The command has a signature by a key of that name.
    Signed,
}

/// A caller's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerName<'a> {
    /// The name.
    pub name: &'a str,
    /// What is known of it.
    pub proof: Proof,
}

impl fmt::Display for CallerName<'_> {
    /// The name, after `declared:` unless it is proved.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.proof == Proof::Declared { "declared:" } else { "" })?;
        f.write_str(self.name)
    }
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
            let remedy = "write `default: allow` or `deny`, then `trust`, `keys`, `roles`, \
                          `identities`";
            refused(line, cause, remedy)
        })?;
        let keys = document.keys.into_iter().map(|(caller, keys)| {
            let keys = public_keys(&caller, keys)?;
            Ok((caller, keys))
        });
        let keys = keys.collect::<Result<_, PolicyError>>()?;
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
        let (otherwise, trust) = (document.default, document.trust);
        Ok(Self { otherwise, trust, keys, roles, identities, is_written: true })
    }

    /// Whether it is of an authorization file.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// Whether a caller has a key, so that its commands must be signed.
    #[must_use]
    pub fn has_key(&self, caller: &str) -> bool {
        self.keys.contains_key(caller)
    }

    /// Whether a request to a component (its name, with `:index` if it is indexed) has a signature
    /// by a key of its caller.
    #[must_use]
    pub fn proves(&self, component: &str, request: &Request) -> bool {
        let keys = self.keys.get(request.who()).map_or(&[][..], Vec::as_slice);
        let Some(signature) = request.signature.filter(|_| !keys.is_empty()) else { return false };
        let Some(command) = SignedCommand::of(component, request) else { return false };
        keys.iter().any(|key| key.verifies(&command, &signature))
    }

    /// The decision whether a caller may send a command to a component.
    #[must_use]
    pub fn permits(
        &self,
        caller: CallerName<'_>,
        component: &str,
        index: i32,
        command: &str,
    ) -> Decision {
        let CallerName { name: caller, proof } = caller;
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
        let (deny, signed) = (DefaultDecision::Deny, Trust::Signed);
        if (self.otherwise, self.trust, proof) == (deny, signed, Proof::Declared) {
            return Decision::Refused(format!(
                "{caller} is a declared name, which the authorization file does not accept: sign \
                 the command with a key that it has under `keys`, or write `trust: declared` there"
            ));
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

fn public_keys(caller: &str, keys: Keys) -> Result<Vec<PublicKey>, PolicyError> {
    let keys = match keys {
        Keys::One(key) => vec![key],
        Keys::Many(keys) => keys,
    };
    if keys.is_empty() || keys.len() > MAX_KEYS {
        let cause = format!("{caller:?} has {} keys", keys.len());
        return Err(refused(None, cause, format!("write 1 to {MAX_KEYS}, or remove the name")));
    }
    let parsed = keys.iter().map(|key| PublicKey::parse(key));
    parsed.collect::<Result<_, _>>().map_err(|error| {
        let cause = format!("a key of {caller:?} is {error}");
        refused(None, cause, "a key is of one name, which is not a pattern")
    })
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
trust: declared
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
        policy.permits(declared(caller), component, index, command) == Decision::Allowed
    }

    fn declared(name: &str) -> CallerName<'_> {
        CallerName { name, proof: Proof::Declared }
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
        assert_eq!(Policy::default().permits(declared("x"), "Y", 0, "z"), Decision::Allowed);
    }

    #[test]
    fn deny_accepts_declared_names_only_if_the_file_says_so() {
        let signed = |name| CallerName { name, proof: Proof::Signed };
        let strict = Policy::parse(&FILE.replace("trust: declared\n", "")).unwrap();
        let reason = |caller| match strict.permits(caller, "MTMount", 0, "trackTarget") {
            Decision::Allowed => String::new(),
            Decision::Refused(reason) => reason,
        };
        assert!(reason(declared("MTPtg")).starts_with("MTPtg is a declared name, which"));
        assert_eq!(reason(signed("MTPtg")), "");
        assert!(reason(signed("bob")).starts_with("bob is named nowhere"));
        let open = FILE.replace("trust: declared\n", "").replace("deny", "allow");
        let open = Policy::parse(&open).unwrap();
        for name in ["MTPtg", "bob"] {
            let decision = open.permits(declared(name), "MTMount", 0, "trackTarget");
            assert_eq!(decision, Decision::Allowed);
        }
        let texts = [declared("a").to_string(), signed("a").to_string()];
        assert_eq!(texts, ["declared:a", "a"]);
    }

    #[test]
    fn keys_are_of_names() {
        let key = crate::protocol::CallerKey::of_seed(&[1; 32]).public();
        let file = |keys: &str| Policy::parse(&format!("default: allow\nkeys: {{{keys}}}\n"));
        let policy = file(&format!("alice: {key}, bob: [{key}, {key}]")).unwrap();
        assert!(policy.has_key("alice") && policy.has_key("bob") && !policy.has_key("carol"));
        let error = file("alice: x").unwrap_err();
        assert!(error.cause.starts_with("a key of \"alice\" is no Ed25519 public key"), "{error}");
        assert_eq!(file("alice: []").unwrap_err().cause, "\"alice\" has 0 keys");
        assert!(file("alice: 3").is_err() && file("alice: {a: b}").is_err());
    }

    #[test]
    fn the_reason_is_told() {
        let policy = Policy::parse(FILE).unwrap();
        let reason = |caller| match policy.permits(declared(caller), "MTMount", 2, "enable") {
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
