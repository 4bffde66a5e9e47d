//! Kubeconfigs that are accepted, and those that are refused with advice.

use super::*;

const PEM: &str = "-----BEGIN CERTIFICATE-----\n";

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// A complete kubeconfig, with the content of the cluster and of the user in flow style.
fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n"
    )
}

fn good_cluster() -> String {
    format!("server: 'https://h:6443/', certificate-authority-data: {}", encoded(PEM))
}

fn parse(text: &str) -> Result<Access, String> {
    Access::parse(text, Path::new("/nowhere"), None).map_err(|error| format!("{error:#}"))
}

#[test]
fn token_or_certificate_is_accepted() {
    let access = parse(&config(&good_cluster(), "token: abc")).unwrap();
    assert_eq!((access.server.as_str(), access.ca.as_slice()), ("https://h:6443", PEM.as_bytes()));
    assert_eq!(access.identity, Identity::Token("abc".into()));
    let both = format!("token: abc, client-certificate-data: {0}, client-key-data: {0}", encoded(PEM));
    let access = parse(&config(&good_cluster(), &both)).unwrap();
    assert_eq!(access.identity, Identity::Certificate { cert: PEM.into(), key: PEM.into() });
    // kubectl does not run an `exec` either if the user has inline credentials.
    assert!(parse(&config(&good_cluster(), "token: abc, exec: {command: x}")).is_ok());
    assert!(parse(&config(&format!("{}, insecure-skip-tls-verify: false", good_cluster()), "token: abc")).is_ok());
}

#[test]
fn files_are_relative_to_the_kubeconfig() {
    let dir = sys::Scratch::temporary("kubeconfig").unwrap();
    dir.write("pki/ca.crt", PEM);
    dir.write("token", "abc\n");
    let text = config("server: 'https://h', certificate-authority: pki/ca.crt", "token: old, tokenFile: token");
    let file = dir.write("config", text);
    let access = Access::read(&file, None).unwrap();
    assert_eq!((access.ca, access.identity), (PEM.as_bytes().to_vec(), Identity::Token("abc".into())));
    std::fs::remove_file(&file).unwrap();
    let error = format!("{:#}", Access::read(&file, None).unwrap_err());
    assert!(error.contains("failed to read the kubeconfig"), "{error}");
}

#[test]
fn context_is_chosen_by_name() {
    let text = config(&good_cluster(), "token: abc");
    let of = |text: &str, name| Access::parse(text, Path::new(""), name).map_err(|error| format!("{error:#}"));
    assert_eq!(of(&text, Some("a")).unwrap().context, "a");
    let error = of(&text, Some("b")).unwrap_err();
    assert!(error.contains("no context `b`; the existing ones are: a"), "{error}");
    let error = of(&text.replace("current-context: a", ""), None).unwrap_err();
    assert!(error.contains("no current-context: choose one of these with --context: a"), "{error}");
    let error = of("{}", Some("a")).unwrap_err();
    assert!(error.contains("the existing ones are: none"), "{error}");
}

#[test]
fn unsupported_or_malformed_credentials_are_refused() {
    let data = encoded(PEM);
    for (cluster, user, words) in [
        (good_cluster(), "exec: {command: aws}".to_owned(), ["`u`", "kubectl create token"]),
        (good_cluster(), "exec: {command: aws}".into(), ["gets its credentials from a program", "`exec`"]),
        (good_cluster(), "auth-provider: {name: gcp}".into(), ["`auth-provider`", "not supported"]),
        (good_cluster(), "username: a, password: b".into(), ["password", "`username`"]),
        (good_cluster(), "token: a, as: admin".into(), ["`u`", "impersonates another user"]),
        (good_cluster(), String::new(), ["`u`", "neither a client certificate nor a token"]),
        (good_cluster(), "token: 'a b'".into(), ["`u`", "an HTTP header cannot contain"]),
        (good_cluster(), format!("client-certificate-data: {data}"), ["client-certificate", "no client-key"]),
        (good_cluster(), format!("client-key-data: {data}"), ["client-key", "no client-certificate"]),
        (
            good_cluster(),
            "client-certificate: no.crt, client-key: no.key".into(),
            ["failed to read", "/nowhere/no.crt"],
        ),
        (good_cluster(), "tokenFile: no".into(), ["tokenFile", "/nowhere/no"]),
        (good_cluster(), "client-key-data: '%%'".into(), ["`client-key-data`", "not base64"]),
        (
            format!("server: 'https://h', certificate-authority-data: {}", encoded("x")),
            "token: a".into(),
            ["`certificate-authority-data`", "not PEM"],
        ),
        ("server: 'https://h'".into(), "token: a".into(), ["`c`", "no certificate-authority"]),
        ("server: 'http://h'".into(), "token: a".into(), ["`http://h`", "not an https address"]),
        (
            format!("{}, insecure-skip-tls-verify: true", good_cluster()),
            "token: a".into(),
            ["insecure-skip-tls-verify", "certificate-authority"],
        ),
        (format!("{}, proxy-url: 'http://p'", good_cluster()), "token: a".into(), ["`proxy-url`", "`c`"]),
        (format!("{}, tls-server-name: x", good_cluster()), "token: a".into(), ["`tls-server-name`", "`c`"]),
    ] {
        let error = parse(&config(&cluster, &user)).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{cluster} {user}: {error}");
    }
    let error = parse("- a\n").unwrap_err();
    assert!(error.contains("not a kubeconfig"), "{error}");
    let error = parse(&config(&good_cluster(), "token: a").replace("user: u}", "user: v}")).unwrap_err();
    assert!(error.contains("no user `v`; the existing ones are: u"), "{error}");
}
