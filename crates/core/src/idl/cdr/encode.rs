//! From Avro to CDR.

use crate::codec::Reader;
use crate::codec::wire::WireError;
use crate::idl::{Form, Head, Integer, Kind, Member, Struct, TopicType};

use super::{CdrError, CdrProblem, Encoding, Output, Result};

/// The identifiers of little-endian CDR, plain CDR2, and CDR2 with a leading size.
const CDR_LE: u16 = 0x0001;
const CDR2_LE: u16 = 0x0007;
const D_CDR2_LE: u16 = 0x0009;

/// In XCDR1, an optional member has an extended header, whose own length is 8.
const EXTENDED_PARAMETER: u16 = 0x3f01 | MUST_UNDERSTAND;
const MUST_UNDERSTAND: u16 = 0x4000;
const EXTENDED_LENGTH: u16 = 8;

impl TopicType {
    /// Returns the encoding of written samples: XCDR1, which every implementation reads, for
    /// foreign topics, else XCDR2.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        if self.form == Form::Foreign { Encoding::Xcdr1 } else { Encoding::Xcdr2 }
    }

    /// Appends the sample's CDR to `out`, with encapsulation and padding. `avro` is the datum, or
    /// any bytes in an envelope. After an error, `out` is unchanged.
    ///
    /// # Errors
    /// [`CdrError`] names the field: no datum of the schema, a number outside its type's range, a
    /// text that contains a NUL.
    pub fn to_cdr(
        &self,
        head: &Head<'_>,
        avro: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), CdrError> {
        self.to_cdr_with_key(head, avro, out, &mut Vec::new())
    }

    /// The same, and appends the Avro bytes of the key fields to `key`, which distinguish
    /// instances. Appends none if the key is the header's.
    ///
    /// # Errors
    /// As [`to_cdr`](Self::to_cdr); then `key` is unchanged.
    pub fn to_cdr_with_key(
        &self,
        head: &Head<'_>,
        avro: &[u8],
        out: &mut Vec<u8>,
        key: &mut Vec<u8>,
    ) -> std::result::Result<(), CdrError> {
        let starts = (out.len(), key.len());
        self.put(head, avro, out, key).inspect_err(|_| {
            out.truncate(starts.0);
            key.truncate(starts.1);
        })
    }

    fn put(
        &self,
        head: &Head<'_>,
        avro: &[u8],
        out: &mut Vec<u8>,
        key: &mut Vec<u8>,
    ) -> Result<()> {
        self.put_root(out, |output| {
            if self.form != Form::Foreign {
                head.put(output)?;
            }
            if self.form == Form::Envelope {
                return output.octets(avro);
            }
            let mut reader = Reader::new(avro);
            for member in self.fields() {
                let rest = reader.rest();
                self.put_member(member, &mut reader, output)
                    .map_err(|error| error.in_field(&member.name))?;
                if member.key {
                    key.extend_from_slice(&rest[..rest.len() - reader.rest().len()]);
                }
            }
            Ok(reader.finish()?)
        })
    }

    /// Appends the CDR of a key alone, with encapsulation and padding: of the key fields, whose
    /// Avro bytes it is, or of the header's octets. After an error, `out` is unchanged.
    ///
    /// # Errors
    /// [`CdrError`] names the field: the bytes are not those of the key fields.
    pub fn key_to_cdr(&self, key: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), CdrError> {
        let start = out.len();
        let put = self.put_root(out, |output| {
            if !self.has_key_fields() {
                return if self.form == Form::Foreign { Ok(()) } else { output.octets(key) };
            }
            let mut reader = Reader::new(key);
            for member in self.fields().iter().filter(|member| member.key) {
                self.put_member(member, &mut reader, output)
                    .map_err(|error| error.in_field(&member.name))?;
            }
            Ok(reader.finish()?)
        });
        put.inspect_err(|_| out.truncate(start))
    }

    /// Appends the encapsulation, the root's contents, and padding.
    fn put_root(
        &self,
        out: &mut Vec<u8>,
        put: impl FnOnce(&mut Output<'_>) -> Result<()>,
    ) -> Result<()> {
        let start = out.len();
        let encoding = self.encoding();
        let identifier = match (encoding, self.root().appendable) {
            (Encoding::Xcdr1, _) => CDR_LE,
            (Encoding::Xcdr2, false) => CDR2_LE,
            (Encoding::Xcdr2, true) => D_CDR2_LE,
        };
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        let mut output = Output { origin: out.len(), bytes: out, encoding };
        let size = self.sized(self.root(), encoding).then(|| output.open());
        put(&mut output)?;
        if let Some(size) = size {
            output.close(size)?;
        }
        let padding = (out.len() - start).next_multiple_of(4) - (out.len() - start);
        out.resize(out.len() + padding, 0);
        out[start + 3] = padding as u8;
        Ok(())
    }

    /// Returns whether a struct has a leading size.
    pub(super) fn sized(&self, of: &Struct, encoding: Encoding) -> bool {
        of.appendable && encoding == Encoding::Xcdr2
    }

    fn put_member(
        &self,
        member: &Member,
        reader: &mut Reader<'_>,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let Some(null) = member.optional else { return self.put_kind(&member.kind, reader, out) };
        let present = reader.branch(2)? != null;
        match out.encoding {
            Encoding::Xcdr2 => {
                out.number([u8::from(present)]);
                if present { self.put_kind(&member.kind, reader, out) } else { Ok(()) }
            }
            Encoding::Xcdr1 => self.put_parameter(member, present, reader, out),
        }
    }

    fn put_parameter(
        &self,
        member: &Member,
        present: bool,
        reader: &mut Reader<'_>,
        out: &mut Output<'_>,
    ) -> Result<()> {
        out.align(4);
        out.number(EXTENDED_PARAMETER.to_le_bytes());
        out.number(EXTENDED_LENGTH.to_le_bytes());
        out.number(member.id.to_le_bytes());
        let size = out.open();
        if present {
            let origin = std::mem::replace(&mut out.origin, size);
            self.put_kind(&member.kind, reader, out)?;
            out.origin = origin;
        }
        out.close(size)
    }

    fn put_kind(&self, kind: &Kind, reader: &mut Reader<'_>, out: &mut Output<'_>) -> Result<()> {
        match kind {
            Kind::Boolean => out.number([u8::from(reader.boolean()?)]),
            Kind::Integer(integer) => put_integer(*integer, reader, out)?,
            Kind::Float => out.number(reader.float()?.to_le_bytes()),
            Kind::Double => out.number(reader.double()?.to_le_bytes()),
            Kind::String(bound) => out.text(reader.string()?.as_bytes(), *bound)?,
            Kind::Bytes => out.octets(reader.bytes()?)?,
            Kind::Fixed(size) => out.bytes.extend_from_slice(reader.take(*size as usize)?),
            Kind::Enum(place) => {
                let symbol = reader.symbol(self.enums[*place].symbols.len())?;
                out.count(symbol)?;
            }
            Kind::Struct(place) => self.put_struct(&self.structs[*place], reader, out)?,
            Kind::Sequence(item) => {
                self.put_collection(item, out, |out| {
                    let count = out.open();
                    let found = self.put_items(item, reader, out)?;
                    out.patch(count, found)
                })?;
            }
            Kind::Array(item, expected) => {
                self.put_collection(item, out, |out| {
                    let found = self.put_items(item, reader, out)?;
                    if found != *expected as usize {
                        let expected = *expected;
                        return Err(CdrError::new(CdrProblem::Length { expected, found }));
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn put_struct(&self, of: &Struct, reader: &mut Reader<'_>, out: &mut Output<'_>) -> Result<()> {
        let size = self.sized(of, out.encoding).then(|| out.open());
        for member in &of.members {
            self.put_member(member, reader, out).map_err(|e| e.in_field(&member.name))?;
        }
        size.map_or(Ok(()), |size| out.close(size))
    }

    /// Writes a collection, with a leading size if it needs one.
    fn put_collection(
        &self,
        item: &Kind,
        out: &mut Output<'_>,
        items: impl FnOnce(&mut Output<'_>) -> Result<()>,
    ) -> Result<()> {
        let size = sized_items(item, out.encoding).then(|| out.open());
        items(out)?;
        size.map_or(Ok(()), |size| out.close(size))
    }

    /// Writes the elements of an Avro array, and counts them.
    fn put_items(
        &self,
        item: &Kind,
        reader: &mut Reader<'_>,
        out: &mut Output<'_>,
    ) -> Result<usize> {
        if let Some(width) = block_width(item) {
            let raw = reader.raw_array(width)?;
            if let (Kind::Boolean, Some(wrong)) = (item, raw.iter().find(|byte| **byte > 1)) {
                return Err(CdrError::new(WireError::Boolean(*wrong)));
            }
            if !raw.is_empty() {
                out.align(width);
                out.bytes.extend_from_slice(&raw);
            }
            return Ok(raw.len() / width);
        }
        let mut all = 0;
        while let Some(block) = reader.block(1)? {
            let start = reader.rest().len();
            for i in 0..block.count {
                self.put_kind(item, reader, out).map_err(|error| error.in_element(all + i))?;
            }
            reader.end_block(block, start)?;
            all += block.count;
        }
        Ok(all)
    }
}

/// Returns whether a collection has a leading size.
pub(super) fn sized_items(item: &Kind, encoding: Encoding) -> bool {
    let number = matches!(item, Kind::Boolean | Kind::Integer(_) | Kind::Float | Kind::Double);
    encoding == Encoding::Xcdr2 && !number
}

/// Returns the bytes of an element that is equal in Avro and CDR.
pub(super) fn block_width(item: &Kind) -> Option<usize> {
    match item {
        Kind::Boolean => Some(1),
        Kind::Float => Some(4),
        Kind::Double => Some(8),
        _ => None,
    }
}

#[inline]
fn put_integer(kind: Integer, reader: &mut Reader<'_>, out: &mut Output<'_>) -> Result<()> {
    let number = reader.long()?;
    if !kind.holds(number) {
        return Err(CdrError::new(CdrProblem::Range { number, kind }));
    }
    match kind.width() {
        1 => out.number([number as u8]),
        2 => out.number((number as u16).to_le_bytes()),
        4 => out.number((number as u32).to_le_bytes()),
        _ => out.number(number.to_le_bytes()),
    }
    Ok(())
}
