//! The same work on several things at once, on threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` for each of `items`, at most `width` at a time; nothing new is begun after the first error.
/// What is done is dropped when something fails.
pub fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    width: usize,
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(item);
            let failed = result.is_err();
            done.push(result);
            if failed {
                next.store(items.len(), Ordering::Relaxed);
            }
        }
        done
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..width.max(1)).map(|_| scope.spawn(work)).collect();
        let results =
            threads.into_iter().flat_map(|thread| thread.join().expect("a panic in one thread is one of the whole"));
        // Collected before the first error is looked for, so that every component is dropped, and thereby ended.
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn nothing_is_begun_after_an_error() {
        let mut done = side_by_side(&[1, 2, 3, 4, 5], 2, |n| Ok(n * 2)).unwrap();
        done.sort_unstable();
        assert_eq!(done, [2, 4, 6, 8, 10]);
        let begun = AtomicUsize::new(0);
        let failed = side_by_side(&[0; 100], 1, |_| {
            if begun.fetch_add(1, Ordering::Relaxed) == 2 {
                bail!("the third");
            }
            Ok(())
        });
        assert_eq!((failed.unwrap_err().to_string().as_str(), begun.into_inner()), ("the third", 3));
    }
}
