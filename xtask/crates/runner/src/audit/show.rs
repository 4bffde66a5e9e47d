//! Shows an audit to people: as lines, or as a Markdown page.

use super::Audit;

/// Two lines for each finding: the finding, and below it the fix.
pub fn text(audit: &Audit) -> String {
    let mut text = String::new();
    for finding in &audit.findings {
        let (level, subject) = (finding.level.name(), &finding.subject);
        text += &format!("{level:<8} {subject}: {}\n         -> {}\n", finding.text, finding.fix);
    }
    for (version, days) in &audit.days_left {
        text += &format!("agent {}: {days} days left\n", crate::plain(version));
    }
    text + &format!("{}: {}\n", audit.scope, count(audit))
}

/// A Markdown section, for a step summary.
pub fn markdown(audit: &Audit) -> String {
    let mut page =
        format!("## Runners of {}\n\n{}, {}\n", cell(&audit.scope), count(audit), audit.at.strftime("%Y-%m-%d"));
    if !audit.findings.is_empty() {
        page += "\n| level | what | finding | what to do |\n| --- | --- | --- | --- |\n";
    }
    for finding in &audit.findings {
        let row = [finding.level.name(), &finding.subject, &finding.text, &finding.fix].map(cell);
        page += &format!("| {} |\n", row.join(" | "));
    }
    if !audit.days_left.is_empty() {
        page += "\n| agent | days left |\n| --- | --- |\n";
    }
    for (version, days) in &audit.days_left {
        page += &format!("| {} | {days} |\n", cell(version));
    }
    page
}

fn count(audit: &Audit) -> String {
    let findings = match audit.findings.len() {
        0 => "nothing found".to_owned(),
        1 => "1 finding".to_owned(),
        many => format!("{many} findings"),
    };
    let runners = if audit.runners == 1 { "1 runner".to_owned() } else { format!("{} runners", audit.runners) };
    format!("{runners}, {findings}")
}

/// Foreign names stay text: no markup, no mention, no additional cell.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    for c in crate::plain(text).chars() {
        match c {
            '&' => cell += "&amp;",
            '<' => cell += "&lt;",
            '>' => cell += "&gt;",
            // Otherwise GitHub notifies the user of that name.
            '@' => cell += "&#64;",
            '|' | '\\' | '`' | '*' | '[' | ']' => cell.extend(['\\', c]),
            c => cell.push(c),
        }
    }
    cell
}
