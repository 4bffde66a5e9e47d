//! Checks that an integer field never stores another number than the sent one, in any form of request.
//!
//! The conversion of a float beyond the range of an integer has another result on each processor, so a server that
//! converts without a limit stores different numbers for the same request.

use anyhow::anyhow;
use http::Method;
use serde_json::{Value, json};

use crate::support::assertions::{none_of, pod_template};
use suite::api::{APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, Request, Response, STRATEGIC_PATCH};
use suite::ctx::object_path;
use suite::object::{DEPLOYMENTS, POD_TEMPLATES};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.number-range",
    place: here!(),
    level: Must,
    requirement: "A number for an integer field is stored as that number or refused as the client's error, by POST, \
                  PUT and each type of PATCH, on every architecture.",
    source: "api-conventions.md (Primitive types: int32 and int64); apimachinery pkg/runtime/converter.go \
             (fromUnstructured), which strategic merge PATCH and apply use; docs/findings/number-range.md",
    observed: "The check sends numbers beyond int32 and int64, fractions, and integers that are written as floats for \
               two int32 fields of a Deployment and int64 fields of a Deployment and a PodTemplate, as text, because \
               a JSON library would round them. It reads the object before and after each request: after a refusal \
               it must be unchanged, after a success the field must have exactly the sent number. The answers 5xx \
               are faults. POST, PUT, merge PATCH and JSON patch are compared first, then strategic merge PATCH and \
               apply.",
    by_hand: "kubectl patch deployment a --type=strategic -p '{\"spec\":{\"replicas\":4294967297}}'; kubectl get \
              deployment a -o jsonpath={.spec.replicas} (must not be 1); the same with 1e30 and --type=merge",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(number_range),
}];

/// An integer field: the JSON pointer to it, and whether it is an int32.
struct Field {
    resource: &'static Resource,
    pointer: &'static str,
    name: &'static str,
}

/// Numbers as they are sent; the value of those that an int64 can hold. No int32 can hold any of them.
const NUMBERS: &[(&str, Option<i64>)] = &[
    ("4294967297", Some(4_294_967_297)),
    ("4294967297.0", Some(4_294_967_297)),
    ("1e10", Some(10_000_000_000)),
    ("9223372036854775808", None),
    ("1e19", None),
    ("1e30", None),
    ("-1e30", None),
    ("3.5", None),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Post,
    Put,
    Merge,
    JsonPatch,
    Strategic,
    Apply,
}

/// The server decodes the whole object from the text of these.
const DECODED: [Form; 4] = [Form::Post, Form::Put, Form::Merge, Form::JsonPatch];
/// The server merges these into an object without types, and then converts it.
const CONVERTED: [Form; 2] = [Form::Strategic, Form::Apply];

/// The object that PUT and PATCH change, and the one that POST must not create.
const NAMES: [&str; 2] = ["changed", "created"];
/// Replaced by the number in the text of a request.
const PLACEHOLDER: &str = "\"@number\"";

async fn number_range(ctx: &Ctx) -> Verdict {
    for resource in [&*DEPLOYMENTS, &*POD_TEMPLATES] {
        ctx.api.create(resource, &base(resource, NAMES[0])).await?;
    }
    all_forms(ctx, &DECODED, "by a request with a whole object, a merge PATCH or a JSON patch:").await?;
    all_forms(ctx, &CONVERTED, "by a strategic merge PATCH or an apply:").await
}

async fn all_forms(ctx: &Ctx, forms: &[Form], by: &str) -> Verdict {
    let mut faults = Vec::new();
    let mut refused = Vec::new();
    let mut sent = 0;
    for form in forms {
        let mut stored = 0;
        for field in fields() {
            for number in NUMBERS {
                let (is_stored, fault) = one_request(ctx, *form, &field, *number).await?;
                faults.extend(fault);
                stored += u64::from(is_stored);
                sent += 1;
            }
        }
        ctx.count("numbers stored", stored);
        if stored == 0 {
            refused.push(form.text());
        }
    }
    ctx.count("numbers", sent as u64);
    none_of(faults, sent, &format!("numbers are stored as another number or answered as the server's error, {by}"))?;
    if refused.is_empty() {
        return Ok(());
    }
    // Each form can set an int64 to a number beyond int32, so these requests were refused for another reason.
    Err(anyhow!("not exercised: every number was refused by {}", refused.join(" and ")).into())
}

fn fields() -> [Field; 4] {
    let of_deployment = |pointer, name| Field { resource: &DEPLOYMENTS, pointer, name };
    [
        of_deployment("/spec/replicas", "spec.replicas"),
        of_deployment("/spec/minReadySeconds", "spec.minReadySeconds"),
        of_deployment("/spec/template/spec/terminationGracePeriodSeconds", "terminationGracePeriodSeconds"),
        Field {
            resource: &POD_TEMPLATES,
            pointer: "/template/spec/activeDeadlineSeconds",
            name: "activeDeadlineSeconds",
        },
    ]
}

