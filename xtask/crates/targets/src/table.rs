//! The architectures as a table for people.

use model::{ByteOrder, MatrixData, Target};

use crate::catalogue::Catalogue;

/// One line per architecture below a heading, columns aligned, every line ended.
pub fn table(catalogue: &Catalogue) -> String {
    let heading = ["NAME", "TITLE", "ALIASES", "EMULATOR", "ELF MACHINE", "CI"].map(String::from);
    let rows: Vec<_> =
        std::iter::once(heading).chain(catalogue.targets.iter().map(|target| row(target, &catalogue.matrix))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
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

/// The best way that can be taken, and on which runner.
fn ci(target: &Target, matrix: &MatrixData) -> String {
    let Some(ci) = &target.ci else { return String::new() };
    let there = |name: &str| matrix.runners.iter().any(|runner| runner.name == name && runner.available);
    let best = ci.ways.iter().find(|way| there(&way.runner));
    let best = best.map_or_else(String::new, |way| format!("{} on {}", way.mode, way.runner));
    if ci.experimental { format!("{best}, experimental") } else { best }
}
