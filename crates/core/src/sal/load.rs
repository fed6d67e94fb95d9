//! Reading a folder: the two files at its top, then each component's.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::enumeration::{Classes, parse_labels};
use super::field::{FieldType, is_name, is_part, is_private};
use super::naming::is_component;
use super::topic::Template;
use super::xml::{self, Element, error_at};
use super::{
    Component, Enumeration, Field, Indexing, Interfaces, MAX_COMPONENTS, MAX_COUNT, MAX_ELEMENTS,
    MAX_FIELDS, MAX_FILES, MAX_FOLDER_BYTES, MAX_TOPICS, SalCause, SalError, SalType, Topic,
    TopicKind, avsc,
};

const SUBSYSTEMS: &str = "SALSubsystems.xml";
const GENERICS: &str = "SALGenerics.xml";
/// The component that generics are written for.
const GENERIC_COMPONENT: &str = "SALGeneric";
/// Categories that exist even where no generic has them; every component has the first.
const CATEGORIES: [&str; 3] = ["mandatory", "csc", "configurable"];

/// The files of a folder by their paths in it.
type Files<B> = BTreeMap<String, B>;

impl Interfaces {
    /// Reads the interfaces of a folder: paths within it (`/` between parts) and contents, in any
    /// order. Files that are neither XML nor `.avsc`, or lie elsewhere than at the top or in a
    /// component's folder, are passed over.
    ///
    /// # Errors
    /// [`SalError`] with file, line and remedy for the first thing that is wrong.
    pub fn load<P, B>(files: impl IntoIterator<Item = (P, B)>) -> Result<Self, SalError>
    where
        P: AsRef<str>,
        B: AsRef<[u8]>,
    {
        let files = collect(files)?;
        let generics = load_generics(top(&files, GENERICS)?)?;
        let declared = load_subsystems(top(&files, SUBSYSTEMS)?, &generics)?;
        let names: HashSet<&str> = declared.iter().map(|entry| &*entry.name).collect();
        check_paths(&files, &names)?;
        let mut components: Vec<Component> = Vec::new();
        let (mut topics, mut fields) = (0, 0);
        for entry in declared {
            let component = load_component(entry, &files, &generics)?;
            topics += component.topics.len();
            fields += component.topics.iter().map(|topic| topic.fields.len()).sum::<usize>();
            if topics > MAX_TOPICS || fields > MAX_FIELDS {
                return Err(error_at(SUBSYSTEMS, 1, SalCause::TooMuch));
            }
            components.push(component);
        }
        Ok(Self::new(components))
    }
}

fn collect<P, B>(files: impl IntoIterator<Item = (P, B)>) -> Result<Files<B>, SalError>
where
    P: AsRef<str>,
    B: AsRef<[u8]>,
{
    let mut collected = Files::new();
    let mut bytes = 0;
    for (path, contents) in files {
        let path = path.as_ref();
        bytes += contents.as_ref().len();
        if collected.len() == MAX_FILES || bytes > MAX_FOLDER_BYTES {
            return Err(error_at(path, 1, SalCause::FolderTooLarge));
        }
        collected.insert(path.strip_prefix("./").unwrap_or(path).to_owned(), contents);
    }
    Ok(collected)
}

fn top<'a, B: AsRef<[u8]>>(
    files: &'a Files<B>,
    name: &'static str,
) -> Result<(&'static str, &'a str), SalError> {
    let contents = files.get(name).ok_or_else(|| error_at(name, 1, SalCause::Missing))?;
    Ok((name, xml::text(name, contents.as_ref())?))
}

/// Every file of a component is read, or is refused here.
fn check_paths<B>(files: &Files<B>, components: &HashSet<&str>) -> Result<(), SalError> {
    for path in files.keys() {
        let Some((folder, name)) = path.split_once('/').filter(|parts| !parts.1.contains('/'))
        else {
            continue;
        };
        let is_xml = name.ends_with(".xml");
        if !is_xml && !name.ends_with(".avsc") {
            continue;
        }
        if !components.contains(folder) {
            return Err(error_at(path, 1, SalCause::NoComponent(folder.to_owned())));
        }
        let known = FILES.iter().any(|(file, _)| name == format!("{folder}_{file}.xml"));
        if is_xml && !known {
            return Err(error_at(path, 1, SalCause::FileName(folder.to_owned())));
        }
    }
    Ok(())
}

