//! Named live lines, and which one a thread writes to.

use std::cell::RefCell;
use std::sync::Arc;

use super::board::{self, Row};
use crate::origin;

thread_local! {
    static CURRENT: RefCell<Lane> = RefCell::default();
}

/// One of several parallel pieces of work: its own live line, and a name in front of every line it prints.
///
/// A thread starts in the lane without a name, and does not inherit the lane of the thread that started it. A thread
/// that prints on behalf of another must [`enter`](Lane::enter) the lane that the other got from [`Lane::current`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane(Arc<str>);

/// The thread is in the lane until this value is dropped.
pub struct Entered(Lane);

impl Lane {
    /// Opens a live line below the existing ones. It stays until it is closed; without text it shows only its name.
    pub fn open(name: &str) -> Lane {
        let lane = Lane(name.into());
        board::change(&[], |rows| rows.push(Row { name: name.to_owned(), text: String::new() }));
        lane
    }

    /// The lane of this thread.
    pub fn current() -> Lane {
        CURRENT.with_borrow(Lane::clone)
    }

    /// Assigns everything that this thread prints, and each phase that it starts, to the lane.
    pub fn enter(&self) -> Entered {
        Entered(CURRENT.replace(self.clone()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Prints a line above the live lines, with the name in front of each line of a longer text.
    pub fn say(&self, line: &str) {
        board::change(&self.named(&origin::typed(line)), |_| {});
    }

    fn named(&self, text: &str) -> Vec<String> {
        if self.0.is_empty() || text.is_empty() {
            return vec![text.to_owned()];
        }
        text.lines().map(|line| format!("{}: {line}", self.0)).collect()
    }

    /// Replaces the lane's live line. Does nothing if stderr is not a terminal or the lane is closed.
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
    fn every_line_has_the_name_of_its_lane() {
        assert_eq!(Lane("one".into()).named("a\n b"), ["one: a", "one:  b"]);
        assert_eq!(Lane::default().named("a\nb"), ["a\nb"]);
    }

    #[test]
    fn thread_is_in_one_lane_and_its_children_in_none() {
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
