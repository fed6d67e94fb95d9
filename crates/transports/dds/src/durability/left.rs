//! The mark of what retention has left: numbers before it are missing, and nobody has lost them.
//! The journal that has left them out knows so by its offsets. One that has the rest from another
//! service has no holes in its own: there a header says so, which nobody is handed.

use helio_core::{Headers, HeadersRef};

const NAME: &str = "helio-left";

/// A sample's headers with the mark; none where there is no room for it.
pub(super) fn marked(headers: HeadersRef<'_>) -> Option<Headers> {
    Headers::from(headers).with(NAME, b"").ok()
}

/// A sample's own headers; none where there is no mark.
pub(super) fn unmarked(headers: HeadersRef<'_>) -> Option<Headers> {
    headers.get(NAME)?;
    let mut own = headers.iter().filter(|(name, _)| *name != NAME);
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
