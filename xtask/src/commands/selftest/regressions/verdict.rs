//! What the runs of a check show of a release with a known defect, and the verdict on it.

use model::{Event, Exit, Outcome};
use serde::Serialize;

/// What one run shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shown {
    /// The check failed as the entry says.
    Defect,
    /// The check failed, but not as the entry says.
    OtherFailure,
    Passed,
    /// The check came to no verdict, which proves nothing.
    NoVerdict,
    /// The release cannot be built or started, or the check cannot run on it: another run would end alike.
    CannotRun,
    Interrupted,
}

/// The verdict on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// The check failed as said, and passed on the control.
    Found,
    /// No run failed as said.
    NotFound,
    /// The check failed as said, and failed on the control as well.
    ControlFailed,
    /// The release or the control could not be tested.
    Errored,
    /// Interrupted before the verdict.
    NotRun,
}

impl Shown {
    pub(super) fn word(self) -> &'static str {
        match self {
            Shown::Defect => "failed, as it must",
            Shown::OtherFailure => "failed otherwise",
            Shown::Passed => "passed",
            Shown::NoVerdict => "no verdict",
            Shown::CannotRun => "cannot run",
            Shown::Interrupted => "interrupted",
        }
    }
}

/// What the events of a run show, with the text of the failure or error. `says` is a part of the text of the defect.
pub(super) fn shown(events: &[Event], says: Option<&str>) -> (Shown, String) {
    let is_said = |text: &str| says.is_some_and(|says| text.contains(says));
    match broken_phase(events) {
        // A defect may end a component, which ends the suite before the check has a verdict.
        Some(("suite", text)) if is_said(&text) => return (Shown::Defect, text),
        Some(("suite", text)) => return (Shown::NoVerdict, format!("suite: {text}")),
        Some((phase, text)) => return (Shown::CannotRun, format!("{phase}: {text}")),
        None => {}
    }
    let outcome = events.iter().find_map(|event| match event {
        Event::CaseFinished { outcome, .. } => Some(outcome),
        _ => None,
    });
    let Some(outcome) = outcome else { return (Shown::NoVerdict, "the run has no result of the check".into()) };
    let shown = match outcome {
        Outcome::Failed { message, evidence } => {
            let said = says.is_none() || evidence.iter().chain([message]).any(|line| is_said(line));
            if said { Shown::Defect } else { Shown::OtherFailure }
        }
        Outcome::ExpectedFailure { message, .. } if is_said(message) => Shown::Defect,
        // Any other expected failure is another defect.
        Outcome::Passed | Outcome::ExpectedFailure { .. } | Outcome::UnexpectedPass { .. } => Shown::Passed,
        Outcome::Skipped { .. } => Shown::CannotRun,
        Outcome::Errored { .. } | Outcome::TimedOut { .. } => Shown::NoVerdict,
    };
    (shown, outcome.message())
}

/// The first phase that broke, with the text of its error. A teardown that broke does not change what the check saw.
fn broken_phase(events: &[Event]) -> Option<(&str, String)> {
    events.iter().find_map(|event| match event {
        Event::PhaseFinished { phase, outcome, .. } if phase != "teardown" && outcome.exit() != Exit::Ok => {
            let text = match outcome {
                Outcome::Errored { message, .. } => message.clone(),
                other => other.message(),
            };
            Some((phase.as_str(), text))
        }
        _ => None,
    })
}

/// Whether another run on the release follows one that showed this.
pub(super) fn goes_on(last: Shown, runs: u32, tries: u32) -> bool {
    runs < tries && matches!(last, Shown::Passed | Shown::OtherFailure | Shown::NoVerdict)
}

/// The verdict from the runs on the release, and the one on the control. The control runs only after the defect was found.
pub(super) fn verdict(runs: &[Shown], control: Option<Shown>) -> Verdict {
    match (runs.last(), control) {
        (None | Some(Shown::Interrupted), _) | (_, Some(Shown::Interrupted)) => Verdict::NotRun,
        (Some(Shown::CannotRun), _) => Verdict::Errored,
        (Some(Shown::Defect), None | Some(Shown::Passed)) => Verdict::Found,
        (Some(Shown::Defect), Some(Shown::Defect | Shown::OtherFailure)) => Verdict::ControlFailed,
        (Some(Shown::Defect), Some(Shown::NoVerdict | Shown::CannotRun)) => Verdict::Errored,
        (Some(_), _) if runs.iter().all(|run| *run == Shown::NoVerdict) => Verdict::Errored,
        (Some(_), _) => Verdict::NotFound,
    }
}

