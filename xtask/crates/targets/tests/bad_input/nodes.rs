//! The valid files about nodes: `node.yaml` and `kind.yaml`.

pub(crate) const NODE: &str = "\
packages: [runs, filters]
leave_out: [usr/share/*, '*.a']
modules: [block, bridge-one]
optional_modules: [sums]
disk:
  programs: [store]
  cni: [store]
  images: [store]
  files: {etc/hosts: one}
profile: default
memory: 100
apiserver: {flag: value}
identities:
  - {name: one, user: One, hosts: [one]}
  - {name: two, user: Two, own_ca: true}
files: {one.yaml: text}
prepare: |
  true
processes:
  - {name: first, component: store, early: true, flags: {a: '{run}/one.yaml'}, ready: https /ready, then: [[run, it]]}
  - {name: second, component: store, flags: {}, ready: http /ready}
objects:
  - {path: /api/v1/things, object: {a: [1, true, x]}}
ready:
  - {path: /api/v1/things/a, condition: Ready}
";

pub(crate) const KIND: &str = "\
set: store
base: images/base
executable: [bin/*]
packages: [runs]
leave_out: [usr/share/*]
programs: {usr/bin: [store]}
version_of: store
images: [store]
folders: [dev]
links: {usr/bin/a: b}
files: {etc/hosts: one}
env: [A=b]
stop_signal: SIGTERM
entrypoint: [/bin/store]
";
