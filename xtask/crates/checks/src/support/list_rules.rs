//! The documented answer to every combination of the list parameters. Pure: the check `list.matrix` sends the requests.
//! Rules: kubernetes.io API concepts, "Semantics for get and list"; KEP-2523 (match); KEP-365 (continue).

/// A list's parameters, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub(crate) version: Version,
    pub(crate) matching: Matching,
    pub(crate) limit: Limit,
    /// Whether it continues a first page with the same selector.
    pub(crate) continued: bool,
    pub(crate) selector: Selector,
}

/// `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    Unset,
    Zero,
    /// A version after which there were changes.
    Old,
    /// That of the last change.
    Current,
    Future,
    Garbage,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Matching {
    Unset,
    Exact,
    NotOlderThan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    None,
    /// Less than the number of matching objects.
    Small,
    /// More than the number of matching objects.
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Selector {
    None,
    Label,
    /// A field selector that matches several objects.
    Field,
    /// `metadata.name=x`, which kube-apiserver turns into a read of one key.
    Name,
}

/// The expected answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    Refused { status: u16, reason: &'static str },
    Answered { state: State, limit: Kept },
}

/// The revision whose state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// Not before the last acknowledged write.
    Latest,
    /// Any state that the store had.
    Any,
    /// The requested one or a later one.
    NotOlder,
    /// The requested one.
    Exact,
    /// That of the first page.
    FirstPage,
}

/// Whether the limit binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    /// The list has no limit.
    NoLimit,
    Always,
    /// At resourceVersion 0 a server may send everything.
    AtWill,
}

const INVALID: Promise = Promise::Refused { status: 422, reason: "Invalid" };
const BAD_REQUEST: Promise = Promise::Refused { status: 400, reason: "BadRequest" };
const TOO_LARGE: Promise = Promise::Refused { status: 504, reason: "Timeout" };

/// The promise for one combination.
pub(crate) fn promise(question: Question) -> Promise {
    let Question { version, matching, limit, continued, selector } = question;
    let without = version == Version::Unset || continued;
    if matching != Matching::Unset && without || matching == Matching::Exact && version == Version::Zero {
        return INVALID;
    }
    let state = match (version, matching) {
        (Version::Unset | Version::Zero, _) if continued => State::FirstPage,
        _ if continued => return BAD_REQUEST,
        (Version::Garbage, _) => return BAD_REQUEST,
        (Version::Future, _) => return TOO_LARGE,
        (Version::Unset, _) => State::Latest,
        (Version::Zero, _) => State::Any,
        (_, Matching::Exact) => State::Exact,
        (_, Matching::NotOlderThan) => State::NotOlder,
        // The documentation says Exact for each list with a limit. For a list of one name kube-apiserver reads one key
        // and ignores the limit (ValidateListOptions: `opts.Recursive && opts.Predicate.Limit > 0`): it shows the
        // present state. So this list has the rule of a list without a limit.
        (_, Matching::Unset) if limit == Limit::None || selector == Selector::Name => State::NotOlder,
        (_, Matching::Unset) => State::Exact,
    };
    let limit = match (limit, version) {
        (Limit::None, _) => Kept::NoLimit,
        (_, Version::Zero) => Kept::AtWill,
        _ => Kept::Always,
    };
    Promise::Answered { state, limit }
}

/// All combinations; a list of one name has no second page.
pub(crate) fn questions() -> Vec<Question> {
    use {Limit as L, Matching as M, Selector as S, Version as V};
    let mut all = Vec::new();
    for version in [V::Unset, V::Zero, V::Old, V::Current, V::Future, V::Garbage] {
        for matching in [M::Unset, M::Exact, M::NotOlderThan] {
            for limit in [L::None, L::Small, L::Large] {
                for selector in [S::None, S::Label, S::Field, S::Name] {
                    for continued in [false, true] {
                        if !(continued && selector == S::Name) {
                            all.push(Question { version, matching, limit, continued, selector });
                        }
                    }
                }
            }
        }
    }
    all
}

