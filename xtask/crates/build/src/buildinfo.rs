//! The build information that Go's linker writes into every program; `go version -m FILE` prints it.
//!
//! Format: Go's src/debug/buildinfo/buildinfo.go. Only the format with inline strings (Go 1.18 and later) is supported.

use std::collections::BTreeMap;

pub(crate) const MAGIC: &[u8] = b"\xff Go buildinf:";
/// The magic is followed by the pointer size, the flags, and padding up to here.
pub(crate) const HEADER: usize = 32;
const FLAGS_AT: usize = 15;
const INLINE_STRINGS: u8 = 2;
pub(crate) const ALIGNMENT: usize = 16;
/// The linker puts 16 bytes before and after the module text, so that it can be found without the header.
const SENTINEL: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildInfo {
    /// "go1.26.8".
    pub(crate) go: String,
    /// Import path of the main package.
    pub(crate) path: String,
    /// The module of the main package.
    pub(crate) module: Module,
    /// The versions of the other modules, by path; empty for a module that a folder replaces.
    pub(crate) dependencies: BTreeMap<String, String>,
    /// GOARCH, CGO_ENABLED, -trimpath, -ldflags and so on.
    pub(crate) settings: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) path: String,
    /// "(devel)" if the program was built in its own source tree.
    pub(crate) version: String,
}

/// Finds and reads the build information in `data`, the section `.go.buildinfo` or the start of the data segment.
pub(crate) fn parse(data: &[u8]) -> Result<Option<BuildInfo>, String> {
    let aligned = data.chunks(ALIGNMENT).position(|chunk| chunk.starts_with(MAGIC));
    let Some(header) = aligned.map(|index| &data[index * ALIGNMENT..]) else { return Ok(None) };
    match header.get(FLAGS_AT) {
        Some(flags) if flags & INLINE_STRINGS != 0 => {}
        Some(_) => return Err("the Go build information has the format used before Go 1.18".to_owned()),
        None => return Err("the Go build information is cut off".to_owned()),
    }
    let cut = || "the Go build information is cut off".to_owned();
    let (go, rest) = header.get(HEADER..).and_then(string).ok_or_else(cut)?;
    let (text, _) = string(rest).ok_or_else(cut)?;
    let go = String::from_utf8_lossy(go).into_owned();
    Ok(Some(BuildInfo { go, ..modules(text) }))
}

/// Reads a string that has its length in front, as an unsigned LEB128 number.
pub(crate) fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0usize;
    for (index, byte) in data.iter().enumerate().take(5) {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return data[index + 1..].split_at_checked(length);
        }
    }
    None
}

fn modules(text: &[u8]) -> BuildInfo {
    let framed = text.len() > 2 * SENTINEL && text[text.len() - SENTINEL - 1] == b'\n';
    let text = if framed { &text[SENTINEL..text.len() - SENTINEL] } else { text };
    let mut info = BuildInfo::default();
    let mut dependency = None;
    for line in String::from_utf8_lossy(text).lines() {
        let mut words = line.split('\t');
        match (words.next(), words.next(), words.next()) {
            (Some("path"), Some(path), _) => info.path = path.to_owned(),
            (Some("mod"), Some(path), version) => {
                info.module = Module { path: path.to_owned(), version: version.unwrap_or_default().to_owned() };
            }
            (Some("dep"), Some(path), version) => {
                info.dependencies.insert(path.to_owned(), version.unwrap_or_default().to_owned());
                dependency = Some(path.to_owned());
            }
            // Replaces the module of the line before.
            (Some("=>"), _, version) => {
                let replaced = dependency.take().and_then(|path| info.dependencies.get_mut(&path));
                let module = |version: &str| version.starts_with('v').then(|| version.to_owned());
                replaced.into_iter().for_each(|of| *of = version.and_then(module).unwrap_or_default());
            }
            (Some("build"), Some(setting), _) => {
                if let Some((name, value)) = setting.split_once('=') {
                    info.settings.insert(name.to_owned(), unquote(value));
                }
            }
            _ => {}
        }
    }
    info
}

/// Reverses Go's `strconv.Quote` as far as command-line flags need it.
fn unquote(value: &str) -> String {
    match value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        Some(inner) => inner.replace("\\\"", "\"").replace("\\\\", "\\"),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(go: &str, text: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([8, INLINE_STRINGS]);
        bytes.resize(HEADER, 0);
        let mut text_bytes = vec![b'<'; SENTINEL];
        text_bytes.extend(text.as_bytes());
        text_bytes.extend([b'>'; SENTINEL]);
        for part in [go.as_bytes(), &text_bytes] {
            let mut length = part.len();
            while length >= 0x80 {
                bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
                length >>= 7;
            }
            bytes.push(u8::try_from(length).unwrap());
            bytes.extend(part);
        }
        bytes
    }

    const TEXT: &str = "path\tk8s.io/kubernetes/cmd/kube-apiserver\nmod\tk8s.io/kubernetes\tv1.36.3\th1:abc=\n\
                        dep\tcel.dev/expr\tv0.25.1\th1:def=\ndep\tk8s.io/api\tv0.0.0\n=>\tk8s.io/api\tv0.36.3\th1:g=\n\
                        dep\ta.org/b\tv1.2.0\n=>\t../b\t(devel)\t\nbuild\t-trimpath=true\nbuild\tGOARCH=riscv64\n\
                        build\t-ldflags=\"-X p.v=\\\"1 2\\\"\"\n";

    #[test]
    fn all_fields_of_the_audit_are_read() {
        let mut data = vec![0; 3 * ALIGNMENT];
        data.extend(framed("go1.26.8", TEXT));
        let info = parse(&data).unwrap().unwrap();
        assert_eq!(info.go, "go1.26.8");
        assert_eq!(info.path, "k8s.io/kubernetes/cmd/kube-apiserver");
        assert_eq!(info.module, Module { path: "k8s.io/kubernetes".into(), version: "v1.36.3".into() });
        let dependencies: Vec<(&str, &str)> =
            info.dependencies.iter().map(|(path, version)| (&**path, &**version)).collect();
        assert_eq!(dependencies, [("a.org/b", ""), ("cel.dev/expr", "v0.25.1"), ("k8s.io/api", "v0.36.3")]);
        assert_eq!(info.settings["GOARCH"], "riscv64");
        assert_eq!(info.settings["-trimpath"], "true");
        assert_eq!(info.settings["-ldflags"], "-X p.v=\"1 2\"");
    }

    #[test]
    fn program_without_build_information_returns_none() {
        assert_eq!(parse(b"").unwrap(), None);
        assert_eq!(parse(&[7; 500]).unwrap(), None);
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        let whole = framed("go1.26.8", TEXT);
        for end in MAGIC.len()..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end} of {} bytes were accepted", whole.len());
        }
        assert!(parse(&whole).is_ok());
    }

    #[test]
    fn format_before_go_1_18_is_refused() {
        let mut old = framed("go1.17", TEXT);
        old[FLAGS_AT] = 0;
        assert!(parse(&old).unwrap_err().contains("before Go 1.18"));
    }
}
