//! The architectures that a command line names.

use model::Target;
use targets::Catalogue;

use crate::Failure;

/// The architecture named on the command line, or this machine's.
pub fn target<'a>(catalogue: &'a Catalogue, name: Option<&str>) -> Result<&'a Target, Failure> {
    match name {
        Some(name) => Ok(catalogue.target(name)?),
        None => host_target(catalogue),
    }
}

/// This machine's architecture.
pub fn host_target(catalogue: &Catalogue) -> Result<&Target, Failure> {
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    Ok(catalogue.host_target(&machine)?)
}

/// The architectures of a list in its order, without duplicates. `all` selects all; an empty list selects this
/// machine's.
pub fn chosen<'a>(catalogue: &'a Catalogue, names: &[String]) -> Result<Vec<&'a Target>, Failure> {
    if names.is_empty() {
        return Ok(vec![host_target(catalogue)?]);
    }
    let mut targets: Vec<&Target> = Vec::new();
    for name in names {
        let named = if name == "all" { catalogue.targets.iter().collect() } else { vec![catalogue.target(name)?] };
        for target in named {
            if !targets.iter().any(|other| other.name == target.name) {
                targets.push(target);
            }
        }
    }
    Ok(targets)
}