impl Promise {
    /// Its kind, for counting.
    pub(crate) fn kind(self) -> String {
        match self {
            Promise::Refused { status, .. } => format!("refused {status}"),
            Promise::Answered { state, .. } => format!("{state:?}"),
        }
    }
}

/// Every kind of promise. Some combination must have each of them.
pub(crate) const KINDS: [&str; 8] =
    ["refused 400", "refused 422", "refused 504", "Latest", "Any", "NotOlder", "Exact", "FirstPage"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use {Limit as L, Matching as M, Selector as S, Version as V};

    #[test]
    fn questions_are_complete_and_cover_every_kind_of_promise() {
        let all = questions();
        assert_eq!(all.len(), 6 * 3 * 3 * 2 * 3 + 6 * 3 * 3);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let kinds: BTreeSet<String> = all.iter().map(|question| promise(*question).kind()).collect();
        assert_eq!(kinds, KINDS.map(str::to_owned).into());
        let plain = all.iter().filter(|question| question.selector == S::None);
        let kinds: BTreeSet<String> = plain.map(|question| promise(*question).kind()).collect();
        assert_eq!(kinds.len(), KINDS.len());
    }

    #[test]
    fn promises_match_the_documentation() {
        let answered = |state, limit| Promise::Answered { state, limit };
        for (version, matching, limit, continued, expected) in [
            (V::Unset, M::Unset, L::None, false, answered(State::Latest, Kept::NoLimit)),
            (V::Unset, M::Unset, L::Small, false, answered(State::Latest, Kept::Always)),
            (V::Unset, M::Unset, L::Small, true, answered(State::FirstPage, Kept::Always)),
            (V::Unset, M::Exact, L::None, false, INVALID),
            (V::Unset, M::NotOlderThan, L::Large, true, INVALID),
            (V::Zero, M::Unset, L::None, false, answered(State::Any, Kept::NoLimit)),
            (V::Zero, M::Unset, L::Small, false, answered(State::Any, Kept::AtWill)),
            (V::Zero, M::NotOlderThan, L::None, false, answered(State::Any, Kept::NoLimit)),
            (V::Zero, M::Exact, L::None, false, INVALID),
            (V::Zero, M::Unset, L::None, true, answered(State::FirstPage, Kept::NoLimit)),
            (V::Zero, M::NotOlderThan, L::None, true, INVALID),
            (V::Old, M::Unset, L::None, false, answered(State::NotOlder, Kept::NoLimit)),
            (V::Old, M::Unset, L::Large, false, answered(State::Exact, Kept::Always)),
            (V::Old, M::NotOlderThan, L::Small, false, answered(State::NotOlder, Kept::Always)),
            (V::Old, M::Exact, L::None, false, answered(State::Exact, Kept::NoLimit)),
            (V::Current, M::Unset, L::Small, true, BAD_REQUEST),
            (V::Current, M::Exact, L::Small, true, INVALID),
            (V::Future, M::Unset, L::None, false, TOO_LARGE),
            (V::Future, M::Exact, L::Small, false, TOO_LARGE),
            (V::Future, M::Unset, L::None, true, BAD_REQUEST),
            (V::Garbage, M::NotOlderThan, L::None, false, BAD_REQUEST),
            (V::Garbage, M::Unset, L::None, true, BAD_REQUEST),
            (V::Garbage, M::Exact, L::None, true, INVALID),
        ] {
            let question = Question { version, matching, limit, continued, selector: S::Label };
            assert_eq!(promise(question), expected, "{question:?}");
        }
        let by_name =
            Question { version: V::Old, matching: M::Unset, limit: L::Small, continued: false, selector: S::Name };
        assert_eq!(promise(by_name), answered(State::NotOlder, Kept::Always));
    }
}
