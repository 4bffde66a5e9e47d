//! Commands that send a request of a sequence manually, with the names of the first run: `$C` and `$K` are curl and kubectl
//! with the address and the certificates of a side.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::ProfileInfo;
use suite::api::{JSON, PROTOBUF};

use super::request::{Names, Request, Verb};
use super::side::Side;

/// Characters of a value in the text of the report; the JSON has all of it.
const SHOWN: usize = 600;
/// The file with the last object as protobuf.
const PROTOBUF_FILE: &str = "object.pb";

/// The values of `C` and `K`.
pub(crate) fn variables(profile: &ProfileInfo) -> [String; 2] {
    let [ca, cert, key] = [&profile.tls.ca, &profile.tls.cert, &profile.tls.key].map(|file| file.display());
    let server = &profile.apiserver;
    if let Some(token) = profile.token.as_ref().filter(|_| profile.tls.cert.as_os_str().is_empty()) {
        let token = token.display();
        return [
            format!("C=\"curl --cacert {ca} --oauth2-bearer $(cat {token})\""),
            format!("K='kubectl --kubeconfig {}'", profile.kubeconfig.display()),
        ];
    }
    [
        format!("C='curl --cacert {ca} --cert {cert} --key {key}'"),
        format!(
            "K='kubectl --server {server} --certificate-authority {ca} --client-certificate {cert} --client-key {key}'"
        ),
    ]
}

pub(crate) fn curl(profile: &ProfileInfo, request: &Request, names: &Names) -> String {
    let raw = Side::request(request, names, "");
    let question = if raw.query.is_empty() { "" } else { "?" };
    let mut command = format!("$C -X {} -H 'Accept: {}'", raw.method, raw.accept);
    let mut before = String::new();
    if raw.content_type == PROTOBUF {
        command.push_str(&format!(" -H 'Content-Type: {PROTOBUF}' --data-binary @{PROTOBUF_FILE}"));
    } else if raw.content_type.contains("cbor") && !raw.body.is_empty() {
        before = format!("base64 -d <<< {} | ", STANDARD.encode(&raw.body));
        command.push_str(&format!(" -H 'Content-Type: {}' --data-binary @-", raw.content_type));
    } else if !raw.body.is_empty() {
        let body = shown(&String::from_utf8_lossy(&raw.body));
        command.push_str(&format!(" -H 'Content-Type: {}' --data-binary {body}", raw.content_type));
    } else if raw.accept == PROTOBUF {
        command.push_str(&format!(" -o {PROTOBUF_FILE}"));
    }
    format!("{before}{command} '{}{}{question}{}'", profile.apiserver, raw.path, raw.query)
}

/// The request by kubectl. None if kubectl cannot send it: it writes neither YAML nor binary bodies as they are.
pub(crate) fn kubectl(request: &Request, names: &Names) -> Option<String> {
    let raw = Side::request(request, names, "");
    let question = if raw.query.is_empty() { "" } else { "?" };
    let url = format!("'{}{question}{}'", raw.path, raw.query);
    let body = shown(&String::from_utf8_lossy(&raw.body));
    let as_it_is = request.body.is_none() || raw.content_type == request.verb.media_type();
    let object = Place::of(&raw.path)?;
    let parameter = |name: &str| raw.query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let dry = parameter("dryRun").map_or("", |_| " --dry-run=server");
    let rest = match request.verb {
        _ if !as_it_is => return None,
        Verb::Get | Verb::List | Verb::Watch if raw.accept == JSON => format!("get --raw {url}"),
        Verb::Get | Verb::List | Verb::Watch => return None,
        Verb::Seats => format!("get --raw {}", raw.path),
        Verb::Table => format!("get{}", object.words()),
        Verb::Create => format!("create --raw {url} -f - <<< {body}"),
        Verb::Replace => format!("replace --raw {url} -f - <<< {body}"),
        Verb::Delete => format!("delete --raw {url}"),
        Verb::JsonPatch => format!("patch{}{dry} --type json -p {body}", object.words()),
        Verb::MergePatch => format!("patch{}{dry} --type merge -p {body}", object.words()),
        Verb::StrategicPatch => format!("patch{}{dry} --type strategic -p {body}", object.words()),
        Verb::Apply => {
            let force = parameter("force").map_or("", |_| " --force-conflicts");
            let manager = parameter("fieldManager").unwrap_or("archproof");
            let subresource = object.subresource();
            format!("apply --server-side --field-manager {manager}{force}{dry}{subresource} -f - <<< {body}")
        }
    };
    Some(format!("$K {rest}"))
}

/// The part of a text that a report shows.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The same as one word of a shell.
fn shown(text: &str) -> String {
    format!("'{}'", short(text).replace('\'', "'\\''"))
}

/// What the path of a request names.
struct Place<'a> {
    namespace: Option<&'a str>,
    /// `deployments.v1.apps`, as kubectl wants it.
    resource: String,
    name: Option<&'a str>,
    subresource: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Option<Place<'a>> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{version}.{group}"), rest),
            rest => (String::new(), rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let plural = rest.first()?;
        // The core group has no name, and kubectl needs none.
        let resource = if version.contains('.') { format!("{plural}.{version}") } else { (*plural).to_owned() };
        Some(Place { namespace, resource, name: rest.get(1).copied(), subresource: rest.get(2).copied() })
    }

    /// ` -n NAMESPACE RESOURCE NAME --subresource NAME`.
    fn words(&self) -> String {
        let namespace = self.namespace.map(|name| format!(" -n {name}")).unwrap_or_default();
        let name = self.name.map(|name| format!(" {name}")).unwrap_or_default();
        format!("{namespace} {}{name}{}", self.resource, self.subresource())
    }

    fn subresource(&self) -> String {
        self.subresource.map(|name| format!(" --subresource {name}")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_becomes_words_of_kubectl() {
        for (path, words) in [
            ("/api/v1/namespaces/a/pods/b/resize", " -n a pods b --subresource resize"),
            ("/api/v1/namespaces/a", " namespaces a"),
            ("/api/v1/namespaces/a/status", " namespaces a --subresource status"),
            ("/apis/apps/v1/namespaces/a/deployments", " -n a deployments.v1.apps"),
            ("/apis/node.k8s.io/v1/runtimeclasses/b", " runtimeclasses.v1.node.k8s.io b"),
            ("/metrics", " metrics"),
        ] {
            assert_eq!(Place::of(path).unwrap().words(), words);
        }
    }

    #[test]
    fn body_is_one_word() {
        assert_eq!(shown("{\"a\":\"it's\"}"), "'{\"a\":\"it'\\''s\"}'");
    }
}
