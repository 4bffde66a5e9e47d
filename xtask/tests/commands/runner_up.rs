//! `runner up` against a cloud and a GitHub in memory: it ends with a server whose runner is online, or with nothing.
//! After a kill at any point, `runner gc` finds the leftovers.

use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::fake_cloud::http::{Reply, Request};
use crate::fake_cloud::{CREDENTIAL, Fake, Hook, Moment, Rule, SECRET, Server};
use crate::harness::{Ended, Place, send, wait};
use crate::hub::{Hub, TOKEN};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use sys::deadline::Probe;

const CREATE: &str = "POST /compute/v2.1/servers";

struct World {
    place: Place,
    cloud: Fake,
    hub: Hub,
}

impl World {
    fn new() -> World {
        let cloud = Fake::start();
        World { place: Place::new(), hub: Hub::start(&cloud), cloud }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(&["runner"]);
        command.args(args).args(["--repo", "o/r", "--api-url", &self.hub.url]);
        command
            .env("GITHUB_RUNNER_TOKEN", TOKEN)
            .env("OS_AUTH_URL", self.cloud.auth_url())
            .env("OS_APPLICATION_CREDENTIAL_ID", CREDENTIAL)
            .env("OS_APPLICATION_CREDENTIAL_SECRET", SECRET)
            .env("HOME", &self.place.root)
            .env_remove("OS_CLOUD");
        command
    }

    fn up(&self, more: &[&str]) -> Ended {
        let args: Vec<&str> = ["up", "--arch", "ppc64le"].iter().chain(more).copied().collect();
        let ended = self.place.start_command(self.command(&args)).end();
        self.tells_no_secret(&ended);
        ended
    }

    /// No output contains any of the test's secrets.
    fn tells_no_secret(&self, ended: &Ended) {
        let mut secrets = vec!["planted".to_owned(), STANDARD.encode("planted")[..8].to_owned()];
        secrets.extend(self.hub.state().runners.iter().map(|runner| runner.config.clone()));
        secrets.extend(self.cloud.state().servers.iter().map(|server| server.user_data.clone()));
        for secret in secrets {
            assert!(!ended.stdout.contains(&secret) && !ended.stderr.contains(&secret), "{secret} is in:\n{ended:?}");
        }
    }

    fn left(&self) -> (usize, usize) {
        (self.hub.state().runners.len(), self.cloud.state().servers.len())
    }
}

#[test]
fn a_server_comes_up_with_a_runner_for_one_job() {
    let world = World::new();
    world.hub.state().conflicts = 1;
    let ended = world.up(&["--json"]).expect(0, &["registered", "is online"]);
    assert_eq!(world.left(), (1, 1));
    let printed = ended.json();
    let (runner, server) = (world.hub.state().runners[0].clone(), world.cloud.state().servers[0].clone());
    assert_eq!((&printed["name"], &printed["runner"]), (&json!(runner.name), &json!(runner.id)));
    assert_eq!(printed["server"], json!(server.id));
    assert_eq!(runner.labels, ["self-hosted", "linux", "ppc64le", "osuosl"]);
    assert_eq!((&server.name, &server.flavor), (&runner.name, &"f-large".to_owned()));
    assert_eq!(server.metadata["archproof-runner"], runner.name);
    assert_eq!(server.metadata["archproof-scope"], "o/r");
    let told = String::from_utf8(STANDARD.decode(&server.user_data).unwrap()).unwrap();
    assert!(told.starts_with("#cloud-config\n") && told.contains(&runner.config), "{told}");
}

