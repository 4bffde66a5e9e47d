//! `runner gitlab`: runners for GitLab.

use std::path::Path;

use jiff::Timestamp;
use serde_json::json;
use sys::{interrupt, progress};
use targets::Catalogue;

use super::private::Private;
use super::{Stop, config, finish, shown};
use crate::args::{GitlabAccess, GitlabCommand, GitlabCreateOptions, GitlabOptions, GitlabRmOptions};
use crate::gitlab::{Gitlab, Owner};
use crate::{Error, Name};

/// Longest single wait for a rate limit of the server, in seconds.
const MAX_WAIT: u64 = 900;

pub(super) fn run(data: &Path, options: &GitlabOptions) -> Result<u8, Stop> {
    match &options.command {
        GitlabCommand::Create(options) => create(data, options),
        GitlabCommand::Rm(options) => rm(options),
    }
}

fn gitlab(access: &GitlabAccess) -> Result<Gitlab, Error> {
    Gitlab::new(config(&access.url, access.credentials()?, access.output, MAX_WAIT))
}

fn create(data: &Path, options: &GitlabCreateOptions) -> Result<u8, Stop> {
    let catalogue = Catalogue::load(data)?;
    let arch = &catalogue.target(&options.arch)?.name;
    let owner = match (options.project, options.of_group) {
        (Some(project), _) => Owner::Project(project),
        (None, Some(group)) => Owner::Group(group),
        (None, None) => {
            return Err(Error::Config("no owner of the runner is given: add --project or --group".into()).into());
        }
    };
    let mut tags = vec![arch.clone()];
    tags.extend(options.tags.iter().filter(|tag| *tag != arch).cloned());
    crate::policy::labels(&super::names(&catalogue), arch, &tags)?;
    let name = Name::fresh(arch, Timestamp::now());
    let gitlab = gitlab(&options.access)?;
    let file = if options.access.output.dry_run { None } else { Some(Private::create(&options.out)?) };
    let work = || {
        let created = gitlab.create(owner, &name, &tags).inspect_err(|error| {
            if error.may_be_done() {
                progress::say(&format!(
                    "warning: GitLab may have created the runner {name}: look for it in Settings, CI/CD, Runners, and \
                     delete it"
                ));
            }
        })?;
        let toml = gitlab.config_toml(&created, &name, &options.executor, &options.image);
        let kept = interrupt::check().map_err(Error::from);
        if let Err(error) = kept.and_then(|()| file.map_or(Ok(()), |file| file.write(&toml))) {
            let id = created.id;
            match gitlab.for_teardown().delete(id) {
                Ok(_) => progress::say(&format!("deleted runner {id} again")),
                Err(why) => progress::say(&format!(
                    "warning: runner {id} may still exist; `cargo xtask runner gitlab rm {id}` removes it: {why}"
                )),
            }
            return Err(error.into());
        }
        progress::say(&format!(
            "registered runner {} {name}; {} is the configuration for gitlab-runner",
            created.id,
            options.out.display()
        ));
        let json = json!({ "id": created.id, "name": name, "tags": tags, "file": options.out });
        Ok(shown(format!("{}\n", created.id), json))
    };
    finish(options.access.output, work(), || gitlab.planned())
}

fn rm(options: &GitlabRmOptions) -> Result<u8, Stop> {
    let gitlab = gitlab(&options.access)?;
    let work = || {
        let was = gitlab.delete(options.id)?;
        progress::say(&format!("runner {}: {}", options.id, if was { "deleted" } else { "already gone" }));
        Ok(shown(String::new(), json!({ "id": options.id, "deleted": was })))
    };
    finish(options.access.output, work(), || gitlab.planned())
}
