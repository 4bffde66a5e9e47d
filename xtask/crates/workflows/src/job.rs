//! A CI job: its id and its command. The id alone decides the command, so that a developer's machine can run the job.

use model::{Mode, Quick, Target, Way};

/// The part of the checks that a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breadth {
    Whole,
    /// `quick` of `targets/matrix.yaml`.
    Quick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// GOARCH.
    pub arch: String,
    pub mode: Mode,
    /// Whether a self-hosted machine compiles harness and components, in addition to its prebuilt job.
    pub from_source: bool,
    pub breadth: Breadth,
    /// Number and count of the shard, from 1.
    pub shard: Option<(u32, u32)>,
}

impl Job {
    /// The jobs of one way to run an architecture.
    pub fn of(target: &Target, way: &Way, breadth: Breadth) -> Vec<Job> {
        // A build has no quick variant.
        let breadth = if way.mode == Mode::Build { Breadth::Whole } else { breadth };
        let (arch, mode, from_source) = (&target.name, way.mode, way.is_from_source());
        let job = |shard| Job { arch: arch.clone(), mode, from_source, breadth, shard };
        if way.shards == 1 || breadth == Breadth::Quick {
            return vec![job(None)];
        }
        (1..=way.shards).map(|i| job(Some((i, way.shards)))).collect()
    }

    /// Every job that any event can create, without duplicates.
    pub fn all(targets: &[Target]) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        for target in targets {
            for way in target.ci.iter().flat_map(|ci| &ci.ways) {
                for job in [Breadth::Whole, Breadth::Quick].into_iter().flat_map(|b| Job::of(target, way, b)) {
                    if !jobs.contains(&job) {
                        jobs.push(job);
                    }
                }
            }
        }
        jobs
    }

    /// `ARCH-vm-quick`, `ARCH-vm-1of2`: the name of the job in reports, artifacts and `--like-ci`. It does not name the
    /// runner, which may change. So `ARCH-native` is the best native job of an architecture, compiled on GitHub's runners
    /// and prebuilt on others; `ARCH-native-source` is the second one of a self-hosted runner.
    pub fn id(&self) -> String {
        let quick = if self.breadth == Breadth::Quick { "-quick" } else { "" };
        let shard = self.shard.map_or_else(String::new, |(i, n)| format!("-{i}of{n}"));
        let source = if self.from_source { "-source" } else { "" };
        format!("{}-{}{source}{quick}{shard}", self.arch, self.mode)
    }

    /// `--provider` of the run; None: the job only builds.
    pub fn provider(&self) -> Option<&'static str> {
        match self.mode {
            Mode::Native | Mode::User => Some("process"),
            Mode::Vm => Some("qemu"),
            Mode::Build => None,
        }
    }

    /// The arguments of `cargo xtask`.
    pub fn words(&self, quick: &Quick) -> Vec<String> {
        let mut words = match self.provider() {
            None => vec!["build", "--arch", &self.arch],
            Some(provider) => vec!["ci", "--arch", &self.arch, "--provider", provider],
        };
        let level = serde_json::to_value(quick.level).ok().and_then(|level| level.as_str().map(str::to_owned));
        if self.breadth == Breadth::Quick {
            words.extend(level.iter().flat_map(|level| ["--level", level]));
            words.extend(quick.profiles.iter().flat_map(|profile| ["--profile", profile]));
        }
        let shard = self.shard.map(|(i, n)| format!("{i}/{n}"));
        words.extend(shard.iter().flat_map(|shard| ["--shard", shard]));
        words.into_iter().map(str::to_owned).collect()
    }
}
