//! Servers that another release on the same store cannot follow, and stores that lose something when their release changes.

use serde_json::Value;

use super::fault::is_write_of_workload;
use super::store_more::compacted_readable;
use super::tools::{each_event, is_marker, rehearsed, remember_first};
use super::{Change, Means, Mutant, mutants};
use crate::store::StoreChange;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    // Not of FlowSchemas and the like: the servers change their status by themselves, and the check waits until both show the
    // same version.
    "skew.get-old": "A server answers each GET of an object with its first answer." => "storage.release-skew" on "skew",
        || Change::Reply(remember_first(|call| call.is_get() && !call.path.contains("/flowcontrol.apiserver.k8s.io/")));
    "skew.event-lost": "A watch omits the first change of an object." => "storage.release-skew" on "skew",
        || each_event(|n, event| if n == 1 { vec![] } else { vec![event] });
    "upgrade.writes-lost": "The server acknowledges some creates and updates without storing them." => "fault.etcd-upgrade-downgrade" on "upgrade",
        || rehearsed(is_write_of_workload, 9);
    "upgrade.event-lost": "A watch loses an event." => "fault.etcd-upgrade-downgrade" on "upgrade",
        || each_event(|n, event| if n == 25 && !is_marker(&event) { vec![] } else { vec![event] });
};

pub(super) static BY_FILE: &[Mutant] = mutants! { configuration;
    "skew.value-unreadable": "The server stores PodTemplates in a form that the previous release cannot read." => "storage.release-skew" on "skew",
        |configuration| {
            if let Some(providers) = configuration["resources"][0]["providers"].as_array_mut() {
                providers.reverse();
            }
        };
};

const fn configuration(change: fn(&mut Value)) -> Means {
    Means::File("clear.yaml", change)
}

pub(super) static RAW: &[Mutant] = mutants! { Means::RawStore;
    "upgrade.member-unknown": "After some time, a list of members has a member that does not exist." => "fault.etcd-upgrade-downgrade" on "upgrade",
        member_unknown;
    "upgrade.compacted-readable": "A compacted revision can be read again." => "fault.etcd-upgrade-downgrade" on "upgrade",
        compacted_readable;
};

// MemberListResponse, and Member.
const MEMBERS: u64 = 2;
const ID: u64 = 1;
/// More lists than the check reads before the first restart.
const RIGHT_LISTS: u32 = 8;

fn member_unknown() -> StoreChange {
    let mut lists = 0;
    StoreChange::of_replies(move |method, message| {
        if method != "MemberList" {
            return;
        }
        lists += 1;
        let Some(mut unknown) = message.messages(MEMBERS).into_iter().next().filter(|_| lists > RIGHT_LISTS) else {
            return;
        };
        unknown.set_number(ID, unknown.number(ID) ^ 1);
        message.push(MEMBERS, unknown.encode());
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn unknown_member_appears_after_the_first_lists() {
        let mut change = member_unknown().reply.expect("a change of replies");
        let mut members = |method: &str| {
            let mut list = Message::default();
            let mut member = Message::default();
            member.set_number(ID, 4);
            list.push(MEMBERS, member.encode());
            change(method, &mut list);
            list.messages(MEMBERS).iter().map(|member| member.number(ID)).collect::<Vec<u64>>()
        };
        for _ in 0..RIGHT_LISTS {
            assert_eq!(members("MemberList"), [4]);
        }
        assert_eq!((members("MemberList"), members("Status")), (vec![4, 5], vec![4]));
    }
}
