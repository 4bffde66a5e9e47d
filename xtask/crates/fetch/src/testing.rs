//! A Debian archive with a few small packages on a local HTTP server, signed by a key made for the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use model::Target;
use pgp::composed::{CleartextSignedMessage, KeyType, SecretKeyParamsBuilder, SignedSecretKey};
use pgp::types::Password;
use serde_json::json;
use sys::Scratch;

use crate::{Options, QemuChoice, digest};

/// The files of a server, and the requests that it got.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Paths of which only half is sent, with the number of times.
    pub(crate) cut: BTreeMap<String, usize>,
    pub(crate) asked: Vec<String>,
    /// Paths with this prefix are answered with 403; none if it is empty.
    pub(crate) forbidden: String,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) shared: Arc<Mutex<Shared>>,
}

impl Server {
    fn new() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/debian", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(Shared::default()));
        let seen = Arc::clone(&shared);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&seen);
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Server { url, shared }
    }
}

fn answer(mut stream: TcpStream, shared: &Mutex<Shared>) -> Option<()> {
    let mut request = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    request.read_line(&mut line).ok()?;
    let mut header = String::new();
    while request.read_line(&mut header).ok()? > 2 {
        header.clear();
    }
    let path = line.split(' ').nth(1)?.strip_prefix("/debian/")?.to_owned();
    let mut shared = shared.lock().unwrap();
    shared.asked.push(path.clone());
    let content = shared.files.get(&path).cloned();
    let cut = shared.cut.get_mut(&path).filter(|times| **times > 0).map(|times| *times -= 1).is_some();
    let forbidden = !shared.forbidden.is_empty() && path.starts_with(&shared.forbidden);
    drop(shared);
    let (status, content) = match content {
        _ if forbidden => ("403 Forbidden", Vec::new()),
        Some(content) => ("200 OK", content),
        None => ("404 Not Found", Vec::new()),
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len()).ok()?;
    let sent = if cut { content.len() / 2 } else { content.len() };
    stream.write_all(&content[..sent]).ok()
}

/// A package of the archive.
#[derive(Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) depends: String,
    pub(crate) deb: Vec<u8>,
}

impl Package {
    pub(crate) fn new(name: &str, version: &str, depends: &str, files: &[(&str, &[u8])]) -> Package {
        let deb =
            deb(&format!("{name} {version}"), |tar| files.iter().for_each(|(path, content)| add(tar, path, content)));
        Package { name: name.into(), version: version.into(), depends: depends.into(), deb }
    }

    pub(crate) fn path(&self) -> String {
        format!("pool/main/{}_{}.deb", self.name, self.version)
    }
}

/// A `.deb` whose data `fill` writes.
pub(crate) fn deb(control: &str, fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut data = tar::Builder::new(Vec::new());
    fill(&mut data);
    let data = xz(&data.into_inner().unwrap());
    let mut archive = ar::Builder::new(Vec::new());
    for (name, content) in
        [("debian-binary", &b"2.0\n"[..]), ("control.tar.xz", &xz(control.as_bytes())), ("data.tar.xz", &data)]
    {
        archive.append(&ar::Header::new(name.into(), content.len() as u64), content).unwrap();
    }
    archive.into_inner().unwrap()
}

pub(crate) fn add(tar: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o4755);
    tar.append_data(&mut header, format!("./{path}"), content).unwrap();
}

pub(crate) fn xz(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    liblzma::read::XzEncoder::new(content, 1).read_to_end(&mut packed).unwrap();
    packed
}

/// An ELF file with only a `.modinfo` section that lists the module's dependencies.
pub(crate) fn module(depends: &str) -> Vec<u8> {
    let info = format!("license=GPL\0depends={depends}\0");
    let names = b"\0.modinfo\0.shstrtab\0";
    let (info_at, names_at) = (64, 64 + info.len());
    let table_at = names_at + names.len();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |size: usize, value: usize| file.extend(&value.to_le_bytes()[..size]);
    for (size, value) in [(2, 1), (2, 62), (4, 1), (8, 0), (8, 0), (8, table_at), (4, 0)] {
        put(size, value);
    }
    [64, 0, 0, 64, 3, 2].iter().for_each(|value| put(2, *value));
    file.extend(info.as_bytes());
    file.extend(names);
    for (name, kind, at, size) in [(0, 0, 0, 0), (1, 1, info_at, info.len()), (10, 3, names_at, names.len())] {
        let fields = [(4, name), (4, kind), (8, 0), (8, 0), (8, at), (8, size), (4, 0), (4, 0), (8, 1), (8, 0)];
        fields.iter().for_each(|(width, value)| file.extend(&value.to_le_bytes()[..*width]));
    }
    file
}

/// An archive with one suite, the options that use it, and a target.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) key: SignedSecretKey,
    pub(crate) packages: Vec<Package>,
    pub(crate) dir: Scratch,
    pub(crate) options: Options,
    pub(crate) target: Target,
    pub(crate) date: Timestamp,
    pub(crate) valid: SignedDuration,
}

