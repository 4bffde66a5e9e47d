//! The architectures that a command line names.

use anyhow::anyhow;
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

/// Replaces the selected architecture by its variant of this name (`--cpu`), for commands that test one architecture.
/// No name changes nothing.
pub fn select_cpu(catalogue: &mut Catalogue, arch: &[String], cpu: Option<&str>) -> Result<(), Failure> {
    let Some(cpu) = cpu else { return Ok(()) };
    let variant = match *chosen(catalogue, arch)? {
        [target] => with_cpu(target, Some(cpu))?,
        _ => return Err(Failure::usage(anyhow!("--cpu {cpu} is a variant of one architecture; name it with --arch"))),
    };
    catalogue
        .targets
        .iter_mut()
        .filter(|target| target.name == variant.name)
        .for_each(|target| *target = variant.clone());
    Ok(())
}

/// The architecture, or its variant of this name.
pub fn with_cpu(target: &Target, cpu: Option<&str>) -> Result<Target, Failure> {
    let Some(name) = cpu else { return Ok(target.clone()) };
    target.with_variant(name).ok_or_else(|| {
        let valid: Vec<&str> = target.variants.iter().map(|variant| variant.name.as_str()).collect();
        let valid = if valid.is_empty() { "it has none".to_owned() } else { format!("valid: {}", valid.join(", ")) };
        Failure::usage(anyhow!("{} has no variant `{name}`; {valid}", target.name))
    })
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
