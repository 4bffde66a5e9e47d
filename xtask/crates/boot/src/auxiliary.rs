//! Auxiliary parts of a control plane: tools, a spare empty etcd, and native copies of both for this machine if the
//! components are of another architecture.
//!
//! They start only when a check needs them, and the harness does not record them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use model::{Profile, ProfileStore, StoreInfo, StoreKind};

use crate::component::Component;
use crate::component_names;
use crate::flags::{self, Member, StorePorts, url};
use crate::host::{Host, Local, Program};
use crate::place::{Place, PortMapping, Root};
use crate::plan::Plan;

/// What control over a profile needs in addition to its components.
#[derive(Default)]
pub(crate) struct Auxiliary {
    /// Client URLs of the stores as seen by the components, and their peer URLs (`NAME-peer`).
    pub(crate) servers: BTreeMap<String, String>,
    /// URLs of the variants of the apiserver, by variant, as seen by the components.
    pub(crate) apiservers: BTreeMap<String, String>,
    pub(crate) spare: Option<StoreInfo>,
    /// Tools by component name.
    pub(crate) tools: BTreeMap<String, Program>,
    pub(crate) native: Option<Native>,
}

/// What runs on this machine although the components run elsewhere or through an emulator.
pub(crate) struct Native {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) store: StoreInfo,
    pub(crate) tools: BTreeMap<String, Program>,
}

impl Plan<'_> {
    /// `dir` is the host path of the profile's private folder.
    pub(crate) fn auxiliary(
        &self,
        profile: &Profile,
        dir: &Path,
        mut servers: BTreeMap<String, String>,
        on_demand: &mut Vec<Component>,
    ) -> anyhow::Result<Auxiliary> {
        let tools = self.tools(profile)?;
        let Some(name) = component_names::spare(profile) else {
            return Ok(Auxiliary { servers, tools, ..Auxiliary::default() });
        };
        let spare = Some(self.empty(name, dir, &mut servers, on_demand)?);
        let native = self.native(profile, dir, &mut servers, on_demand)?;
        Ok(Auxiliary { servers, spare, tools, native, ..Auxiliary::default() })
    }

    fn tools(&self, profile: &Profile) -> anyhow::Result<BTreeMap<String, Program>> {
        // Another name than the component's: the program may also be a component that runs.
        let program = |tool: &String| Ok((tool.clone(), self.program(format!("{}/tool-{tool}", profile.name), tool)?));
        profile.tools.iter().map(program).collect()
    }

    /// Adds an empty etcd, with its URLs as seen from the place where it runs: for clients and for other members.
    fn empty(
        &self,
        component: String,
        dir: &Path,
        servers: &mut BTreeMap<String, String>,
        on_demand: &mut Vec<Component>,
    ) -> anyhow::Result<StoreInfo> {
        let place = &self.place;
        let door = |name: &str| (place.port_mappings)(name);
        let (client, http) = (door(&component)?, door(&component_names::http(&component))?);
        let peer = door(&format!("{component}/peer"))?.inside;
        let name = component_names::short(&component).to_owned();
        let ports = StorePorts { client: client.inside, peer, http: http.inside };
        let member = Member::new(&name, &[(name.clone(), ports.clone())], place.factor);
        let store = ProfileStore {
            name: name.clone(),
            resources: Vec::new(),
            members: 1,
            earlier: 0,
            flags: BTreeMap::new(),
            kind: StoreKind::Etcd,
            wrapper: None,
        };
        let guest_path = place.root.in_guest(dir);
        let pki = self.pki.seen_from(&place.root);
        let flags = flags::store(&store, &member, &guest_path.join(&name), &ports, place.listen, &pki);
        on_demand.push(self.store(component, &store, flags, http.outside, &guest_path)?);
        servers.extend([(name.clone(), url(client.inside)), (format!("{name}-peer"), url(peer))]);
        Ok(StoreInfo {
            name,
            endpoint: url(client.outside),
            members: vec![url(client.outside)],
            tls: self.pki.admin.clone(),
            resources: Vec::new(),
            kind: StoreKind::Etcd,
            programs: Vec::new(),
        })
    }

    /// The same plan for this machine. Only its auxiliary parts are used.
    fn native(
        &self,
        profile: &Profile,
        dir: &Path,
        servers: &mut BTreeMap<String, String>,
        on_demand: &mut Vec<Component>,
    ) -> anyhow::Result<Option<Native>> {
        let Some(native) = &self.artifacts.native else { return Ok(None) };
        let host: Arc<dyn Host> = Arc::new(Local { process_registry: self.run.process_registry() });
        let port_mappings = |_: &str| sys::ports::free().map(|port| PortMapping { inside: port, outside: port });
        let place = Place {
            host: Arc::clone(&host),
            factor: 1.0,
            listen: "127.0.0.1",
            root: Root { host_path: self.run.private().to_owned(), guest_path: self.run.private().to_owned() },
            port_mappings: &port_mappings,
            command: &|artifact| (artifact.path.clone(), Vec::new()),
            width: 1,
        };
        let (target, artifacts) = (&native.target, &native.artifacts);
        let plan = Plan { target, artifacts, pki: self.pki, run: self.run, place, node: None };
        let store = plan.empty(component_names::native(profile), dir, servers, on_demand)?;
        Ok(Some(Native { host, store, tools: plan.tools(profile)? }))
    }
}
