//! Reading a folder of SAL interfaces from disk; what is in it is
//! [`helio_core::sal`]'s business.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use helio_core::sal::{Interfaces, MAX_FILE_BYTES, MAX_FILES, MAX_FOLDER_BYTES, SalError};
use thiserror::Error;

/// Why a folder of interfaces could not be read.
#[derive(Debug, Error)]
pub enum InterfacesError {
    /// The folder has no interfaces.
    #[error(
        "{0} has no SALSubsystems.xml, and neither has its sal_interfaces; name a folder of SAL \
         interfaces, such as examples/interfaces"
    )]
    NoInterfaces(PathBuf),
    /// The folder is far too large for one of interfaces.
    #[error("{0} has more than {MAX_FILES} files or {MAX_FOLDER_BYTES} bytes of interfaces")]
    TooLarge(PathBuf),
    /// A file or folder could not be read.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is wrong.
    #[error("in {folder}: {source}")]
    Sal {
        /// The folder of interfaces.
        folder: PathBuf,
        /// The file, the line and what is wrong.
        source: SalError,
    },
}

/// Where a folder's interfaces may be: at its top, or where a checkout of SAL's has them.
const PLACES: [&str; 3] = ["", "sal_interfaces", "python/lsst/ts/xml/data/sal_interfaces"];
/// Where SAL has its `.avsc` topics: beside `sal_interfaces`.
const RECORDS: &str = "interfaces";

/// Reads the SAL interfaces of a folder: one that has `SALSubsystems.xml`, or whose
/// `sal_interfaces` has it. The folder `interfaces` beside `sal_interfaces`, where SAL has `.avsc`
/// topics from v28 on, is read too.
///
/// # Errors
/// [`InterfacesError`] where there are none, a file cannot be read or is wrong.
///
/// ```
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
/// let interfaces = helio_bus::read_interfaces(folder)?;
/// let topic = interfaces.topic("MTMount/command/trackTarget").expect("it is there");
/// assert_eq!(topic.attribute(), "cmd_trackTarget");
/// # Ok::<(), helio_bus::InterfacesError>(())
/// ```
pub fn read_interfaces(folder: impl AsRef<Path>) -> Result<Interfaces, InterfacesError> {
    let folder = folder.as_ref();
    let root = PLACES
        .iter()
        .map(|place| folder.join(place))
        .find(|place| place.join("SALSubsystems.xml").is_file())
        .ok_or_else(|| InterfacesError::NoInterfaces(folder.to_owned()))?;
    let mut reader = Reader { root: root.clone(), files: Vec::new(), bytes: 0 };
    reader.read_tree(&root, &["xml", "avsc"])?;
    if root.file_name().is_some_and(|name| name == "sal_interfaces") {
        let records = root.with_file_name(RECORDS);
        if records.is_dir() {
            reader.read_tree(&records, &["avsc"])?;
        }
    }
    Interfaces::load(reader.files).map_err(|source| InterfacesError::Sal { folder: root, source })
}

/// Files of a folder and of the folders in it, no deeper, within the loader's limits.
struct Reader {
    root: PathBuf,
    files: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

impl Reader {
    fn read_tree(&mut self, root: &Path, extensions: &[&str]) -> Result<(), InterfacesError> {
        for path in entries(root)? {
            if path.is_dir() {
                for inner in entries(&path)? {
                    self.read_file(root, &inner, extensions)?;
                }
            } else {
                self.read_file(root, &path, extensions)?;
            }
        }
        Ok(())
    }

    fn read_file(
        &mut self,
        root: &Path,
        path: &Path,
        extensions: &[&str],
    ) -> Result<(), InterfacesError> {
        let wanted = path.extension().is_some_and(|e| extensions.iter().any(|want| e == *want));
        let Ok(inside) = path.strip_prefix(root) else { return Ok(()) };
        if !wanted || !path.is_file() {
            return Ok(());
        }
        let failed = |source| InterfacesError::Io { path: path.to_owned(), source };
        let mut contents = Vec::new();
        // One byte more than the loader takes: it then says that the file is too large.
        let limit = MAX_FILE_BYTES as u64 + 1;
        fs::File::open(path)
            .and_then(|file| file.take(limit).read_to_end(&mut contents))
            .map_err(failed)?;
        self.bytes += contents.len();
        if self.files.len() == MAX_FILES || self.bytes > MAX_FOLDER_BYTES {
            return Err(InterfacesError::TooLarge(self.root.clone()));
        }
        let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
        self.files.push((parts.join("/"), contents));
        Ok(())
    }
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
    fn our_own_interfaces_have_the_shapes_that_the_demo_needs() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
        let interfaces = read_interfaces(folder).unwrap();
        let counts = |name: &str| -> Vec<u32> {
            interfaces.topic(name).expect(name).fields().iter().map(|f| f.count).collect()
        };
        let forces = [1, 156, 112, 156, 112, 12, 100, 156, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!(counts("MTM1M3/telemetry/forceActuatorData"), forces);
        assert_eq!(counts("MTMount/command/trackTarget"), [1; 8]);
        assert_eq!(counts("ESS/telemetry/airFlow").len(), 8);
        let sky = interfaces.topic("ESS/telemetry/skyBrightness").unwrap().schema().unwrap();
        assert_eq!(sky.fields().len(), 9 + 4);
        for component in ["MTM1M3", "MTMount", "ESS"] {
            assert_eq!(counts(&format!("{component}/event/summaryState")), [1]);
            assert_eq!(interfaces.component(component).unwrap().indexed(), component == "ESS");
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
