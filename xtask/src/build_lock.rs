//! A lock for work that only one architecture may do at a time.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use sys::deadline::{OnInterrupt, Probe, WaitError, until};
use sys::progress;

/// The owner of the guard may work.
#[derive(Default)]
pub(crate) struct BuildLock(Mutex<()>);

impl BuildLock {
    /// Waits for the lock, or for Ctrl-C. There is no timeout here, because the work of the owner has its own
    /// deadlines.
    pub(crate) fn take(&self, what: &str) -> Result<MutexGuard<'_, ()>, WaitError> {
        let waits = format!("waits for {what}");
        until(what, Duration::MAX, Duration::from_millis(100), OnInterrupt::Stop, || match self.0.try_lock() {
            Ok(guard) => Probe::Ready(guard),
            // The lock protects no data that a panic could have left incomplete.
            Err(TryLockError::Poisoned(poisoned)) => Probe::Ready(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                progress::live(&waits);
                Probe::NotYet("another architecture holds the lock".into())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn lock_is_exclusive_and_survives_a_panic() {
        let lock = BuildLock::default();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _guard = lock.take("the lock").unwrap();
                panic!("while the lock is held");
            });
            assert!(panics.join().is_err());
            for _ in 0..3 {
                scope.spawn(|| {
                    let _guard = lock.take("the lock").unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }
}
