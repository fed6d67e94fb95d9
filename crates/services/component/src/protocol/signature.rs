//! Signatures of commands, which prove the caller: Ed25519 (RFC 8032).
//!
//! Constraints. No transport proves who wrote a sample. A signature is verified with the public key
//! that the authorization file has for the caller's name, and with nothing else. Verification needs
//! no clock and no randomness. A signed command runs once: its trace id is remembered until its
//! expiry, and its instance ends with the component's lease.
//!
//! Format. The signature covers a JSON text without blanks, an array of
//!
//! | # | value |
//! |---|---|
//! | 0 | `"helio-command-1"` |
//! | 1 | the component, `Name` or `Name:index` |
//! | 2 | `run`, `validate`, `cancel`, `lock` or `unlock` |
//! | 3 | the command; empty for lock and unlock |
//! | 4 | the cancelled command's number, the lock's seconds, or null |
//! | 5 | the caller |
//! | 6 to 8 | `private_identity`, `private_origin`, `private_seqNum` |
//! | 9 | the trace id, 32 hexadecimal digits |
//! | 10 | the expiry, TAI nanoseconds |
//! | 11 | the incarnation of the component's instance |
//! | 12 | the idempotency key, or null |
//! | 13 | the public fields by name, sorted, without those that are zero, empty, false or null |
//!
//! Values are signed by their names, not as bytes, because a component of another release reads
//! them with its own schema. A field that only one of both releases has is zero for the other.
//!
//! Keys are in the formats of `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout`
//! (RFC 8410): a private key is a PEM text, a public key the base64 between the lines of one.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use helio_core::{Tai, TraceId};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{Action, Request};

/// The size of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// The longest PEM text of a private key: such a key has 119 bytes.
pub const MAX_KEY_FILE_BYTES: usize = 4_096;
/// The latest expiry of a signed command, in seconds from now. Trace ids are remembered so long.
pub const MAX_SIGNED_LIFE_S: f64 = 7_200.0;
/// The most remembered trace ids of signed commands: 9 a second for two hours.
pub const MAX_SIGNED_TRACES: usize = 65_536;

/// The text at the beginning of what is signed.
const CONTEXT: &str = "helio-command-1";
/// The DER of an Ed25519 private key, before its 32 bytes.
const PRIVATE_DER: [u8; 16] = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];
/// The DER of an Ed25519 public key, before its 32 bytes.
const PUBLIC_DER: [u8; 12] = [48, 42, 48, 5, 6, 3, 43, 101, 112, 3, 33, 0];
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It is no private key.
    #[error(
        "no Ed25519 private key in PEM; make one with `helio component key --new FILE` or `openssl \
         genpkey -algorithm ed25519`"
    )]
    Private,
    /// It is no public key.
    #[error("no Ed25519 public key in base64; `helio component key FILE` prints it")]
    Public,
}

/// A caller's private key.
#[derive(Clone, PartialEq, Eq)]
pub struct CallerKey(SigningKey);

impl CallerKey {
    /// The key of 32 random bytes.
    #[must_use]
    pub fn of_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Reads a private key.
    ///
    /// # Errors
    /// [`KeyError::Private`].
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let body = text.trim().strip_prefix(PEM_BEGIN).and_then(|rest| rest.strip_suffix(PEM_END));
        let body: String = body.unwrap_or_default().split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| KeyError::Private)?;
        let seed = der.strip_prefix(&PRIVATE_DER).and_then(|seed| seed.try_into().ok());
        seed.map(Self::of_seed).ok_or(KeyError::Private)
    }

    /// The private key as text.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let der = [&PRIVATE_DER[..], &self.0.to_bytes()].concat();
        format!("{PEM_BEGIN}\n{}\n{PEM_END}\n", STANDARD.encode(der))
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs a command.
    #[must_use]
    pub fn sign(&self, command: &SignedCommand<'_>) -> Signature {
        Signature(self.0.sign(&command.message()).to_bytes())
    }
}

impl fmt::Debug for CallerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallerKey(of {})", self.public())
    }
}

/// A caller's public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads a public key.
    ///
    /// # Errors
    /// [`KeyError::Public`], also for the few keys for which anybody can make signatures.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let der = STANDARD.decode(text.trim()).map_err(|_| KeyError::Public)?;
        let bytes = der.strip_prefix(&PUBLIC_DER).and_then(|bytes| bytes.try_into().ok());
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(bytes).ok());
        key.filter(|key| !key.is_weak()).map(Self).ok_or(KeyError::Public)
    }

    /// Whether a signature is this key's, of this command.
    #[must_use]
    pub fn verifies(&self, command: &SignedCommand<'_>, signature: &Signature) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        self.0.verify_strict(&command.message(), &signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode([&PUBLIC_DER[..], self.0.as_bytes()].concat()))
    }
}

/// A signature of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; SIGNATURE_BYTES]);

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({})", STANDARD.encode(self.0))
    }
}

