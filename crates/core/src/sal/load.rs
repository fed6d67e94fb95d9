//! Reading a folder: the two top files and the YAML components, then each component's other files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::enumeration::{Classes, parse_labels};
use super::field::{FieldList, FieldType, is_name, is_part};
use super::naming::is_component;
use super::topic::Template;
use super::xml::{self, Element, error_at};
use super::yaml::{self, Own};
use super::{
    Component, Enumeration, Field, Indexing, Interfaces, MAX_COMPONENTS, MAX_COUNT, MAX_FIELDS,
    MAX_FILES, MAX_FOLDER_BYTES, MAX_TOPICS, SalCause, SalError, SalType, Topic, TopicKind, avsc,
};

const SUBSYSTEMS: &str = "SALSubsystems.xml";
const GENERICS: &str = "SALGenerics.xml";
/// The name of our own generics in errors.
const OWN_GENERICS: &str = "(Heliograph's generics.yaml)";
/// The placeholder component of generics.
const GENERIC_COMPONENT: &str = "SALGeneric";
/// Categories that exist even without a generic; every component has the first.
const CATEGORIES: [&str; 3] = ["mandatory", "csc", "configurable"];

/// The files of a folder by their paths in it.
type Files<B> = BTreeMap<String, B>;

impl Interfaces {
    /// Reads the interfaces of a folder: paths within it (`/` between parts) and contents, in any
    /// order. Files that are no [interface files](is_interface_file) are skipped.
    ///
    /// # Errors
    /// [`SalError`] with file, line and remedy of the first error.
    pub fn load<P, B>(files: impl IntoIterator<Item = (P, B)>) -> Result<Self, SalError>
    where
        P: AsRef<str>,
        B: AsRef<[u8]>,
    {
        let files = collect(files)?;
        let has_yaml = files.keys().any(|path| is_yaml(path));
        let generics = match files.contains_key(GENERICS) {
            false if has_yaml && !files.contains_key(SUBSYSTEMS) => own_generics()?,
            _ => load_generics(top(&files, GENERICS)?)?,
        };
        let mut found = match files.contains_key(SUBSYSTEMS) {
            false if has_yaml => Vec::new(),
            _ => load_subsystems(top(&files, SUBSYSTEMS)?, &generics)?,
        };
        load_yaml(&files, &generics, &mut found)?;
        check_paths(&files, &found)?;
        let mut components: Vec<Component> = Vec::new();
        let (mut topics, mut fields) = (0, 0);
        for entry in found {
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

/// Returns whether a file is an interface file, by its path within the folder (`/` between parts):
/// XML and YAML at the top or in a component's folder, and `.avsc` in the latter. All others are
/// skipped, as are names that begin with a dot.
#[must_use]
pub fn is_interface_file(path: &str) -> bool {
    let (folder, name) = path.split_once('/').map_or((None, path), |(f, n)| (Some(f), n));
    let hidden = |part: &str| part.starts_with('.');
    if name.contains('/') || hidden(name) || folder.is_some_and(hidden) {
        return false;
    }
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("yaml" | "yml" | "xml") => true,
        Some("avsc") => folder.is_some(),
        _ => false,
    }
}

fn is_yaml(path: &str) -> bool {
    is_interface_file(path) && (path.ends_with(".yaml") || path.ends_with(".yml"))
}

/// Returns the component of a YAML file: `X.yaml` or `X/X.yaml`.
#[must_use]
pub fn yaml_component(path: &str) -> Option<&str> {
    let stem = path.strip_suffix(".yaml").filter(|_| is_interface_file(path))?;
    let name = match stem.split_once('/') {
        Some((folder, name)) if folder == name => name,
        Some(_) => return None,
        None => stem,
    };
    is_component(name).then_some(name)
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

/// Every file of a component is read, or rejected here.
fn check_paths<B>(files: &Files<B>, components: &[Declared]) -> Result<(), SalError> {
    let whole: HashMap<&str, bool> =
        components.iter().map(|entry| (&*entry.name, entry.own.is_some())).collect();
    for path in files.keys().filter(|path| is_interface_file(path) && !is_yaml(path)) {
        let Some((folder, name)) = path.split_once('/') else { continue };
        let is_xml = name.ends_with(".xml");
        let known = FILES.iter().any(|(file, _)| name == format!("{folder}_{file}.xml"));
        let refused = match whole.get(folder) {
            None => SalCause::NoComponent(folder.to_owned()),
            Some(true) if is_xml => SalCause::Whole(folder.to_owned()),
            Some(false) if is_xml && !known => SalCause::FileName(folder.to_owned()),
            Some(_) => continue,
        };
        return Err(error_at(path, 1, refused));
    }
    Ok(())
}

/// The files of a component, with their root elements.
const FILES: [(&str, TopicKind); 3] = [
    ("Commands", TopicKind::Command),
    ("Events", TopicKind::Event),
    ("Telemetry", TopicKind::Telemetry),
];

/// A component as in `SALSubsystems.xml` or its YAML file.
struct Declared {
    name: Arc<str>,
    description: String,
    indexing: Indexing,
    /// Names of categories and topics.
    added: HashSet<String>,
    /// Its own topics, if they are in the same file.
    own: Option<Own>,
    file: String,
    line: u32,
}

/// `SALGenerics.xml`: topics with their categories, and enumerations.
#[derive(Default)]
struct Generics {
    topics: Vec<Generic>,
    /// All valid words of `AddedGenerics`.
    words: HashSet<String>,
    enumerations: Vec<Arc<Enumeration>>,
}

/// A topic of `SALGenerics.xml`, and the words that add it to a component.
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
        generics.add(read_set(set, GENERIC_COMPONENT, kind)?);
    }
    Ok(generics)
}

/// The generics of folders without generics: SAL's names and types, our descriptions.
fn own_generics() -> Result<Generics, SalError> {
    let mut generics = Generics::default();
    generics.add(yaml::generics(OWN_GENERICS, include_str!("generics.yaml"))?);
    Ok(generics)
}

impl Generics {
    fn add(&mut self, set: Own) {
        self.enumerations.extend(set.enumerations);
        for (template, category) in set.topics {
            let sal_name = template.sal_name();
            self.words.extend(category.iter().cloned().chain([sal_name.clone()]));
            self.topics.push(Generic { template, sal_name, category });
        }
    }

