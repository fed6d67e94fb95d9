//! `helio component stubs`: typed Python stubs.

use std::path::Path;

use helio_component::python_stub;
use helio_core::sal::Component;

use crate::args::component::StubsArgs;
use crate::error::{CliError, CliResult};
use crate::out::Out;
use crate::sal;

/// Runs `helio component stubs`.
pub(crate) fn run(args: &StubsArgs) -> CliResult {
    let interfaces = sal::folder(&args.folder)?;
    let components: Vec<&Component> = if args.component.is_empty() {
        interfaces.components().iter().collect()
    } else {
        let named = args.component.iter().map(|name| super::component(&interfaces, name));
        named.collect::<CliResult<_>>()?
    };
    match (&args.path, &components[..]) {
        (None, [one]) => {
            let mut out = Out::new();
            out.raw(stub(one)?.as_bytes())?;
            out.flush()
        }
        (None, _) => {
            let text = "there are several components; name one with --component, or a folder with \
                        --output";
            Err(CliError::Usage(text.to_owned()))
        }
        (Some(path), [one]) if !path.is_dir() => write(path, one),
        (Some(path), several) => {
            std::fs::create_dir_all(path).map_err(|e| CliError::file(path, &e))?;
            let file = |one: &Component| format!("{}.pyi", one.name().to_ascii_lowercase());
            several.iter().try_for_each(|one| write(&path.join(file(one)), one))
        }
    }
}

fn stub(component: &Component) -> CliResult<String> {
    let name = component.name();
    python_stub(component).map_err(|e| CliError::Refused(format!("the stubs of {name}: {e}")))
}

fn write(path: &Path, component: &Component) -> CliResult {
    std::fs::write(path, stub(component)?).map_err(|e| CliError::file(path, &e))
}
