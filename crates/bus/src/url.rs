//! A bus URL: `SCHEME:REST[?key=value&…]`, parsed once.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::ConnectError;

/// The most bytes of a URL.
const MAX_URL_BYTES: usize = 4096;

/// A parsed bus URL. The scheme selects the transport, which interprets the rest.
///
/// ```
/// use helio_bus::BusUrl;
/// let url: BusUrl = "journal:/var/lib/helio?sync_ms=50".parse()?;
/// assert_eq!((url.scheme(), url.rest()), ("journal", "/var/lib/helio"));
/// assert_eq!(url.option("sync_ms"), Some("50"));
/// # Ok::<(), helio_bus::ConnectError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusUrl {
    scheme: String,
    rest: String,
    options: BTreeMap<String, String>,
}

impl BusUrl {
    /// The transport's name, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The part between the colon and the question mark: a path, a host, a name.
    #[must_use]
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// The value of an option.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// All options, by name.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Refuses options that the transport does not know.
    ///
    /// # Errors
    /// [`ConnectError::Option`] naming the first unknown option and those that exist.
    pub fn allow_options(&self, known: &[&str]) -> Result<(), ConnectError> {
        match self.options.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, value)) => {
                Err(self.bad_option(name, value, &format!("unknown; there are: {}", listed(known))))
            }
        }
    }

    /// An option as a number, if present.
    ///
    /// # Errors
    /// [`ConnectError::Option`] if the value is not such a number.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, ConnectError> {
        let Some(value) = self.option(name) else { return Ok(None) };
        let number =
            value.parse().map_err(|_| self.bad_option(name, value, "not a valid number"))?;
        Ok(Some(number))
    }

    /// The error for an option's invalid value.
    #[must_use]
    pub fn bad_option(&self, option: &str, value: &str, reason: &str) -> ConnectError {
        ConnectError::Option {
            scheme: self.scheme.clone(),
            option: option.to_owned(),
            value: value.to_owned(),
            reason: reason.to_owned(),
        }
    }

    /// The URL inside a wrapping scheme, without the wrapper's own options:
    /// `fault:memory:x?drop=0.1&strict=1` gives `memory:x?strict=1` where `drop` is.
    ///
    /// # Errors
    /// [`ConnectError::Url`] if the rest is not a URL.
    pub fn inner(&self, own: &[&str]) -> Result<Self, ConnectError> {
        let mut inner: Self = self.rest.parse()?;
        let others = self.options.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        inner.options = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(inner)
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl FromStr for BusUrl {
    type Err = ConnectError;

    fn from_str(url: &str) -> Result<Self, ConnectError> {
        let wrong =
            |reason: &str| ConnectError::Url { url: url.to_owned(), reason: reason.to_owned() };
        if url.len() > MAX_URL_BYTES {
            return Err(wrong("longer than 4,096 bytes"));
        }
        let (scheme, tail) = url.split_once(':').ok_or_else(|| wrong("the colon is missing"))?;
        let legal = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(legal) {
            return Err(wrong("the scheme is made of letters, digits, '+', '-' and '.'"));
        }
        let (rest, query) = tail.split_once('?').unwrap_or((tail, ""));
        let mut options = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| wrong("options are written key=value"))?;
            if options.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(wrong("an option is given twice"));
            }
        }
        Ok(Self { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned(), options })
    }
}

impl fmt::Display for BusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scheme, self.rest)?;
        for (n, (key, value)) in self.options.iter().enumerate() {
            write!(f, "{}{key}={value}", if n == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_once() {
        let url: BusUrl = "Kafka://a:1,b:2?acks=all&x=1".parse().unwrap();
        assert_eq!((url.scheme(), url.rest()), ("kafka", "//a:1,b:2"));
        assert_eq!(url.to_string(), "kafka://a:1,b:2?acks=all&x=1");
        assert!(url.allow_options(&["acks", "x"]).is_ok());
        let told = url.allow_options(&["acks"]).unwrap_err().to_string();
        assert!(told.contains("x=1") && told.contains("acks"), "{told}");
        for bad in ["journal", ":x", "a b:c", "memory:x?y", "memory:x?a=1&a=2"] {
            assert!(bad.parse::<BusUrl>().is_err(), "{bad}");
        }
    }
}