/// What a signature covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedCommand<'a> {
    /// The component: its name, with `:index` if it is indexed.
    pub component: &'a str,
    /// The action.
    pub action: Action,
    /// The command's short name.
    pub command: &'a str,
    /// The caller.
    pub caller: &'a str,
    /// `private_identity`.
    pub identity: &'a str,
    /// `private_origin`.
    pub origin: i32,
    /// `private_seqNum`.
    pub seq_num: i32,
    /// The trace id.
    pub trace: TraceId,
    /// The expiry.
    pub expiry: Tai,
    /// The incarnation of the instance that it is for.
    pub instance: u64,
    /// The idempotency key.
    pub key: Option<&'a str>,
    /// The public fields as JSON text; may be empty.
    pub arguments: &'a str,
}

impl<'a> SignedCommand<'a> {
    /// The signed part of a received request; `None` if it lacks what a signed one must have.
    #[must_use]
    pub fn of(component: &'a str, request: &'a Request) -> Option<Self> {
        Some(Self {
            component,
            action: request.action,
            command: &request.command,
            caller: request.who(),
            identity: &request.identity,
            origin: request.origin,
            seq_num: request.seq_num,
            trace: request.trace?,
            expiry: request.expiry?,
            instance: request.instance?,
            key: request.key.as_deref(),
            arguments: &request.arguments,
        })
    }

    /// The signed text.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let (action, number) = match self.action {
            Action::Run => ("run", Value::Null),
            Action::Validate => ("validate", Value::Null),
            Action::Cancel { target } => ("cancel", json!(target)),
            Action::Lock { seconds } => ("lock", json!(seconds)),
            Action::Unlock => ("unlock", Value::Null),
        };
        let trace: String = self.trace.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let all = json!([
            CONTEXT,
            self.component,
            action,
            self.command,
            number,
            self.caller,
            self.identity,
            self.origin,
            self.seq_num,
            trace,
            self.expiry.nanos(),
            self.instance,
            self.key,
            values(self.arguments),
        ]);
        all.to_string().into_bytes()
    }
}

/// The values that are not zero, by name.
fn values(arguments: &str) -> Value {
    let Ok(all) = serde_json::from_str::<Map<String, Value>>(arguments) else {
        return Value::from(arguments);
    };
    let mut set: Vec<(String, Value)> = all.into_iter().filter(|(_, v)| !is_zero(v)).collect();
    set.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Value::Object(set.into_iter().collect())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.iter().all(is_zero),
        Value::Object(all) => all.values().all(is_zero),
    }
}

/// The trace ids of signed commands until their expiry, so that no copy of one is taken.
#[derive(Debug, Default)]
pub(super) struct SeenTraces {
    seen: HashSet<TraceId>,
    by_expiry: BTreeSet<(Tai, [u8; 16])>,
    /// The latest expiry whose trace ids are forgotten: it stays over if the clock is set back.
    forgotten: Option<Tai>,
}

/// What is known of the trace id of a signed command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceStatus {
    /// It is remembered from now on.
    New,
    /// It was seen before.
    Seen,
    /// Its expiry is over, though the clock may say otherwise.
    Over,
    /// Too many are remembered.
    Full,
}

impl SeenTraces {
    /// Whether a signed command with that trace id came.
    pub(super) fn has(&self, trace: &TraceId) -> bool {
        self.seen.contains(trace)
    }

    pub(super) fn note(&mut self, now: Tai, trace: TraceId, expiry: Tai) -> TraceStatus {
        while let Some((over, trace)) = self.by_expiry.first().copied().filter(|(at, _)| *at <= now)
        {
            self.by_expiry.pop_first();
            self.seen.remove(&TraceId(trace));
            self.forgotten = self.forgotten.max(Some(over));
        }
        if self.forgotten.is_some_and(|forgotten| expiry <= forgotten) {
            return TraceStatus::Over;
        }
        if self.seen.contains(&trace) {
            return TraceStatus::Seen;
        }
        if self.seen.len() >= MAX_SIGNED_TRACES {
            return TraceStatus::Full;
        }
        self.seen.insert(trace);
        self.by_expiry.insert((expiry, trace.0));
        TraceStatus::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> SignedCommand<'static> {
        SignedCommand {
            component: "ESS:2",
            action: Action::Run,
            command: "move",
            caller: "alice@summit",
            identity: "alice@summit",
            origin: 7,
            seq_num: 11,
            trace: TraceId([0xab; 16]),
            expiry: Tai::from_nanos(1_500_000_000),
            instance: 3,
            key: None,
            arguments: r#"{"speed":1.5,"axis":2,"name":"","flags":[0,0],"wait":false}"#,
        }
    }

