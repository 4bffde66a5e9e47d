//! Stores that hide an alarm, name another member in it, or ignore it; servers that acknowledge writes meanwhile.

use http::Method;
use serde_json::json;

use super::fault_link::failed_write;
use super::{Change, Means, Mutant, mutants};
use crate::message::Message;
use crate::store::StoreChange;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "fault.corrupt-create-invented": "One of two servers acknowledges a create that the store refused because of its alarm." => "fault.corrupt-alarm" on "ha",
        create_invented;
    "fault.corrupt-delete-invented": "One of two servers acknowledges a delete that the store refused because of its alarm." => "fault.corrupt-alarm" on "ha",
        || Change::Reply(Box::new(|call, reply| {
            if call.method == Method::DELETE && String::from_utf8_lossy(&reply.body).contains("corrupt cluster") {
                reply.status = 200;
                reply.body = r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#.into();
            }
        }));
    "fault.quota-create-invented": "The server acknowledges a create that the full store refused." => "fault.quota-alarm" on "disruptive",
        create_invented;
};

pub(super) static RAW: &[Mutant] = mutants! { Means::RawStore;
    "fault.corrupt-alarm-hidden": "The store raises no alarm about a member that differs." => "fault.corrupt-alarm" on "ha", alarms_hidden;
    "fault.corrupt-alarm-misplaced": "The alarm about a member that differs names another member." => "fault.corrupt-alarm" on "ha",
        || StoreChange::of_replies(|method, message| {
            if method == "Alarm" {
                message.edit(ALARMS, |alarm| alarm.set_number(MEMBER, alarm.number(MEMBER) ^ 1));
            }
        });
    "fault.quota-alarm-hidden": "A full store raises no alarm." => "fault.quota-alarm" on "disruptive", alarms_hidden;
    // The store never becomes full.
    "fault.quota-ignored": "The store acknowledges values of more bytes than its quota." => "fault.quota-alarm" on "disruptive",
        || StoreChange::of_requests(|method, message| {
            if method == "Put" {
                message.set_bytes(PUT_VALUE, b"x".to_vec());
            }
        });
    "fault.quota-transaction-halved": "A full store executes the deletions of a transaction without its puts." => "fault.quota-alarm" on "disruptive",
        || StoreChange::of_requests(|method, message| {
            if method == "Txn" {
                message.retain(SUCCESS, |operation| operation.bytes(REQUEST_PUT).is_empty());
            }
        });
    "fault.quota-disarm-ignored": "The store ignores the first request to disarm an alarm." => "fault.quota-alarm" on "disruptive",
        disarm_ignored;
};

// AlarmResponse, AlarmMember and AlarmRequest; the numbers are those of etcd's `rpc.proto`.
const ALARMS: u64 = 2;
const MEMBER: u64 = 1;
const ACTION: u64 = 1;
const DEACTIVATE: u64 = 2;
const GET: u64 = 0;
// PutRequest, TxnRequest and RequestOp.
const PUT_VALUE: u64 = 2;
const SUCCESS: u64 = 2;
const REQUEST_PUT: u64 = 2;

fn create_invented() -> Change {
    Change::Reply(Box::new(|call, reply| {
        if call.method == Method::POST && failed_write(call, reply) {
            reply.status = 201;
            reply.body = call.body.clone();
            reply.edit(|object| object["metadata"]["resourceVersion"] = json!("1"));
        }
    }))
}

fn alarms_hidden() -> StoreChange {
    StoreChange::of_replies(|method, message| {
        if method == "Alarm" {
            message.remove(ALARMS);
        }
    })
}

/// Only the first one, because the clean-up must work.
fn disarm_ignored() -> StoreChange {
    let mut ignored = false;
    StoreChange::of_requests(move |method: &str, message: &mut Message| {
        if method == "Alarm" && message.number(ACTION) == DEACTIVATE && !ignored {
            ignored = true;
            message.set_number(ACTION, GET);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_disarm_is_ignored() {
        let mut change = disarm_ignored().request.expect("a change of requests");
        let mut action = |method: &str, number: u64| {
            let mut message = Message::default();
            message.set_number(ACTION, number);
            change(method, &mut message);
            message.number(ACTION)
        };
        assert_eq!([action("Alarm", GET), action("Put", DEACTIVATE)], [GET, DEACTIVATE]);
        assert_eq!([action("Alarm", DEACTIVATE), action("Alarm", DEACTIVATE)], [GET, DEACTIVATE]);
    }
}
