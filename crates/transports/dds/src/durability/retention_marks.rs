//! Marks the holes that retention made: the numbers before the mark are missing, but not lost.
//!
//! The journal that removed the samples recognizes the hole by its offsets. A journal that fetched
//! the rest from another service has no hole in its offsets. There a header marks the next sample;
//! readers do not receive that header.

use helio_core::{Headers, HeadersRef};

const RETENTION_HEADER: &str = "helio-left";

/// A sample's headers with the mark; `None` if they would be too large.
pub(super) fn marked(headers: HeadersRef<'_>) -> Option<Headers> {
    Headers::from(headers).with(RETENTION_HEADER, b"").ok()
}

/// A sample's own headers; `None` if there is no mark.
pub(super) fn unmarked(headers: HeadersRef<'_>) -> Option<Headers> {
    headers.get(RETENTION_HEADER)?;
    let mut own = headers.iter().filter(|(name, _)| *name != RETENTION_HEADER);
    own.try_fold(Headers::new(), |all, (name, value)| all.with(name, value)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;
    use helio_core::headers::MAX_HEADERS_BYTES;

    #[test]
    fn a_mark_leaves_the_headers_as_they_were_and_is_left_out_where_there_is_no_room() {
        let own = Headers::new().with("helio-caller", b"me").unwrap().with("z", b"1").unwrap();
        for headers in [own, Headers::new()] {
            let marked = marked(headers.as_ref()).unwrap();
            assert_eq!(unmarked(marked.as_ref()), Some(headers.clone()));
            assert_eq!(unmarked(headers.as_ref()), None);
        }
        let full = Headers::new().with("z", vec![0; MAX_HEADERS_BYTES - 4]).unwrap();
        assert_eq!(marked(full.as_ref()), None);
    }
}
