//! Runs the same work on several items in parallel, on threads; and values that threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Locks a value, also one that a panicking thread has left.
pub fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(|e| e.into_inner())
}

/// Does `work` for each of `items`, at most `width` at a time. After the first error no further item is started, and
/// finished results are dropped.
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
        let results = threads.into_iter().flat_map(|thread| thread.join().expect("a worker thread must not panic"));
        // Collect all results before looking for the first error, so that every component is dropped and thereby
        // stopped.
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn no_work_starts_after_an_error() {
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
