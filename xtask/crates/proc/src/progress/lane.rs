//! Named live lines, and which of them a thread writes to.

use std::cell::RefCell;
use std::sync::Arc;

use super::board::{self, Row};

thread_local! {
    static CURRENT: RefCell<Lane> = RefCell::default();
}

/// One of several pieces of work that run side by side: a live line of its own, and a name in front of what it says.
///
/// A thread begins in the lane without a name. What it starts in turn does not inherit its lane: a thread that says
/// something for another one must [`enter`](Lane::enter) the lane that it got from [`Lane::current`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane(Arc<str>);

/// The thread is in the lane while this lives.
pub struct Entered(Lane);

impl Lane {
    /// Opens a live line below those that exist. It stays, with its name alone when there is nothing to tell, until it
    /// is closed.
    pub fn open(name: &str) -> Lane {
        let lane = Lane(name.into());
        board::change(&[], |rows| rows.push(Row { name: name.to_owned(), text: String::new() }));
        lane
    }

    /// The one in which this thread is.
    pub fn current() -> Lane {
        CURRENT.with_borrow(Lane::clone)
    }

    /// Makes everything that this thread says, and each phase that it starts, belong to the lane.
    pub fn enter(&self) -> Entered {
        Entered(CURRENT.replace(self.clone()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Prints a line above the live lines; the name is in front of each line of a longer text.
    pub fn say(&self, line: &str) {
        board::change(&self.named(line), |_| {});
    }

    fn named(&self, text: &str) -> Vec<String> {
        if self.0.is_empty() || text.is_empty() {
            return vec![text.to_owned()];
        }
        text.lines().map(|line| format!("{}: {line}", self.0)).collect()
    }

    /// Replaces the lane's live line; does nothing where stderr is no terminal, or when the lane is closed.
    pub fn live(&self, line: &str) {
        board::change(&[], |rows| match rows.iter_mut().find(|row| row.name == *self.0) {
            Some(row) => line.clone_into(&mut row.text),
            None if self.0.is_empty() => rows.push(Row { name: String::new(), text: line.to_owned() }),
            None => {}
        });
    }

    /// Removes the live line.
    pub fn close(&self) {
        board::change(&[], |rows| rows.retain(|row| row.name != *self.0));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_reads_a_line_knows_whose_it_is() {
        assert_eq!(Lane("one".into()).named("a\n b"), ["one: a", "one:  b"]);
        assert_eq!(Lane::default().named("a\nb"), ["a\nb"]);
    }

    #[test]
    fn a_thread_is_in_one_lane_at_a_time_and_its_children_in_none() {
        assert_eq!(Lane::current(), Lane::default());
        let (outer, inner) = (Lane("outer".into()), Lane("inner".into()));
        let _outer = outer.enter();
        {
            let _inner = inner.enter();
            assert_eq!(Lane::current(), inner);
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(Lane::current(), Lane::default()));
            });
        }
        assert_eq!(Lane::current(), outer);
    }
}