/// The files of a component, and what their root has in it.
const FILES: [(&str, TopicKind); 3] = [
    ("Commands", TopicKind::Command),
    ("Events", TopicKind::Event),
    ("Telemetry", TopicKind::Telemetry),
];

/// A component as `SALSubsystems.xml` has it.
struct Declared {
    name: Arc<str>,
    description: String,
    indexing: Indexing,
    /// Names of categories and topics.
    added: HashSet<String>,
    line: u32,
}

/// `SALGenerics.xml`: topics with their categories, and enumerations.
#[derive(Default)]
struct Generics {
    topics: Vec<Generic>,
    /// Every word that `AddedGenerics` may have.
    words: HashSet<String>,
    enumerations: Vec<Arc<Enumeration>>,
}

/// A topic of `SALGenerics.xml`, and the words by which a component gets it.
struct Generic {
    template: Template,
    sal_name: String,
    category: Option<String>,
}

fn load_generics((file, text): (&str, &str)) -> Result<Generics, SalError> {
    let document = xml::parse(file, text)?;
    let root = Element::root(file, &document);
    if root.name() != "SALObjects" {
        return Err(root.unexpected("<SALObjects>"));
    }
    let mut generics = Generics::default();
    for set in root.children() {
        let kind = FILES
            .iter()
            .find(|(_, kind)| set.name() == set_element(*kind))
            .ok_or_else(|| set.unexpected("<SALCommandSet>, <SALEventSet> or <SALTelemetrySet>"))?
            .1;
        let set = read_set(set, GENERIC_COMPONENT, kind)?;
        generics.enumerations.extend(set.enumerations);
        for (template, category) in set.topics {
            let sal_name = template.sal_name();
            generics.words.extend(category.iter().cloned().chain([sal_name.clone()]));
            generics.topics.push(Generic { template, sal_name, category });
        }
    }
    generics.words.extend(CATEGORIES.map(str::to_owned));
    Ok(generics)
}

fn load_subsystems(
    (file, text): (&str, &str),
    generics: &Generics,
) -> Result<Vec<Declared>, SalError> {
    let document = xml::parse(file, text)?;
    let root = Element::root(file, &document);
    if root.name() != "SALSubsystemSet" {
        return Err(root.unexpected("<SALSubsystemSet>"));
    }
    let mut declared: Vec<Declared> = Vec::new();
    let mut names = HashSet::new();
    for element in root.children() {
        if element.name() != "SALSubsystem" {
            return Err(element.unexpected("<SALSubsystem>"));
        }
        let entry = read_subsystem(element, generics)?;
        if !names.insert(entry.name.clone()) {
            return Err(element.error(SalCause::ComponentTwice(entry.name.to_string())));
        }
        declared.push(entry);
        if declared.len() > MAX_COMPONENTS {
            return Err(element.error(SalCause::TooMuch));
        }
    }
    Ok(declared)
}

fn read_subsystem(element: Element<'_>, generics: &Generics) -> Result<Declared, SalError> {
    let name_element = element.required("Name")?;
    let name = name_element.text();
    if !is_component(name.trim()) {
        return Err(name_element.error(SalCause::Name(clip(&name))));
    }
    let index = element.required("IndexEnumeration")?;
    let indexing = match index.text().trim() {
        "no" => Indexing::Single,
        "any" => Indexing::Any,
        list => Indexing::Named(parse_labels(list).map_err(|cause| index.error(cause))?),
    };
    let added = read_added(element.required("AddedGenerics")?, generics)?;
    Ok(Declared {
        name: name.trim().into(),
        description: element.child_text("Description")?.unwrap_or_default().into_owned(),
        indexing,
        added,
        line: element.line(),
    })
}

fn read_added(element: Element<'_>, generics: &Generics) -> Result<HashSet<String>, SalError> {
    let text = element.text();
    let mut added = HashSet::from([CATEGORIES[0].to_owned()]);
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !generics.words.contains(name) {
            return Err(element.error(SalCause::Generic(clip(name))));
        }
        added.insert(name.to_owned());
    }
    Ok(added)
}