    /// Returns whether a component's generics may contain that word.
    fn knows(&self, word: &str) -> bool {
        CATEGORIES.contains(&word) || self.words.contains(word)
    }
}

/// Adds the YAML components.
fn load_yaml<B: AsRef<[u8]>>(
    files: &Files<B>,
    generics: &Generics,
    found: &mut Vec<Declared>,
) -> Result<(), SalError> {
    let mut names: HashSet<Arc<str>> = found.iter().map(|entry| entry.name.clone()).collect();
    for (path, contents) in files.iter().filter(|(path, _)| is_yaml(path)) {
        let name = yaml_component(path).ok_or_else(|| error_at(path, 1, SalCause::YamlFile))?;
        if found.len() == MAX_COMPONENTS {
            return Err(error_at(path, 1, SalCause::TooMuch));
        }
        let read = yaml::component(path, name, xml::text(path, contents.as_ref())?)?;
        if !names.insert(read.name.clone()) {
            return Err(error_at(path, 1, SalCause::ComponentTwice(name.to_owned())));
        }
        let mut added = HashSet::from([CATEGORIES[0].to_owned()]);
        for (word, line) in read.generics {
            if !generics.knows(&word) {
                return Err(error_at(path, line, SalCause::Generic(clip(&word))));
            }
            added.insert(word);
        }
        found.push(Declared {
            name: read.name,
            description: read.description,
            indexing: read.indexing,
            added,
            own: Some(read.own),
            file: path.clone(),
            line: 1,
        });
    }
    Ok(())
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
        own: None,
        file: SUBSYSTEMS.to_owned(),
        line: element.line(),
    })
}

fn read_added(element: Element<'_>, generics: &Generics) -> Result<HashSet<String>, SalError> {
    let text = element.text();
    let mut added = HashSet::from([CATEGORIES[0].to_owned()]);
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !generics.knows(name) {
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
    let Declared { name, description, indexing, added, own, file, line } = declared;
    let mut templates: Vec<Template> = Vec::new();
    for generic in &generics.topics {
        let by_category = generic.category.as_ref().is_some_and(|word| added.contains(word));
        if by_category || added.contains(&generic.sal_name) {
            templates.push(generic.template.clone());
        }
    }
    let own = match own {
        Some(own) => own,
        None => load_sets(&name, files)?,
    };
    let enumerations = own.enumerations;
    templates.extend(own.topics.into_iter().map(|entry| entry.0));
    load_records(&name, files, &mut templates)?;
    link(&mut templates, &Classes::of(enumerations.iter().chain(&generics.enumerations)));
    let indexed = indexing != Indexing::Single;
    let mut topics: Vec<Topic> =
        templates.into_iter().map(|template| template.topic_of(&name, indexed)).collect();
    topics.push(Topic::acknowledgement(&name, indexed));
    topics.sort_by(|a, b| (a.kind(), a.name()).cmp(&(b.kind(), b.name())));
    if let Some(pair) = topics.windows(2).find(|w| w[0].topic_name() == w[1].topic_name()) {
        return Err(error_at(&file, line, SalCause::TopicTwice(pair[0].to_string())));
    }
    Ok(Component { name, description, indexing, enumerations, topics })
}

/// Reads a component's XML files.
fn load_sets<B: AsRef<[u8]>>(name: &str, files: &Files<B>) -> Result<Own, SalError> {
    let mut own = Own::default();
    for (file, kind) in FILES {
        let path = format!("{name}/{name}_{file}.xml");
        let Some(contents) = files.get(&path) else { continue };
        let set = load_set(&path, contents.as_ref(), name, kind)?;
        own.topics.extend(set.topics);
        own.enumerations.extend(set.enumerations);
    }
    Ok(own)
}

/// Reads a component's `.avsc` files; each replaces the XML topic of its name, if there is one.
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

/// Assigns integer fields without a list of their own the enumeration of their name: the
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

fn load_set(path: &str, bytes: &[u8], component: &str, kind: TopicKind) -> Result<Own, SalError> {
    let text = xml::text(path, bytes)?;
    let document = xml::parse(path, text)?;
    let root = Element::root(path, &document);
    if root.name() != set_element(kind) {
        return Err(root.unexpected(set_element(kind)));
    }
    read_set(root, component, kind)
}

fn read_set(set: Element<'_>, component: &str, kind: TopicKind) -> Result<Own, SalError> {
    let mut read = Own::default();
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
    let mut fields = FieldList::default();
    for item in element.children().filter(|child| child.name() == "item") {
        fields.push(read_item(item)?).map_err(|cause| item.error(cause))?;
    }
    let fields = fields.into_fields();
    let description = element.child_text("Description")?.unwrap_or_default().into();
    let category = element.child_text("Category")?.map(|text| text.trim().to_owned());
    Ok((Template { kind, name, description, fields, record: None }, category))
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
        // Strings are never arrays; their length, IDL_Size, is not enforced.
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

/// Shortens a name for a message.
fn clip(text: &str) -> String {
    text.trim().chars().take(100).collect()
}
