//! The table of `pins check` for people.

use crate::state::Line;

const HEAD: [&str; 5] = ["set", "release", "pinned", "newest", "state"];

/// `set release pinned newest state`, one row for each line.
pub(crate) fn table(lines: &[Line]) -> String {
    let rows: Vec<[String; 5]> = [HEAD.map(str::to_owned)].into_iter().chain(lines.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len() - 1).map(width).collect();
    rows.iter().map(|row| one(row, &widths)).collect()
}

fn one(row: &[String; 5], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  "));
    format!("{}{}\n", cells.collect::<String>(), row[4])
}

fn row(line: &Line) -> [String; 5] {
    let dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    [line.set.clone(), line.release.clone(), dash(&line.pinned), dash(&line.newest), state(line)]
}

/// The state with its age and the reason: `patch available, 40 days: overdue (REASON)`.
fn state(line: &Line) -> String {
    let days = line.days.map(|days| format!(", {days} {}", if days == 1 { "day" } else { "days" }));
    let late = if line.overdue { ": overdue" } else { "" };
    let note = if line.note.is_empty() { String::new() } else { format!(" ({})", line.note) };
    format!("{}{}{late}{note}", line.state.words(), days.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;

    #[test]
    fn columns_are_aligned_and_the_reason_is_last() {
        let patch = Line {
            pinned: Some("v1.35.4".into()),
            newest: Some("v1.35.10".into()),
            days: Some(40),
            overdue: true,
            ..Line::new("store", "1.35", State::PatchAvailable)
        };
        let unknown = Line::unknown("kine-long-name", "0.16", "v0.16.4", "not\n\treachable");
        let expected = "\
set             release  pinned   newest    state
store           1.35     v1.35.4  v1.35.10  patch available, 40 days: overdue
kine-long-name  0.16     v0.16.4  -         unknown (not reachable)
";
        assert_eq!(table(&[patch, unknown]), expected);
    }
}
