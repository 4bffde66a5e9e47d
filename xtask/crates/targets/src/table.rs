//! The architectures, and the pinned releases, as tables for people.

use model::{ByteOrder, MatrixData, Target};

use crate::catalogue::Catalogue;

/// A heading and one line per architecture, with aligned columns; every line ends with a newline.
pub fn table(catalogue: &Catalogue) -> String {
    let heading = ["NAME", "TITLE", "ALIASES", "EMULATOR", "ELF MACHINE", "CI"].map(String::from);
    columns(
        std::iter::once(heading).chain(catalogue.targets.iter().map(|target| row(target, &catalogue.matrix))).collect(),
    )
}

/// A heading and one line per variant of an architecture, in the format of [`table`].
pub fn variants(catalogue: &Catalogue) -> String {
    let mut rows = vec![["ARCH", "CPU", "ABOUT"].map(String::from)];
    for target in &catalogue.targets {
        let variants = target.variants.iter();
        rows.extend(variants.map(|variant| [target.name.clone(), variant.name.clone(), variant.about.clone()]));
    }
    columns(rows)
}

/// A heading and one line per pinned release, in the format of [`table`].
pub fn releases(catalogue: &Catalogue) -> String {
    let heading = ["COMPONENTS", "RELEASE", "VERSION", "FOLDER"].map(String::from);
    let mut rows = vec![heading];
    for set in &catalogue.components.sets {
        rows.extend(set.releases.iter().map(|release| {
            let default = if release.module == set.name { " (default)" } else { "" };
            let folder = format!("components/{}{default}", release.module);
            [set.name.clone(), release.minor.clone(), release.version.clone(), folder]
        }));
    }
    columns(rows)
}

fn columns<const N: usize>(rows: Vec<[String; N]>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(target: &Target, matrix: &MatrixData) -> [String; 6] {
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let emulator = target.emulator.as_ref().map_or_else(String::new, |emulator| {
        let minimum = emulator.minimum.as_ref().map_or_else(String::new, |version| format!(" >= {version}"));
        format!("{}{minimum}", emulator.commands.join(" or "))
    });
    let order = match target.elf.byte_order {
        ByteOrder::Little => "little",
        ByteOrder::Big => "big",
    };
    let elf = format!("{} ({} bit, {order}-endian)", target.elf.machine, target.elf.class);
    let aliases = or_dash(target.aliases.join(", "));
    [target.name.clone(), target.title.clone(), aliases, or_dash(emulator), elf, or_dash(ci(target, matrix))]
}

/// The best available entry of `ci`, and its runner.
fn ci(target: &Target, matrix: &MatrixData) -> String {
    let Some(ci) = &target.ci else { return String::new() };
    let there = |name: &str| matrix.runners.iter().any(|runner| runner.name == name && runner.available);
    let best = ci.ways.iter().find(|way| there(&way.runner));
    let best = best.map_or_else(String::new, |way| format!("{} on {}", way.mode, way.runner));
    if ci.experimental { format!("{best}, experimental") } else { best }
}
