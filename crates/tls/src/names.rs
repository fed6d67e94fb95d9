//! The names in a certificate: the common names of its subject, and its DNS names.
//!
//! It walks the DER of certificates that were verified before; what it does not understand has no
//! names. Source: RFC 5280, sections 4.1 and 4.2.1.6.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const EXPLICIT_VERSION: u8 = 0xa0;
const EXPLICIT_EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;

/// 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// The names of a certificate in DER.
pub(crate) fn of(certificate: &[u8]) -> Vec<String> {
    find(certificate).unwrap_or_default()
}

fn find(certificate: &[u8]) -> Option<Vec<String>> {
    let whole = Values(certificate).expect(SEQUENCE)?;
    let mut fields = Values(Values(whole).expect(SEQUENCE)?);
    let (first, _) = fields.next()?;
    if first == EXPLICIT_VERSION {
        // The serial number follows the version.
        fields.next()?;
    }
    // The signature's algorithm, the issuer, the validity.
    fields.nth(2)?;
    let subject = fields.expect(SEQUENCE)?;
    let mut names: Vec<String> = Vec::new();
    for (_, set) in Values(subject).filter(|(tag, _)| *tag == SET) {
        for (_, attribute) in Values(set) {
            let mut parts = Values(attribute);
            if parts.expect(OID) == Some(COMMON_NAME) {
                names.extend(parts.next().and_then(|(_, text)| text_of(text)));
            }
        }
    }
    let extensions = fields.find(|(tag, _)| *tag == EXPLICIT_EXTENSIONS);
    let extensions = extensions.and_then(|(_, list)| Values(list).expect(SEQUENCE));
    for (_, extension) in Values(extensions.unwrap_or_default()) {
        let mut parts = Values(extension);
        if parts.expect(OID) != Some(ALTERNATIVE_NAMES) {
            continue;
        }
        // A critical extension has a boolean in between.
        let value = parts.find(|(tag, _)| *tag == OCTETS).map(|(_, value)| value);
        let list = value.and_then(|value| Values(value).expect(SEQUENCE));
        let dns = Values(list.unwrap_or_default()).filter(|(tag, _)| *tag == DNS_NAME);
        names.extend(dns.filter_map(|(_, text)| text_of(text)));
    }
    Some(names)
}

fn text_of(text: &[u8]) -> Option<String> {
    String::from_utf8(text.to_vec()).ok()
}

/// Values of DER, one after the other: tag and content. It ends where they are malformed.
struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// The content of the next value, if it has a tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().and_then(|(found, content)| (found == tag).then_some(content))
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            // More than four bytes of length are no certificate's.
            let is_short = (1..=4).contains(&bytes.len());
            let length = bytes.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            (is_short.then_some(length)?, rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}
