//! Rules for `targets/architectures/<name>.yaml`.

use std::collections::BTreeMap;

use model::{Components, Emulator, Machine, Target};

use super::words::{is_env_name, is_major_minor, is_name};
use crate::document::{Document, at};

/// The build stage sets these from the name; a second value would silently win or lose.
const SET_BY_BUILD: [&str; 3] = ["CGO_ENABLED", "GOARCH", "GOOS"];

/// Checks one architecture. `stem` is the file's name without `.yaml`; `earlier` are the targets of the files before
/// it.
pub(crate) fn target(
    file: &mut Document<'_>,
    stem: &str,
    target: &Target,
    components: Option<&Components>,
    earlier: &[Target],
) {
    let Target { name, title, aliases, elf, go_env, emulator, component_env, machine, ci: _ } = target;
    if name == stem {
        file.require(is_name(name), at!["name"], "must be lower-case letters and digits, as GOARCH is");
    } else {
        file.refuse(at!["name"], format!("must be the file's name, {stem}; found {name}"));
    }
    file.require(!title.trim().is_empty(), at!["title"], "must not be empty");
    names(file, name, aliases, earlier);
    file.require(matches!(elf.class, 32 | 64), at!["elf", "class"], format!("must be 32 or 64; found {}", elf.class));
    file.require(elf.machine != 0, at!["elf", "machine"], "must be the e_machine number; 0 stands for none");
    for name in go_env.keys() {
        if SET_BY_BUILD.contains(&name.as_str()) {
            file.refuse(at!["go_env", name], "is set by the build for every architecture; delete it");
        }
    }
    env(file, &["go_env"], go_env);
    for (component, variables) in component_env {
        let known = components.map(|all| all.sets.iter().flat_map(|set| &set.components).map(|c| &c.name));
        if known.is_some_and(|mut known| !known.any(|known| known == component)) {
            file.refuse(at!["component_env", component], "no component of components.yaml has this name");
        }
        env(file, &["component_env", component], variables);
    }
    if let Some(emulator) = emulator {
        check_emulator(file, emulator);
    }
    if let Some(machine) = machine {
        check_machine(file, machine);
    }
}

fn names(file: &mut Document<'_>, name: &str, aliases: &[String], earlier: &[Target]) {
    let owner = |wanted: &str| earlier.iter().find(|t| t.name == wanted || t.aliases.iter().any(|a| a == wanted));
    if let Some(owner) = owner(name) {
        file.refuse(at!["name"], format!("{name} is an alias of {} already", owner.name));
    }
    for (i, alias) in aliases.iter().enumerate() {
        let path = at!["aliases", i];
        if alias.trim().is_empty() || alias.contains(char::is_whitespace) {
            file.refuse(path, "must be one word");
        } else if alias == name {
            file.refuse(path, "repeats the name, which is accepted anyway; delete it");
        } else if aliases[..i].contains(alias) {
            file.refuse(path, format!("{alias} is given twice; delete one of the two"));
        } else if let Some(owner) = owner(alias) {
            file.refuse(path, format!("{alias} is a name of {} already", owner.name));
        }
    }
}

fn env(file: &mut Document<'_>, path: &[&str], variables: &BTreeMap<String, String>) {
    for name in variables.keys().filter(|name| !is_env_name(name)) {
        let path: Vec<_> = path.iter().copied().chain([name.as_str()]).map(Into::into).collect();
        file.refuse(&path, "must be the name of an environment variable: capitals, digits and _");
    }
}

fn check_emulator(file: &mut Document<'_>, emulator: &Emulator) {
    let Emulator { commands, package, minimum, reason } = emulator;
    file.require(!commands.is_empty(), at!["emulator", "commands"], "must name at least one command");
    for (i, command) in commands.iter().enumerate() {
        let is_command = !command.is_empty() && !command.contains(|c: char| c == '/' || c.is_whitespace());
        file.require(is_command, at!["emulator", "commands", i], "must be a command's name, to be searched on PATH");
    }
    file.require(!package.trim().is_empty(), at!["emulator", "package"], "must name the Debian package to install");
    if let Some(minimum) = minimum {
        let path = at!["emulator", "minimum"];
        file.require(is_major_minor(minimum), path, format!("must be MAJOR.MINOR, such as 10.0; found {minimum:?}"));
        file.require(reason.is_some(), path, "needs a `reason` as well: the symptom with an older version");
    } else {
        file.require(reason.is_none(), at!["emulator", "reason"], "explains `minimum`, which is missing");
    }
}

fn check_machine(file: &mut Document<'_>, machine: &Machine) {
    file.require(is_name(&machine.debian), at!["machine", "debian"], "must be Debian's name of the architecture");
    file.require(!machine.suites.is_empty(), at!["machine", "suites"], "must name at least one Debian suite");
    let container = at!["machine", "container_suites"];
    file.require(!machine.container_suites.is_empty(), container, "must name at least one Debian suite");
    file.require(!machine.host_suites.is_empty(), at!["machine", "host_suites"], "must name at least one Debian suite");
    file.require(machine.cpus > 0, at!["machine", "cpus"], "must be at least 1");
    if let Some(lost) = &machine.lost_timers {
        let at = at!["machine", "lost_timers"];
        file.require(!lost.idle.is_empty(), at, "`idle` must name a register: else any moment would count as idle");
        // Setting the clock on one processor restarts the timers of the others.
        file.require(machine.cpus > 1, at!["machine", "cpus"], "must be at least 2 where timers are lost");
    }
    file.require(machine.memory.base >= 256, at!["machine", "memory", "base"], "must be at least 256 MiB");
    file.require(machine.memory.profile > 0, at!["machine", "memory", "profile"], "must be more than 0 MiB");
    file.require(machine.factor != Some(0), at!["machine", "factor"], "must be at least 1");
    let packages = &machine.qemu.packages;
    file.require(!packages.is_empty(), at!["machine", "qemu", "packages"], "must name the package of the program");
}
