//! Entry points for the fuzz crate: each takes untrusted bytes and panics if a property of the parser does not hold.
//! Product code does not call them.

use crate::{history, issue, plan, state};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("bisect-state", run_state), ("bisect-history", run_history)];

/// `bisect.json`: an accepted state is equal after it is written and read again, and every function accepts it.
fn run_state(bytes: &[u8]) {
    let Ok(read) = state::parse(bytes) else { return };
    let written = report::text::pretty(&read);
    assert_eq!(state::parse(written.as_bytes()).ok().as_ref(), Some(&read));
    let _ = plan::runs_left(&read);
    match plan::next(&read) {
        plan::Step::Run { commit, .. } => assert!(commit < read.commits.len()),
        plan::Step::Refuse { text, .. } => assert!(!text.is_empty()),
        plan::Step::Done(conclusion) => {
            let check = checks::all().next().expect("the table of checks has rows");
            assert!(issue::issue(&read, &conclusion, check).starts_with("# "));
        }
    }
}

/// The output of `git log`: subjects are plain lines.
fn run_history(bytes: &[u8]) {
    let Ok(commits) = history::parse(&String::from_utf8_lossy(bytes)) else { return };
    for commit in commits {
        assert!(history::is_hash(&commit.id));
        assert!(!commit.label().contains(char::is_control), "{:?}", commit.label());
    }
}
