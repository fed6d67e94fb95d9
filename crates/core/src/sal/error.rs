//! Errors of interface folders: each message names the file, the line and the remedy.

use thiserror::Error;

use super::{
    MAX_COMPONENTS, MAX_COUNT, MAX_ELEMENTS, MAX_FIELDS, MAX_FILE_BYTES, MAX_FILES,
    MAX_FOLDER_BYTES, MAX_LABELS, MAX_TOPICS,
};

/// An error in an interface folder, at a line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}: {cause}")]
pub struct SalError {
    /// The file's path within the folder.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The cause.
    pub cause: SalCause,
}

/// The cause of an error in an interface file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SalCause {
    /// A required file is missing.
    #[error(
        "this file is missing; an interface folder has SALSubsystems.xml and SALGenerics.xml at \
         its top (an empty <SALObjects/> will do for the latter), or components as X.yaml"
    )]
    Missing,
    /// The file is too large.
    #[error("the file has {0} bytes, the limit is {MAX_FILE_BYTES}; split the component")]
    FileTooLarge(usize),
    /// The folder has too many files or bytes.
    #[error(
        "the folder has more than {MAX_FILES} files or {MAX_FOLDER_BYTES} bytes; is it the folder \
         that has SALSubsystems.xml at its top?"
    )]
    FolderTooLarge,
    /// The folder has too many components, topics or fields.
    #[error(
        "the folder has more than {MAX_COMPONENTS} components, {MAX_TOPICS} topics or {MAX_FIELDS} \
         fields; load a part of it"
    )]
    TooMuch,
    /// The file is not UTF-8.
    #[error("the file is not UTF-8 text; save it as UTF-8")]
    NotUtf8,
    /// The file is not well-formed XML, or uses features that are rejected for safety.
    #[error("the XML cannot be read: {0}")]
    Xml(String),
    /// The file is not well-formed YAML, has unknown keys, or is too expensive to read.
    #[error("the YAML cannot be read: {0}")]
    Yaml(String),
    /// A component's name is not that of its file.
    #[error("the name is {found:?} in the file of {expected:?}; correct one of them")]
    ComponentName {
        /// The name found.
        found: String,
        /// The file's component.
        expected: String,
    },
    /// A YAML file belongs to no component.
    #[error(
        "a YAML file in an interface folder is a component, X.yaml or X/X.yaml; rename it, or move \
         it elsewhere"
    )]
    YamlFile,
    /// A component has both a YAML file and XML files.
    #[error("the component {0:?} is whole in its YAML file; remove one of the two")]
    Whole(String),
    /// A component's topic has a category, which only generics have.
    #[error("the category {0:?} is for generics only; remove it")]
    Category(String),
    /// The name of an enumeration is invalid.
    #[error("invalid enumeration name {0:?}; use letters and digits, beginning with a letter")]
    Class(String),
    /// A field names an enumeration that does not exist.
    #[error("the file's enumerations have no {0:?}; add it there, or write the labels here")]
    NoEnumeration(String),
    /// A field with an enumeration is no integer.
    #[error("only integers have labels, and this is a {0}; remove the enumeration")]
    NoInteger(&'static str),
    /// An array has strings as elements.
    #[error("strings are never arrays in SAL; remove the count, or use several fields")]
    StringArray,
    /// A tag or a file has more attributes or name spaces than any interface needs.
    #[error("more than {limit} {what}; an interface file needs none beyond those of its root")]
    XmlTooMuch {
        /// The kind of the excess.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// An element is misplaced.
    #[error("<{found}> cannot stand here; expected {expected}")]
    Unexpected {
        /// The element found.
        found: String,
        /// The elements that are allowed there.
        expected: &'static str,
    },
    /// An element lacks a required part.
    #[error("<{within}> has no <{element}>; add it")]
    NoElement {
        /// The part that is missing.
        element: &'static str,
        /// Its element.
        within: String,
    },
    /// An element has the same part twice.
    #[error("<{within}> has <{element}> twice; keep one")]
    Twice {
        /// The part.
        element: String,
        /// Its element.
        within: String,
    },
    /// A name is invalid.
    #[error(
        "invalid name {0:?}; a name starts with a letter or '_' and has letters, digits and '_' \
         only (a component's has no '_'), at most 90 of them (a field's: 256)"
    )]
    Name(String),
    /// A topic's name does not match its component and kind.
    #[error("the topic's name {found:?} does not fit; it must be like {expected:?}")]
    TopicName {
        /// The name found.
        found: String,
        /// The expected form.
        expected: String,
    },
    /// The topic names another component.
    #[error("<Subsystem> is {found:?} in a file of {expected:?}; correct it or leave it out")]
    Subsystem {
        /// The component named.
        found: String,
        /// The file's component.
        expected: String,
    },
    /// A type is unknown.
    #[error(
        "unknown SAL type {0:?}; use boolean, byte, short, int, long, \"long long\", \
         \"unsigned short\", \"unsigned int\", float, double or string"
    )]
    Type(String),
    /// A `Count` is no whole number within the limit.
    #[error("the count is {0:?}; it must be a whole number from 1 to {MAX_COUNT}")]
    Count(String),
    /// A topic has too many elements.
    #[error("the topic has more than {MAX_ELEMENTS} elements; split it")]
    Elements,
    /// A field name is duplicated.
    #[error(
        "the field {0:?} is declared twice (names of the private fields are taken); rename one"
    )]
    FieldTwice(String),
    /// A topic name is duplicated.
    #[error("the component has {0:?} twice, perhaps once by its generics; remove one")]
    TopicTwice(String),
    /// A component name is duplicated.
    #[error("the component {0:?} is declared twice; remove one")]
    ComponentTwice(String),
    /// A file belongs to no component.
    #[error("SALSubsystems.xml has no component {0:?}; add a <SALSubsystem> or remove the file")]
    NoComponent(String),
    /// A file of a component has an unknown name, so it would never be read.
    #[error("a component's XML files are {0}_Commands.xml, {0}_Events.xml, {0}_Telemetry.xml")]
    FileName(String),
    /// A generic does not exist.
    #[error(
        "{0:?} is neither a category nor a topic of the generics (SALGenerics.xml, or Heliograph's \
         own where there is none); use csc, configurable, or a name like logevent_clockOffset"
    )]
    Generic(String),
    /// An enumeration is invalid.
    #[error(
        "the enumeration's {0:?} cannot be read; write labels like \"Open\", \"Open=1\" or \
         \"Open=0x1\", separated by commas, each label once, at most {MAX_LABELS}"
    )]
    Enumeration(String),
    /// A number with a leading zero is ambiguous: octal in C.
    #[error("{0:?} has a leading zero: octal or decimal? Write it without, or with 0x")]
    LeadingZero(String),
    /// An `.avsc` file is no topic.
    #[error("no Avro record of a topic: {0}")]
    Avro(String),
}
