//! Properties of a recorded run: store, component versions, kind of execution.

use report::view::{Case, View};

/// What executes the code: `native`, `user mode`, or the accelerator of the VM. None: the run did not boot.
pub(crate) fn accelerator<'a>(view: &View<'a>) -> Option<&'a str> {
    let booted = view.booted.as_ref()?;
    Some(match booted.machine {
        Some(machine) => &machine.accelerator,
        None if is_native(booted.execution) => "native",
        None if view.provider() == "existing" => booted.execution,
        None => "user mode",
    })
}

/// Whether no emulator executes the code. Kind names its engine as well: `native, docker`.
pub(crate) fn is_native(execution: &str) -> bool {
    execution == "native" || execution.starts_with("native, ")
}

/// The version in the built binary, or else the version that the server reported.
pub(crate) fn version<'a>(view: &View<'a>, component: &str) -> Option<&'a str> {
    let built = view.artifacts.iter().find(|artifact| artifact.component == component);
    let told = || view.booted.as_ref()?.versions.get(component).map(String::as_str);
    built.map(|artifact| artifact.version.as_str()).or_else(told)
}

/// The store: `etcd`, `kine-sqlite`.
pub(crate) fn store<'a>(view: &View<'a>) -> &'a str {
    let Some(run) = view.run else { return "unknown store" };
    let mut words = run.command.split_whitespace();
    let asked = words.find_map(|word| match word {
        "--store" => Some(""),
        _ => word.strip_prefix("--store="),
    });
    match asked {
        Some("") => words.next().unwrap_or("unknown store"),
        Some(store) => store,
        None if run.sources.contains_key("etcd") => "etcd",
        None => {
            let mut sets = run.sources.keys().map(String::as_str);
            sets.find(|set| !["kubernetes", "client"].contains(set)).unwrap_or("own store")
        }
    }
}

/// The check id of a case: its name without the profile.
pub(crate) fn check<'a>(case: &Case<'a>) -> &'a str {
    case.name.split('[').next().unwrap_or(case.name)
}

/// The profile of a case, also if the case never finished.
pub(crate) fn profile<'a>(case: &Case<'a>) -> &'a str {
    let bracketed = || case.name.split_once('[').map_or("", |(_, rest)| rest.trim_end_matches(']'));
    case.facts.as_ref().map_or_else(bracketed, |facts| facts.profile)
}

#[cfg(test)]
mod tests {
    use model::Event;

    use super::*;
    use crate::fixture;

    #[test]
    fn store_comes_from_the_command_line() {
        for (command, wanted) in [
            ("cargo xtask ci --arch mix64", "etcd"),
            ("cargo xtask ci --store kine-nats --seed 1", "kine-nats"),
            ("cargo xtask ci --store=kine-sqlite", "kine-sqlite"),
        ] {
            let mut events = fixture::run();
            fixture::info_of(&mut events).command = command.into();
            assert_eq!(store(&View::of(&events)), wanted);
        }
    }

    #[test]
    fn accelerator_comes_from_the_machine() {
        assert_eq!(accelerator(&View::of(&fixture::run())), Some("native"));
        assert_eq!(accelerator(&View::of(&fixture::run_in_machine())), Some("tcg"));
        assert_eq!(accelerator(&View::of(&[fixture::started()])), None);
        for (name, wanted) in [("native, docker", "native"), ("qemu-mix64 11.1.3", "user mode")] {
            let mut events = fixture::run();
            for event in &mut events {
                if let Event::Booted { execution, .. } = event {
                    *execution = name.into();
                }
            }
            assert_eq!(accelerator(&View::of(&events)), Some(wanted));
        }
        assert_eq!(version(&View::of(&fixture::run()), "etcd"), Some("v3.6.16"));
        assert_eq!(version(&View::of(&fixture::run()), "kubernetes"), Some("v1.36.3"));
    }
}
