//! Settings from the environment and from files, and what is refused.

use super::*;

fn settings(pairs: &[(&str, &str)]) -> Entry {
    let auth: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}: '{value}'")).collect();
    entry("clouds.yaml", &format!("clouds:\n  c: {{auth: {{{}}}}}\n", auth.join(", ")), None, None).unwrap()
}

#[test]
fn credential_has_precedence_over_password_and_region_is_optional() {
    let entry = settings(&[
        ("auth_url", "https://h.example.org/v3"),
        ("application_credential_id", "abc"),
        ("application_credential_secret", "planted"),
        ("username", "u"),
        ("password", "p"),
    ]);
    let access = access(&entry, "x").unwrap();
    let Login::ApplicationCredential { credential, .. } = &access.login else { panic!("{access:?}") };
    assert_eq!(*credential, Named::Id("abc".into()));
    assert_eq!((access.region.as_deref(), access.interface.as_str()), (None, "public"));
    assert!(!format!("{access:?}").contains("planted"), "{access:?}");
}

#[test]
fn missing_setting_is_named_with_its_variable() {
    let url = ("auth_url", "https://h.example.org/v3");
    for (pairs, part) in [
        (vec![], "OS_AUTH_URL"),
        (vec![url], "OS_APPLICATION_CREDENTIAL_ID"),
        (vec![url, ("application_credential_id", "a")], "OS_APPLICATION_CREDENTIAL_SECRET"),
        (vec![url, ("application_credential_name", "a"), ("application_credential_secret", "s")], "username"),
        (vec![url, ("username", "u")], "OS_PASSWORD"),
        (vec![url, ("username", "u"), ("password", "p")], "OS_PROJECT_NAME"),
        (vec![url, ("username", "u"), ("password", "p"), ("project_id", "x")], "OS_USER_DOMAIN_NAME"),
        (
            vec![url, ("username", "u"), ("password", "p"), ("user_domain_id", "d"), ("project_name", "x")],
            "OS_PROJECT_DOMAIN_NAME",
        ),
    ] {
        let error = access(&settings(&pairs), "the file").unwrap_err();
        assert!(error.text.starts_with("the file: ") && error.text.contains(part), "{error}, expected `{part}`");
    }
}

#[test]
fn unsafe_and_unknown_settings_are_refused() {
    let good =
        "auth: {auth_url: 'https://h.example.org', application_credential_id: a, application_credential_secret: s}";
    for (more, part) in [
        ("verify: false", "cacert"),
        ("profile: vexxhost", "profile"),
        ("auth_type: v3oidcpassword", "v3applicationcredential, v3password"),
    ] {
        let text = format!("clouds:\n  c:\n    {good}\n    {more}\n");
        let error = access(&entry("f", &text, None, None).unwrap(), "f").unwrap_err();
        assert!(error.text.contains(part), "{error}");
    }
}

#[test]
fn cloud_is_selected_by_name_and_secrets_may_be_in_a_separate_file() {
    let two = "clouds:\n  a: {auth: {auth_url: 'https://a'}}\n  b: {auth: {auth_url: 'https://b'}}\n";
    assert_eq!(entry("f", two, None, Some("b")).unwrap().auth.auth_url.unwrap(), "https://b");
    for (text, name, part) in [
        (two, None, "--os-cloud (a, b)"),
        (two, Some("c"), "it has: a, b"),
        ("clouds: {}\n", None, "names no cloud"),
        ("clouds: [planted]\n", None, "clouds.yaml"),
        ("a: b: c\n", None, "clouds.yaml"),
    ] {
        let error = entry("f", text, None, name).unwrap_err();
        assert!(error.text.contains(part) && !error.text.contains("planted"), "{error}, expected `{part}`");
    }
    let secure = "clouds:\n  a: {auth: {password: planted}}\n";
    let merged = entry("f", two, Some(secure), Some("a")).unwrap();
    assert_eq!(merged.auth.password.unwrap().expose(), "planted");
}
