//! Aligned columns for people.

/// Aligns columns and ends each line. Control characters in cells are removed.
pub(super) fn table<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(heading.map(String::from)).chain(rows).collect();
    let rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(|cell| cell_of(&cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn cell_of(text: &str) -> String {
    let text = crate::plain(text);
    if text.is_empty() { "-".into() } else { text }
}
