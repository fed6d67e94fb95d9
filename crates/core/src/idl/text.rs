//! Types as OMG IDL 4.2.

use std::collections::HashMap;
use std::fmt::Write;

use super::names::{escaped, scoped, split};
use super::{Enum, Form, Kind, Member, Struct, TopicType};

/// The width of comment lines.
const COLUMNS: usize = 100;

/// Prints the types of several topics as one IDL file, each definition once and before its uses.
/// Different definitions of one name are all printed, and IDL compilers reject them: print such
/// topics into separate files.
pub fn document<'a>(types: impl IntoIterator<Item = &'a TopicType>) -> String {
    let mut out = Document { text: String::from(HEAD), open: Vec::new(), printed: HashMap::new() };
    for of in types {
        // Our header first, so that the modules of the rest stay open.
        if of.form != Form::Foreign {
            out.define(&of.structs[0].name, definition_of_struct(of, &of.structs[0], false));
        }
        for one in &of.enums {
            out.define(&one.name, definition_of_enum(one));
        }
        for (place, one) in of.structs.iter().enumerate() {
            let topic = place + 1 == of.structs.len();
            out.define(&one.name, definition_of_struct(of, one, topic));
        }
    }
    out.enter(&[]);
    out.text
}

const HEAD: &str = "// Made by `helio schema idl`: OMG IDL 4.2.\n";

struct Document {
    text: String,
    /// The open modules.
    open: Vec<String>,
    /// The definitions of each name.
    printed: HashMap<String, Vec<String>>,
}

impl Document {
    /// Prints a definition in its modules, unless it is printed already.
    fn define(&mut self, name: &str, definition: String) {
        let before = self.printed.entry(name.to_owned()).or_default();
        if before.contains(&definition) {
            return;
        }
        before.push(definition.clone());
        let modules: Vec<&str> =
            split(name).0.split("::").filter(|module| !module.is_empty()).collect();
        self.enter(&modules);
        self.text.push('\n');
        self.text.push_str(&definition);
    }

    /// Closes and opens modules, and reopens as few as possible: the compiler of Eclipse Cyclone's
    /// Python package crashes on a reopened module that contains another one.
    fn enter(&mut self, modules: &[&str]) {
        let same = self.open.iter().zip(modules).take_while(|(open, module)| open == module);
        let same = same.count();
        for module in self.open.drain(same..).rev() {
            let _ = writeln!(self.text, "}}; // {module}");
        }
        if same < modules.len() {
            self.text.push('\n');
        }
        for module in &modules[same..] {
            let _ = writeln!(self.text, "module {} {{", escaped(module));
            self.open.push((*module).to_owned());
        }
    }
}

fn definition_of_enum(of: &Enum) -> String {
    let mut out = String::new();
    comment(&mut out, "", &of.text);
    let name = escaped(split(&of.name).1);
    let values = of.symbols.iter().enumerate().map(|(value, symbol)| (symbol.as_str(), value));
    enumeration(&mut out, &name, values.map(|(symbol, value)| (escaped(symbol), value as i64)));
    out
}

fn enumeration(out: &mut String, name: &str, symbols: impl Iterator<Item = (String, i64)>) {
    let symbols: Vec<String> =
        symbols.map(|(symbol, value)| format!("  @value({value}) {symbol}")).collect();
    out.push_str(&format!("@appendable\nenum {name} {{\n{}\n}};\n", symbols.join(",\n")));
}

fn definition_of_struct(of: &TopicType, one: &Struct, topic: bool) -> String {
    let mut out = String::new();
    let name = split(&one.name).1;
    for member in &one.members {
        labels(&mut out, name, member);
    }
    comment(&mut out, "", &one.text);
    if topic {
        comment(&mut out, "", "A topic's type.");
    }
    let extensibility = if one.appendable { "@appendable" } else { "@final" };
    out.push_str(&format!("{extensibility}\nstruct {} {{\n", escaped(name)));
    for member in &one.members {
        let units = match member.units.as_str() {
            "" | "unitless" | "dimensionless" => "",
            units => units,
        };
        let stop = if units.is_empty() || member.text.is_empty() { "" } else { ": " };
        comment(&mut out, "  ", &format!("{units}{stop}{}", member.text));
        out.push_str(&format!("  {};\n", declaration(of, member)));
    }
    out.push_str("};\n");
    out
}

/// Prints the labels of a member's numbers as an enumeration without uses, because values without a
/// label are legal. Labels that IDL cannot express become a comment.
fn labels(out: &mut String, of: &str, member: &Member) {
    if member.labels.is_empty() {
        return;
    }
    let name = format!("{of}_{}", member.name);
    let symbols = member.labels.iter().map(|(label, value)| (format!("{name}_{label}"), *value));
    comment(out, "", &format!("What the values of {of}.{} mean.", member.name));
    if sayable(&member.labels) {
        enumeration(out, &name, symbols);
    } else {
        let all: Vec<String> =
            member.labels.iter().map(|(label, value)| format!("{label} = {value}")).collect();
        comment(out, "", &all.join(", "));
    }
}

/// Returns whether labels and values form an IDL enumeration: unique names, unique values of 31
/// bits.
fn sayable(labels: &[(String, i64)]) -> bool {
    let legal = |label: &String| label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    labels.iter().enumerate().all(|(place, (label, value))| {
        let same =
            |(other, number): &(String, i64)| other.eq_ignore_ascii_case(label) || number == value;
        legal(label) && (0..1 << 31).contains(value) && !labels[..place].iter().any(same)
    })
}

fn declaration(of: &TopicType, member: &Member) -> String {
    let mut out = String::new();
    if member.key {
        out.push_str("@key ");
    }
    if member.optional.is_some() {
        out.push_str("@optional ");
    }
    let (kind, bounds) = match &member.kind {
        Kind::Array(item, count) => (word(of, item), format!("[{count}]")),
        Kind::Fixed(size) => ("octet".to_owned(), format!("[{size}]")),
        kind => (word(of, kind), String::new()),
    };
    let _ = write!(out, "{kind} {}{bounds}", escaped(&member.name));
    out
}

fn word(of: &TopicType, kind: &Kind) -> String {
    match kind {
        Kind::Boolean => "boolean".to_owned(),
        Kind::Integer(integer) => integer.word().to_owned(),
        Kind::Float => "float".to_owned(),
        Kind::Double => "double".to_owned(),
        Kind::String(None) => "string".to_owned(),
        Kind::String(Some(bound)) => format!("string<{bound}>"),
        Kind::Bytes | Kind::Fixed(_) => "sequence<octet>".to_owned(),
        Kind::Enum(place) => scoped(&of.enums[*place].name),
        Kind::Struct(place) => scoped(&of.structs[*place].name),
        // `>>` is one token for some compilers.
        Kind::Sequence(item) | Kind::Array(item, _) => match word(of, item) {
            inner if inner.ends_with('>') => format!("sequence<{inner} >"),
            inner => format!("sequence<{inner}>"),
        },
    }
}

/// Prints a comment, wrapped. Escapes a backslash at a line's end, which would join the next line
/// to the comment.
fn comment(out: &mut String, indent: &str, text: &str) {
    let clean = text.replace('\\', "/");
    let mut line = String::new();
    for word in clean.split_whitespace() {
        let long = line.chars().count() + word.chars().count() + indent.len() + 4 > COLUMNS;
        if long && !line.is_empty() {
            let _ = writeln!(out, "{indent}//{line}");
            line.clear();
        }
        line.push(' ');
        line.extend(word.chars().filter(|c| !c.is_control()));
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{indent}//{line}");
    }
}
