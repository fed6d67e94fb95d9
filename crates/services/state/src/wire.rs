//! Key-values in protobuf form: `KeyValue` of etcd's `kv.proto`, encoded once, in the log.

use bytes::Bytes;

use crate::Revision;

/// Tags of the fields: number and wire type.
const KEY: u8 = 1 << 3 | 2;
const CREATE: u8 = 2 << 3;
const MOD: u8 = 3 << 3;
const VERSION: u8 = 4 << 3;
const VALUE: u8 = 5 << 3 | 2;
const LEASE: u8 = 6 << 3;

/// A key-value: its protobuf form, as answers and events carry it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct KeyValue {
    encoded: Bytes,
}

/// The fields of a [`KeyValue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The revision of the first put since the last deletion.
    pub create_revision: Revision,
    /// The revision of the last put, or of the deletion.
    pub mod_revision: Revision,
    /// Puts since the creation; 0: deleted.
    pub version: i64,
    /// The value.
    pub value: &'a [u8],
    /// The lease, 0 for none.
    pub lease: i64,
}

impl KeyValue {
    /// Encodes fields.
    pub fn new(fields: &Fields<'_>) -> Self {
        let mut encoded = Vec::with_capacity(fields.key.len() + fields.value.len() + 48);
        fields.encode(&mut encoded);
        Self { encoded: encoded.into() }
    }

    /// Takes bytes that [`Fields::encode`] wrote; `None` if they are not such.
    pub fn from_encoded(encoded: Bytes) -> Option<Self> {
        Fields::decode(&encoded)?;
        Some(Self { encoded })
    }

    /// Takes bytes of a record, which its checksum proved.
    pub(crate) fn from_log(record: Bytes, span: std::ops::Range<usize>) -> Option<Self> {
        (span.end <= record.len()).then(|| Self { encoded: record.slice(span) })
    }

    /// Takes bytes of a snapshot, which its checksum proved.
    pub fn from_trusted(encoded: Bytes) -> Self {
        Self { encoded }
    }

    /// The protobuf form, a message without its length.
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// All fields.
    pub fn fields(&self) -> Fields<'_> {
        Fields::decode(&self.encoded).unwrap_or_default()
    }

    /// The key.
    pub fn key(&self) -> Bytes {
        self.encoded.slice_ref(self.fields().key)
    }

    /// The value.
    pub fn value(&self) -> Bytes {
        self.encoded.slice_ref(self.fields().value)
    }

    /// The same without its value.
    pub fn without_value(&self) -> Self {
        Self::new(&Fields { value: &[], ..self.fields() })
    }
}

impl std::fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields = self.fields();
        f.debug_struct("KeyValue")
            .field("key", &Bytes::copy_from_slice(fields.key))
            .field("create_revision", &fields.create_revision)
            .field("mod_revision", &fields.mod_revision)
            .field("version", &fields.version)
            .field("value", &Bytes::copy_from_slice(fields.value))
            .field("lease", &fields.lease)
            .finish()
    }
}

impl<'a> Fields<'a> {
    /// Appends the protobuf form, fields in order of their numbers, zero and empty ones omitted.
    pub fn encode(&self, into: &mut Vec<u8>) {
        put_bytes(KEY, self.key, into);
        put_number(CREATE, self.create_revision, into);
        put_number(MOD, self.mod_revision, into);
        put_number(VERSION, self.version, into);
        put_bytes(VALUE, self.value, into);
        put_number(LEASE, self.lease, into);
    }

    /// Reads the protobuf form; `None` if it is damaged or has unknown fields.
    pub fn decode(mut from: &'a [u8]) -> Option<Self> {
        let mut fields = Self::default();
        while let Some((tag, rest)) = from.split_first() {
            from = rest;
            let number = take_varint(&mut from)?;
            match *tag {
                KEY => fields.key = take_bytes(number, &mut from)?,
                VALUE => fields.value = take_bytes(number, &mut from)?,
                CREATE => fields.create_revision = number.cast_signed(),
                MOD => fields.mod_revision = number.cast_signed(),
                VERSION => fields.version = number.cast_signed(),
                LEASE => fields.lease = number.cast_signed(),
                _ => return None,
            }
        }
        Some(fields)
    }
}

/// Appends a number as a varint of protobuf.
pub fn put_varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn put_number(tag: u8, number: i64, into: &mut Vec<u8>) {
    if number != 0 {
        into.push(tag);
        put_varint(number.cast_unsigned(), into);
    }
}

fn put_bytes(tag: u8, bytes: &[u8], into: &mut Vec<u8>) {
    if !bytes.is_empty() {
        into.push(tag);
        put_varint(bytes.len() as u64, into);
        into.extend_from_slice(bytes);
    }
}

fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (at, byte) in from.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *from = &from[at + 1..];
            return Some(number);
        }
    }
    None
}

fn take_bytes<'a>(length: u64, from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (bytes, rest) = from.split_at_checked(usize::try_from(length).ok()?)?;
    *from = rest;
    Some(bytes)
}

/// The key of an encoded key-value, without a look at the rest: it is the first field.
pub(crate) fn key_of(encoded: &[u8]) -> Option<&[u8]> {
    let (tag, mut rest) = encoded.split_first()?;
    let length = take_varint(&mut rest)?;
    (*tag == KEY).then(|| take_bytes(length, &mut rest))?
}
