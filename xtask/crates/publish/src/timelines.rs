//! Pictures of the watch streams of failed cases, in the run folder.

use std::path::Path;

use model::{Event, Outcome};
use suite::upstream;
use sys::{RunDir, progress};

use crate::output::{create_folder, write_file};
use crate::site::timeline_of;
use crate::timeline::timeline;

/// The name under which the suite opens the streams that the whole-run judges read.
const TRAFFIC: &str = "suite.traffic";

/// Draws the pictures and notes their paths. A picture that cannot be drawn must not lose the verdict.
pub fn draw(events: &[Event], run: &RunDir) -> Vec<Event> {
    // Upstream's suite is not recorded.
    let recorded = |check: &str| !upstream::is_case(check);
    let failed = events.iter().filter_map(|event| match event {
        Event::CaseFinished { case, check, profile, outcome: Outcome::Failed { .. }, .. } if recorded(check) => {
            Some((case, check, profile))
        }
        _ => None,
    });
    let drawn = failed.filter_map(|(case, check, profile)| {
        let text = match one(&run.histories(), &run.timelines(), case, check, profile) {
            Ok(Some(file)) => format!("watch streams of {case}: {file}"),
            Ok(None) => return None,
            Err(error) => format!("failed to draw the watch streams of {case}: {error:#}"),
        };
        Some(Event::Note { at: progress::timestamp(), text })
    });
    drawn.collect()
}

fn one(histories: &Path, into: &Path, case: &str, check: &str, profile: &str) -> anyhow::Result<Option<String>> {
    for history in suite::history_files::read_profile(histories, profile)? {
        if let Some(picture) = timeline(&history, check).or_else(|| timeline(&history, TRAFFIC)) {
            let file = into.join(timeline_of(case));
            create_folder(into)?;
            write_file(&file, picture.as_bytes())?;
            return Ok(Some(file.display().to_string()));
        }
    }
    Ok(None)
}
