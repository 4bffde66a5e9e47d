//! Rules for `targets/architectures/<name>.yaml`.

use std::collections::BTreeMap;

use model::{Components, Emulator, Extension, Harness, HostGo, Machine, Processors, Target, Variant};

use super::words::{is_env_name, is_major_minor, is_name};
use crate::document::{Document, at};

/// The build stage sets these from the name; a second value would silently win or lose.
const SET_BY_BUILD: [&str; 3] = ["CGO_ENABLED", "GOARCH", "GOOS"];

/// No Linux port has smaller pages.
const SMALLEST_PAGE: u64 = 4096;

/// Checks one architecture. `stem` is the file's name without `.yaml`; `earlier` are the targets of the files before
/// it.
pub(crate) fn target(
    file: &mut Document<'_>,
    stem: &str,
    target: &Target,
    components: Option<&Components>,
    earlier: &[Target],
) {
    let Target {
        name,
        title,
        aliases,
        elf,
        hardware,
        go_env,
        emulator,
        component_env,
        machine,
        harness,
        go,
        variants,
        variant: _,
        ci: _,
    } = target;
    if name == stem {
        file.require(is_name(name), at!["name"], "must be lower-case letters and digits, as GOARCH is");
    } else {
        file.refuse(at!["name"], format!("must be the file's name, {stem}; found {name}"));
    }
    file.require(!title.trim().is_empty(), at!["title"], "must not be empty");
    names(file, name, aliases, earlier);
    file.require(matches!(elf.class, 32 | 64), at!["elf", "class"], format!("must be 32 or 64; found {}", elf.class));
    file.require(elf.machine != 0, at!["elf", "machine"], "must be the e_machine number; 0 stands for none");
    check_hardware(file, hardware);
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
    if let Some(Harness { rust, glibc, kernel }) = harness {
        let is_linux = rust.split('-').count() == 4 && rust.ends_with("-linux-gnu");
        file.require(is_linux, at!["harness", "rust"], "must be a target of rustc that ends with -linux-gnu");
        let path = at!["harness", "glibc"];
        file.require(is_major_minor(glibc), path, "must be the major and minor version of glibc, for example \"2.31\"");
        let path = at!["harness", "kernel"];
        file.require(
            is_major_minor(kernel),
            path,
            "must be the major and minor version of Linux, for example \"4.15\"",
        );
    }
    if let Some(go) = go {
        check_go(file, go, machine.as_ref());
    }
    for i in 0..variants.len() {
        check_variant(file, target, i);
    }
}

fn check_go(file: &mut Document<'_>, go: &HostGo, machine: Option<&Machine>) {
    let HostGo { suites, package, root } = go;
    file.require(machine.is_some(), at!["go"], "needs `machine`, which has Debian's name of the architecture");
    file.require(!suites.is_empty(), at!["go", "suites"], "must name at least one Debian suite");
    let is_word = !package.is_empty() && !package.contains(char::is_whitespace);
    file.require(is_word, at!["go", "package"], "must be the name of a Debian package");
    let is_below = root.starts_with("usr/") && root.split('/').all(|part| !["", ".", ".."].contains(&part));
    file.require(is_below, at!["go", "root"], "must be a path below usr/ without a slash at its ends");
}

