//! `runner audit`: checks how safe and how current the runners are.

use std::path::Path;

use jiff::Timestamp;
use targets::Catalogue;

use super::{Shown, Stop, names, value, with_github};
use crate::args::{AuditForm, AuditOptions};
use crate::audit::{self, AuditPolicy};

pub(super) fn run(data: &Path, options: &AuditOptions) -> Result<u8, Stop> {
    let catalogue = Catalogue::load(data)?;
    let agents = &catalogue.runners.agents;
    with_github(&options.access, |github| {
        let facts = audit::ask(github, agents)?;
        let names = names(&catalogue);
        let audit =
            audit::audit(&facts, &AuditPolicy { names: &names, agents, now: Timestamp::now(), warn: options.warn });
        let text = match options.format {
            AuditForm::Text => audit::text(&audit),
            AuditForm::Markdown => audit::markdown(&audit),
            AuditForm::Json => format!("{:#}\n", value(&audit)?),
        };
        Ok(Shown { code: audit.code(), text, json: value(&audit)? })
    })
}