impl Fixture {
    /// A kernel with two modules, one of which needs the other; busybox; a file in place of QEMU.
    pub(crate) fn new() -> Fixture {
        let (dir, server, key) = (Scratch::temporary("fetch").unwrap(), Server::new(), key());
        let targets_dir = dir.path().join("targets");
        fs::create_dir_all(targets_dir.join("architectures")).unwrap();
        let keys = key.to_public_key().to_armored_string(pgp::composed::ArmorOptions::default()).unwrap();
        dir.write("targets/debian-archive-keys.asc", format!("For tests.\n{keys}"));
        let options = Options {
            cache: dir.path().join("cache"),
            targets_dir,
            offline: false,
            locked: false,
            mirror: Some(server.url.clone()),
            qemu: QemuChoice::System,
            node: None,
            container: None,
            verify: |options, message| openpgp::Keys::load(&options.keys())?.signed_text(message),
        };
        let busybox = Package::new("busybox-static", "1:1.37-6", "", &[("usr/bin/busybox", b"busybox")]);
        let qemu = Package::new("qemu-x", "11", "libc6 (>= 2)", &[("usr/bin/qemu-x", b"no program")]);
        let libc = Package::new("libc6", "2.41", "", &[("usr/lib/libc.so.6", b"no library")]);
        let mut packages = kernel("6.1").to_vec();
        packages.extend([busybox, qemu, libc]);
        let (date, valid) = (Timestamp::now(), SignedDuration::from_hours(24));
        let fixture = Fixture { server, key, packages, dir, options, target: target(), date, valid };
        fixture.publish();
        fixture
    }

    /// Publishes the current packages on the server, and nothing else.
    pub(crate) fn publish(&self) {
        let mut files = BTreeMap::new();
        let mut index = String::new();
        for package in &self.packages {
            let Package { name, version, depends, deb } = package;
            index.push_str(&format!(
                "Package: {name}\nVersion: {version}\nArchitecture: x\nDepends: {depends}\nFilename: {}\nSize: {}\n\
                 SHA256: {}\n\n",
                package.path(),
                deb.len(),
                digest::of_bytes(deb)
            ));
            files.insert(package.path(), deb.clone());
        }
        let index = xz(index.as_bytes());
        let (size, sha256) = (index.len(), digest::of_bytes(&index));
        let place = "dists/test/main/binary-x";
        files.insert(format!("{place}/by-hash/SHA256/{sha256}"), index.clone());
        files.insert(format!("{place}/Packages.xz"), index);
        let release = self.release(&format!(" {sha256} {size} main/binary-x/Packages.xz\n"));
        files.insert("dists/test/InRelease".into(), signed(&release, &self.key).into_bytes());
        self.server.shared.lock().unwrap().files = files;
    }

    fn release(&self, indexes: &str) -> String {
        let date = |time: Timestamp| jiff::fmt::rfc2822::to_string(&time.to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
        format!(
            "Origin: Test\nSuite: testing\nCodename: test\nDate: {}\nValid-Until: {}\nAcquire-By-Hash: yes\nSHA256:\n\
             {indexes}",
            date(self.date),
            date(self.date + self.valid)
        )
    }

    /// Changes a file on the server.
    pub(crate) fn alter(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.server.shared.lock().unwrap().files.get_mut(path).expect(path));
    }

    /// All paths on the server with this prefix.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<String> {
        let shared = self.server.shared.lock().unwrap();
        shared.files.keys().filter(|path| path.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.server.shared.lock().unwrap().asked)
    }

    /// Names of the files in a folder of the cache.
    pub(crate) fn cached(&self, folder: &str) -> BTreeSet<String> {
        let found = fs::read_dir(self.options.cache.join(folder)).into_iter().flatten().flatten();
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

/// A metapackage and the kernel of a release.
pub(crate) fn kernel(release: &str) -> [Package; 2] {
    let modules = format!("lib/modules/{release}/");
    let name = format!("linux-image-{release}");
    let files = [
        (format!("boot/vmlinuz-{release}"), b"kernel".to_vec()),
        (format!("{modules}modules.builtin"), b"kernel/drivers/built-in.ko\n".to_vec()),
        (format!("{modules}kernel/virtio-net.ko.xz"), xz(&module("fail_over,built_in"))),
        (format!("{modules}kernel/fail-over.ko"), module("")),
        (format!("{modules}kernel/other.ko.xz"), xz(&module(""))),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, content)| (path.as_str(), content.as_slice())).collect();
    let image = Package::new(&name, &format!("{release}-1"), "kmod, linux-base (>= 4.3~)", &files);
    let depends = format!("{name} (= {release}-1)");
    [Package::new("linux-image-x", &format!("{release}-1"), &depends, &[]), image]
}

pub(crate) fn key() -> SignedSecretKey {
    let mut params = SecretKeyParamsBuilder::default();
    params
        .key_type(KeyType::Ed25519)
        .can_certify(true)
        .can_sign(true)
        .primary_user_id("Test <test@example.org>".into());
    // Its signatures must not be older than the key.
    let created = u32::try_from(Timestamp::now().as_second()).unwrap() - 3600;
    params.created_at(pgp::types::Timestamp::from_secs(created));
    params.build().unwrap().generate(rand::rngs::OsRng).unwrap()
}

pub(crate) fn signed(text: &str, key: &SignedSecretKey) -> String {
    let message = CleartextSignedMessage::sign(rand::rngs::OsRng, text, &**key, &Password::empty()).unwrap();
    message.to_armored_string(pgp::composed::ArmorOptions::default()).unwrap()
}

pub(crate) fn target() -> Target {
    let qemu = json!({"program": "qemu-x", "packages": ["qemu-x"], "machine": "virt", "virtio": "pci", "cpu": "max"});
    let machine = json!({
        "debian": "x", "suites": ["test"], "container_suites": ["trixie"], "host_suites": ["test"],
        "kernel": "linux-image-x", "modules": ["built-in", "virtio_net"], "qemu": qemu,
        "memory": {"base": 256, "profile": 1}, "cpus": 1, "console": "ttyS0",
    });
    let elf = json!({"class": 64, "byte_order": "little", "machine": 1});
    let hardware = json!({"page_sizes": [4096], "weak_memory": false});
    let target =
        json!({"name": "x", "title": "X", "aliases": [], "elf": elf, "hardware": hardware, "machine": machine});
    serde_json::from_value(target).unwrap()
}
