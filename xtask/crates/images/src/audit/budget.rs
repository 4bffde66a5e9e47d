//! The budget of the audit of one archive: bytes and visits, so that a small archive cannot keep it busy for hours.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use sys::interrupt::{self, Interrupted};

/// Visits that every archive is allowed.
const VISITS: u64 = 100_000;
/// A larger archive has more entries: one more visit for this many bytes of `--max-size`.
const BYTES_OF_A_VISIT: u64 = 4096;
/// Cost of an index, a manifest, a configuration or a layer, in visits: each is a file to open.
const FILE: u64 = 100;
/// Number of bytes of JSON that cost as much as one visit.
const JSON_OF_A_VISIT: u64 = 64;

/// Why an audit stops.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error("more than {0} bytes would have to be unpacked or read, the limit of the archive; see --max-size")]
    Bytes(u64),
    #[error(
        "more than {0} manifests, layers and entries would have to be examined, the limit of the archive; a larger \
         --max-size allows more"
    )]
    Visits(u64),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// The remaining budget. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Rc<Spent>);

#[derive(Debug, Default)]
struct Spent {
    max_size: u64,
    max_visits: u64,
    unpacked: Cell<u64>,
    read: Cell<u64>,
    visits: Cell<u64>,
    /// The limit that was reached first.
    exceeded: Cell<Option<Stop>>,
}

impl Budget {
    /// The budget for an archive whose layers may unpack to `max_size` bytes.
    pub(crate) fn of(max_size: u64) -> Budget {
        let max_visits = VISITS + max_size / BYTES_OF_A_VISIT;
        Budget(Rc::new(Spent { max_size, max_visits, ..Spent::default() }))
    }

    /// The limit that was reached, if any.
    pub(crate) fn exceeded(&self) -> Option<Stop> {
        self.0.exceeded.get()
    }

    /// Spends `count` visits.
    pub(crate) fn visit(&self, count: u64) -> Result<(), Stop> {
        let limit = self.0.max_visits;
        self.spend(&self.0.visits, count, limit, Stop::Visits(limit))
    }

    /// Spends the cost of opening a file of the archive.
    pub(crate) fn open(&self) -> Result<(), Stop> {
        self.visit(FILE)
    }

    /// Spends the cost of parsing JSON of this size.
    pub(crate) fn json(&self, size: u64) -> Result<(), Stop> {
        self.visit(FILE + size / JSON_OF_A_VISIT)
    }

    /// Spends bytes of unpacked layers.
    pub(crate) fn unpack(&self, bytes: u64) -> Result<(), Stop> {
        self.spend(&self.0.unpacked, bytes, self.0.max_size, Stop::Bytes(self.0.max_size))
    }

    /// Spends bytes of blobs in the archive, compressed or not: a list may name the same blob many times.
    pub(crate) fn read(&self, bytes: u64) -> Result<(), Stop> {
        self.spend(&self.0.read, bytes, self.0.max_size, Stop::Bytes(self.0.max_size))
    }

    /// A reader that spends budget for every byte.
    pub(crate) fn metered<R: Read>(&self, inner: R, spend: fn(&Budget, u64) -> Result<(), Stop>) -> Metered<R> {
        Metered { inner, budget: self.clone(), spend }
    }

    fn spend(&self, spent: &Cell<u64>, more: u64, limit: u64, stop: Stop) -> Result<(), Stop> {
        interrupt::check()?;
        spent.set(spent.get().saturating_add(more));
        if spent.get() <= limit {
            return Ok(());
        }
        self.0.exceeded.set(self.exceeded().or(Some(stop)));
        Err(stop)
    }
}

impl From<Stop> for io::Error {
    fn from(stop: Stop) -> io::Error {
        io::Error::other(stop)
    }
}

/// A reader that fails when its budget is exceeded.
pub(crate) struct Metered<R> {
    inner: R,
    budget: Budget,
    spend: fn(&Budget, u64) -> Result<(), Stop>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        (self.spend)(&self.budget, count as u64)?;
        Ok(count)
    }
}

/// Reads to the end and discards the content; checks for Ctrl-C.
pub(crate) fn drain(content: &mut impl Read) -> io::Result<()> {
    let mut buffer = [0; 1 << 16];
    loop {
        interrupt::check().map_err(io::Error::other)?;
        if content.read(&mut buffer)? == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_stops_at_the_budget_and_the_first_limit_is_reported() {
        for (limit, good) in [(10, true), (11, true), (9, false), (0, false)] {
            let budget = Budget::of(limit);
            let mut out = Vec::new();
            let result = budget.metered(&b"0123456789"[..], Budget::unpack).read_to_end(&mut out);
            assert_eq!((result.is_ok(), budget.exceeded().is_none()), (good, good), "{limit}: {result:?}");
        }
        let budget = Budget::of(5);
        budget.visit(VISITS + 1).unwrap_err();
        budget.unpack(6).unwrap_err();
        assert!(matches!(budget.exceeded(), Some(Stop::Visits(_))), "{budget:?}");
    }

    #[test]
    fn spending_cannot_overflow() {
        let budget = Budget::of(u64::MAX);
        budget.unpack(u64::MAX).unwrap();
        budget.unpack(u64::MAX).unwrap();
        budget.visit(u64::MAX).unwrap_err();
    }
}