#[test]
fn every_failure_leaves_no_server_and_no_runner() {
    let silent = || Reply { silent: true, ..Reply::new(0, Value::Null) };
    let quota = || Reply::new(403, json!({"forbidden": {"message": "Quota exceeded for instances"}}));
    type Change = Box<dyn Fn(&World) + Send>;
    let cloud = |change: fn(&mut crate::fake_cloud::State)| -> Change {
        Box::new(move |world| change(&mut world.cloud.state()))
    };
    // The failure, further options, the exit code, a part of the message.
    let cases: Vec<(Change, &[&str], i32, &str)> = vec![
        (cloud(|state| state.becomes = "ERROR".into()), &[], 5, "No valid host was found"),
        (cloud(|state| state.becomes = "SHUTOFF".into()), &[], 5, "powered itself off"),
        (cloud(|state| state.becomes = "DELETED".into()), &[], 5, "it was deleted"),
        (Box::new(|world| world.hub.state().deaf = true), &["--wait", "0.05"], 5, "gave up waiting for the runner"),
        (Box::new(move |world| world.cloud.state().rule(CREATE, 1, quota())), &[], 5, "Quota exceeded"),
        (
            Box::new(move |world| {
                let rule = Rule { line: CREATE.into(), times: 1, reply: silent(), carried_out: true };
                world.cloud.state().rules.push(rule);
            }),
            &[],
            5,
            "no answer",
        ),
        (Box::new(|world| world.hub.state().conflicts = 9), &[], 4, "409"),
        (cloud(|_| {}), &["--image", "Plan 9"], 2, "no active image `Plan 9`"),
        (cloud(|_| {}), &["--image", "other"], 2, "is for sparc"),
        (cloud(|_| {}), &["--flavor", "huge"], 2, "it has: small, large"),
        (cloud(|_| {}), &["--network", "none"], 2, "no network `none`"),
        (cloud(|_| {}), &["--security-group", "open"], 2, "no security group `open`"),
        (cloud(|_| {}), &["--os-cloud", "nope"], 2, "`nope`"),
        (cloud(|_| {}), &["--runner", "rise-riscv64"], 2, "osuosl-ppc64le"),
        (cloud(|_| {}), &["--provider", "ibm"], 2, "has its own runners"),
        (
            Box::new(|world| {
                let no = Reply::new(401, json!({"error": {"message": "who?"}}));
                world.cloud.state().rule("POST /identity", 9, no);
            }),
            &[],
            3,
            "Keystone refused",
        ),
    ];
    for group in cases.into_iter().collect::<Vec<_>>().chunks_mut(4) {
        // In parallel, because most of the time is waiting.
        std::thread::scope(|scope| {
            for (change, options, code, part) in group {
                scope.spawn(move || {
                    let world = World::new();
                    change(&world);
                    let ended = world.up(options);
                    assert_eq!(ended.status.code(), Some(*code), "{part}: {ended:?}");
                    assert!(ended.stderr.contains(*part), "`{part}` is missing in: {}", ended.stderr);
                    assert_eq!(world.left(), (0, 0), "{part}: {ended:?}");
                });
            }
        });
    }
}

/// Nova carries the request out after the gateway in front of it has given up.
#[test]
fn server_that_appears_after_a_lost_answer_is_deleted() {
    let world = World::new();
    world.cloud.state().rule(CREATE, 1, Reply { silent: true, ..Reply::new(0, Value::Null) });
    let (cloud, asked, lists) = (world.cloud.clone(), Mutex::new(Value::Null), AtomicUsize::new(0));
    let late = move |request: &Request, moment: Moment| match (request.line().as_str(), moment) {
        (CREATE, Moment::Before) => *asked.lock().unwrap() = request.body["server"].clone(),
        ("GET /compute/v2.1/servers/detail", Moment::Before) if lists.fetch_add(1, Ordering::SeqCst) == 1 => {
            let metadata = serde_json::from_value(asked.lock().unwrap()["metadata"].clone()).unwrap();
            cloud.state().servers.push(Server {
                id: "00000001-aaaa-bbbb-cccc-dddddddddddd".into(),
                name: "late".into(),
                status: "BUILD".into(),
                metadata,
                user_data: STANDARD.encode("late"),
                flavor: String::new(),
                fault: None,
                looks: 1,
            });
        }
        _ => {}
    };
    world.cloud.state().hook = Some(Arc::new(late));
    world.up(&[]).expect(5, &["no answer", "deleted server 00000001"]);
    assert_eq!(world.left(), (0, 0));
}

#[test]
fn outage_during_the_start_of_a_server_is_waited_out() {
    let world = World::new();
    // A request has four attempts.
    world.cloud.state().rule("GET /compute/v2.1/servers/0", 4, Reply::new(503, Value::Null));
    world.up(&[]).expect(0, &["503", "is online"]);
    assert_eq!(world.left(), (1, 1));
}

#[test]
fn gc_deletes_runners_although_their_cloud_does_not_answer() {
    let world = World::new();
    world.up(&[]).expect(0, &["is online"]);
    world.hub.state().deaf = true;
    world.hub.state().runners[0].online = false;
    world.cloud.state().rule("POST /identity", 9, Reply::new(401, json!({"error": {"message": "who?"}})));
    let gc = || world.place.start_command(world.command(&["gc", "--older", "0s", "--provider", "osuosl-power"])).end();
    gc().expect(3, &["failed to list the servers of osuosl-power", "1 of 1 runners deleted"]);
    assert_eq!(world.left(), (0, 1));
    world.cloud.state().rules.clear();
    gc().expect(0, &["its runner is gone"]);
    assert_eq!(world.left(), (0, 0));
}

#[test]
fn no_server_is_created_that_forks_can_reach() {
    let world = World::new();
    world.hub.state().public = true;
    for (approval, options, parts) in [
        (Some("all_external_contributors"), &[][..], &["any workflow", "--allow-any-workflow"][..]),
        (Some("first_time_contributors"), &["--allow-any-workflow"], &["first_time_contributors"]),
        (None, &["--allow-any-workflow"], &["approval policy is unknown", "403"]),
    ] {
        world.hub.state().approval = approval.map(String::from);
        world.up(options).expect(6, parts);
        assert_eq!((world.left(), world.cloud.state().log.len()), ((0, 0), 0), "{approval:?}");
    }
    world.hub.state().approval = Some("all_external_contributors".into());
    world.up(&["--allow-any-workflow"]).expect(0, &["is online"]);
}

