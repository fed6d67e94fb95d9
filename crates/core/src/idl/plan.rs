//! Compiles a schema to a topic's type.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::codec::Codec;
use crate::codec::wire::{Blocks, close_block, put_length};
use crate::sal::SalType;
use crate::schema::{Field, NodeId, Record, Schema, Type};

use super::cdr::MAX_DEFAULT_BYTES;
use super::names::{self, Scopes};
use super::{
    Enum, Form, Integer, KEY_ATTRIBUTE, KEY_FIELD, Kind, MAX_LENGTH_ATTRIBUTE, MAX_MEMBERS, Member,
    Struct, TopicType, Unsayable, head,
};

/// The modules of our own types.
const OURS: &str = "helio";

/// Compiles a schema.
pub(super) fn compile(schema: &Schema, form: Form) -> Result<TopicType, Unsayable> {
    let mut compiler = Compiler {
        schema,
        codec: Codec::new(schema),
        scopes: Scopes::default(),
        of: TopicType { structs: Vec::new(), enums: Vec::new(), form },
        done: HashMap::new(),
        open: Vec::new(),
        members: 0,
        path: Vec::new(),
    };
    compiler.root()?;
    Ok(compiler.of)
}

/// The type of topics of bytes.
pub(super) fn envelope() -> TopicType {
    let text = "The sample's bytes; Avro's where there is a schema.";
    let members = vec![head::member(0, true), Member::new("payload", Kind::Bytes, text)];
    let text = "A sample of bytes, or of a schema that IDL cannot say.";
    let root = Struct::new(names::join(OURS, "Envelope"), members, false, text);
    TopicType { structs: vec![head::model(), root], enums: Vec::new(), form: Form::Envelope }
}

struct Compiler<'a> {
    schema: &'a Schema,
    codec: Codec,
    scopes: Scopes,
    of: TopicType,
    /// The complete types.
    done: HashMap<NodeId, Kind>,
    /// The records around the current position.
    open: Vec<NodeId>,
    members: usize,
    path: Vec<String>,
}

type Compiled<T> = Result<T, Unsayable>;

impl<'a> Compiler<'a> {
    fn refuse<T>(&self, what: impl Into<String>) -> Compiled<T> {
        let at = match &self.path[..] {
            [] => "the whole".to_owned(),
            path => path.join(".").replace(".[]", "[]"),
        };
        Err(Unsayable { at, what: what.into() })
    }

    fn root(&mut self) -> Compiled<()> {
        let Some(record) = self.schema.record() else {
            return self.refuse(format!("a topic of {}", self.schema.root().kind));
        };
        let keys = self.keys(record)?;
        if self.of.form == Form::Typed {
            self.scopes.module(OURS);
            self.of.structs.push(head::model());
        }
        self.record(NodeId::ROOT, record)?;
        let form = self.of.form;
        let root = self.of.structs.last_mut().expect("the root was compiled");
        for place in &keys {
            root.members[*place].key = true;
        }
        if form == Form::Typed {
            root.members.insert(0, head::member(0, keys.is_empty()));
            root.number();
        }
        if root.members.is_empty() {
            return self.refuse("a record without fields");
        }
        Ok(())
    }

    /// Returns the indices of the fields that form the topic's key.
    fn keys(&mut self, record: &Record) -> Compiled<Vec<usize>> {
        let named = |field: &Field| field.attributes.get(KEY_ATTRIBUTE) == Some(&Json::Bool(true));
        let index = |field: &Field| {
            field.name == KEY_FIELD && self.schema.node(field.kind).kind == Type::Int
        };
        let places = |is: &dyn Fn(&Field) -> bool| -> Vec<usize> {
            (0..record.fields.len()).filter(|place| is(&record.fields[*place])).collect()
        };
        let keys = match places(&named) {
            none if none.is_empty() => places(&index),
            keys => keys,
        };
        for place in &keys {
            let field = &record.fields[*place];
            let kind = &self.schema.node(field.kind).kind;
            if !matches!(
                kind,
                Type::Boolean | Type::Int | Type::Long | Type::String | Type::Enum(_)
            ) {
                self.path.push(field.name.clone());
                return self.refuse(format!("a key of type {kind}"));
            }
        }
        Ok(keys)
    }

