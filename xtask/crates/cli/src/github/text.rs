//! The texts of GitHub Actions: workflow commands, outputs, and a step summary that fits.

/// The runner drops a larger step summary.
const SUMMARY_BYTES: usize = 1 << 20;
/// The text below a page that was cut.
const CUT: &str =
    "\n\n**The rest is left out: a step summary holds 1 MiB. `summary.md` of the run has the complete text.**\n";

/// `::group::NAME`.
pub fn group(name: &str) -> String {
    format!("::group::{}\n", escape(name))
}

pub const END_GROUP: &str = "::endgroup::\n";

/// From here on the runner ignores commands, until [`resume`] with the same token. Output in between may contain
/// foreign text, which could otherwise set variables of the job.
pub(super) fn stop(token: &str) -> String {
    format!("::stop-commands::{token}\n")
}

pub(super) fn resume(token: &str) -> String {
    format!("::{token}::\n")
}

/// From here on the runner prints `***` instead of this value.
pub fn mask(secret: &str) -> String {
    format!("::add-mask::{}\n", escape(secret))
}

/// As much of a page as fits after `taken` bytes of the same step: whole lines, all code blocks closed, and a line
/// that says that the page was cut.
pub(super) fn summary(page: &str, taken: usize) -> String {
    let room = SUMMARY_BYTES.saturating_sub(taken);
    if page.len() <= room {
        return page.to_owned();
    }
    // Room for the closing fence and a few spare bytes.
    let room = room.saturating_sub(CUT.len() + 64);
    let mut kept = String::new();
    let mut fence: Option<&str> = None;
    for line in page.split_inclusive('\n') {
        if kept.len() + line.len() > room {
            break;
        }
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) if ticks.len() >= open.len() && line.trim_end() == ticks => fence = None,
            None if ticks.len() >= 3 => fence = Some(ticks),
            _ => {}
        }
        kept += line;
    }
    let close = fence.map_or_else(String::new, |fence| format!("{fence}\n"));
    if kept.is_empty() && room == 0 { String::new() } else { kept + &close + CUT.trim_start_matches('\n') }
}

/// A line for `$GITHUB_OUTPUT`. Values come from this project: names, numbers, paths. Line ends are replaced, because
/// the text after a line end would be another output.
pub(super) fn output(name: &str, value: &str) -> String {
    format!("{name}={}\n", value.replace(['\r', '\n'], " "))
}

/// An annotation without a title or a location.
pub(super) fn note(kind: &str, text: &str) -> String {
    format!("::{kind}::{}\n", escape(text))
}

/// Escapes as the runner unescapes: <https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs>.
pub fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_page_is_cut_to_the_remaining_bytes_and_says_so() {
        let case = format!("## a case\n\n````\n{}````\n\n", "x ``` y\n".repeat(500));
        let page = case.repeat(300);
        assert_eq!(summary(&page[..SUMMARY_BYTES], 0), page[..SUMMARY_BYTES]);
        for taken in (SUMMARY_BYTES - 300_000..SUMMARY_BYTES + 10).step_by(9973) {
            let cut = summary(&page, taken);
            assert!(taken + cut.len() <= SUMMARY_BYTES.max(taken), "{taken}: {}", cut.len());
            if cut.len() > 500 {
                assert!(cut.ends_with(CUT.trim_start_matches('\n')), "{taken}");
                let fences = cut.lines().filter(|line| line.starts_with("```")).count();
                assert_eq!(fences % 2, 0, "a code block is left open");
            }
        }
    }

    #[test]
    fn output_is_one_line() {
        assert_eq!(output("run", "a\nresult=ok"), "run=a result=ok\n");
    }
}
