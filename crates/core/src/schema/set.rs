//! Schemas in several `.avsc` files that name each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::parse::{Parser, finish, json};
use super::{MAX_SCHEMA_BYTES, Node, NodeId, Schema, SchemaError};

/// The types of several files that name each other, in any order.
///
/// ```
/// use helio_core::schema::SchemaSet;
///
/// let alert = r#"{"type": "record", "name": "alert", "fields": [
///     {"name": "source", "type": "source"}]}"#;
/// let source = r#"{"type": "record", "name": "source", "fields": [
///     {"name": "ra", "type": "double", "units": "deg"}]}"#;
/// let set = SchemaSet::load([("alert.avsc", alert), ("source.avsc", source)])?;
/// assert_eq!(set.root()?.name(), Some("alert"));
/// # Ok::<(), helio_core::schema::SchemaError>(())
/// ```
#[derive(Debug)]
pub struct SchemaSet {
    nodes: Vec<Option<Node>>,
    names: BTreeMap<String, NodeId>,
    /// Each file's top type.
    tops: Vec<NodeId>,
}

impl SchemaSet {
    /// Reads the files, given as name (for errors) and text.
    ///
    /// # Errors
    /// [`SchemaError`] names the file, and a type that no file defines.
    pub fn load<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, SchemaError> {
        let mut parser = Parser::default();
        let mut texts = Vec::new();
        let mut bytes = 0;
        for (name, text) in files {
            bytes += text.len();
            if bytes > MAX_SCHEMA_BYTES {
                return Err(SchemaError::Limit { what: "bytes of text", limit: MAX_SCHEMA_BYTES });
            }
            let json = json(name, text)?;
            parser.file = Some(name.to_owned());
            announce(&mut parser, &json, "")?;
            texts.push((name, json));
        }
        let mut tops = Vec::with_capacity(texts.len());
        for (name, json) in &texts {
            parser.file = Some((*name).to_owned());
            tops.push(parser.node(json, "", 0)?);
        }
        Ok(Self { nodes: parser.nodes, names: parser.names.into_iter().collect(), tops })
    }

    /// The full names of all records, enumerations and fixeds.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Returns the type of that full name as a schema, with all types that it uses.
    ///
    /// # Errors
    /// [`SchemaError`] if there is none of that name, or if a default is invalid.
    pub fn schema(&self, name: &str) -> Result<Schema, SchemaError> {
        let id = self.names.get(name).ok_or_else(|| self.no_root(format!("no type {name:?}")))?;
        finish(self.nodes.clone(), *id)
    }

    /// Returns the schema of the only file whose type no other type uses.
    ///
    /// # Errors
    /// [`SchemaError::Root`] if there are several such files, or none.
    pub fn root(&self) -> Result<Schema, SchemaError> {
        let used = self.used_by_others();
        let tops: BTreeSet<_> = self.tops.iter().filter(|top| !used.contains(top)).collect();
        match tops.len() {
            1 => {}
            0 => return Err(self.no_root("every file's type is used by another's".to_owned())),
            _ => return Err(self.no_root("several files' types are used by no other".to_owned())),
        }
        tops.first().map_or_else(
            || Err(self.no_root("no files".to_owned())),
            |top| finish(self.nodes.clone(), **top),
        )
    }

    /// Returns the files' types that another file's type uses; a type may use itself.
    ///
    /// Each node keeps two of the files that reach it, which decides whether any but a type's own
    /// one does, in a time proportional to the number of nodes.
    fn used_by_others(&self) -> BTreeSet<NodeId> {
        let tops: BTreeSet<NodeId> = self.tops.iter().copied().collect();
        let mut files: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        let mut pending: Vec<_> = tops.iter().map(|top| (*top, *top)).collect();
        let mut used = BTreeSet::new();
        while let Some((id, file)) = pending.pop() {
            let of = files.entry(id).or_default();
            if of.len() == 2 || of.contains(&file) {
                continue;
            }
            of.push(file);
            let node = self.nodes.get(id.0 as usize).and_then(Option::as_ref);
            for child in node.into_iter().flat_map(|node| node.kind.children()) {
                match tops.contains(&child) {
                    true if child != file => _ = used.insert(child),
                    true => {}
                    false => pending.push((child, file)),
                }
            }
        }
        used
    }

    fn no_root(&self, problem: String) -> SchemaError {
        let names: Vec<_> = self.names().take(20).collect();
        SchemaError::Root { problem, names: names.join(", ") }
    }
}

/// Announces the names that a text defines.
fn announce(parser: &mut Parser, json: &Json, outer: &str) -> Result<(), SchemaError> {
    match json {
        Json::Array(branches) => branches.iter().try_for_each(|json| announce(parser, json, outer)),
        Json::Object(object) => {
            let word = object.get("type").and_then(Json::as_str).unwrap_or_default();
            let mut namespace = outer.to_owned();
            if ["record", "error", "enum", "fixed"].contains(&word) {
                let name = parser.full_name_of(object, outer)?;
                namespace = super::write::split(&name).0.to_owned();
                parser.announce_once(name)?;
            }
            for key in ["type", "items", "values"] {
                if let Some(inner @ (Json::Object(_) | Json::Array(_))) = object.get(key) {
                    announce(parser, inner, &namespace)?;
                }
            }
            let fields = object.get("fields").and_then(Json::as_array);
            let types = fields.into_iter().flatten().filter_map(|field| field.get("type"));
            types.into_iter().try_for_each(|json| announce(parser, json, &namespace))
        }
        _ => Ok(()),
    }
}