fn load_component<B: AsRef<[u8]>>(
    declared: Declared,
    files: &Files<B>,
    generics: &Generics,
) -> Result<Component, SalError> {
    let Declared { name, description, indexing, added, line } = declared;
    let mut templates: Vec<Template> = Vec::new();
    for generic in &generics.topics {
        let by_category = generic.category.as_ref().is_some_and(|word| added.contains(word));
        if by_category || added.contains(&generic.sal_name) {
            templates.push(generic.template.clone());
        }
    }
    let mut enumerations: Vec<Arc<Enumeration>> = Vec::new();
    for (file, kind) in FILES {
        let path = format!("{name}/{name}_{file}.xml");
        let Some(contents) = files.get(&path) else { continue };
        let set = load_set(&path, contents.as_ref(), &name, kind)?;
        templates.extend(set.topics.into_iter().map(|entry| entry.0));
        enumerations.extend(set.enumerations);
    }
    load_records(&name, files, &mut templates)?;
    link(&mut templates, &Classes::of(enumerations.iter().chain(&generics.enumerations)));
    let indexed = indexing != Indexing::Single;
    let mut topics: Vec<Topic> =
        templates.into_iter().map(|template| template.topic_of(&name, indexed)).collect();
    topics.push(Topic::acknowledgement(&name, indexed));
    topics.sort_by(|a, b| (a.kind(), a.name()).cmp(&(b.kind(), b.name())));
    if let Some(pair) = topics.windows(2).find(|w| w[0].topic_name() == w[1].topic_name()) {
        return Err(error_at(SUBSYSTEMS, line, SalCause::TopicTwice(pair[0].to_string())));
    }
    Ok(Component { name, description, indexing, enumerations, topics })
}

/// Reads a component's `.avsc` files; each replaces the XML topic of its name, where there is one.
fn load_records<B: AsRef<[u8]>>(
    component: &str,
    files: &Files<B>,
    templates: &mut Vec<Template>,
) -> Result<(), SalError> {
    let folder = format!("{component}/");
    let mut records: Vec<Template> = Vec::new();
    let inside = files.range(folder.clone()..).take_while(|(path, _)| path.starts_with(&folder));
    for (path, contents) in inside.filter(|(path, _)| path.ends_with(".avsc")) {
        let text = xml::text(path, contents.as_ref())?;
        records.push(avsc::template(text).map_err(|(line, cause)| error_at(path, line, cause))?);
    }
    let names: HashSet<String> = records.iter().map(Template::sal_name).collect();
    templates.retain(|template| !names.contains(&template.sal_name()));
    templates.append(&mut records);
    Ok(())
}

/// Gives integer fields without a list of their own the enumeration that has their name: the
/// component's, else the generics'.
fn link(templates: &mut [Template], classes: &Classes) {
    for field in templates.iter_mut().flat_map(|template| &mut template.fields) {
        if field.enumeration.is_none() && field.sal_type().is_some_and(SalType::is_integer) {
            field.enumeration = classes.of_field(&field.name).cloned();
        }
    }
}

const fn set_element(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::Command => "SALCommandSet",
        TopicKind::Event => "SALEventSet",
        _ => "SALTelemetrySet",
    }
}

const fn topic_element(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::Command => "SALCommand",
        TopicKind::Event => "SALEvent",
        _ => "SALTelemetry",
    }
}

/// What a set of topics has in it.
#[derive(Default)]
struct Set {
    topics: Vec<(Template, Option<String>)>,
    enumerations: Vec<Arc<Enumeration>>,
}

fn load_set(path: &str, bytes: &[u8], component: &str, kind: TopicKind) -> Result<Set, SalError> {
    let text = xml::text(path, bytes)?;
    let document = xml::parse(path, text)?;
    let root = Element::root(path, &document);
    if root.name() != set_element(kind) {
        return Err(root.unexpected(set_element(kind)));
    }
    read_set(root, component, kind)
}

