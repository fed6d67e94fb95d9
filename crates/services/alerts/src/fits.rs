//! FITS files as stamps are: image HDUs of 2,880-byte blocks (FITS Standard 4.0).
//!
//! Constraints. Only what stamps need: images of one or two axes, in headers without continuation.
//! The reader finds the HDUs of any such file; it checks sizes, not the meaning of cards.
//!
//! Operation. [`Header`] writes cards, [`put_floats`] and [`put_doubles`] the data, each padded to
//! whole blocks. [`hdus`] finds headers and data of a file.

use thiserror::Error;

/// Bytes of a block, to whose multiples headers and data are padded.
pub const BLOCK_BYTES: usize = 2_880;
/// Bytes of a card, a line of a header.
const CARD_BYTES: usize = 80;
/// The most blocks of a header: 3,600 cards, a hundred times those of a stamp.
const MAX_HEADER_BLOCKS: usize = 100;
/// The most axes of an image here.
const MAX_AXES: usize = 4;

/// Why bytes are not a FITS file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FitsError {
    /// The header does not begin as one.
    #[error("at byte {0}: no FITS header")]
    Header(usize),
    /// A header's card is missing, or has a value that no image has.
    #[error("at byte {at}: the card {card} is missing or invalid")]
    Card {
        /// Position of the header.
        at: usize,
        /// The card's keyword.
        card: String,
    },
    /// The bytes end within a header or its data.
    #[error("at byte {0}: the file ends within an HDU")]
    Truncated(usize),
}

/// A header and its data, both with their padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hdu<'a> {
    /// The cards.
    pub header: &'a [u8],
    /// The data.
    pub data: &'a [u8],
    /// Bytes of a pixel.
    pub pixel_bytes: usize,
    /// Bytes of the data without their padding.
    pub data_bytes: usize,
}

impl Hdu<'_> {
    /// Bytes of header and data.
    #[must_use]
    pub fn size(&self) -> usize {
        self.header.len() + self.data.len()
    }

    /// Returns the value of a card, without quotes and comment; `None` if there is no such card.
    #[must_use]
    pub fn value(&self, keyword: &str) -> Option<String> {
        value(self.header, keyword)
    }
}

/// Finds the HDUs of a file.
///
/// # Errors
/// [`FitsError`] if the bytes are no file of whole image HDUs.
pub fn hdus(file: &[u8]) -> Result<Vec<Hdu<'_>>, FitsError> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let hdu = next_hdu(file, at)?;
        at += hdu.size();
        all.push(hdu);
    }
    if all.is_empty() { Err(FitsError::Header(0)) } else { Ok(all) }
}

fn next_hdu(file: &[u8], at: usize) -> Result<Hdu<'_>, FitsError> {
    let rest = &file[at..];
    let begin: &[u8] = if at == 0 { b"SIMPLE  =" } else { b"XTENSION=" };
    if !rest.starts_with(begin) {
        return Err(FitsError::Header(at));
    }
    let blocks = rest.chunks_exact(BLOCK_BYTES).take(MAX_HEADER_BLOCKS);
    let mut cards = blocks.enumerate().map(|(i, block)| {
        (i, block.chunks_exact(CARD_BYTES).any(|card| card.trim_ascii_end() == b"END"))
    });
    let last = cards.find(|(_, is_end)| *is_end).ok_or(FitsError::Truncated(at))?.0;
    let (header, after) = rest.split_at((last + 1) * BLOCK_BYTES);
    let number = |keyword: &str| -> Result<i64, FitsError> {
        let wrong = || FitsError::Card { at, card: keyword.to_owned() };
        value(header, keyword).and_then(|text| text.parse().ok()).ok_or_else(wrong)
    };
    let size = |keyword: &str, limit: usize| -> Result<usize, FitsError> {
        let found = usize::try_from(number(keyword)?).ok().filter(|size| *size <= limit);
        found.ok_or_else(|| FitsError::Card { at, card: keyword.to_owned() })
    };
    let pixel_bytes = match number("BITPIX")? {
        8 => 1,
        16 => 2,
        32 | -32 => 4,
        64 | -64 => 8,
        _ => return Err(FitsError::Card { at, card: "BITPIX".to_owned() }),
    };
    let axes = size("NAXIS", MAX_AXES)?;
    let mut pixels = usize::from(axes > 0);
    for axis in 1..=axes {
        pixels = pixels.saturating_mul(size(&format!("NAXIS{axis}"), file.len())?);
    }
    let data_bytes = pixels.saturating_mul(pixel_bytes);
    let padded = data_bytes.checked_next_multiple_of(BLOCK_BYTES);
    let data = padded.and_then(|padded| after.get(..padded)).ok_or(FitsError::Truncated(at))?;
    Ok(Hdu { header, data, pixel_bytes, data_bytes })
}