    /// Made with OpenSSL 3: `openssl genpkey -algorithm ed25519`, `openssl pkey -pubout`, and
    /// `openssl pkeyutl -sign -rawin` of the text. Other programs can sign the same way.
    #[test]
    fn signatures_are_those_of_openssl() {
        let key = CallerKey::from_pem(include_str!("../../tests/golden/alice.pem")).unwrap();
        let text = concat!(
            r#"["helio-command-1","ESS:2","run","move",null,"alice@summit","alice@summit",7,11,"#,
            r#""abababababababababababababababab",1500000000,3,null,{"axis":2,"speed":1.5}]"#
        );
        assert_eq!(String::from_utf8(command().message()).unwrap(), text);
        let signature = STANDARD.encode(key.sign(&command()).0);
        assert_eq!(signature, include_str!("../../tests/golden/alice.sig").trim());
        let public = include_str!("../../tests/golden/alice.pub").trim();
        assert_eq!(key.public().to_string(), public);
        assert_eq!(PublicKey::parse(public), Ok(key.public()));
        assert_eq!(CallerKey::from_pem(&key.to_pem()), Ok(key.clone()));
        assert!(!format!("{key:?}").contains(key.to_pem().lines().nth(1).unwrap()));
    }

    #[test]
    fn a_signature_is_of_all_that_it_covers() {
        let key = CallerKey::of_seed(&[1; 32]);
        let (public, signature) = (key.public(), key.sign(&command()));
        assert!(public.verifies(&command(), &signature));
        // As a component of another release reads it: a field more, one less, another order.
        let read = r#"{"name":"","axis":2,"more":0.0,"speed":1.5}"#;
        assert!(public.verifies(&SignedCommand { arguments: read, ..command() }, &signature));
        let whole = command();
        for forged in [
            SignedCommand { component: "ESS:1", ..whole },
            SignedCommand { action: Action::Validate, ..whole },
            SignedCommand { action: Action::Cancel { target: 1 }, ..whole },
            SignedCommand { command: "stop", ..whole },
            SignedCommand { caller: "bob", ..whole },
            SignedCommand { identity: "bob", ..whole },
            SignedCommand { origin: 8, ..whole },
            SignedCommand { seq_num: 12, ..whole },
            SignedCommand { trace: TraceId([0xac; 16]), ..whole },
            SignedCommand { expiry: Tai::from_nanos(1_500_000_001), ..whole },
            SignedCommand { instance: 4, ..whole },
            SignedCommand { key: Some("k"), ..whole },
            SignedCommand { arguments: r#"{"speed":1.6,"axis":2}"#, ..whole },
            SignedCommand { arguments: r#"{"speed":1.5,"axis":2,"wait":true}"#, ..whole },
            SignedCommand { arguments: r#"{"axis":2}"#, ..whole },
            SignedCommand { arguments: "", ..whole },
        ] {
            assert!(!public.verifies(&forged, &signature), "{forged:?}");
        }
        for at in 0..SIGNATURE_BYTES {
            let mut damaged = signature;
            damaged.0[at] ^= 1;
            assert!(!public.verifies(&whole, &damaged), "byte {at}");
        }
        assert!(!CallerKey::of_seed(&[2; 32]).public().verifies(&whole, &signature));
    }

    #[test]
    fn a_wrong_key_is_refused() {
        let pem = CallerKey::of_seed(&[3; 32]).to_pem();
        for wrong in ["", "x", &pem[1..], &pem.replace("MC4", "MC5"), &pem.replace('\n', "=")] {
            assert_eq!(CallerKey::from_pem(wrong).unwrap_err(), KeyError::Private);
        }
        // The identity element: it would verify a signature of anybody.
        let mut weak = [PUBLIC_DER.to_vec(), vec![0; 32]].concat();
        weak[PUBLIC_DER.len()] = 1;
        for wrong in ["", "x", "MCowBQYDK2VwAyEA", &STANDARD.encode(weak)] {
            assert_eq!(PublicKey::parse(wrong), Err(KeyError::Public));
        }
    }

    #[test]
    fn a_copy_is_recognized_until_its_expiry_and_counts_as_expired_behind_it() {
        let at = Tai::from_nanos;
        let (mut traces, trace) = (SeenTraces::default(), TraceId([1; 16]));
        assert_eq!(traces.note(at(0), trace, at(10)), TraceStatus::New);
        assert_eq!(traces.note(at(9), trace, at(10)), TraceStatus::Seen);
        assert_eq!(traces.note(at(10), TraceId([2; 16]), at(30)), TraceStatus::New);
        // The clock is set back.
        assert_eq!(traces.note(at(5), trace, at(10)), TraceStatus::Over);
        assert_eq!((traces.seen.len(), traces.by_expiry.len()), (1, 1));
        for number in 0..MAX_SIGNED_TRACES as u128 - 1 {
            let trace = TraceId((number + (3 << 100)).to_le_bytes());
            assert_eq!(traces.note(at(11), trace, at(40)), TraceStatus::New);
        }
        assert_eq!(traces.note(at(11), TraceId([9; 16]), at(40)), TraceStatus::Full);
        assert_eq!(traces.note(at(40), TraceId([9; 16]), at(50)), TraceStatus::New);
        assert_eq!(traces.seen.len(), 1);
    }
}
