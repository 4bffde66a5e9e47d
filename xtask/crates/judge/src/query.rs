//! The parameters of a recorded read that determine the state of the answer.

/// The parameters of a GET or LIST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Query<'a> {
    /// None also for an empty value, which means the same to kube-apiserver.
    pub(super) resource_version: Option<&'a str>,
    pub(super) version_match: Option<&'a str>,
    /// `limit` or `continue` was sent.
    pub(super) paged: bool,
    pub(super) continued: bool,
    pub(super) selects: bool,
    pub(super) dry_run: bool,
}

impl<'a> Query<'a> {
    pub(super) fn parse(text: &'a str) -> Query<'a> {
        let mut query = Query::default();
        for pair in text.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if value.is_empty() {
                continue;
            }
            match name {
                "resourceVersion" => query.resource_version = Some(value),
                "resourceVersionMatch" => query.version_match = Some(value),
                "limit" => query.paged |= value != "0",
                "continue" => {
                    query.paged = true;
                    query.continued = true;
                }
                "labelSelector" | "fieldSelector" => query.selects = true,
                "dryRun" => query.dry_run = true,
                _ => {}
            }
        }
        query
    }

    /// The resource version as a number; None if it is unset or not a number.
    pub(super) fn number(&self) -> Option<u64> {
        self.resource_version?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_queries_as_sent() {
        let plain = Query::default();
        for (text, expected) in [
            ("", plain),
            ("resourceVersion=", plain),
            ("resourceVersion=0", Query { resource_version: Some("0"), ..plain }),
            (
                "resourceVersionMatch=Exact&resourceVersion=17&limit=5",
                Query { resource_version: Some("17"), version_match: Some("Exact"), paged: true, ..plain },
            ),
            ("limit=0", plain),
            ("limit=2&continue=abc%3D", Query { paged: true, continued: true, ..plain }),
            ("labelSelector=a%3Db", Query { selects: true, ..plain }),
            ("fieldManager=x&dryRun=All", Query { dry_run: true, ..plain }),
        ] {
            assert_eq!(Query::parse(text), expected, "`{text}`");
        }
        assert_eq!(Query::parse("resourceVersion=17").number(), Some(17));
        assert_eq!(Query::parse("resourceVersion=abc").number(), None);
    }
}