fn value(header: &[u8], keyword: &str) -> Option<String> {
    let is_it = |card: &&[u8]| card[..8].trim_ascii_end() == keyword.as_bytes() && card[8] == b'=';
    let card = header.chunks_exact(CARD_BYTES).find(is_it)?;
    let text = std::str::from_utf8(&card[10..]).ok()?.trim();
    match text.strip_prefix('\'') {
        Some(quoted) => quoted.split('\'').next().map(|text| text.trim_end().to_owned()),
        None => text.split('/').next().map(|text| text.trim().to_owned()),
    }
}

/// A header being written.
#[derive(Debug, Clone, Default)]
pub struct Header(Vec<u8>);

/// The type of an image's pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pixels {
    /// 32-bit IEEE 754 numbers.
    Floats,
    /// 64-bit IEEE 754 numbers.
    Doubles,
}

/// Columns and rows of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns (NAXIS1).
    pub columns: usize,
    /// Rows (NAXIS2).
    pub rows: usize,
}

impl Size {
    /// Pixels of an image.
    #[must_use]
    pub fn pixels(self) -> usize {
        self.columns * self.rows
    }
}

impl Header {
    /// The header of a file's first image.
    #[must_use]
    pub fn primary(pixels: Pixels, size: Size) -> Self {
        let mut header = Self::default();
        header.raw("SIMPLE", "T", "conforms to FITS standard");
        header.image(pixels, size, "array data type");
        header.raw("EXTEND", "T", "");
        header
    }

    /// The header of a further image.
    #[must_use]
    pub fn extension(name: &str, pixels: Pixels, size: Size) -> Self {
        let mut header = Self::default();
        header.text("XTENSION", "IMAGE", "Image extension");
        header.image(pixels, size, "array data type");
        header.integer("PCOUNT", 0, "number of parameters");
        header.integer("GCOUNT", 1, "number of groups");
        header.text("EXTNAME", name, "extension name");
        header
    }

    fn image(&mut self, pixels: Pixels, size: Size, comment: &str) {
        let bits = match pixels {
            Pixels::Floats => -32,
            Pixels::Doubles => -64,
        };
        self.integer("BITPIX", bits, comment);
        self.integer("NAXIS", 2, "number of array dimensions");
        self.integer("NAXIS1", size.columns as i64, "");
        self.integer("NAXIS2", size.rows as i64, "");
    }

    /// Adds a whole number.
    pub fn integer(&mut self, keyword: &str, value: i64, comment: &str) {
        self.raw(keyword, &value.to_string(), comment);
    }

    /// Adds a number; one that is not finite is written as undefined, as FITS has none.
    pub fn number(&mut self, keyword: &str, value: f64, comment: &str) {
        let text = if value.is_finite() { format!("{value:?}") } else { String::new() };
        self.raw(keyword, &text.to_ascii_uppercase(), comment);
    }

    /// Adds a text of at most 68 printable ASCII characters; others are replaced or cut.
    pub fn text(&mut self, keyword: &str, value: &str, comment: &str) {
        let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        let text: String = value.chars().map(printable).take(60).collect();
        let text = format!("'{:<8}'", text.replace('\'', "''"));
        self.card(&format!("{keyword:<8}= {text:<20}"), comment);
    }

    fn raw(&mut self, keyword: &str, value: &str, comment: &str) {
        self.card(&format!("{keyword:<8}= {value:>20}"), comment);
    }