#[test]
fn runner_with_a_late_job_keeps_its_server() {
    let world = World::new();
    world.hub.state().deaf = true;
    world.hub.state().busy_at_last = true;
    world.up(&["--wait", "0.02"]).expect(0, &["came online late", "it stays"]);
    assert_eq!(world.left(), (1, 1));
}

#[test]
fn interrupt_deletes_server_and_runner() {
    let world = World::new();
    world.hub.state().deaf = true;
    let running = world.place.start_command(world.command(&["up", "--arch", "ppc64le"]));
    wait("the server", || match world.left() {
        (1, 1) => Probe::Ready(()),
        left => Probe::NotYet(format!("{left:?}: {}", running.stderr())),
    });
    running.signal(Signal::INT);
    let ended = running.end().expect(130, &["removing the runner"]);
    world.tells_no_secret(&ended);
    assert_eq!(world.left(), (0, 0), "{}", ended.stderr);
}

#[test]
fn dry_run_shows_all_requests_and_sends_none() {
    let world = World::new();
    let ended = world.up(&["--dry-run"]).expect(0, &[]);
    for part in ["generate-jitconfig", "auth/tokens", "\"secret\":\"***\"", "\"user_data\":\"***\"", "archproof-scope"]
    {
        assert!(ended.stdout.contains(part), "`{part}` is missing in:\n{}", ended.stdout);
    }
    let printed = world.up(&["--dry-run", "--json"]).expect(0, &[]).json();
    assert_eq!(printed["requests"].as_array().unwrap().last().unwrap()["body"]["server"]["user_data"], "***");
    assert_eq!(world.left(), (0, 0));
    assert_eq!(world.cloud.state().log, Vec::<String>::new());
    let changes: Vec<String> = world.hub.state().log.iter().filter(|line| !line.starts_with("GET ")).cloned().collect();
    assert_eq!(changes, Vec::<String>::new());
}

/// A hook that kills the command at the request with this number, before or after the server handles it.
fn killer(number: usize, moment: Moment, pid: Arc<AtomicI32>, seen: Arc<AtomicUsize>) -> Hook {
    // Requests are sequential, but go to two servers.
    let gate = Mutex::new(());
    Arc::new(move |_, at| {
        let _one = gate.lock().unwrap();
        if at == Moment::Before {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        if at == moment && seen.load(Ordering::SeqCst) == number + 1 {
            let pid = wait("the command's process id", || match pid.load(Ordering::SeqCst) {
                0 => Probe::NotYet(String::new()),
                pid => Probe::Ready(pid),
            });
            send(pid, Signal::KILL);
        }
    })
}

/// Starts `up`, kills it at this request, and runs `gc`; returns whether the request was reached.
fn killed(number: usize, moment: Moment) -> bool {
    let world = World::new();
    let (pid, seen) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicUsize::new(0)));
    let hook = killer(number, moment, Arc::clone(&pid), Arc::clone(&seen));
    world.hub.state().hook = Some(Arc::clone(&hook));
    world.cloud.state().hook = Some(hook);
    let running = world.place.start_command(world.command(&["up", "--arch", "ppc64le"]));
    pid.store(running.pid(), Ordering::SeqCst);
    let ended = running.end();
    world.tells_no_secret(&ended);
    world.hub.state().hook = None;
    world.cloud.state().hook = None;
    // The server dies or never comes online, so an offline runner is a leftover.
    world.hub.state().deaf = true;
    world.hub.state().runners.iter_mut().for_each(|runner| runner.online = false);
    let before = world.left();
    let gc = world.place.start_command(world.command(&["gc", "--older", "0s", "--provider", "osuosl-power"])).end();
    world.tells_no_secret(&gc);
    assert_eq!(gc.status.code(), Some(0), "{gc:?}");
    assert_eq!(world.left(), (0, 0), "request {number}, {moment:?}: {before:?} were left, and after gc: {gc:?}");
    ended.status.code().is_none()
}

#[test]
fn gc_finds_everything_after_a_kill_at_any_request() {
    // In parallel, because each attempt waits for some seconds.
    let mut reached = 0;
    for first in (0..40).step_by(4) {
        let steps: Vec<(usize, Moment)> =
            (first..first + 4).flat_map(|number| [(number, Moment::Before), (number, Moment::After)]).collect();
        let was_killed: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                steps.iter().map(|(number, moment)| scope.spawn(move || killed(*number, *moment))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        reached += was_killed.iter().filter(|killed| **killed).count();
        if was_killed.iter().any(|killed| !killed) {
            break;
        }
    }
    // Login, versions, image, flavor, registration, creation, status requests.
    assert!(reached >= 12, "only {reached} moments were reached");
}
