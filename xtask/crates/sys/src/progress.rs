//! Progress on stderr during long work: live lines on a terminal, timestamped lines elsewhere.
//!
//! Each piece of work has one live line. Parallel pieces have a [`Lane`] each: a named live line, and the name in front
//! of every line they print. Module `board` draws the lines on a terminal.

mod board;
mod lane;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use lane::{Entered, Lane};

/// Without a terminal, a running phase prints its status this often: silence looks like a hang.
const REMINDER: Duration = Duration::from_secs(30);

/// Prints a line above the live lines, in the lane of this thread.
pub fn say(line: &str) {
    Lane::current().say(line);
}

/// Writes machine-readable text: whole lines without a timestamp.
pub fn raw(text: &str) {
    board::raw(text);
}

/// Replaces the live line of this thread's lane. Does nothing if stderr is not a terminal.
pub fn live(line: &str) {
    Lane::current().live(line);
}

/// Removes all live lines, for an immediate exit of the process.
pub fn clear() {
    board::change(&[], |rows| rows.clear());
}

pub fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// `HH:MM:SS`, local time.
pub fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}

/// UTC, `YYYY-MM-DDTHH:MM:SS.mmmZ`: the format of every time in a run's files.
pub fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// "0.4 s", "12 s", "3 m 05 s".
pub fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{} m {:02} s", seconds / 60, seconds % 60),
    }
}

/// A phase of long work. Dropping it clears the live line of the lane in which it was started.
pub struct Phase {
    shared: Arc<Shared>,
    ticker: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    name: String,
    lane: Lane,
    begin: Instant,
    status: Mutex<String>,
    ended: AtomicBool,
}

impl Phase {
    pub fn start(name: impl Into<String>) -> Phase {
        let shared = Arc::new(Shared {
            name: name.into(),
            lane: Lane::current(),
            begin: Instant::now(),
            status: Mutex::new(String::new()),
            ended: AtomicBool::new(false),
        });
        let seen = Arc::clone(&shared);
        let ticker = std::thread::Builder::new().name("progress".into()).spawn(move || tick(&seen)).ok();
        Phase { shared, ticker }
    }

    /// Sets the current step, which is shown next to the name.
    pub fn status(&self, text: impl Into<String>) {
        *crate::lock(&self.shared.status) = text.into();
    }

    pub fn elapsed(&self) -> Duration {
        self.shared.begin.elapsed()
    }

    /// Ends the phase and prints a line with its result.
    pub fn done(self, result: &str) {
        let line = format!("{}: {result} ({})", self.shared.name, elapsed(self.elapsed()));
        let lane = self.shared.lane.clone();
        drop(self);
        lane.say(&line);
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            let _ = ticker.join();
        }
        self.shared.lane.live("");
    }
}

fn tick(shared: &Shared) {
    let mut reminded = Instant::now();
    while !shared.ended.load(Ordering::SeqCst) {
        let line = shared.line();
        if is_terminal() {
            shared.lane.live(&line);
        } else if reminded.elapsed() >= REMINDER {
            reminded = Instant::now();
            shared.lane.say(&line);
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

impl Shared {
    fn line(&self) -> String {
        let status = crate::lock(&self.status);
        let dot = if status.is_empty() { "" } else { " · " };
        format!("{}{dot}{status} · {}", self.name, elapsed(self.begin.elapsed()))
    }
}