/// The exit code for the verdicts; each comes with whether the entry may stay unfound.
pub(super) fn exit(verdicts: &[(Verdict, bool)]) -> Exit {
    let any = |bad: fn(Verdict, bool) -> bool| verdicts.iter().any(|(verdict, excused)| bad(*verdict, *excused));
    if any(|verdict, _| verdict == Verdict::NotRun) {
        Exit::Interrupted
    } else if any(|verdict, excused| verdict == Verdict::ControlFailed || (verdict == Verdict::NotFound && !excused)) {
        Exit::Internal
    } else if any(|verdict, _| verdict == Verdict::Errored) {
        Exit::Infrastructure
    } else {
        Exit::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::finished_case as case;

    fn phase(name: &str, outcome: Outcome) -> Event {
        Event::PhaseFinished { at: String::new(), phase: name.into(), outcome, seconds: 1.0 }
    }

    fn failed(message: &str, evidence: &str) -> Outcome {
        Outcome::Failed { message: message.into(), evidence: vec![evidence.into()] }
    }

    #[test]
    fn only_the_named_failure_shows_the_defect() {
        let of = |outcome: Outcome, says| shown(&[phase("boot", Outcome::Passed), case(outcome)], says).0;
        assert_eq!(of(failed("an event is lost", ""), None), Shown::Defect);
        assert_eq!(of(failed("an event is lost", ""), Some("is lost")), Shown::Defect);
        assert_eq!(of(failed("2 faults", "an event is lost"), Some("is lost")), Shown::Defect);
        assert_eq!(of(failed("an event came twice", ""), Some("is lost")), Shown::OtherFailure);
        assert_eq!(of(Outcome::Passed, Some("is lost")), Shown::Passed);
        let known = || Outcome::ExpectedFailure { message: "is lost".into(), issue: String::new() };
        assert_eq!(of(known(), Some("is lost")), Shown::Defect);
        assert_eq!(of(known(), Some("came twice")), Shown::Passed);
        assert_eq!(of(known(), None), Shown::Passed);
        for nothing in
            [Outcome::errored("suite", "an event is lost"), Outcome::TimedOut { what: "an event is lost".into() }]
        {
            assert_eq!(of(nothing, Some("is lost")), Shown::NoVerdict);
        }
        assert_eq!(of(Outcome::Skipped { need: "x".into() }, None), Shown::CannotRun);
        assert_eq!(shown(&[phase("boot", Outcome::Passed)], None).0, Shown::NoVerdict);
    }

    #[test]
    fn broken_phases_come_before_the_result_of_the_check() {
        let broken = |name: &str, text: &str| phase(name, Outcome::errored(name, text));
        let lost = || case(failed("an event is lost", ""));
        for name in ["fetch", "build", "boot"] {
            let (seen, text) = shown(&[broken(name, "no such release")], None);
            assert_eq!((seen, text), (Shown::CannotRun, format!("{name}: no such release")));
        }
        // The failure may be a consequence of the component's death.
        assert_eq!(shown(&[lost(), broken("suite", "etcd died: exit 1")], Some("is lost")).0, Shown::NoVerdict);
        assert_eq!(shown(&[broken("suite", "etcd died: page expected")], Some("page expected")).0, Shown::Defect);
        assert_eq!(shown(&[broken("suite", "etcd died: page expected")], None).0, Shown::NoVerdict);
        assert_eq!(shown(&[lost(), broken("teardown", "left behind")], Some("is lost")).0, Shown::Defect);
    }

    #[test]
    fn runs_repeat_until_the_defect_or_the_limit() {
        for last in [Shown::Passed, Shown::OtherFailure, Shown::NoVerdict] {
            assert!(goes_on(last, 2, 3), "{last:?}");
            assert!(!goes_on(last, 3, 3), "{last:?}");
        }
        for last in [Shown::Defect, Shown::CannotRun, Shown::Interrupted] {
            assert!(!goes_on(last, 1, 3), "{last:?}");
        }
    }

    #[test]
    fn defect_counts_only_if_the_control_passes() {
        use Shown::*;
        for (runs, control, expected) in [
            (&[Passed, NoVerdict, Defect][..], None, Verdict::Found),
            (&[Defect], Some(Passed), Verdict::Found),
            (&[Defect], Some(Defect), Verdict::ControlFailed),
            (&[Defect], Some(OtherFailure), Verdict::ControlFailed),
            (&[Defect], Some(NoVerdict), Verdict::Errored),
            (&[Defect], Some(CannotRun), Verdict::Errored),
            (&[Defect], Some(Interrupted), Verdict::NotRun),
            (&[Passed, OtherFailure], None, Verdict::NotFound),
            (&[NoVerdict, Passed], None, Verdict::NotFound),
            (&[NoVerdict, NoVerdict], None, Verdict::Errored),
            (&[CannotRun], None, Verdict::Errored),
            (&[Passed, Interrupted], None, Verdict::NotRun),
            (&[], None, Verdict::NotRun),
        ] {
            assert_eq!(verdict(runs, control), expected, "{runs:?}, {control:?}");
        }
    }

    #[test]
    fn unfound_defect_is_excused_only_if_it_was_tried_before() {
        use Verdict::*;
        let found = (Found, false);
        for (others, expected) in [
            (&[][..], Exit::Ok),
            (&[(NotFound, true)], Exit::Ok),
            (&[(NotFound, false)], Exit::Internal),
            (&[(ControlFailed, true)], Exit::Internal),
            (&[(Errored, true)], Exit::Infrastructure),
            (&[(Errored, false), (NotFound, false)], Exit::Internal),
            (&[(NotFound, false), (NotRun, false)], Exit::Interrupted),
        ] {
            assert_eq!(exit(&[&[found][..], others].concat()), expected, "{others:?}");
        }
    }
}