/// Sends one number and compares the object before and after. Returns whether the request succeeded, and the fault.
async fn one_request(
    ctx: &Ctx,
    form: Form,
    field: &Field,
    number: (&str, Option<i64>),
) -> Verdict<(bool, Option<String>)> {
    let name = NAMES[usize::from(form == Form::Post)];
    let before = read(ctx, field.resource, name).await?;
    let answer = ctx.api.send(&request(ctx, form, field, name, number.0).await?).await?;
    let after = read(ctx, field.resource, name).await?;
    if form == Form::Post && after.is_some() {
        ctx.api.delete(field.resource, name).await?;
    }
    let what = || format!("{} of {} with {} to a {}", form.text(), field.name, number.0, field.resource.kind);
    let fault = fault(&answer, before.as_ref(), after.as_ref(), field.pointer, number.1);
    Ok((answer.is_success(), fault.map(|fault| format!("{} {fault}", what()))))
}

async fn read(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<Option<Object>> {
    let answer = ctx.api.try_get(resource, name, "").await?;
    Ok(if answer.is(404, "NotFound") { None } else { Some(answer.object()?) })
}

/// What is wrong with the answer and the stored object.
fn fault(
    answer: &Response,
    before: Option<&Object>,
    after: Option<&Object>,
    pointer: &str,
    number: Option<i64>,
) -> Option<String> {
    let status = answer.status;
    if answer.is_success() {
        let stored = after.and_then(|object| object.0.pointer(pointer)).unwrap_or(&Value::Null);
        let right = number.is_some_and(|number| *stored == json!(number));
        let stored = if stored.is_null() { "no number".to_owned() } else { stored.to_string() };
        return (!right).then(|| format!("was answered {status}, and {stored} is stored"));
    }
    if before.map(Object::rv) != after.map(Object::rv) {
        return Some(format!("was answered {status}, but the object changed"));
    }
    (status >= 500).then(|| format!("was answered {status}: {}", answer.message()))
}

/// The request as text with the number as it is written.
async fn request(ctx: &Ctx, form: Form, field: &Field, name: &str, number: &str) -> anyhow::Result<Request> {
    let namespace = ctx.api.namespace().await?;
    let (method, media_type) = match form {
        Form::Post => (Method::POST, JSON),
        Form::Put => (Method::PUT, JSON),
        Form::Merge => (Method::PATCH, MERGE_PATCH),
        Form::JsonPatch => (Method::PATCH, JSON_PATCH),
        Form::Strategic => (Method::PATCH, STRATEGIC_PATCH),
        Form::Apply => (Method::PATCH, APPLY_PATCH),
    };
    let path = match form {
        Form::Post => field.resource.path(Some(namespace)),
        _ => object_path(field.resource, namespace, name),
    };
    let query = if form == Form::Apply { "fieldManager=range&force=true" } else { "" };
    let body = body(form, field, name).to_string().replace(PLACEHOLDER, number);
    Ok(Request::new(method, path).query(query).body(media_type, body))
}

/// The body with the placeholder instead of the number.
fn body(form: Form, field: &Field, name: &str) -> Value {
    let number: Value = PLACEHOLDER.trim_matches('"').into();
    let path = field.pointer.trim_start_matches('/').replace('/', ".");
    match form {
        Form::Post | Form::Put => base(field.resource, name).with(&path, number).0,
        Form::Apply => Object::new(field.resource, name).with(&path, number).0,
        Form::Merge | Form::Strategic => Object(json!({})).with(&path, number).0,
        Form::JsonPatch => json!([{"op": "add", "path": field.pointer, "value": number}]),
    }
}

fn base(resource: &Resource, name: &str) -> Object {
    if resource.kind != "Deployment" {
        return pod_template(name);
    }
    let template = json!({
        "metadata": {"labels": {"app": "range"}},
        "spec": {"containers": [{"name": "c", "image": "example.org/c:1"}]},
    });
    // Paused, so that no controller acts on it.
    Object::new(resource, name).with(
        "spec",
        json!({"paused": true, "replicas": 1, "selector": {"matchLabels": {"app": "range"}}, "template": template}),
    )
}

impl Form {
    fn text(self) -> &'static str {
        match self {
            Form::Post => "POST",
            Form::Put => "PUT",
            Form::Merge => "merge PATCH",
            Form::JsonPatch => "JSON patch",
            Form::Strategic => "strategic merge PATCH",
            Form::Apply => "apply",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_sent_as_it_is_written() {
        let field = &fields()[0];
        for form in DECODED.into_iter().chain(CONVERTED) {
            let text = body(form, field, "a").to_string().replace(PLACEHOLDER, "1e30");
            assert!(text.contains(":1e30"), "{form:?}: {text}");
        }
    }

    #[test]
    fn other_number_change_after_refusal_or_5xx_is_a_fault() {
        let object = |rv: &str, replicas: Value| {
            Object(json!({"metadata": {"resourceVersion": rv}, "spec": {"replicas": replicas}}))
        };
        let answer =
            |status| Response { status, headers: http::HeaderMap::new(), body: bytes::Bytes::from_static(b"{}") };
        let (one, two) = (object("1", json!(1)), object("2", json!(4_294_967_297_i64)));
        let zero = object("2", json!(0));
        for (status, after, number, right) in [
            (200, &two, Some(4_294_967_297), true),
            (200, &zero, Some(4_294_967_297), false),
            (200, &zero, None, false),
            (200, &object("2", Value::Null), None, false),
            (422, &one, None, true),
            (400, &zero, None, false),
            (500, &one, None, false),
        ] {
            let fault = fault(&answer(status), Some(&one), Some(after), "/spec/replicas", number);
            assert_eq!(fault.is_none(), right, "{status} {after}: {fault:?}");
        }
    }
}
