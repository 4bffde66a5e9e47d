//! Servers that lose data while many clients write and watch.

use super::tools::{each_event, is_marker};
use super::{Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "stress.event-lost": "A watch among many writers loses an event." => "stress.memory-order" on "stress",
        || each_event(|n, event| if n == 25 && !is_marker(&event) { vec![] } else { vec![event] });
};
