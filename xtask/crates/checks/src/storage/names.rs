//! Generated names, names that are similar, and invalid names.

use std::collections::BTreeSet;

use serde_json::json;

use suite::api::Request;
use suite::ctx::object_path;
use suite::object::ROLES;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.generate-name",
        place: here!(),
        level: Should,
        requirement: "metadata.generateName gives a name of that prefix, cut to 58 characters, and five characters of \
                      bcdfghjklmnpqrstvwxz2456789; the name is unique and is the last part of the key; a given name \
                      takes precedence.",
        source: "apiserver pkg/storage/names/generate.go, pkg/registry/rest/create.go",
        observed: "Forty objects created at once with one prefix, one with a prefix of 70 characters, one with a name \
                   too. The check compares names in the answers and keys in the store. It cannot provoke the 409 after \
                   eight collisions in a row: there are 14 million suffixes.",
        by_hand: "kubectl create -f - <<< '{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"generateName\":\"a-\"}}'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(generate_name),
    },
    Check {
        id: "storage.case-and-paths",
        place: here!(),
        level: Extra,
        requirement: "Names of up to 253 characters that differ in case, dots or other characters have separate keys \
                      that end with the unchanged name; namespaces whose names begin alike do not show each other's \
                      objects; `.`, `..`, and names with `/` or `%` are refused.",
        source: "apimachinery pkg/api/validation/path/name.go; apiserver pkg/storage/etcd3/store.go (prepareKey), \
                 pkg/registry/generic/registry/store.go (NamespaceKeyFunc)",
        observed: "Roles, whose names may be any path segment, and ConfigMaps in two namespaces, where one namespace's \
                   name is a prefix of the other's. The check reads each key and compares the lists.",
        by_hand: "kubectl create role A:b --verb=get --resource=pods; kubectl create role a:b …; etcdctl get --prefix \
                  /registry/roles/default/ --keys-only",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(case_and_paths),
    },
];

/// No vowels and no characters that look alike (apimachinery pkg/util/rand).
const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const LONGEST_PREFIX: usize = 58;

async fn generate_name(ctx: &Ctx) -> Verdict {
    let post = ctx.api.unrecorded_post(&CONFIG_MAPS).await?;
    let generated = |prefix: &str| post.clone().json(&json!({"metadata": {"generateName": prefix}}));
    // Marks the collection for the clean-up.
    ctx.api.create(&CONFIG_MAPS, &config_map("first")).await?;
    let request = generated("many-");
    let answers = futures::future::try_join_all((0..40).map(|_| ctx.api.send(&request))).await?;
    let mut names = BTreeSet::new();
    for answer in &answers {
        let object = answer.object()?;
        is_generated(object.name(), "many-").map_err(CheckError::failed)?;
        ctx.store.get(&CONFIG_MAPS, object.name()).await?;
        expect!(names.insert(object.name().to_owned()), "the name {} was generated twice", object.name());
    }
    let long = "l".repeat(70);
    let answer = ctx.api.send(&generated(&long)).await?;
    is_generated(answer.object()?.name(), &long[..LONGEST_PREFIX]).map_err(CheckError::failed)?;
    let named = json!({"metadata": {"name": "mine", "generateName": "many-"}});
    let answer = ctx.api.send(&post.json(&named)).await?;
    let named = answer.object()?;
    expect_eq!(named.name(), "mine", "name of an object with name and generateName");
    ctx.count("generated names", names.len() as u64 + 1);
    Ok(())
}

fn is_generated(name: &str, prefix: &str) -> Result<(), String> {
    let suffix = name.strip_prefix(prefix).ok_or_else(|| format!("`{name}` does not begin with `{prefix}`"))?;
    if suffix.len() == SUFFIX && suffix.chars().all(|c| ALPHABET.contains(c)) {
        return Ok(());
    }
    Err(format!("`{name}` does not end with {SUFFIX} characters of {ALPHABET}"))
}