    fn record(&mut self, id: NodeId, record: &'a Record) -> Compiled<Kind> {
        if self.open.contains(&id) {
            return self.refuse(format!("the record {}, which holds itself", record.name));
        }
        self.open.push(id);
        let root = id == NodeId::ROOT;
        if record.fields.is_empty() && !root {
            return self.refuse(format!("the record {} without fields", record.name));
        }
        let mut members: Vec<Member> = Vec::with_capacity(record.fields.len() + 1);
        let mut taken = Scopes::default();
        if root && self.of.form == Form::Typed {
            taken.take("", std::iter::once(head::MEMBER));
        }
        for (place, field) in record.fields.iter().enumerate() {
            self.path.push(field.name.clone());
            if let Some(problem) = names::problem(&field.name) {
                return self.refuse(problem);
            }
            if !taken.free("", std::iter::once(field.name.as_str())) {
                return self.refuse("two names that differ in case only, or our own name `helio`");
            }
            taken.take("", std::iter::once(field.name.as_str()));
            members.push(self.member(id, place, field)?);
            self.path.pop();
        }
        self.open.pop();
        let name = self.name(&record.name, members.iter().map(|member| member.name.as_str()))?;
        let text = record.description.as_deref().or(record.doc.as_deref()).unwrap_or_default();
        let appendable = self.of.form != Form::Foreign;
        self.of.structs.push(Struct::new(name, members, appendable, text));
        Ok(Kind::Struct(self.of.structs.len() - 1))
    }