    fn card(&mut self, text: &str, comment: &str) {
        let start = self.0.len();
        self.0.extend_from_slice(text.as_bytes());
        if !comment.is_empty() {
            self.0.extend_from_slice(b" / ");
            self.0.extend_from_slice(comment.as_bytes());
        }
        self.0.resize(start + CARD_BYTES, b' ');
    }

    /// Appends the header, ended and padded, to a file.
    pub fn put(&self, file: &mut Vec<u8>) {
        let start = file.len();
        file.extend_from_slice(&self.0);
        file.extend_from_slice(b"END");
        pad(file, start, b' ');
    }
}

/// Appends the data of an image of 32-bit numbers to a file.
pub fn put_floats(file: &mut Vec<u8>, pixels: &[f32]) {
    put(file, pixels, |pixel| pixel.to_be_bytes());
}

/// Appends the data of an image of 64-bit numbers to a file.
pub fn put_doubles(file: &mut Vec<u8>, pixels: &[f64]) {
    put(file, pixels, |pixel| pixel.to_be_bytes());
}

fn put<T: Copy, const N: usize>(file: &mut Vec<u8>, pixels: &[T], bytes: impl Fn(T) -> [u8; N]) {
    let start = file.len();
    file.resize(start + (pixels.len() * N).next_multiple_of(BLOCK_BYTES), 0);
    let (places, _) = file[start..].as_chunks_mut::<N>();
    for (place, pixel) in places.iter_mut().zip(pixels) {
        *place = bytes(*pixel);
    }
}

fn pad(file: &mut Vec<u8>, start: usize, filler: u8) {
    let size = file.len() - start;
    file.resize(start + size.next_multiple_of(BLOCK_BYTES), filler);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_their_values_where_the_standard_has_them() {
        let mut header = Header::primary(Pixels::Floats, Size { columns: 3, rows: 2 });
        header.number("CRVAL1", -1.5e-7, "a number");
        header.number("NOTHING", f64::NAN, "");
        header.text("OBJECT", "it's é", "a text");
        let mut file = Vec::new();
        header.put(&mut file);
        put_floats(&mut file, &[1.0; 6]);
        assert_eq!(file.len(), 2 * BLOCK_BYTES);
        let cards: Vec<_> = file[..BLOCK_BYTES].chunks(80).map(|c| c.trim_ascii_end()).collect();
        assert_eq!(cards[0], b"SIMPLE  =                    T / conforms to FITS standard");
        assert_eq!(cards[6], b"CRVAL1  =              -1.5E-7 / a number");
        assert_eq!(cards[7], b"NOTHING =");
        assert_eq!(cards[8], b"OBJECT  = 'it''s ? '           / a text");
        assert_eq!(cards[9], b"END");
        let hdu = hdus(&file).unwrap()[0];
        assert_eq!((hdu.data_bytes, hdu.pixel_bytes), (24, 4));
        assert_eq!(hdu.value("CRVAL1").as_deref(), Some("-1.5E-7"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let mut file = Vec::new();
        Header::primary(Pixels::Doubles, Size { columns: 41, rows: 41 }).put(&mut file);
        put_doubles(&mut file, &[0.5; 41 * 41]);
        assert_eq!(hdus(&file).unwrap().len(), 1);
        for end in [1, 2_879, 2_880, file.len() - 1] {
            assert!(hdus(&file[..end]).is_err(), "{end}");
        }
        assert_eq!(hdus(b""), Err(FitsError::Header(0)));
        let changed = |from: &str, to: &str| {
            let text =
                String::from_utf8(file[..BLOCK_BYTES].to_vec()).unwrap().replacen(from, to, 1);
            let all = [text.as_bytes(), &file[BLOCK_BYTES..]].concat();
            hdus(&all).unwrap_err().to_string()
        };
        assert!(changed("-64", " 65").contains("BITPIX"));
        assert!(
            changed("NAXIS2  =                   41", "NAXIS2  =                   -1")
                .contains("NAXIS2")
        );
        assert!(changed("NAXIS1", "NAXISX").contains("NAXIS1"));
        let huge = "NAXIS1  =           9999999999";
        assert!(changed("NAXIS1  =                   41", huge).contains("NAXIS1"));
    }
}
