//! Requests as etcd logs them with `--log-level=debug`, and the shapes that an apiserver may use.

use serde_json::Value;

use crate::support::compaction::COMPACTED;

/// One unary request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    /// `KV/Range`, `Lease/LeaseGrant`.
    pub(crate) method: String,
    /// The address of its connection.
    pub(crate) remote: String,
    /// The message as text; empty if etcd does not log it.
    pub(crate) content: String,
    /// Whether etcd answered it. etcd does not log the content of a transaction that it refuses, for example because
    /// the lease in it has expired (server etcdserver/api/v3rpc/interceptor.go, logUnaryRequestStats). Such a
    /// transaction is the first request of an apiserver that slept longer than its own lease lasts.
    pub(crate) is_answered: bool,
}

/// The requests in a log of JSON lines.
pub(crate) fn logged(log: &str) -> Vec<Logged> {
    let lines = log.lines().filter(|line| line.contains("\"request stats\""));
    let requests = lines.filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |field: &str| line[field].as_str().map(str::to_owned);
        let method = text("response type")?.trim_start_matches("/etcdserverpb.").to_owned();
        let content = plain(&text("request content")?);
        Some(Logged { method, remote: text("remote")?, content, is_answered: line["response size"] != 0 })
    });
    requests.collect()
}

/// The message as etcd 3.6 writes it. 3.7 leaves out zero values, escapes in hexadecimal, may write braces instead of
/// angle brackets, and one or two spaces between fields (google.golang.org/protobuf internal/encoding/text varies this
/// so that no program relies on it).
fn plain(content: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    let mut rest = content.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' if quoted => {
                let escaped = rest.next();
                let digits: String = rest.as_str().chars().take(2).collect();
                match (escaped, u8::from_str_radix(&digits, 16)) {
                    (Some('x'), Ok(byte)) => {
                        out.push_str(&format!("\\{byte:03o}"));
                        rest = rest.as_str()[digits.len()..].chars();
                    }
                    (escaped, _) => out.extend(std::iter::once(c).chain(escaped)),
                }
            }
            '"' => {
                quoted = !quoted;
                out.push(c);
            }
            ' ' if !quoted && out.ends_with(' ') => {}
            '{' if !quoted => out.push('<'),
            '}' if !quoted => out.push('>'),
            _ => out.push(c),
        }
    }
    out.replace("compare:<key:", "compare:<target:VERSION key:")
}

impl Logged {
    /// The text of each `key:`, with escapes as logged.
    pub(crate) fn keys(&self) -> Vec<&str> {
        let (word, content) = ("key:\"", &self.content);
        let begins = |at: &usize| matches!(content[..*at].chars().next_back(), None | Some(' ' | '<'));
        let places = content.match_indices(word).map(|(at, _)| at).filter(begins);
        places.filter_map(|at| content[at + word.len()..].split('"').next()).collect()
    }

    /// The first key and the end of a range.
    pub(crate) fn range(&self) -> Option<(&str, &str)> {
        let end = self.content.split_once("range_end:\"")?.1.split('"').next()?;
        Some((*self.keys().first()?, end))
    }

