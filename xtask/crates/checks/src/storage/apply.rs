//! Server-side apply: field owners, conflicts, and refusals.

use serde_json::{Value, json};

use crate::support::assertions::{changes, only_put_at};
use suite::api::{APPLY_PATCH, Response};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.managed-fields-ssa",
    place: here!(),
    level: Should,
    requirement: "An apply of another value to a field that another manager owns is answered 409 Conflict with a cause \
                  FieldManagerConflict; with force=true the field changes its value and owner; with the same value \
                  both managers own the field; a field that its last owner leaves out is removed. The same apply again \
                  writes nothing. Without fieldManager it is 422, with metadata.managedFields 400.",
    source: "apimachinery pkg/util/managedfields/internal (conflict.go, fieldmanager.go), \
             pkg/apis/meta/v1/validation/validation.go (ValidatePatchOptions); KEP-555",
    observed: "Two managers apply to a ConfigMap and to a custom resource, step by step. The check compares the \
               answers with their reasons, messages, causes and owners, and at the end the raw history of the key, \
               which must have no other write.",
    by_hand: "kubectl apply --server-side --field-manager=a -f x.yaml; change a value; kubectl apply --server-side \
              --field-manager=b -f x.yaml (conflict); --force-conflicts; kubectl get -o yaml --show-managed-fields",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: scenario!(managed_fields_ssa),
}];

async fn managed_fields_ssa(ctx: &Ctx) -> Verdict {
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    for resource in [&*CONFIG_MAPS, &fruits] {
        two_managers(ctx, resource).await?;
        refused(ctx, resource).await?;
    }
    Ok(())
}

async fn two_managers(ctx: &Ctx, resource: &Resource) -> Verdict {
    let step = |manager: &'static str, data: Value, force: bool| async move {
        let body = Object::new(resource, "a").with("data", data).0;
        let query = format!("fieldManager={manager}&force={force}");
        ctx.api.try_patch(resource, "a", APPLY_PATCH, &body, &query).await
    };
    let good = |answer: Response, what: &str| -> Verdict<Object> {
        expect!(answer.is_success(), "{what} was answered {answer}");
        ctx.count("applies", 1);
        Ok(answer.object()?)
    };
    let created = good(step("a", json!({"k": "1"}), false).await?, "the first apply")?;
    owned(&created, "k", &["a"])?;
    let again = good(step("a", json!({"k": "1"}), false).await?, "the same apply again")?;
    expect_eq!(again.rv(), created.rv(), "resourceVersion after the same apply");

    conflicts(&step("b", json!({"k": "2"}), false).await?)?;
    let stored = ctx.store.get(resource, "a").await?;
    expect_eq!(stored.mod_rev.cast_unsigned(), created.rv(), "mod_revision after a conflict");

    let shared = good(step("b", json!({"k": "1"}), false).await?, "an apply of the same value by another manager")?;
    owned(&shared, "k", &["a", "b"])?;
    let forced = good(step("b", json!({"k": "2"}), true).await?, "a forced apply")?;
    owned(&forced, "k", &["b"])?;
    expect_eq!(forced.0["data"]["k"], json!("2"), "the field after a forced apply");
    let removed = good(step("b", json!({"l": "3"}), false).await?, "an apply without the field")?;
    owned(&removed, "k", &[])?;
    expect_eq!(removed.0["data"], json!({"l": "3"}), "data after its owner left a field out");

    let revisions = [&created, &shared, &forced, &removed].map(Object::rv);
    only_put_at(&changes(ctx, resource, "a", &removed).await?, &revisions)
}

/// Exactly these managers must own `data.<field>`.
fn owned(object: &Object, field: &str, expected: &[&str]) -> Verdict {
    let entries = object.0["metadata"]["managedFields"].as_array().into_iter().flatten();
    let of_field = entries.filter(|entry| !entry["fieldsV1"]["f:data"][format!("f:{field}")].is_null());
    let mut owners: Vec<&str> = of_field.filter_map(|entry| entry["manager"].as_str()).collect();
    owners.sort_unstable();
    expect_eq!(owners, expected, "managers that own data.{field} of {object}");
    Ok(())
}

fn conflicts(answer: &Response) -> Verdict {
    expect!(answer.is(409, "Conflict"), "an apply of another manager's field was answered {answer}");
    let conflict = "Apply failed with 1 conflict: conflict with \"a\": .data.k";
    expect_eq!(answer.message(), conflict, "message of the conflict");
    let cause = json!([{"reason": "FieldManagerConflict", "message": "conflict with \"a\"", "field": ".data.k"}]);
    expect_eq!(answer.json()["details"]["causes"], cause, "causes of the conflict");
    Ok(())
}

async fn refused(ctx: &Ctx, resource: &Resource) -> Verdict {
    let body = Object::new(resource, "a").with("data.k", "4");
    let answer = ctx.api.try_patch(resource, "a", APPLY_PATCH, &body.0, "").await?;
    expect!(answer.is(422, "Invalid"), "an apply without fieldManager was answered {answer}");
    let required = "fieldManager: Required value: is required for apply patch";
    expect!(answer.message().ends_with(required), "an apply without fieldManager says `{}`", answer.message());

    let managed = body.with("metadata.managedFields", json!([]));
    let answer = ctx.api.try_patch(resource, "a", APPLY_PATCH, &managed.0, "fieldManager=a").await?;
    expect!(answer.is(400, "BadRequest"), "an apply with managedFields was answered {answer}");
    expect_eq!(answer.message(), "metadata.managedFields must be nil", "message of an apply with managedFields");
    ctx.count("refused applies", 2);
    Ok(())
}