    /// Returns a type's name in IDL. It must differ from its members' names and be unique in its
    /// module; otherwise underscores are appended.
    fn name<'b>(
        &mut self,
        full: &str,
        members: impl Iterator<Item = &'b str> + Clone,
    ) -> Compiled<String> {
        let scoped = full.replace('.', "::");
        if let Some(problem) = scoped.split("::").find_map(names::problem) {
            return self.refuse(problem);
        }
        let (module, plain) = names::split(&scoped);
        self.scopes.module(module);
        let mut plain = plain.to_owned();
        while members.clone().any(|member| member.eq_ignore_ascii_case(&plain))
            || !self.scopes.free(module, std::iter::once(plain.as_str()))
        {
            plain.push('_');
        }
        let name = names::join(module, &plain);
        if let Some(problem) = names::problem(&name) {
            return self.refuse(problem);
        }
        self.scopes.take(module, std::iter::once(plain.as_str()));
        Ok(name)
    }

    fn member(&mut self, record: NodeId, place: usize, field: &'a Field) -> Compiled<Member> {
        self.members += 1;
        if self.members > MAX_MEMBERS {
            return self.refuse(format!("more than {MAX_MEMBERS} members"));
        }
        let (id, optional) = match self.schema.nullable(field.kind) {
            Some((inner, null)) => (inner, Some(null)),
            None => (field.kind, None),
        };
        let kind = self.field_kind(id, field)?;
        Ok(Member {
            optional,
            units: field.units.clone().unwrap_or_default(),
            labels: field.enumeration.clone().unwrap_or_default(),
            default: self.default((record, place), field, &kind, optional),
            ..Member::new(&field.name, kind, field.text().unwrap_or_default())
        })
    }

    /// Returns the Avro bytes of a field that a writer lacks.
    fn default(
        &self,
        (record, place): (NodeId, usize),
        field: &Field,
        kind: &Kind,
        optional: Option<usize>,
    ) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let put = |bytes: &mut _| self.codec.put_default(record.index(), place, bytes);
        let whole = if field.default.is_some() && put(&mut bytes).is_ok() {
            bytes.len() <= MAX_DEFAULT_BYTES
        } else {
            bytes.clear();
            match optional {
                Some(null) => {
                    put_length(&mut bytes, null);
                    true
                }
                None => self.zero(kind, &mut bytes).is_some(),
            }
        };
        whole.then_some(bytes)
    }

    /// Returns the type of a field's value, by the field's attributes.
    fn field_kind(&mut self, id: NodeId, field: &'a Field) -> Compiled<Kind> {
        let sal = field.sal_type.as_deref().and_then(SalType::from_name);
        match (&self.schema.node(id).kind, field.length) {
            (Type::Array(items), Some(length)) => {
                let Some(length) = u32::try_from(length).ok().filter(|length| *length > 0) else {
                    return self.refuse(format!("an array of {length} elements"));
                };
                let item = self.item(*items, sal)?;
                Ok(Kind::Array(Box::new(item), length))
            }
            (Type::Array(items), None) => Ok(Kind::Sequence(Box::new(self.item(*items, sal)?))),
            (Type::String, _) => {
                let bound = field.attributes.get(MAX_LENGTH_ATTRIBUTE).and_then(Json::as_u64);
                let bound = bound.and_then(|bound| u32::try_from(bound).ok());
                Ok(Kind::String(bound.filter(|bound| (1..u32::MAX).contains(bound))))
            }
            _ => self.kind(id, sal),
        }
    }

    fn item(&mut self, id: NodeId, sal: Option<SalType>) -> Compiled<Kind> {
        self.path.push("[]".to_owned());
        let kind = match self.kind(id, sal)? {
            // Cyclone's runtime types and its Python package differ in its type.
            Kind::Sequence(_) | Kind::Bytes | Kind::Fixed(_) => {
                return self.refuse("an array of arrays or bytes");
            }
            kind => kind,
        };
        self.path.pop();
        Ok(kind)
    }

    fn kind(&mut self, id: NodeId, sal: Option<SalType>) -> Compiled<Kind> {
        if let Some(kind) = self.done.get(&id) {
            return Ok(kind.clone());
        }
        let schema = self.schema;
        let kind = match &schema.node(id).kind {
            Type::Boolean => Kind::Boolean,
            Type::Float => Kind::Float,
            Type::Double => Kind::Double,
            Type::Int => Kind::Integer(match sal {
                Some(SalType::Byte) => Integer::Octet,
                Some(SalType::Short) => Integer::Int16,
                Some(SalType::UnsignedShort) => Integer::Uint16,
                _ => Integer::Int32,
            }),
            Type::Long => Kind::Integer(match sal {
                Some(SalType::UnsignedInt) => Integer::Uint32,
                _ => Integer::Int64,
            }),
            Type::String => Kind::String(None),
            Type::Bytes => Kind::Bytes,
            Type::Fixed(fixed) => match u32::try_from(fixed.size) {
                Ok(size) if size > 0 => Kind::Fixed(size),
                _ => return self.refuse(format!("a `fixed` of {} bytes", fixed.size)),
            },
            Type::Array(items) => Kind::Sequence(Box::new(self.item(*items, sal)?)),
            Type::Enum(of) => {
                let kind = self.enumeration(of)?;
                self.done.insert(id, kind.clone());
                kind
            }
            Type::Record(record) => {
                let kind = self.record(id, record)?;
                self.done.insert(id, kind.clone());
                kind
            }
            Type::Null => return self.refuse("a `null`"),
            Type::Map(_) => return self.refuse("a map"),
            Type::Union(_) => {
                return self.refuse("a union other than a field's with `null`");
            }
        };
        Ok(kind)
    }

    /// Symbols live in their enumeration's module; duplicates there are prefixed with its name.
    fn enumeration(&mut self, of: &crate::schema::Enum) -> Compiled<Kind> {
        let name = self.name(&of.name, std::iter::empty())?;
        let (module, plain) = names::split(&name);
        let mut symbols = of.symbols.clone();
        let legal = |symbols: &[String]| symbols.iter().all(|s| names::problem(s).is_none());
        if !legal(&symbols) || !self.scopes.free(module, symbols.iter().map(String::as_str)) {
            symbols.iter_mut().for_each(|symbol| *symbol = format!("{plain}_{symbol}"));
        }
        if !legal(&symbols) || !self.scopes.free(module, symbols.iter().map(String::as_str)) {
            return self.refuse("symbols that differ in case only");
        }
        self.scopes.take(module, symbols.iter().map(String::as_str));
        let text = of.doc.clone().unwrap_or_default();
        self.of.enums.push(Enum { name, symbols, text });
        Ok(Kind::Enum(self.of.enums.len() - 1))
    }

    /// Returns the Avro bytes of a zero value, unless they are too many.
    fn zero(&self, kind: &Kind, out: &mut Vec<u8>) -> Option<()> {
        match kind {
            Kind::Boolean
            | Kind::Integer(_)
            | Kind::String(_)
            | Kind::Bytes
            | Kind::Enum(_)
            | Kind::Sequence(_) => out.push(0),
            Kind::Float => out.extend([0; 4]),
            Kind::Double => out.extend([0; 8]),
            Kind::Fixed(count) | Kind::Array(_, count) if *count as usize > MAX_DEFAULT_BYTES => {
                return None;
            }
            Kind::Fixed(size) => out.resize(out.len() + *size as usize, 0),
            Kind::Struct(place) => {
                for member in &self.of.structs[*place].members {
                    out.extend_from_slice(member.default.as_deref()?);
                    (out.len() <= MAX_DEFAULT_BYTES).then_some(())?;
                }
            }
            Kind::Array(item, length) => {
                let start = out.len();
                for _ in 0..*length {
                    self.zero(item, out)?;
                }
                close_block(out, Blocks::Sized, *length as usize, start);
            }
        }
        (out.len() <= MAX_DEFAULT_BYTES).then_some(())
    }
}
