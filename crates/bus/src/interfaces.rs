//! Reads a folder of SAL interfaces from disk; [`helio_core::sal`] parses it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use helio_core::sal::{
    Interfaces, MAX_FILE_BYTES, MAX_FILES, MAX_FOLDER_BYTES, SalError, is_interface_file,
    yaml_component,
};
use thiserror::Error;

/// An error of reading a folder of interfaces.
#[derive(Debug, Error)]
pub enum InterfacesError {
    /// The folder has no interfaces.
    #[error(
        "{0} has no SALSubsystems.xml, neither has its sal_interfaces, and it has no component as \
         X.yaml; name a folder of interfaces, such as examples/interfaces"
    )]
    NoInterfaces(PathBuf),
    /// The folder is too large.
    #[error("{0} has more than {MAX_FILES} files or {MAX_FOLDER_BYTES} bytes of interfaces")]
    TooLarge(PathBuf),
    /// A file or folder could not be read.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file is invalid.
    #[error("in {folder}: {source}")]
    Sal {
        /// The folder of interfaces.
        folder: PathBuf,
        /// The file, the line and the cause.
        source: SalError,
    },
}

/// Where a folder's interfaces may be: at its top, or as in a checkout of SAL.
const SEARCH_FOLDERS: [&str; 3] = ["", "sal_interfaces", "python/lsst/ts/xml/data/sal_interfaces"];
/// The folder of SAL's `.avsc` topics, beside `sal_interfaces`.
const AVSC_FOLDER: &str = "interfaces";
/// A file of one line with the release of the interfaces beside it.
const RELEASE_FILE: &str = "VERSION";
/// The file with the release of SAL's package, relative to `sal_interfaces`.
const PACKAGE_VERSION_FILE: &str = "../../version.py";
/// The part of a file that is searched for a release.
const MAX_RELEASE_FILE_BYTES: u64 = 4_096;

/// Reads the interfaces of a folder. It contains `SALSubsystems.xml`, at its top or in
/// `sal_interfaces`, or else components as `X.yaml` or `X/X.yaml`. The folder `interfaces` beside
/// `sal_interfaces` is read, too: SAL has `.avsc` topics there from v28 on. The
/// [release](Interfaces::release) is that of a file `VERSION`, of SAL's package around them, or of
/// a folder's name such as `v27.1.1`.
///
/// # Errors
/// [`InterfacesError`] if there are none, or if a file cannot be read or is invalid.
///
/// ```
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
/// let interfaces = helio_bus::read_interfaces(folder)?;
/// let topic = interfaces.topic("MTMount/command/trackTarget").expect("it is there");
/// assert_eq!(topic.attribute(), "cmd_trackTarget");
/// # Ok::<(), helio_bus::InterfacesError>(())
/// ```
pub fn read_interfaces(folder: impl AsRef<Path>) -> Result<Interfaces, InterfacesError> {
    read(folder.as_ref(), None)
}

/// Reads one component of a folder, in a fraction of the time. Of the other components of
/// `SALSubsystems.xml` it returns the generic topics only. A folder without that component is read
/// whole, so that the caller can list its components.
///
/// # Errors
/// [`InterfacesError`] as of [`read_interfaces`].
pub fn read_component(
    folder: impl AsRef<Path>,
    component: &str,
) -> Result<Interfaces, InterfacesError> {
    match read(folder.as_ref(), Some(component)) {
        Ok(interfaces) if interfaces.component(component).is_some() => Ok(interfaces),
        _ => read(folder.as_ref(), None),
    }
}

fn read(folder: &Path, component: Option<&str>) -> Result<Interfaces, InterfacesError> {
    let root = SEARCH_FOLDERS
        .iter()
        .map(|place| folder.join(place))
        .find(|place| place.join("SALSubsystems.xml").is_file());
    let root = match root {
        Some(root) => root,
        None if has_yaml(folder)? => folder.to_owned(),
        None => return Err(InterfacesError::NoInterfaces(folder.to_owned())),
    };
    let mut reader = Reader { root: root.clone(), component, files: Vec::new(), bytes: 0 };
    reader.read_tree(&root, is_interface_file)?;
    if root.file_name().is_some_and(|name| name == "sal_interfaces") {
        let records = root.with_file_name(AVSC_FOLDER);
        if records.is_dir() {
            let records_only = |path: &str| is_interface_file(path) && path.ends_with(".avsc");
            reader.read_tree(&records, records_only)?;
        }
    }
    match Interfaces::load(reader.files) {
        Ok(interfaces) => Ok(interfaces.with_release(release(folder, &root).unwrap_or_default())),
        Err(source) => Err(InterfacesError::Sal { folder: root, source }),
    }
}

/// The release of the interfaces in a folder, whose files are in `root`.
fn release(folder: &Path, root: &Path) -> Option<String> {
    let line =
        beginning(&root.join(RELEASE_FILE)).or_else(|| beginning(&folder.join(RELEASE_FILE)));
    let written = line.and_then(|text| as_release(text.lines().next()?.trim()));
    let packaged =
        || beginning(&root.join(PACKAGE_VERSION_FILE)).and_then(|text| package_release(&text));
    written.or_else(packaged).or_else(|| named_release(folder, root))
}