    /// The kind of request; the error names what no apiserver may ask for.
    pub(crate) fn shape(&self) -> Result<&'static str, String> {
        match self.method.as_str() {
            "KV/Range" => self.read(),
            "KV/Txn" if !self.is_answered && self.content.is_empty() => Ok("refused, and not in the log"),
            "KV/Txn" => self.transaction(),
            "KV/Compact" => Ok("compactions"),
            "Lease/LeaseGrant" => Ok("leases"),
            "Maintenance/Status" => Ok("looks at the status"),
            method => Err(format!("{method} is not part of the contract")),
        }
    }

    fn read(&self) -> Result<&'static str, String> {
        for word in ["sort_", "_mod_revision:", "_create_revision:", "serializable:"] {
            if self.content.contains(word) {
                return Err(format!("a read with {word}"));
            }
        }
        let Some((from, end)) = self.range() else { return Ok("reads of a key") };
        let path = end.strip_suffix('0').ok_or("a range that does not end at the end of a path")?;
        // A later page begins after a key below the path.
        let below =
            from.strip_prefix(path).is_some_and(|rest| rest == "/" || rest.starts_with('/') && rest.ends_with("\\000"));
        if below { Ok("reads of a path") } else { Err("a range that is not of one path".into()) }
    }

    fn transaction(&self) -> Result<&'static str, String> {
        let count = |word: &str| self.content.matches(word).count();
        let keys = self.keys();
        if keys.iter().any(|key| *key != keys[0]) {
            return Err("a transaction of several keys".into());
        }
        if count("compare:<target:") != 1 {
            return Err(format!("a transaction with {} comparisons", count("compare:<target:")));
        }
        let by_version = keys.first() == Some(&COMPACTED);
        if count(if by_version { "target:VERSION" } else { "target:MOD" }) != 1 {
            return Err("a transaction that compares something else than the last change".into());
        }
        let (_, failure) = self.content.split_once("failure:<").unwrap_or_default();
        if failure.contains("request_put") || failure.contains("request_delete_range") || count("request_range:<") > 1 {
            return Err("a transaction that does more than read when it fails".into());
        }
        match (count("request_put:<"), count("request_delete_range:<"), count("range_end:")) {
            (1, 0, 0) => Ok("puts"),
            (0, 1, 0) => Ok("deletions"),
            (puts, deletes, _) => Err(format!("a transaction with {puts} puts and {deletes} deletions")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, content: &str) -> Logged {
        Logged { method: method.into(), remote: "127.0.0.1:1".into(), content: content.into(), is_answered: true }
    }

    #[test]
    fn requests_are_read_from_a_log() {
        let log = concat!(
            r#"{"level":"debug","msg":"applying"}"#,
            "\n",
            r#"{"msg":"request stats","remote":"127.0.0.1:1","response type":"/etcdserverpb.KV/Range","#,
            r#""request content":"key:\"a\" range_end:\"b\" limit:5 "}"#,
            "\nno JSON \"request stats\"\n",
        );
        assert_eq!(logged(log), [request("KV/Range", "key:\"a\" range_end:\"b\" limit:5 ")]);
    }

    #[test]
    fn refused_transaction_has_no_content() {
        let line = |size: i32| {
            let known = r#""msg":"request stats","remote":"127.0.0.1:1","response type":"/etcdserverpb.KV/Txn","request content":"""#;
            logged(&format!("{{{known},\"response size\":{size}}}")).remove(0)
        };
        assert!(line(0).shape().is_ok());
        // Without comparisons, but answered.
        assert!(line(27).shape().is_err());
        assert!(Logged { is_answered: false, ..request("KV/Put", "") }.shape().is_err());
        assert!(
            Logged { is_answered: false, ..request("KV/Range", "key:\"/r/a\" sort_order:DESCEND ") }.shape().is_err()
        );
    }

    #[test]
    fn messages_of_other_etcd_versions_are_converted_to_those_of_3_6() {
        for (content, expected) in [
            (r#"key:"/r/a\x00"  range_end:"/r0"  limit:2"#, r#"key:"/r/a\000" range_end:"/r0" limit:2"#),
            (r#"key:"a  {b} \\x00 \"  c" limit:5 "#, r#"key:"a  {b} \\x00 \"  c" limit:5 "#),
            (
                r#"compare:<key:"k"  version:0> success:<request_put:<key:"k" value_size:1 >> failure:<request_range:{key:"k"}>"#,
                r#"compare:<target:VERSION key:"k" version:0> success:<request_put:<key:"k" value_size:1 >> failure:<request_range:<key:"k">>"#,
            ),
        ] {
            assert_eq!(plain(content), expected);
        }
        let deletion = r#"compare:<target:MOD  key:"/r/a"  mod_revision:6> success:<request_delete_range:{key:"/r/a"}> failure:<request_range:{key:"/r/a"}>"#;
        let page = r#"key:"/r/e/b\x00"  range_end:"/r/e0"  limit:2  revision:288"#;
        assert_eq!(request("KV/Txn", &plain(deletion)).shape(), Ok("deletions"));
        assert_eq!(request("KV/Range", &plain(page)).shape(), Ok("reads of a path"));
        let two = deletion.replacen(
            "request_delete_range:{",
            "request_delete_range:{key:\"/r/a\"}  request_delete_range:{",
            1,
        );
        assert!(request("KV/Txn", &plain(&two)).shape().is_err());
    }

    const PUT: &str = "compare:<target:MOD key:\"/r/a\" mod_revision:0 > success:<request_put:<key:\"/r/a\" value_size:1 >> \
                       failure:<request_range:<key:\"/r/a\" > >";

    #[test]
    fn known_requests_have_a_shape() {
        for (method, content, shape) in [
            ("KV/Range", "key:\"/r/configmaps/n/a\" ", "reads of a key"),
            (
                "KV/Range",
                "key:\"/r/configmaps/\" range_end:\"/r/configmaps0\" limit:500 revision:7 ",
                "reads of a path",
            ),
            ("KV/Range", "key:\"/r/configmaps/n/b\\000\" range_end:\"/r/configmaps/n0\" limit:2 ", "reads of a path"),
            ("KV/Txn", PUT, "puts"),
            (
                "KV/Txn",
                "compare:<target:MOD key:\"/r/a\" mod_revision:5 > success:<request_delete_range:<key:\"/r/a\" > > failure:<>",
                "deletions",
            ),
            (
                "KV/Txn",
                "compare:<target:VERSION key:\"compact_rev_key\" version:0 > success:<request_put:<key:\"compact_rev_key\" \
                 value_size:1 >> failure:<request_range:<key:\"compact_rev_key\" > >",
                "puts",
            ),
            ("KV/Compact", "", "compactions"),
            ("Lease/LeaseGrant", "", "leases"),
        ] {
            assert_eq!(request(method, content).shape(), Ok(shape), "{content}");
        }
        assert_eq!(request("KV/Txn", PUT).keys(), ["/r/a"; 3]);
    }

    #[test]
    fn all_other_requests_are_refused() {
        for (method, content) in [
            ("KV/Put", ""),
            ("KV/DeleteRange", ""),
            ("Lease/LeaseRevoke", ""),
            ("KV/Range", "key:\"/r/a\" range_end:\"/r/b\" "),
            ("KV/Range", "key:\"/r/configmaps/\" range_end:\"/r/secrets0\" "),
            ("KV/Range", "key:\"/r/configmaps\" range_end:\"/r/configmaps0\" "),
            ("KV/Range", "key:\"/r/a\" sort_order:DESCEND "),
            ("KV/Txn", &PUT.replacen("MOD", "VERSION", 1)),
            ("KV/Txn", &PUT.replacen("/r/a", "/r/b", 1)),
            ("KV/Txn", &PUT.replace("request_range", "request_put")),
            ("KV/Txn", &PUT.replace("compare:<target:MOD key:\"/r/a\" mod_revision:0 > ", "")),
            (
                "KV/Txn",
                &PUT.replace(" > failure", " > compare:<target:MOD key:\"/r/a\" > failure")
                    .replace(">> ", ">> compare:<target:MOD key:\"/r/a\" > "),
            ),
        ] {
            assert!(request(method, content).shape().is_err(), "{method} {content}");
        }
    }
}
