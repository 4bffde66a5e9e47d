//! Entry points for the fuzz crate: each takes untrusted bytes and panics if a property of the parser does not hold.
//! Product code does not call them.

use model::Secret;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::compute::{self, Page, Server};
use crate::config::{self, Access, InDomain, Login, Named};
use crate::fault::Fault;
use crate::http::{Answer, Call};
use crate::keystone::Token;
use crate::{Microversion, keystone, lookup, mask, request, session};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("cloud-config", configuration), ("cloud-answers", answers), ("cloud-forms", forms)];

/// A `clouds.yaml` and, after a line `---`, a `secure.yaml`: an accepted file names an address to which secrets may go,
/// and no message contains a secret.
fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (clouds, secure) = text.split_once("---\n").map_or((&*text, None), |(clouds, secure)| (clouds, Some(secure)));
    for name in [None, Some("here")] {
        let access = config::entry("clouds.yaml", clouds, secure, name).and_then(|entry| {
            config::access(&entry, "clouds.yaml").and_then(|access| located(&access).map(|()| access))
        });
        match access {
            Ok(access) => logged_in(&access),
            Err(fault) => plain(&fault),
        }
    }
}

fn located(access: &Access) -> Result<(), Fault> {
    let url = keystone::url(access)?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    assert!(url.scheme() == "https" || url.scheme() == "http" && local, "secrets would go to {url}");
    assert!(url.username().is_empty() && url.password().is_none(), "the address has a secret");
    assert!(url.path().ends_with("/auth/tokens"), "{url}");
    Ok(())
}

/// The log-in request contains the secret, and is shown without it.
fn logged_in(access: &Access) {
    let body = keystone::body(&access.login);
    let secret = match &access.login {
        Login::ApplicationCredential { secret, .. } => secret,
        Login::Password { password, .. } => password,
    };
    assert!(mask::secrets(&body).contains(&secret.expose().to_owned()));
    assert!(mask::secrets(&mask::masked(&body)).iter().all(|shown| shown == "***"));
}

/// A message does not control a terminal.
fn plain(fault: &Fault) {
    assert!(!fault.text.chars().any(|c| c.is_control() && c != '\n'), "{:?}", fault.text);
}

/// A body of Keystone, Nova, Glance or Neutron: endpoints are addresses to which a token may go; messages do not
/// control a terminal and contain no token.
fn answers(bytes: &[u8]) {
    const TOKEN: &str = "a-token-of-this-session";
    let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let user = InDomain { name: Named::Name("u".into()), domain: None };
    let login = Login::ApplicationCredential {
        credential: Named::Id("c".into()),
        user: Some(user),
        secret: Secret::new("another-secret"),
    };
    let auth_url = "https://cloud.example.org/v3".into();
    let access = Access { auth_url, login, region: None, interface: "public".into(), ca: None };
    if let Ok(token) = Token::parse(&body) {
        for region in [None, Some("r".to_owned())] {
            let access = Access { region, ..access.clone() };
            match token.endpoint("compute", &access) {
                Ok(url) => endpoint(&url, token.project.as_ref().map(|project| project.id.as_str())),
                Err(fault) => plain(&fault),
            }
        }
    }
    for document in [&body, &body["version"]] {
        if let Ok(Some(agreed)) = Microversion::agreed(document, Microversion::NEWEST) {
            assert!(agreed <= Microversion::NEWEST);
            assert_eq!(agreed.to_string().parse::<Microversion>().ok(), Some(agreed));
        }
    }
    let servers = Page::deserialize(&body).map(|page| page.servers).unwrap_or_default();
    for server in servers.into_iter().chain(Server::deserialize(&body["server"])) {
        let reason = server.hopeless().unwrap_or_default();
        assert!(!reason.chars().any(|c| c.is_control() && c != '\n'), "{reason:?}");
    }
    let _ = (lookup::newest(&body, "i").map_err(|fault| plain(&fault)), compute::flavor_in(&body, "f"));
    for (path, what) in [("networks", "network"), ("security-groups", "security group")] {
        let _ = lookup::only(&body, path, what, "n").map_err(|fault| plain(&fault));
    }
    let url = Url::parse("https://cloud.example.org/servers").expect("an address");
    let call = Call::post("Nova: create", url, json!({ "server": { "user_data": TOKEN } }));
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::CONFLICT, StatusCode::BAD_GATEWAY] {
        let answer = Answer { status, retry_after: None, request_id: None, token: None, body: body.clone() };
        let message = session::message(&call, &answer, &Secret::new(TOKEN));
        assert!(!message.contains(TOKEN) && !message.is_empty(), "{message}");
    }
}

fn endpoint(url: &Url, project: Option<&str>) {
    assert!(matches!(url.scheme(), "https" | "http"));
    let version = compute::version_url(url, project);
    assert!(version.path().ends_with('/') && version.host_str() == url.host_str(), "{version} of {url}");
}

/// A file of answers of a form: keys are strings, and answers have no blanks at their ends.
fn forms(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match request::parse(text) {
        Ok(answers) => assert!(answers.values().all(|answer| answer.trim() == answer)),
        Err(wrong) => assert!(!wrong.is_empty()),
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