fn beginning(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_RELEASE_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The release in a package's `version.py`: `__version__ = version = '27.1.1'`.
fn package_release(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("__version__") && line.contains('='))?;
    as_release(line.rsplit('=').next()?.trim().trim_matches(['"', '\'']))
}

/// The release in a folder's name: the given folder, the folders in it on the path to the files, or
/// the one around a bare `sal_interfaces`.
fn named_release(folder: &Path, root: &Path) -> Option<String> {
    let (folder, root) = (fs::canonicalize(folder).ok()?, fs::canonicalize(root).ok()?);
    let outermost = match folder.file_name().is_some_and(|name| name == "sal_interfaces") {
        true => folder.parent()?,
        false => &folder,
    };
    let mut names = root.ancestors().take_while(|path| path.starts_with(outermost));
    names.find_map(|path| as_release(path.file_name()?.to_str()?))
}

/// A release as numbers separated by dots, with an optional suffix: `v27.1.1`, `28.0.0rc1`.
fn as_release(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let numbered = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.');
    let legal = |c: char| c.is_ascii_alphanumeric() || ".+-_".contains(c);
    (numbered && text.chars().all(legal)).then(|| text.to_owned())
}

/// Reads the files of a folder and of its direct subfolders, within the loader's limits.
struct Reader<'a> {
    root: PathBuf,
    /// The only component whose own files are read.
    component: Option<&'a str>,
    files: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

impl Reader<'_> {
    fn read_tree(
        &mut self,
        root: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), InterfacesError> {
        for path in tree(root, self.component)? {
            let inside = inside(root, &path);
            let another = |only: &str| yaml_component(&inside).is_some_and(|name| name != only);
            if wanted(&inside) && !self.component.is_some_and(another) && path.is_file() {
                self.read_file(inside, &path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, inside: String, path: &Path) -> Result<(), InterfacesError> {
        let failed = |source| InterfacesError::Io { path: path.to_owned(), source };
        let mut contents = Vec::new();
        // One byte more than the loader's limit, so that it reports a file that is too large.
        let limit = MAX_FILE_BYTES as u64 + 1;
        fs::File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut contents))
            .map_err(failed)?;
        self.bytes += contents.len();
        if self.files.len() == MAX_FILES || self.bytes > MAX_FOLDER_BYTES {
            return Err(InterfacesError::TooLarge(self.root.clone()));
        }
        self.files.push((inside, contents));
        Ok(())
    }
}

