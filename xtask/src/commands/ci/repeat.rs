//! The command lines with which reports say how to repeat a run or one of its cases.

use std::collections::BTreeSet;

use model::{Source, StoreKind, Target};

use super::{Setting, provider};
use crate::args::ClusterArg;

/// The command that repeats the run, without its selection: ` --check ID` is added for a case.
pub(super) fn repeat(setting: &Setting<'_>, target: &Target) -> String {
    start(setting, &[target])
}

/// The command that repeats the run as it was.
pub(super) fn command(setting: &Setting<'_>, targets: &[&Target]) -> String {
    let options = setting.options;
    let mut words = options.selection.words();
    words.extend(options.upstream.words());
    words.extend(options.shard.iter().flat_map(|shard| ["--shard".to_owned(), shard.to_string()]));
    words.extend(options.durations.iter().flat_map(|given| ["--durations".to_owned(), given.clone()]));
    words.iter().fold(start(setting, targets), |line, word| format!("{line} {}", quoted(word)))
}

fn start(setting: &Setting<'_>, targets: &[&Target]) -> String {
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    let mut command = format!("cargo xtask ci --arch {}", names.join(","));
    // Different ones can only come from the default of each architecture.
    let providers: BTreeSet<&str> = targets.iter().map(|target| provider(setting, target).name()).collect();
    if providers.len() == 1 {
        providers.iter().for_each(|provider| command.push_str(&format!(" --provider {provider}")));
    }
    if setting.options.provider.cluster == ClusterArg::Node {
        command.push_str(" --cluster node");
    }
    for (set, source) in setting.options.sources.by_set() {
        if source != Source::Module(None) {
            command.push_str(&format!(" --{set} {source}"));
        }
    }
    if setting.options.sources.store() != StoreKind::Etcd {
        command.push_str(&format!(" --store {}", setting.options.sources.store().name()));
    }
    format!("{command} --seed {}", setting.work.seed)
}

/// As a shell takes it for one word.
pub(in crate::commands) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_each_word_for_one() {
        for (word, expected) in [
            ("storage.key-layout", "storage.key-layout"),
            ("checkout:../kubernetes", "checkout:../kubernetes"),
            ("2/4", "2/4"),
            ("*.media-type-*", "'*.media-type-*'"),
            ("my runs/x", "'my runs/x'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
