//! Facts from the texts of several ports of Linux, and from this machine.

use std::collections::BTreeMap;

use model::{ByteOrder, ElfFacts, Processors};

use super::*;

const X86: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
    model name\t: Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz\nflags\t\t: fpu sse2 avx2 sha_ni\n\n\
    processor\t: 1\nflags\t\t: fpu\n";
const ARM: &str = "processor\t: 0\nBogoMIPS\t: 125.00\nFeatures\t: fp asimd atomics\nCPU implementer\t: 0x41\n\
    CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n";
const RISCV: &str = "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdch_zicbom_zbb\nmmu\t\t: sv39\n\
    mvendorid\t: 0x0\nmarchid\t\t: 0x5\n";
const POWER: &str = "processor\t: 0\ncpu\t\t: POWER9 (architected), altivec supported\nclock\t\t: 1000.0MHz\n";
const LOONG: &str = "system type\t\t: generic-loongson-machine\n\nprocessor\t\t: 0\n\
    Model Name\t\t: Loongson-3A5000\nISA\t\t\t: loongarch32r loongarch32s loongarch64\n\
    Features\t\t: cpucfg lam fpu lsx lasx\n";

pub(crate) fn target() -> Target {
    Target {
        name: "mix64".into(),
        title: "Mix".into(),
        aliases: Vec::new(),
        elf: ElfFacts { class: 64, byte_order: ByteOrder::Little, machine: 1 },
        hardware: Processors { page_sizes: vec![4096, 65536], weak_memory: true, extensions: Vec::new() },
        go_env: BTreeMap::new(),
        emulator: None,
        machine: None,
        harness: None,
        go: None,
        component_env: BTreeMap::new(),
        variants: Vec::new(),
        variant: None,
        ci: None,
    }
}

#[test]
fn processor_and_extensions_come_from_cpuinfo() {
    for (text, model, flags) in [
        (X86, Some("Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz"), "fpu sse2 avx2 sha_ni"),
        (ARM, Some("cpu implementer 0x41, cpu part 0xd0c"), "fp asimd atomics"),
        (RISCV, Some("mvendorid 0x0, marchid 0x5"), "rv64imafdch zicbom zbb"),
        (POWER, Some("POWER9 (architected), altivec supported"), ""),
        (LOONG, Some("Loongson-3A5000"), "cpucfg lam fpu lsx lasx"),
        ("", None, ""),
    ] {
        assert_eq!(cpu_model(text).as_deref(), model);
        assert_eq!(cpu_flags(text).join(" "), flags);
    }
}

#[test]
fn lists_are_counted() {
    for (list, expected) in [
        ("0\n", Some(1)),
        ("0-3\n", Some(4)),
        ("0-3,8,10-11\n", Some(7)),
        ("", None),
        ("3-0", None),
        ("0-4294967295", None),
        ("a", None),
    ] {
        assert_eq!(count(list), expected, "{list:?}");
    }
}

#[test]
fn address_bits_come_from_the_end_of_the_stack() {
    let vsyscall = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
    for (stack, expected) in [
        ("7ffff41fe000-7ffff421f000", Some(47)),
        ("3fffb82000-3fffba3000", Some(38)),
        ("ffffe7d2d000-ffffe7d4e000", Some(48)),
        ("7fff00000000-800000000000", Some(47)),
        ("0-0", None),
        ("x-y", None),
    ] {
        let maps =
            format!("10000-20000 r-xp 00000000 00:00 0 /init\n{stack} rw-p 00000000 00:00 0 [stack]\n{vsyscall}");
        assert_eq!(address_bits(&maps), expected, "{stack}");
    }
    assert_eq!(address_bits(vsyscall), None);
}

#[test]
fn answer_of_an_agent_gives_all_facts() {
    let answer = serde_json::json!({
        "id": 7,
        "auxv": [[6, 65536], [16, u64::MAX], [26, 1_u64 << 23], [0, 0]],
        "cpuinfo": POWER,
        "maps": "7fffd0000000-7fffd0030000 rw-p 00000000 00:00 0 [stack]\n",
        "cpus": "0-1\n",
        "nodes": "0\n",
    });
    let facts = of_machine(&target(), &serde_json::from_value(answer).unwrap());
    let expected = Hardware {
        page_size: Some(65536),
        address_bits: Some(47),
        cpu_model: Some("POWER9 (architected), altivec supported".into()),
        cpu_flags: Vec::new(),
        hwcap: Some(u64::MAX),
        hwcap2: Some(1 << 23),
        cpus: Some(2),
        numa_nodes: Some(1),
        emulator: None,
        processors: Some(target().hardware),
    };
    assert_eq!(facts, expected);
}

#[test]
fn system_without_facts_has_unknown_facts() {
    let facts = of_machine(&target(), &serde_json::from_str("{}").unwrap());
    assert_eq!(facts, Hardware { processors: Some(target().hardware), ..Hardware::default() });
}

#[test]
fn facts_of_this_machine_are_known() {
    let facts = native(&target());
    assert!(facts.page_size.is_some_and(|size| size.is_power_of_two() && size >= 4096), "{facts:?}");
    assert!(facts.hwcap.is_some() && facts.cpus >= Some(1) && facts.address_bits > Some(30), "{facts:?}");
    assert_eq!(facts.emulator, None);
}

#[test]
fn user_mode_emulator_hides_the_extensions_of_the_host() {
    let facts = user_mode(&target(), "qemu-mix64 10.0.2");
    assert_eq!((facts.page_size, facts.hwcap, facts.cpu_flags.len()), (Some(4096), None, 0));
    assert_eq!(facts.cpu_model.as_deref(), Some("the default of qemu-mix64 10.0.2"));
    assert_eq!(facts.emulator.unwrap().threads, Some(EmulatorThreads::Multi));
}