/// A path within a folder, with `/` between parts.
fn inside(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// Whether a folder contains a component as YAML.
fn has_yaml(folder: &Path) -> Result<bool, InterfacesError> {
    let paths = if folder.is_dir() { tree(folder, None)? } else { Vec::new() };
    Ok(paths.iter().any(|p| yaml_component(&inside(folder, p)).is_some() && p.is_file()))
}

/// The files of a folder and of its direct subfolders, or of the one named `only`.
fn tree(root: &Path, only: Option<&str>) -> Result<Vec<PathBuf>, InterfacesError> {
    let mut paths = Vec::new();
    for path in entries(root)? {
        let name = inside(root, &path);
        let wanted = || only.map_or(!name.starts_with('.'), |only| name == only);
        match path.is_dir() {
            true if wanted() => paths.extend(entries(&path)?),
            true => {}
            false => paths.push(path),
        }
    }
    Ok(paths)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, InterfacesError> {
    fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
        .map_err(|source| InterfacesError::Io { path: folder.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBSYSTEMS: &str = "<SALSubsystemSet><SALSubsystem><Name>Wind</Name>
        <IndexEnumeration>no</IndexEnumeration><AddedGenerics/></SALSubsystem></SALSubsystemSet>";
    const RECORD: &str = r#"{"type": "record", "name": "speed", "fields": []}"#;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_folder_is_read_where_its_interfaces_are() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                ("data/sal_interfaces/SALSubsystems.xml", SUBSYSTEMS),
                ("data/sal_interfaces/SALGenerics.xml", "<SALObjects/>"),
                ("data/sal_interfaces/Wind/notes.txt", "not read"),
                ("data/sal_interfaces/Wind/deep/er.xml", "not read"),
                ("data/interfaces/Wind/speed.avsc", RECORD),
            ],
        );
        for place in ["data", "data/sal_interfaces"] {
            let interfaces = read_interfaces(folder.path().join(place)).unwrap();
            assert_eq!(interfaces.counts().topics.ack, 1);
            assert!(interfaces.topic("Wind/telemetry/speed").is_some());
        }
    }

    #[test]
    fn a_release_is_found_where_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let data = "python/lsst/ts/xml/data/sal_interfaces";
        let interfaces = |place: &str, more: &[(&str, &str)]| {
            let file = |name: &str| format!("{place}/{name}");
            write(
                folder.path(),
                &[
                    (&file("SALSubsystems.xml"), SUBSYSTEMS),
                    (&file("SALGenerics.xml"), "<SALObjects/>"),
                ],
            );
            write(folder.path(), more);
        };
        let release =
            |place: &str| read_interfaces(folder.path().join(place)).unwrap().release().to_owned();
        interfaces("v27.1.1/sal_interfaces", &[]);
        for place in ["v27.1.1", "v27.1.1/sal_interfaces", "v27.1.1/../v27.1.1/sal_interfaces/."] {
            assert_eq!(release(place), "27.1.1", "{place}");
        }
        interfaces("own", &[("own/VERSION", "1.4.0rc2\n")]);
        assert_eq!(release("own"), "1.4.0rc2");
        let package = "# generated\n__all__ = ['__version__']\n\
                       __version__ = version = '28.0.0.dev3+g1a2b'\n";
        let place = "checkout/python/lsst/ts/xml/version.py";
        interfaces(&format!("checkout/{data}"), &[(place, package)]);
        assert_eq!(release("checkout"), "28.0.0.dev3+g1a2b");
        assert_eq!(release(&format!("checkout/{data}")), "28.0.0.dev3+g1a2b");
        // An invalid release is ignored, as is an unrelated folder's name.
        interfaces("v2", &[("v2/VERSION", "the newest\n")]);
        interfaces("v3.1/mine", &[]);
        assert_eq!([release("v2"), release("v3.1/mine")], ["", ""]);
        let one = read_component(folder.path().join("v27.1.1"), "Wind").unwrap();
        assert_eq!(one.release(), "27.1.1");
    }

    #[test]
    fn a_folder_of_yaml_needs_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                ("Wind/Wind.yaml", "name: Wind\ngenerics: [csc]"),
                ("Rain.yaml", "name: Rain"),
                (".hidden/Wind.yaml", "not read"),
                ("README.md", "not read"),
            ],
        );
        let interfaces = read_interfaces(folder.path()).unwrap();
        let names: Vec<_> = interfaces.components().iter().map(|c| c.name()).collect();
        assert_eq!(names, ["Rain", "Wind"]);
        assert!(interfaces.topic("Wind/command/enable").is_some());
        let wind = read_component(folder.path(), "Wind").unwrap();
        assert_eq!(wind.components(), &interfaces.components()[1..]);
        assert_eq!(read_component(folder.path(), "Snow").unwrap(), interfaces);
        let told = read_interfaces(folder.path().join("nothing")).unwrap_err().to_string();
        assert!(told.contains("has no SALSubsystems.xml"), "{told}");
    }

    #[test]
    fn our_own_interfaces_have_the_shapes_that_the_demo_needs() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
        let interfaces = read_interfaces(folder).unwrap();
        let counts = |name: &str| -> Vec<u32> {
            interfaces.topic(name).expect(name).fields().iter().map(|f| f.count).collect()
        };
        let one = read_component(folder, "MTMount").unwrap();
        assert_eq!(one.component("MTMount"), interfaces.component("MTMount"));
        assert!(one.topic("ESS/telemetry/airFlow").is_none() && one.component("Camera").is_none());
        let forces = [1, 156, 112, 156, 112, 12, 100, 156, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!(counts("MTM1M3/telemetry/forceActuatorData"), forces);
        assert_eq!(counts("MTMount/command/trackTarget"), [1; 8]);
        assert_eq!(counts("ESS/telemetry/airFlow").len(), 8);
        let sky = interfaces.topic("ESS/telemetry/skyBrightness").unwrap().schema().unwrap();
        assert_eq!(sky.fields().len(), 9 + 4);
        assert_eq!(counts("Camera/telemetry/temperatures"), [9, 3, 1, 1, 1, 1]);
        for component in ["MTM1M3", "MTMount", "ESS", "Camera"] {
            assert_eq!(counts(&format!("{component}/event/summaryState")), [1]);
            let indexed = ["ESS", "Camera"].contains(&component);
            assert_eq!(interfaces.component(component).unwrap().indexed(), indexed);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let told = read_interfaces(folder.path()).unwrap_err().to_string();
        assert!(told.contains("has no SALSubsystems.xml"), "{told}");
        write(
            folder.path(),
            &[
                ("SALSubsystems.xml", SUBSYSTEMS),
                ("SALGenerics.xml", "<SALObjects>\n<SALEvents/></SALObjects>"),
            ],
        );
        let told = read_interfaces(folder.path()).unwrap_err().to_string();
        assert!(told.contains("SALGenerics.xml:2: <SALEvents> cannot stand here"), "{told}");
        write(folder.path(), &[("SALGenerics.xml", &" ".repeat(MAX_FILE_BYTES + 1))]);
        let told = read_interfaces(folder.path()).unwrap_err().to_string();
        assert!(told.contains("the limit is"), "{told}");
    }
}
