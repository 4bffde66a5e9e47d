//! A guest with its agent: clock, timers, memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use sys::deadline::{OnInterrupt, Probe, until};

use super::vm::{Ports, Vm};
use crate::agent::{ANSWER, Agent, AgentHost, AgentMachine};

/// How long a restored guest may take to start its timers: it takes a few milliseconds, more on a busy host, or never
/// happens.
const REVIVAL: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const SEED: usize = 64;

/// A guest whose first process is the agent.
pub(crate) struct Guest {
    machine: Arc<Machine>,
    pub(crate) agent: Arc<Agent>,
}

/// The place of the agent.
struct Machine {
    vm: Vm,
    ended_by_us: AtomicBool,
}

impl AgentMachine for Machine {
    fn name(&self) -> &str {
        "the guest"
    }

    fn first_failure(&self) -> Option<String> {
        if self.ended_by_us.load(Ordering::SeqCst) { None } else { self.vm.first_failure() }
    }

    fn end(&self) {
        self.ended_by_us.store(true, Ordering::SeqCst);
        self.vm.kill();
    }
}

impl Guest {
    /// The guest need not have booted yet: see [`Guest::wait_for_agent`].
    pub(crate) fn new(vm: Vm, ports: Ports) -> anyhow::Result<Guest> {
        let machine = Arc::new(Machine { vm, ended_by_us: AtomicBool::new(false) });
        let host: Arc<dyn AgentMachine> = machine.clone();
        let agent = Arc::new(Agent::new(host, ports.control, Some(ports.logs))?);
        Ok(Guest { machine, agent })
    }

    pub(crate) fn vm(&self) -> &Vm {
        &self.machine.vm
    }

    pub(crate) fn host(&self) -> AgentHost {
        AgentHost(Arc::clone(&self.agent))
    }

    /// Waits until the guest's first process says hello. Fails early if the console is silent for `silence`.
    pub(crate) fn wait_for_agent(&self, limit: Duration, silence: Duration) -> anyhow::Result<()> {
        until("the guest's first process to say hello", limit, LOOK_EVERY, OnInterrupt::Stop, || {
            if self.agent.has_greeted() {
                return Probe::Ready(());
            }
            if let Some(cause) = self.vm().first_failure() {
                return Probe::Hopeless(anyhow!("the guest did not boot: {cause}"));
            }
            let (quiet, last) = self.vm().console.silence();
            if quiet > silence {
                let seconds = quiet.as_secs();
                return Probe::Hopeless(anyhow!(
                    "the guest did not boot: its console has been silent for {seconds} s; the last line was `{last}`"
                ));
            }
            Probe::NotYet(format!("the console's last line was `{last}`"))
        })?;
        Ok(())
    }

    /// Sets the clock and gives the kernel fresh random bytes.
    pub(crate) fn set_clock(&self) -> anyhow::Result<()> {
        self.clock(false, ANSWER)
    }

    /// Sets the clock in a guest whose timers were lost, so that the kernel starts them again.
    pub(crate) fn restart_timers(&self) -> anyhow::Result<()> {
        self.clock(true, REVIVAL)
    }

    fn clock(&self, lost_timers: bool, limit: Duration) -> anyhow::Result<()> {
        let mut seed = [0_u8; SEED];
        if SystemRandom::new().fill(&mut seed).is_err() {
            bail!("failed to seed the guest: the system's random source returned an error");
        }
        let now = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
        let (now, data) = (i64::try_from(now)?, STANDARD.encode(seed));
        let request = json!({ "do": "clock", "unix_nanos": now, "lost_timers": lost_timers, "data": data });
        self.agent.ask(request, limit)?;
        Ok(())
    }

    /// Sets, for processes that start from now on, how late their timers may fire so that they fire together with
    /// others, and how long a process keeps its CPU before another one gets it.
    pub(crate) fn set_timer_slack(&self, late: Duration, slice: Duration) -> anyhow::Result<()> {
        let (late, slice) = (u64::try_from(late.as_millis())?, u64::try_from(slice.as_millis())?);
        self.agent.ask(json!({ "do": "patience", "late_millis": late, "millis": slice }), ANSWER)?;
        Ok(())
    }

    /// Makes a timer fire on every CPU. The error lists the CPUs on which none fired within `limit`.
    pub(crate) fn check_timers(&self, limit: Duration) -> anyhow::Result<()> {
        let request = json!({ "do": "timers", "millis": u64::try_from(limit.as_millis())? });
        let answer = self.agent.ask_with(request, limit * 2, OnInterrupt::Stop)?;
        let millis = answer["millis"].as_array().cloned().unwrap_or_default();
        let dead: Vec<usize> =
            millis.iter().enumerate().filter(|(_, m)| m.as_f64() < Some(0.0)).map(|(n, _)| n).collect();
        if millis.is_empty() || !dead.is_empty() {
            bail!("no timer fires on the CPUs {dead:?} of {}", millis.len());
        }
        Ok(())
    }

    /// Drops caches, so that a snapshot is smaller.
    pub(crate) fn trim(&self) -> anyhow::Result<()> {
        self.agent.ask(json!({ "do": "trim" }), ANSWER)?;
        Ok(())
    }
}
