//! Reads of a sequence: single objects, tables, lists with selectors and versions, and lists in pages.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::generate::Draft;
use super::request::{CBOR, FIRST_VERSION, NEXT_PAGE, Request, Verb};
use super::schema::LABEL;
use crate::document::Document;

const SELECTORS: &[&str] = &[
    "a",
    "!a",
    "a=b",
    "a==b",
    "a!=b",
    "a in (b,c)",
    "a notin (b)",
    "a>1",
    "a<9223372036854775807",
    "a>9223372036854775808",
    "a>1e30",
    "a>1.5",
    "a>-1",
    "a in ()",
    "a=b=c",
    "a,,b",
    "é=x",
    "a in (b",
    "x/y/z=1",
    "",
];

const FIELDS: &[&str] = &[
    "metadata.name=a",
    "metadata.name!=a",
    "metadata.namespace=a",
    "spec.replicas=1",
    "status.phase=Running",
    "metadata.name=a,metadata.name=b",
    "a=\\,",
    "=",
    "metadata.name=é",
    "metadata.name>1",
];

const LIMITS: &[&str] = &["1", "0", "-1", "500", "9223372036854775807", "9223372036854775808", "1.0", "1e3", "x"];

/// A version of zero without a match is left out: the cache of the server may then answer with an older state. So is the
/// first version: whether a store still has it depends on its age.
const VERSIONS: &[&str] = &[
    "resourceVersion=@RV@&resourceVersionMatch=NotOlderThan",
    "resourceVersion=@RV@&resourceVersionMatch=Exact",
    "resourceVersion=@FIRST@&resourceVersionMatch=Exact",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersionMatch=Exact",
    "resourceVersion=@RV@&resourceVersionMatch=x",
    "resourceVersion=x",
    "resourceVersion=-1",
    "resourceVersion=18446744073709551616",
    "resourceVersion=1e3&resourceVersionMatch=NotOlderThan",
];

impl Draft<'_> {
    pub(super) fn read(&mut self) -> Request {
        match self.rng.u8(..6) {
            0 => Request::new(Verb::Table, self.object()),
            1 => self.list(Verb::Table),
            2 | 3 => self.list(Verb::List),
            _ => {
                let mut read = Request::new(Verb::Get, self.object());
                if self.chance(10) {
                    read.accept = CBOR;
                }
                read
            }
        }
    }

    fn list(&mut self, verb: Verb) -> Request {
        let mut request = Request::new(verb, self.collection());
        let own = format!("differential={LABEL}");
        let selector = if self.chance(40) { SELECTORS[self.rng.usize(..SELECTORS.len())] } else { "" };
        let selector = if selector.is_empty() { own } else { format!("{own},{selector}") };
        request.parameter(&suite::api::query(&[("labelSelector", &selector)]).replace("%40", "@"));
        if self.chance(20) {
            let fields = FIELDS[self.rng.usize(..FIELDS.len())];
            request.parameter(&suite::api::query(&[("fieldSelector", fields)]));
        }
        if self.chance(30) {
            request.parameter(&format!("limit={}", LIMITS[self.rng.usize(..LIMITS.len())]));
        }
        if self.chance(20) {
            request.parameter(VERSIONS[self.rng.usize(..VERSIONS.len())]);
        }
        request
    }

    /// A watch lasts a second, in which the same worker could send twenty requests.
    pub(super) fn watch(&mut self) -> Request {
        let mut watch = Request::new(Verb::Watch, self.collection());
        watch.parameter(&format!("watch=true&timeoutSeconds=1&resourceVersion={FIRST_VERSION}"));
        watch.parameter(&format!("labelSelector=differential%3D{LABEL}"));
        if self.chance(30) {
            watch.parameter("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
        }
        watch
    }

    /// Several objects, and lists of them in pages.
    pub(super) fn pages(&mut self, requests: &mut Vec<Request>) {
        let copies = self.rng.usize(2..6);
        for copy in 0..copies {
            let mut object = self.base.clone();
            if let Some(metadata) = object.member_mut("metadata") {
                metadata.set("name", Document::text(format!("{LABEL}-{copy}")));
            }
            requests.push(Request::new(Verb::Create, self.collection()).body(object));
        }
        let verb = if self.chance(30) { Verb::Table } else { Verb::List };
        let limit = self.rng.usize(1..4);
        let page = |query: &str, limit: usize| {
            let mut request = Request::new(verb, self.kind.resource.path(Some(LABEL)));
            request.parameter(&format!("labelSelector=differential%3D{LABEL}&limit={limit}{query}"));
            request
        };
        requests.push(page("", limit));
        let next = format!("&continue={NEXT_PAGE}");
        requests.push(page(&next, limit));
        if self.rng.bool() {
            requests.push(page(&next, limit + 1));
        } else {
            // A version and a token exclude each other.
            requests.push(page(&format!("{next}&resourceVersion=@RV@"), limit));
        }
        let delete = |copy| Request::new(Verb::Delete, format!("{}/{LABEL}-{copy}", self.collection()));
        let mut deletes: Vec<Request> = (0..copies).map(delete).collect();
        deletes.iter_mut().for_each(|delete| delete.parameter("gracePeriodSeconds=0"));
        requests.extend(deletes);
    }
}

/// Returns the token of a list that has a further page, and writes the content of the token in its place: the version
/// relative to the one of the list, and the key at which the next page begins.
pub(crate) fn read_token(list: &mut Document) -> Option<String> {
    let metadata = list.member_mut("metadata")?;
    let token = metadata.member("continue").and_then(Document::decoded).filter(|token| !token.is_empty())?;
    let number = |document: Option<&Document>| {
        let text = document.map(|value| value.decoded().unwrap_or_else(|| value.to_string()));
        text.and_then(|text| text.parse::<i64>().ok())
    };
    let content = URL_SAFE_NO_PAD.decode(&token).ok().and_then(|bytes| Document::parse_bytes(&bytes).ok());
    let shown = match content {
        Some(mut content) => {
            let own = number(content.member("rv"));
            let version = number(metadata.member("resourceVersion"));
            let offset = own.zip(version).map(|(own, version)| Document::Number((own - version).to_string()));
            content.set("rv", offset.unwrap_or(Document::Null));
            content
        }
        // A token of another format: at least its length is comparable.
        None => Document::text(format!("{} bytes", token.len())),
    };
    metadata.set("continue", shown);
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_shows_its_key_and_the_offset_of_its_version() {
        let token = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":17,"start":"a"}"#);
        let text = format!(r#"{{"metadata":{{"resourceVersion":"19","continue":"{token}"}}}}"#);
        let mut list = Document::parse(&text).unwrap();
        assert_eq!(read_token(&mut list), Some(token));
        let expected = r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#;
        assert_eq!(list.at(&["metadata", "continue"]).unwrap().to_string(), expected);
    }

    #[test]
    fn last_page_has_no_token() {
        let text = r#"{"metadata":{"continue":""}}"#;
        let mut list = Document::parse(text).unwrap();
        assert_eq!(read_token(&mut list), None);
        assert_eq!(list.to_string(), text);
    }
}
