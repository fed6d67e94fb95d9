//! A key-value in protobuf form, which answers and events carry without encoding it again.

use std::hash::{Hash, Hasher};

use bytes::{Buf, BufMut};
use helio_state::Fields;
use prost::DecodeError;
use prost::encoding::{self, DecodeContext, WireType, int64, skip_field};

/// etcd's message `KeyValue`, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyValue(pub helio_state::KeyValue);

impl Hash for KeyValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.encoded().hash(state);
    }
}

impl prost::Message for KeyValue {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(self.0.encoded());
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let fields = self.0.fields();
        let (mut key, mut value) = (fields.key.to_vec(), fields.value.to_vec());
        let mut new = Fields { key: &[], value: &[], ..fields };
        match tag {
            1 => encoding::bytes::merge(wire_type, &mut key, buffer, context)?,
            2 => int64::merge(wire_type, &mut new.create_revision, buffer, context)?,
            3 => int64::merge(wire_type, &mut new.mod_revision, buffer, context)?,
            4 => int64::merge(wire_type, &mut new.version, buffer, context)?,
            5 => encoding::bytes::merge(wire_type, &mut value, buffer, context)?,
            6 => int64::merge(wire_type, &mut new.lease, buffer, context)?,
            _ => skip_field(wire_type, tag, buffer, context)?,
        }
        (new.key, new.value) = (&key, &value);
        self.0 = helio_state::KeyValue::new(&new);
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded().len()
    }

    fn clear(&mut self) {
        self.0 = helio_state::KeyValue::default();
    }
}
