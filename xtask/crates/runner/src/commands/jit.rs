//! `runner jit`: registers a runner for one job.

use std::path::Path;

use model::{Owner, Runner};
use serde_json::json;
use sys::{interrupt, progress};
use targets::Catalogue;

use super::private::Private;
use super::{Stop, admitted_group, names, shown, with_github};
use crate::args::JitOptions;
use crate::github::JitRequest;
use crate::{Error, check_name, plain, policy};

pub(super) fn run(data: &Path, options: &JitOptions) -> Result<u8, Stop> {
    let catalogue = Catalogue::load(data)?;
    let arch = &catalogue.target(&options.arch)?.name;
    let labels = labels(&catalogue, arch, options)?;
    policy::labels(&names(&catalogue), arch, &labels)?;
    options.name.as_deref().map_or(Ok(()), check_name)?;
    let file = if options.access.output.dry_run { None } else { Some(Private::create(&options.out)?) };
    with_github(&options.access, |github| {
        let group = admitted_group(github, &options.reach)?;
        let ask = JitRequest { arch: arch.clone(), name: options.name.clone(), group, labels: labels.clone() };
        let made = github.create_jit(&ask)?;
        let kept = interrupt::check().map_err(Error::from);
        let kept = kept.and_then(|()| file.map_or(Ok(()), |file| file.write(&made.config)));
        if let Err(error) = kept {
            // Without its configuration, the runner can never start.
            match github.for_teardown().delete(made.runner.id) {
                Ok(_) => progress::say(&format!("deleted {} again", made.runner)),
                Err(why) => progress::say(&format!(
                    "warning: {} may still exist; `cargo xtask runner rm` removes it: {why}",
                    made.runner
                )),
            }
            return Err(error.into());
        }
        let out = options.out.display();
        progress::say(&format!("registered {} for one job; its configuration is in {out}", made.runner));
        let json = json!({
            "id": made.runner.id, "name": made.runner.name, "arch": arch, "group": group, "labels": labels,
            "file": options.out,
        });
        Ok(shown(format!("{}\n", made.runner.id), json))
    })
}

/// The labels from the options, or those of the project's own machine of this architecture.
fn labels(catalogue: &Catalogue, arch: &str, options: &JitOptions) -> Result<Vec<String>, Error> {
    if !options.labels.is_empty() {
        return Ok(options.labels.clone());
    }
    let of_arch: Vec<&Runner> = catalogue.matrix.runners.iter().filter(|runner| runner.arch == arch).collect();
    let own = of_arch.iter().filter(|runner| match &options.runner {
        Some(name) => runner.name == *name,
        None => runner.owner == Owner::Own,
    });
    let own: Vec<&Runner> = own.copied().collect();
    let names = |runners: &[&Runner]| runners.iter().map(|runner| runner.name.as_str()).collect::<Vec<_>>().join(", ");
    Err(Error::Config(match (&own[..], &options.runner) {
        ([runner], _) if runner.owner == Owner::Own => return Ok(runner.labels.clone()),
        ([runner], _) => format!("{} does not belong to the project, so it cannot be registered", runner.name),
        (_, Some(name)) => {
            let (name, valid) = (plain(name), names(&of_arch));
            format!("{arch} has no runner `{name}` in targets/matrix.yaml; valid: {valid}")
        }
        ([], None) => format!("targets/matrix.yaml has no runner of the project for {arch}: give --labels"),
        (several, None) => format!("several runners match: give --runner, one of {}", names(several)),
    }))
}
