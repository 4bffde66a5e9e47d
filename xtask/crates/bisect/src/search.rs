//! The search for the first bad commit, as a pure function of the verdicts so far. It runs nothing.

/// The verdict on one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// It says nothing about the check: it cannot be built, or fails for another reason.
    Skip,
}

/// What the search does next. Numbers are positions in the list of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Test(usize),
    /// The first bad commit: its parent is good.
    Found(usize),
    /// One of these commits is the first bad one: all but the last one were skipped.
    OneOf {
        first: usize,
        last: usize,
    },
    /// No good commit precedes a bad one: the ends of the list must have verdicts.
    Unbounded,
}

/// The next step for these verdicts, oldest commit first; None is a commit without a verdict.
///
/// A failure is proof, so the oldest bad commit bounds the search from above, even if a later commit was judged good by
/// mistake.
pub(crate) fn search(verdicts: &[Option<Verdict>]) -> Next {
    let Some((low, high)) = bounds(verdicts) else { return Next::Unbounded };
    let inside = low + 1..high;
    let untested: Vec<usize> = inside.clone().filter(|at| verdicts[*at].is_none()).collect();
    let skipped = inside.filter(|at| verdicts[*at] == Some(Verdict::Skip)).count();
    match (untested.is_empty(), high - low) {
        (false, _) => Next::Test(candidate(untested, low + (high - low) / 2, skipped)),
        (true, 1) => Next::Found(high),
        (true, _) => Next::OneOf { first: low + 1, last: high },
    }
}

/// About how many more commits the search tests, if none of them is skipped.
pub(crate) fn steps(verdicts: &[Option<Verdict>]) -> usize {
    let Some((low, high)) = bounds(verdicts) else { return 0 };
    let untested = (low + 1..high).filter(|at| verdicts[*at].is_none()).count();
    usize::try_from((untested + 1).next_power_of_two().trailing_zeros()).unwrap_or(usize::MAX)
}

/// The oldest bad commit, and the youngest good commit before it.
fn bounds(verdicts: &[Option<Verdict>]) -> Option<(usize, usize)> {
    let high = verdicts.iter().position(|verdict| *verdict == Some(Verdict::Bad))?;
    let low = verdicts[..high].iter().rposition(|verdict| *verdict == Some(Verdict::Good))?;
    Some((low, high))
}

/// The untested commit that is nearest to the middle. With each skipped commit the distance grows (0, 0, 1, 3, 6, …),
/// but never to the ends: commits that cannot be built are often neighbours, and the nearest ones would all be tried.
fn candidate(mut untested: Vec<usize>, middle: usize, skipped: usize) -> usize {
    untested.sort_by_key(|at| (at.abs_diff(middle), *at));
    let away = skipped.saturating_mul(skipped.saturating_sub(1)) / 2;
    untested[away.min(untested.len() * 3 / 4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a history with these answers until the end; returns the end and the number of tested commits.
    fn searched(length: usize, answer: impl Fn(usize) -> Verdict) -> (Next, usize) {
        let mut verdicts = vec![None; length];
        verdicts[0] = Some(Verdict::Good);
        verdicts[length - 1] = Some(Verdict::Bad);
        for tested in 0..=length {
            match search(&verdicts) {
                Next::Test(at) => {
                    assert!(verdicts[at].is_none(), "commit {at} is tested twice");
                    verdicts[at] = Some(answer(at));
                }
                end => return (end, tested),
            }
        }
        panic!("the search does not end");
    }

    fn history(culprit: usize) -> impl Fn(usize) -> Verdict {
        move |at| if at < culprit { Verdict::Good } else { Verdict::Bad }
    }

    #[test]
    fn every_culprit_of_every_length_is_found_in_logarithmic_steps() {
        for length in 2..70 {
            let most = (length - 1_usize).next_power_of_two().trailing_zeros() as usize;
            for culprit in 1..length {
                let (end, tested) = searched(length, history(culprit));
                assert_eq!(end, Next::Found(culprit), "length {length}");
                assert!(tested <= most, "length {length}, culprit {culprit}: {tested} tests");
            }
        }
    }

    #[test]
    fn single_commit_needs_no_test() {
        assert_eq!(searched(2, |_| panic!("it was tested")), (Next::Found(1), 0));
    }

    #[test]
    fn skipped_commits_leave_exactly_the_commits_that_they_hide() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..3000 {
            let length = random.usize(2..60);
            let culprit = random.usize(1..length);
            let share = random.f64();
            let skips: Vec<bool> = (0..length).map(|_| random.f64() < share).collect();
            let truth = history(culprit);
            let (end, _) = searched(length, |at| if skips[at] { Verdict::Skip } else { truth(at) });
            // The ends have verdicts, also if they were drawn as skipped.
            let decided = |at: &usize| !skips[*at] || *at == 0 || *at == length - 1;
            let low = (0..culprit).rev().find(decided).unwrap();
            let high = (culprit..length).find(decided).unwrap();
            let expected = if high == low + 1 { Next::Found(high) } else { Next::OneOf { first: low + 1, last: high } };
            assert_eq!(end, expected, "length {length}, culprit {culprit}, skips {skips:?}");
        }
    }

    #[test]
    fn history_of_skipped_commits_is_one_range() {
        let (end, tested) = searched(9, |_| Verdict::Skip);
        assert_eq!((end, tested), (Next::OneOf { first: 1, last: 8 }, 7));
    }

    #[test]
    fn search_leaves_a_broken_region_before_it_has_tried_all_of_it() {
        // 60 of 100 commits cannot be built.
        let (end, tested) = searched(100, |at| if (20..80).contains(&at) { Verdict::Skip } else { history(90)(at) });
        assert_eq!(end, Next::Found(90));
        assert!(tested < 25, "{tested} tests");
    }

    #[test]
    fn failure_wins_over_a_later_pass() {
        // Commit 5 is bad, but a race let it and commit 6 pass.
        let mut verdicts = vec![None; 10];
        for (at, verdict) in [(0, Verdict::Good), (4, Verdict::Bad), (6, Verdict::Good), (9, Verdict::Bad)] {
            verdicts[at] = Some(verdict);
        }
        assert_eq!(search(&verdicts), Next::Test(2));
    }

    #[test]
    fn passes_by_chance_move_the_result_only_to_later_commits() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..2000 {
            let length = random.usize(2..60);
            let culprit = random.usize(1..length);
            let flaky: Vec<bool> = (0..length).map(|_| random.u8(..4) == 0).collect();
            let (end, _) = searched(length, |at| if flaky[at] { Verdict::Good } else { history(culprit)(at) });
            let Next::Found(found) = end else { panic!("{end:?}") };
            assert!(found >= culprit, "{found} is before {culprit}");
        }
    }

    #[test]
    fn search_without_a_good_and_a_bad_end_tests_nothing() {
        for verdicts in [
            vec![],
            vec![None, Some(Verdict::Bad)],
            vec![Some(Verdict::Good), None],
            vec![Some(Verdict::Bad), Some(Verdict::Good)],
        ] {
            assert_eq!(search(&verdicts), Next::Unbounded, "{verdicts:?}");
            assert_eq!(steps(&verdicts), 0);
        }
    }

    #[test]
    fn steps_are_the_logarithm_of_the_untested_commits() {
        for (untested, expected) in [(0, 0), (1, 1), (2, 2), (3, 2), (7, 3), (8, 4)] {
            let mut verdicts = vec![None; untested + 2];
            verdicts[0] = Some(Verdict::Good);
            verdicts[untested + 1] = Some(Verdict::Bad);
            assert_eq!(steps(&verdicts), expected, "{untested} untested commits");
        }
    }
}
