//! Options that choose among upstream's own specs.

use clap::Args as ClapArgs;

#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct UpstreamOptions {
    /// With --suite upstream: run specs whose text matches this Go regular expression; may be repeated [default:
    /// conformance of sig-api-machinery]
    #[arg(long, value_name = "REGEX")]
    pub(crate) focus: Vec<String>,
    /// With --suite upstream: skip specs whose text matches this Go regular expression; may be repeated
    #[arg(long, value_name = "REGEX")]
    pub(crate) skip: Vec<String>,
}

impl UpstreamOptions {
    /// The options as command-line arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let lists = [("--focus", &self.focus), ("--skip", &self.skip)];
        lists.iter().flat_map(|(name, all)| all.iter().flat_map(|one| [(*name).to_owned(), one.clone()])).collect()
    }
}
