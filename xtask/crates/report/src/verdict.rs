//! The exit code of a run, from its events.
//!
//! Precedence: interrupted, internal, build failed, the environment broke (`boot`, `suite`, cases without a result),
//! conformance, a single case or the teardown broke, nothing ran, ok. The position of conformance has a reason:
//!
//! A failed case outweighs another case that errored or timed out, and a teardown that broke afterwards: the failure
//! was observed while the environment worked, and a script that retries on 102 must not retry it away. It does not
//! outweigh a `boot` or `suite` phase that broke (for example, a component died during the checks): the environment may
//! be the cause of a failure observed then. So 100 means that a violation was certainly observed, and 102 that the run
//! may be repeated.
//!
//! A run that only has skips is `NothingRan`: an empty result is never green.

use model::{Event, Exit, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::view::View;

/// The verdict of a run, with the exit code of `cargo xtask ci`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    pub code: u8,
    /// `ok`, `conformance`, `infrastructure`, …
    pub name: String,
    /// The verdict in words.
    pub meaning: String,
}

impl Verdict {
    pub fn of(exit: Exit) -> Verdict {
        let name = serde_json::to_value(exit).ok().and_then(|name| Some(name.as_str()?.to_owned()));
        Verdict { code: exit.code(), name: name.unwrap_or_default(), meaning: exit.to_string() }
    }

    pub fn is_ok(&self) -> bool {
        self.code == Exit::Ok.code()
    }
}

/// The verdict on a complete run. A run without `RunFinished` was killed, and counts as interrupted.
pub fn exit(events: &[Event]) -> Exit {
    let view = View::of(events);
    match view.finished {
        _ if events.is_empty() => Exit::NothingRan,
        None => Exit::Interrupted,
        // The recorded code may know more (an internal error), but cannot improve the verdict of the events.
        Some((recorded, _)) => worse(recorded, exit_of_view(&view)),
    }
}

/// The verdict of the phases and cases so far: the code for `RunFinished`.
pub fn current_exit(events: &[Event]) -> Exit {
    exit_of_view(&View::of(events))
}

fn exit_of_view(view: &View<'_>) -> Exit {
    let phases = view.phases.iter().map(|phase| of_phase(phase.name, &phase.outcome()));
    let environment = phases.reduce(worse).unwrap_or(Exit::Ok);
    if rank(environment) > rank(Exit::Conformance) {
        return environment;
    }
    if view.missing() > 0 || view.cases.iter().any(|case| case.facts.is_none()) {
        return Exit::Infrastructure;
    }
    let cases = || view.cases.iter().map(|case| case.outcome.exit());
    if environment == Exit::Conformance || cases().any(|exit| exit == Exit::Conformance) {
        return Exit::Conformance;
    }
    if teardown_broke(view) {
        return Exit::Infrastructure;
    }
    if !view.anything_ran() {
        return Exit::NothingRan;
    }
    cases().reduce(worse).unwrap_or(Exit::NothingRan)
}

/// The verdict of a single phase. Only `suite` can report conformance failures; the caller handles `teardown` later.
fn of_phase(name: &str, outcome: &Outcome) -> Exit {
    match (name, outcome.exit()) {
        (_, Exit::Ok) | ("teardown", _) => Exit::Ok,
        ("build", _) => Exit::Build,
        ("suite", exit) => exit,
        (_, _) => Exit::Infrastructure,
    }
}

fn teardown_broke(view: &View<'_>) -> bool {
    view.phases.iter().any(|phase| phase.name == "teardown" && phase.outcome().exit() != Exit::Ok)
}

/// The exit code of a run that has both.
pub fn worse(one: Exit, other: Exit) -> Exit {
    if rank(one) >= rank(other) { one } else { other }
}