async fn case_and_paths(ctx: &Ctx) -> Verdict {
    let longest = "n".repeat(253);
    let names = ["a.b", "a-b", "ab", "A.b", "a:b", "A:b", "a b", "é", "a..b", "...", longest.as_str()];
    for name in names {
        let answer = ctx.api.try_create(&ROLES, &Object::new(&ROLES, name)).await?;
        expect_eq!(answer.status, 201, "a Role named `{name}` was answered {answer}");
        let stored = ctx.store.get(&ROLES, name).await?;
        let seen = (stored.version, stored.mod_rev.cast_unsigned());
        let expected = (ctx.store.expected_key_version(&ROLES, 1), answer.object()?.rv());
        expect_eq!(seen, expected, "version and mod_revision at the key of `{name}`");
        ctx.count("names", 1);
    }
    let keys = ctx.store.list(&ROLES, 0).await?;
    expect_eq!(keys.len(), names.len(), "keys of {} Roles", names.len());
    ctx.api.create(&CONFIG_MAPS, &config_map(&longest)).await?;
    for (resource, name) in [
        (&*ROLES, "."),
        (&*ROLES, ".."),
        (&*ROLES, "a/b"),
        (&*ROLES, "a%b"),
        (&*CONFIG_MAPS, "A"),
        (&*CONFIG_MAPS, ".."),
        (&*CONFIG_MAPS, &format!("{longest}n")),
    ] {
        let post = ctx.api.unrecorded_post(resource).await?;
        let answer = ctx.api.send(&post.json(&Object::new(resource, name).0)).await?;
        expect!(answer.is(422, "Invalid"), "a {} named `{name}` was answered {answer}", resource.kind);
        ctx.count("refused names", 1);
    }
    let up = object_path(&CONFIG_MAPS, ctx.api.namespace().await?, "%2e%2e");
    let answer = ctx.api.send(&Request::get(up)).await?;
    expect!(answer.is(400, "BadRequest"), "a GET of the name `..` was answered {answer}");
    neighbours(ctx).await
}

/// A namespace whose name begins with the name of this case's namespace.
async fn neighbours(ctx: &Ctx) -> Verdict {
    let other = ctx.second_namespace("-a").await?;
    let verdict = strangers(ctx, &other).await;
    // The clean-up of this case removes the namespace, but not the objects in it.
    let cleared = other.api.clean_up().await;
    verdict.and(cleared.map_err(CheckError::from))
}

async fn strangers(ctx: &Ctx, other: &Ctx) -> Verdict {
    let own = ctx.api.namespace().await?;
    let created = other.api.try_create(&CONFIG_MAPS, &config_map("b")).await?;
    expect_eq!(created.status, 201, "a ConfigMap in {} was answered {created}", other.api.namespace().await?);
    let mine = ctx.api.create(&CONFIG_MAPS, &config_map("a-b")).await?;
    for (place, object) in [(ctx, &mine), (other, &created.object()?)] {
        let key = place.store.key(&CONFIG_MAPS, object.name()).await?;
        let stored = ctx.store.of(&CONFIG_MAPS).get(&key, 0).await?;
        expect_eq!(stored.map(|kv| kv.mod_rev.cast_unsigned()), Some(object.rv()), "mod_revision at {key}");
    }
    for (query, what) in [("", "a list"), ("resourceVersion=0", "a list from the cache"), ("limit=1", "a page")] {
        let listed = ctx.api.list(&CONFIG_MAPS, query).await?.items();
        let foreign = listed.iter().find(|object| object.namespace() != own);
        expect!(foreign.is_none(), "{what} of {own} shows an object of another namespace: {foreign:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_name_is_the_prefix_and_five_characters() {
        assert_eq!(is_generated("a-x5k2z", "a-"), Ok(()));
        for bad in ["a-", "a-x5k2", "a-x5k2zz", "b-x5k2z", "a-xak2z", "a-x1k2z", "a-X5k2z"] {
            assert!(is_generated(bad, "a-").is_err(), "{bad}");
        }
    }
}
