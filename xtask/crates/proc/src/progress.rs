//! What people see on stderr while something long runs: one live line on a terminal, timestamped lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Without a terminal a phase that goes on says so this often: silence looks like a hang.
const REMINDER: Duration = Duration::from_secs(30);

/// The live line at the bottom of the terminal, if any.
static LIVE: Mutex<String> = Mutex::new(String::new());

/// Prints a line above the live line.
pub fn say(line: &str) {
    let live = LIVE.lock().unwrap_or_else(|e| e.into_inner());
    let mut stderr = std::io::stderr().lock();
    // Nobody is left to tell when stderr is closed.
    let _ =
        if is_terminal() { write!(stderr, "\r\x1b[K{line}\n{live}") } else { writeln!(stderr, "{} {line}", clock()) };
    let _ = stderr.flush();
}

/// Replaces the live line; does nothing where stderr is no terminal.
pub fn live(line: &str) {
    let mut live = LIVE.lock().unwrap_or_else(|e| e.into_inner());
    if !is_terminal() || *live == line {
        return;
    }
    line.clone_into(&mut live);
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[K{line}");
    let _ = stderr.flush();
}

pub fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// `HH:MM:SS`, local time.
pub fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}

/// UTC, `YYYY-MM-DDTHH:MM:SS.mmmZ`: the form of every time in a run's files.
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

/// A piece of long work; dropping it clears the live line.
pub struct Phase {
    shared: Arc<Shared>,
    ticker: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    name: String,
    begin: Instant,
    status: Mutex<String>,
    ended: AtomicBool,
}

impl Phase {
    pub fn start(name: impl Into<String>) -> Phase {
        let shared = Arc::new(Shared {
            name: name.into(),
            begin: Instant::now(),
            status: Mutex::new(String::new()),
            ended: AtomicBool::new(false),
        });
        let seen = Arc::clone(&shared);
        let ticker = std::thread::Builder::new().name("progress".into()).spawn(move || tick(&seen)).ok();
        Phase { shared, ticker }
    }

    /// What is being done right now; shown beside the name.
    pub fn status(&self, text: impl Into<String>) {
        *self.shared.status.lock().unwrap_or_else(|e| e.into_inner()) = text.into();
    }

    pub fn elapsed(&self) -> Duration {
        self.shared.begin.elapsed()
    }

    /// Ends the phase with a line of its own.
    pub fn done(self, result: &str) {
        let line = format!("{}: {result} ({})", self.shared.name, elapsed(self.elapsed()));
        drop(self);
        say(&line);
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            let _ = ticker.join();
        }
        live("");
    }
}

fn tick(shared: &Shared) {
    let mut reminded = Instant::now();
    while !shared.ended.load(Ordering::SeqCst) {
        let line = shared.line();
        if is_terminal() {
            live(&line);
        } else if reminded.elapsed() >= REMINDER {
            reminded = Instant::now();
            say(&line);
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

impl Shared {
    fn line(&self) -> String {
        let status = self.status.lock().unwrap_or_else(|e| e.into_inner());
        let dot = if status.is_empty() { "" } else { " · " };
        format!("{}{dot}{status} · {}", self.name, elapsed(self.begin.elapsed()))
    }
}
