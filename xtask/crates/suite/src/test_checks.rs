//! A small table of checks for the unit tests of this crate; the real one is in the crate `checks`.

use model::Level;

use crate::check::{Check, Run};
use crate::ctx::Ctx;
use crate::error::Verdict;
use crate::requirement::{Requirement, Requires};
use crate::{here, scenario};

const MANY: &[&str] = &["default", "json", "yaml", "encrypted", "no-cache"];
const ONE: &[&str] = &["default"];
const OWN: Requires = Requires::OwnCluster(&[]);
const SCENARIO: Run = scenario!(pass);

pub(crate) static CHECKS: &[Check] = &[
    check("storage.all", Level::Must, MANY, OWN, SCENARIO),
    check("storage.some", Level::Should, &["json", "yaml", "encrypted"], OWN, SCENARIO),
    check("storage.media", Level::Extra, &["json", "yaml"], OWN, SCENARIO),
    check("storage.anywhere", Level::Must, ONE, Requires::AnyCluster(&[Requirement::RawStore]), SCENARIO),
    check("list.pages", Level::Must, ONE, Requires::AnyCluster(&[Requirement::QuietNamespace]), SCENARIO),
    check("list.order", Level::Must, &["default", "no-cache"], OWN, SCENARIO),
    check("list.expired", Level::Should, &["disruptive"], OWN, SCENARIO),
    check("watch.start", Level::Must, &["default", "no-cache"], OWN, SCENARIO),
    check("watch.bookmark", Level::Must, ONE, OWN, SCENARIO),
    check("watch.many", Level::Extra, &["default", "ha"], OWN, SCENARIO),
    check("watch.expired", Level::Must, &["disruptive", "ha"], OWN, SCENARIO),
    check("cc.update", Level::Must, ONE, OWN, SCENARIO),
    check("cc.delete", Level::Must, ONE, OWN, SCENARIO),
    check(
        "fault.restart",
        Level::Should,
        &["disruptive"],
        Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        SCENARIO,
    ),
    check(
        "watch.cache",
        Level::Must,
        &["disruptive"],
        Requires::OwnCluster(&[Requirement::Exclusive, Requirement::After("fault.restart")]),
        SCENARIO,
    ),
    check("fault.members", Level::Should, &["ha"], Requires::OwnCluster(&[Requirement::Members(3)]), SCENARIO),
    check("watch.ordered", Level::Must, &["default", "no-cache"], Requires::AnyCluster(&[]), Run::Judge),
    check("watch.unique", Level::Must, &["default", "no-cache"], Requires::AnyCluster(&[]), Run::Judge),
    check("suite.sound", Level::Must, ONE, Requires::AnyCluster(&[Requirement::RawStore]), Run::Judge),
];

const fn check(
    id: &'static str,
    level: Level,
    profiles: &'static [&'static str],
    requires: Requires,
    run: Run,
) -> Check {
    let (requirement, source, observed, by_hand) = ("", "", "", "");
    Check { id, place: here!(), level, requirement, source, observed, by_hand, profiles, requires, run }
}

async fn pass(_: &Ctx) -> Verdict {
    Ok(())
}