fn rank(exit: Exit) -> u8 {
    match exit {
        Exit::Ok => 0,
        Exit::NothingRan => 1,
        Exit::TargetData => 2,
        Exit::Usage => 3,
        Exit::Conformance => 4,
        Exit::Infrastructure => 5,
        Exit::Build => 6,
        Exit::Internal => 7,
        Exit::Interrupted => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, finished, phase, planned, started};

    fn failed() -> Outcome {
        Outcome::failed("x")
    }

    fn errored() -> Outcome {
        Outcome::errored("request", "x")
    }

    fn timed_out() -> Outcome {
        Outcome::TimedOut { what: "x".into() }
    }

    fn skipped() -> Outcome {
        Outcome::Skipped { need: "x".into() }
    }

    fn expected() -> Outcome {
        Outcome::ExpectedFailure { message: "x".into(), issue: "x".into() }
    }

    #[test]
    fn worst_outcome_decides() {
        let unexpected = || Outcome::UnexpectedPass { issue: "x".into() };
        let passed = || Outcome::Passed;
        #[rustfmt::skip]
        let table: Vec<(&str, Vec<Event>, Exit)> = vec![
            ("no case", vec![phase("build", passed())], Exit::NothingRan),
            ("only skips", vec![case("a.a", skipped()), case("a.b", skipped())], Exit::NothingRan),
            ("one pass", vec![case("a.a", passed()), case("a.b", skipped())], Exit::Ok),
            ("only expected failures", vec![case("a.a", expected())], Exit::Ok),
            ("a failure", vec![case("a.a", passed()), case("a.b", failed())], Exit::Conformance),
            ("an unexpected pass", vec![case("a.a", unexpected())], Exit::Conformance),
            ("an error", vec![case("a.a", passed()), case("a.b", errored())], Exit::Infrastructure),
            ("a time-out", vec![case("a.a", passed()), case("a.b", timed_out())], Exit::Infrastructure),
            ("failure and errors", vec![case("a.a", errored()), case("a.b", failed()), case("a.c", timed_out())], Exit::Conformance),
            ("failure, then teardown broke", vec![case("a.a", failed()), phase("teardown", errored())], Exit::Conformance),
            ("passes, then teardown broke", vec![case("a.a", passed()), phase("teardown", errored())], Exit::Infrastructure),
            ("failure in a broken environment", vec![case("a.a", failed()), phase("suite", errored())], Exit::Infrastructure),
            ("failure and missing cases", vec![planned(2), case("a.a", failed())], Exit::Infrastructure),
            ("passes and missing cases", vec![planned(2), case("a.a", passed())], Exit::Infrastructure),
            ("all planned", vec![planned(1), case("a.a", passed()), phase("suite", passed())], Exit::Ok),
            ("suite phase failed", vec![case("a.a", failed()), phase("suite", failed())], Exit::Conformance),
            ("build errored", vec![phase("build", errored())], Exit::Build),
            ("build failed", vec![phase("build", failed())], Exit::Build),
            ("build timed out", vec![phase("build", timed_out())], Exit::Build),
            ("boot failed", vec![phase("boot", failed())], Exit::Infrastructure),
            ("boot timed out", vec![phase("build", passed()), phase("boot", timed_out())], Exit::Infrastructure),
            ("build and boot", vec![phase("boot", errored()), phase("build", errored())], Exit::Build),
            ("phase without end", vec![case("a.a", passed()), Event::PhaseStarted { at: String::new(), phase: "teardown".into() }], Exit::Infrastructure),
            ("case without end", vec![case("a.a", passed()), Event::CaseStarted { at: String::new(), case: "a.b".into() }], Exit::Infrastructure),
        ];
        for (what, mut events, wanted) in table {
            assert_eq!(current_exit(&events), wanted, "{what}");
            events.insert(0, started());
            assert_eq!(exit(&events), Exit::Interrupted, "{what}, killed");
            // A recorded Ok does not improve the verdict.
            events.push(finished(Exit::Ok));
            assert_eq!(exit(&events), wanted, "{what}, finished");
        }
    }

    #[test]
    fn recorded_code_can_only_worsen_the_verdict() {
        for (recorded, outcome, wanted) in [
            (Exit::Interrupted, failed(), Exit::Interrupted),
            (Exit::Internal, failed(), Exit::Internal),
            (Exit::Conformance, Outcome::Passed, Exit::Conformance),
            (Exit::NothingRan, errored(), Exit::Infrastructure),
            (Exit::TargetData, skipped(), Exit::TargetData),
        ] {
            assert_eq!(exit(&[started(), case("a.a", outcome), finished(recorded)]), wanted, "{recorded}");
        }
        assert_eq!(exit(&[]), Exit::NothingRan);
    }
}
