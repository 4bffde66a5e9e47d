//! The command lines in reports that repeat a run or one of its cases.

use std::collections::BTreeSet;

use cli::quoted;
use model::{Source, StoreKind, Target};
use provider::ClusterArg;

use super::{RunContext, provider};

/// The command that repeats the run without its selection; for a case, ` --check ID` is appended.
pub(super) fn repeat(context: &RunContext<'_>, target: &Target) -> String {
    start(context, &[target])
}

/// The command that repeats the run with its selection.
pub(super) fn command(context: &RunContext<'_>, targets: &[&Target]) -> String {
    let options = context.options;
    let mut words = options.selection.words();
    words.extend(options.upstream.words());
    words.extend(options.shard.iter().flat_map(|shard| ["--shard".to_owned(), shard.to_string()]));
    words.extend(options.durations.iter().flat_map(|given| ["--durations".to_owned(), given.clone()]));
    words.iter().fold(start(context, targets), |line, word| format!("{line} {}", quoted(word)))
}

fn start(context: &RunContext<'_>, targets: &[&Target]) -> String {
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    let mut command = format!("cargo xtask ci --arch {}", names.join(","));
    if let Some(cpu) = &context.options.cpu.cpu {
        command.push_str(&format!(" --cpu {cpu}"));
    }
    // Without the option, each architecture has its own default; only then can they differ.
    let providers: BTreeSet<&str> = targets.iter().map(|target| provider(context, target).name()).collect();
    if providers.len() == 1 {
        providers.iter().for_each(|provider| command.push_str(&format!(" --provider {provider}")));
    }
    if context.options.provider.cluster == ClusterArg::Node {
        command.push_str(" --cluster node");
    }
    if let Some(image) = &context.options.provider.image {
        command.push_str(&format!(" --image {}", quoted(image)));
    }
    for (set, source) in context.options.sources.by_set() {
        // Without the option, the client follows Kubernetes.
        if source != Source::Module(None) || set == "client" {
            command.push_str(&format!(" --{set} {}", quoted(&source.to_string())));
        }
    }
    if context.options.sources.store() != StoreKind::Etcd {
        command.push_str(&format!(" --store {}", context.options.sources.store().name()));
    }
    format!("{command} --seed {}", context.plan.seed)
}