fn check_variant(file: &mut Document<'_>, target: &Target, i: usize) {
    let Variant { name, about, go_env, user_cpu, machine_cpu, kernel } = &target.variants[i];
    let path = at!["variants", i, "name"];
    file.require(is_name(name), path, "must be lower-case letters and digits");
    file.require(
        target.variants[..i].iter().all(|other| other.name != *name),
        path,
        format!("{name} is listed already"),
    );
    let is_sentence = about.len() > 1 && about.ends_with('.');
    file.require(is_sentence, at!["variants", i, "about"], "must be a sentence that ends with a full stop");
    let changes = !go_env.is_empty() || user_cpu.is_some() || machine_cpu.is_some() || kernel.is_some();
    file.require(
        changes,
        at!["variants", i],
        "must have at least one of `go_env`, `user_cpu`, `machine_cpu`, `kernel`",
    );
    for (key, given, place) in [
        ("user_cpu", user_cpu.is_some(), target.emulator.is_some()),
        ("machine_cpu", machine_cpu.is_some(), target.machine.is_some()),
        ("kernel", kernel.is_some(), target.machine.is_some()),
    ] {
        file.require(!given || place, at!["variants", i, key], "the architecture has no emulator or machine for it");
    }
    let in_both = user_cpu.is_none() || machine_cpu.is_some() || target.machine.is_none();
    file.require(
        in_both,
        at!["variants", i, "user_cpu"],
        "needs `machine_cpu`, too: a VM would run the usual processor under the variant's name",
    );
    for name in go_env.keys() {
        let is_free = is_env_name(name) && !SET_BY_BUILD.contains(&name.as_str());
        file.require(
            is_free,
            at!["variants", i, "go_env", name],
            "must be a variable that the build does not set itself",
        );
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

fn check_hardware(file: &mut Document<'_>, hardware: &Processors) {
    let Processors { page_sizes, weak_memory: _, extensions } = hardware;
    file.require(!page_sizes.is_empty(), at!["hardware", "page_sizes"], "must have at least one size");
    for (i, size) in page_sizes.iter().enumerate() {
        let path = at!["hardware", "page_sizes", i];
        let is_size = size.is_power_of_two() && *size >= SMALLEST_PAGE;
        file.require(is_size, path, format!("must be a power of two, at least {SMALLEST_PAGE} bytes; found {size}"));
        file.require(i == 0 || page_sizes[i - 1] < *size, path, "must be larger than the size before it");
    }
    for (i, extension) in extensions.iter().enumerate() {
        check_extension(file, i, extension, &extensions[..i]);
    }
}

/// `earlier` are the entries before it.
fn check_extension(file: &mut Document<'_>, i: usize, extension: &Extension, earlier: &[Extension]) {
    let Extension { name, flag, hwcap, hwcap2, reason } = extension;
    let path = at!["hardware", "extensions", i, "name"];
    file.require(!name.trim().is_empty(), path, "must not be empty");
    file.require(earlier.iter().all(|other| other.name != *name), path, format!("{name} is listed already"));
    let ways = [flag.is_some(), hwcap.is_some(), hwcap2.is_some()].into_iter().filter(|given| *given).count();
    file.require(ways == 1, at!["hardware", "extensions", i], "must have exactly one of `flag`, `hwcap` and `hwcap2`");
    let is_word = |flag: &String| !flag.is_empty() && !flag.contains(char::is_whitespace);
    let path = at!["hardware", "extensions", i, "flag"];
    file.require(flag.as_ref().is_none_or(is_word), path, "must be one word of /proc/cpuinfo");
    for (key, bit) in [("hwcap", hwcap), ("hwcap2", hwcap2)] {
        let fits = bit.is_none_or(|bit| u32::from(bit) < u64::BITS);
        file.require(fits, at!["hardware", "extensions", i, key], "must be the number of a bit, from 0 to 63");
    }
    let is_sentence = reason.len() > 1 && reason.ends_with('.');
    file.require(
        is_sentence,
        at!["hardware", "extensions", i, "reason"],
        "must be a sentence that ends with a full stop",
    );
}

fn check_emulator(file: &mut Document<'_>, emulator: &Emulator) {
    let Emulator { commands, package, minimum, reason, cpu: _ } = emulator;
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
    let bus = at!["machine", "qemu", "virtio"];
    file.require(is_name(&machine.qemu.virtio), bus, "must be a bus as QEMU spells it in device names, such as pci");
    let packages = &machine.qemu.packages;
    file.require(!packages.is_empty(), at!["machine", "qemu", "packages"], "must name the package of the program");
}