fn read_set(set: Element<'_>, component: &str, kind: TopicKind) -> Result<Set, SalError> {
    let mut read = Set::default();
    for element in set.children() {
        if element.name() == "Enumeration" {
            read.enumerations.extend(read_enumeration(element, Enumeration::of_set)?);
        } else if element.name() == topic_element(kind) {
            read.topics.push(read_topic(element, component, kind)?);
        } else {
            return Err(element.unexpected("<Enumeration> or the set's kind of topic"));
        }
    }
    Ok(read)
}

fn read_enumeration(
    element: Element<'_>,
    read: fn(&str) -> Result<Enumeration, SalCause>,
) -> Result<Option<Arc<Enumeration>>, SalError> {
    let text = element.text();
    if text.trim().is_empty() {
        return Ok(None);
    }
    read(&text).map(|e| Some(Arc::new(e))).map_err(|cause| element.error(cause))
}

fn read_topic(
    element: Element<'_>,
    component: &str,
    kind: TopicKind,
) -> Result<(Template, Option<String>), SalError> {
    let name = read_topic_name(element, component, kind)?;
    if let Some(subsystem) = element.child("Subsystem")? {
        let found = subsystem.text();
        if found.trim() != component {
            let (found, expected) = (clip(&found), component.to_owned());
            return Err(subsystem.error(SalCause::Subsystem { found, expected }));
        }
    }
    let mut fields: Vec<Field> = Vec::new();
    let mut names: HashSet<Arc<str>> = HashSet::new();
    let mut elements = 0;
    for item in element.children().filter(|child| child.name() == "item") {
        let field = read_item(item)?;
        elements += field.count;
        if elements > MAX_ELEMENTS {
            return Err(element.error(SalCause::Elements));
        }
        if is_private(&field.name) || !names.insert(field.name.clone()) {
            return Err(item.error(SalCause::FieldTwice(field.name.to_string())));
        }
        fields.push(field);
    }
    let description = element.child_text("Description")?.unwrap_or_default().into();
    let category = element.child_text("Category")?.map(|text| text.trim().to_owned());
    Ok((Template { kind, name, description, fields }, category))
}

fn read_topic_name(
    element: Element<'_>,
    component: &str,
    kind: TopicKind,
) -> Result<Arc<str>, SalError> {
    let name_element = element.required("EFDB_Topic")?;
    let text = name_element.text();
    let sal_name = text.trim().strip_prefix(component).and_then(|rest| rest.strip_prefix('_'));
    match sal_name.map(TopicKind::of_sal_name) {
        Some((found, name)) if found == kind && is_part(name) => Ok(name.into()),
        _ => {
            let expected = format!("{component}_{}name", kind.sal_prefix());
            let found = clip(&text);
            Err(name_element.error(SalCause::TopicName { found, expected }))
        }
    }
}

fn read_item(item: Element<'_>) -> Result<Field, SalError> {
    let name_element = item.required("EFDB_Name")?;
    let name: Arc<str> = name_element.text().trim().into();
    if !is_name(&name) {
        return Err(name_element.error(SalCause::Name(clip(&name))));
    }
    let type_element = item.required("IDL_Type")?;
    let type_text = type_element.text();
    let sal = SalType::from_name(&type_text)
        .ok_or_else(|| type_element.error(SalCause::Type(clip(&type_text))))?;
    let count = match item.child("Count")? {
        // Strings are never arrays; IDL_Size, their length, binds nobody.
        Some(element) if sal != SalType::String => read_count(element)?,
        _ => 1,
    };
    let enumeration = match item.child("Enumeration")? {
        Some(element) => read_enumeration(element, Enumeration::of_item)?,
        None => None,
    };
    let units = item.child_text("Units")?.map_or_else(|| "unitless".into(), Into::into);
    let description = item.child_text("Description")?.unwrap_or_default().into();
    Ok(Field { name, field_type: FieldType::Sal(sal), count, units, description, enumeration })
}

fn read_count(element: Element<'_>) -> Result<u32, SalError> {
    let text = element.text();
    match text.trim().parse() {
        Ok(count @ 1..=MAX_COUNT) => Ok(count),
        _ => Err(element.error(SalCause::Count(clip(&text)))),
    }
}

/// A name for a message: short, however long it is in the file.
fn clip(text: &str) -> String {
    text.trim().chars().take(100).collect()
}
