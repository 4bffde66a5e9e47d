//! The inputs of a control plane, and its parts: programs, components with their readiness probes, clients.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use model::{Artifacts, ProfileStore, StoreKind, StoreWrapper, Target, component_of, earlier_name};
use reqwest::blocking::Client;
use sys::RunDir;
use tls::Alpn;

use crate::component::{Component, Ready, Times};
use crate::flags::{self, Flags, url};
use crate::host::Program;
use crate::pki::Pki;
use crate::place::{NodeRequest, Place, artifact};

/// A native component is ready within 3 s; the limit allows for a machine that is busy with other work.
const START: Duration = Duration::from_secs(60);
/// Time between SIGTERM and SIGKILL.
///
/// It grows only with the square root of the factor, because it may pass in full: after SIGTERM an apiserver waits for
/// open watches up to its request timeout. With ten seconds multiplied by the factor, a check waited five minutes for
/// that. Without watches an apiserver ends within four seconds at a factor of 30.
const GRACE: Duration = Duration::from_secs(10);

/// The inputs of a control plane.
pub(crate) struct Plan<'a> {
    pub(crate) target: &'a Target,
    pub(crate) artifacts: &'a Artifacts,
    /// With the paths of this machine.
    pub(crate) pki: &'a Pki,
    pub(crate) run: &'a RunDir,
    pub(crate) place: Place<'a>,
    /// The node that turns one of the control planes into a complete cluster.
    pub(crate) node: Option<&'a NodeRequest>,
}

impl Plan<'_> {
    /// A member of a store. It starts with the oldest of the releases that it can run.
    pub(crate) fn store(
        &self,
        name: String,
        store: &ProfileStore,
        flags: Flags,
        port: u16,
        guest_path: &Path,
    ) -> anyhow::Result<Component> {
        let of = |program: &str| {
            let ready = format!("{}/readyz", url(port));
            let mut component = self.component(name.clone(), program, flags.clone(), ready)?;
            if let Some(wrapper) = &store.wrapper {
                self.wrap(&mut component.program, wrapper, guest_path)?;
            }
            // kine has no health endpoint.
            if store.kind == StoreKind::Etcd { Ok(component) } else { self.with_grpc_probe(component) }
        };
        let programs = store_programs(store);
        let mut component = of(programs.first().map_or(store.kind.component(), String::as_str))?;
        for program in programs {
            let Component { program: command, flags, .. } = of(&program)?;
            component.programs.insert(program, (command, flags));
        }
        anyhow::Ok(component)
    }

    /// Makes `wrapper` the program; it executes the original program.
    fn wrap(&self, program: &mut Program, wrapper: &StoreWrapper, guest_path: &Path) -> anyhow::Result<()> {
        let (path, arguments) = (self.place.command)(artifact(self.artifacts, &wrapper.component)?);
        // A program that runs in an emulator cannot execute another one that needs the emulator.
        if !arguments.is_empty() {
            return Ok(());
        }
        let wrapped = std::mem::replace(&mut program.path, path).display().to_string();
        let own = wrapper.arguments.iter().map(|argument| flags::fill(argument, guest_path, &BTreeMap::new()));
        let own = own.collect::<anyhow::Result<Vec<String>>>()?;
        program.args.splice(0..0, own.into_iter().chain([wrapped]));
        Ok(())
    }

    /// The component with a readiness probe at a store's port for gRPC. A gRPC server refuses a GET; kubeadm's etcd also
    /// answers HTTP there.
    pub(crate) fn with_grpc_probe(&self, mut component: Component) -> anyhow::Result<Component> {
        component.ready.client = self.client(Alpn::Http2)?;
        component.ready.expected = &[200, 415];
        Ok(component)
    }

    pub(crate) fn component(
        &self,
        name: String,
        program: &str,
        flags: Flags,
        ready: String,
    ) -> anyhow::Result<Component> {
        let times = Times { start: self.scaled(START), grace: GRACE.mul_f64(self.place.factor.sqrt().max(1.0)) };
        let ready =
            Ready { client: self.client(Alpn::Unset)?, url: ready, expected: &[200], factor: self.place.factor };
        let flags = flags::as_known(flags, artifact(self.artifacts, program)?);
        Ok(Component::new(self.program(name, program)?, flags, ready, times, self.place.host.clone()))
    }

    pub(crate) fn program(&self, name: String, program: &str) -> anyhow::Result<Program> {
        let (path, args) = (self.place.command)(artifact(self.artifacts, program)?);
        let (component, _) = component_of(program);
        let mut env = flags::environment(component, self.place.factor);
        env.extend(self.target.component_env.get(component).cloned().unwrap_or_default());
        let log = self.run.log(&name);
        Ok(Program { name, path, args, env, log })
    }

    /// A client for readiness probes.
    pub(crate) fn client(&self, alpn: Alpn) -> anyhow::Result<Client> {
        let config = tls::client(&self.pki.admin, alpn)?;
        Client::builder()
            .tls_backend_preconfigured(config)
            .no_proxy()
            .timeout(self.scaled(Duration::from_secs(5)))
            .build()
            .context("failed to create the client for readiness probes")
    }

    /// A deadline, multiplied by the factor.
    pub(crate) fn scaled(&self, limit: Duration) -> Duration {
        limit.mul_f64(self.place.factor)
    }
}

/// The programs that the members of a store can run, the oldest release first. Empty if they can run only one.
pub(crate) fn store_programs(store: &ProfileStore) -> Vec<String> {
    let minors = if store.earlier > 0 { 0..=store.earlier } else { return Vec::new() };
    minors.rev().map(|minors| earlier_name(store.kind.component(), minors)).collect()
}
