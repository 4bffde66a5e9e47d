//! `runner labels`: shows and changes the labels of a runner.

use serde_json::json;

use super::{Stop, find, shown, value, with_github};
use crate::args::{LabelsCommand, LabelsOptions};
use crate::github::Label;

pub(super) fn run(options: &LabelsOptions) -> Result<u8, Stop> {
    let of = options.command.of();
    with_github(&of.access, |github| {
        let runner = find(github, &of.runner)?;
        let labels = match &options.command {
            LabelsCommand::Show(_) => github.labels(runner.id)?,
            LabelsCommand::Set { labels, .. } => github.set_labels(runner.id, labels)?,
            LabelsCommand::Add { labels, .. } => github.add_labels(runner.id, labels)?,
            LabelsCommand::Rm { labels, .. } => {
                let mut left = Vec::new();
                for label in labels {
                    left = github.remove_label(runner.id, label)?;
                }
                left
            }
        };
        let line = |label: &Label| format!("{}\n", crate::plain(&label.name));
        let json = json!({ "id": runner.id, "name": runner.name, "labels": value(&labels)? });
        Ok(shown(labels.iter().map(line).collect(), json))
    })
}
