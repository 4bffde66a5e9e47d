//! Watch streams over the simulation's log: from every kind of start, with bookmarks, selectors and resumed chains.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::history::{End, Frame, FrameKind, Key, Micros, Selector, Start, Stream};

use super::values::Color;
use super::{CLIENT, Entry, World};

/// What a stream watches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pick {
    All,
    Color(Color),
    Name(usize),
}

/// A stream under construction.
struct Plan {
    prefix: Key,
    pick: Pick,
    start: Start,
    resumes: Option<u64>,
    /// The state it begins from, and the last revision that it sees.
    from: u64,
    to: u64,
    bookmarks: bool,
}

/// Generates streams over `world` until they have the number of frames that its shape asks for.
pub(super) fn all(world: &mut World) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    let mut frames = 0;
    let last = world.rev;
    let span = (last / 8).max(40);
    while frames < world.shape.frames {
        let from = world.random.u64(1..=last.saturating_sub(span / 2).max(1));
        let to = (from + world.random.u64(span / 2..=span)).min(last);
        let mut plan = plan(world, from, to);
        loop {
            let id = streams.len() as u64 + 1;
            let stream = make(world, id, &plan);
            frames += stream.frames.len();
            let live = stream.frames.iter().filter(|frame| frame.rv > plan.from);
            let seam = live.map(|frame| frame.rv).max().unwrap_or(plan.from);
            streams.push(stream);
            if world.random.bool() || plan.to >= last {
                break;
            }
            let to = (plan.to + world.random.u64(1..=span)).min(last);
            plan = Plan { start: Start::After(seam), resumes: Some(id), from: seam, to, ..plan };
        }
    }
    streams
}

fn plan(world: &mut World, from: u64, to: u64) -> Plan {
    let namespace = world.random.usize(0..world.shape.namespaces);
    let prefix = match world.random.u8(0..8) {
        0 => "/registry/configmaps/".to_owned(),
        1 => "/registry/events/ns-0/".to_owned(),
        _ => format!("/registry/configmaps/ns-{namespace}/"),
    };
    let pick = match world.random.u8(0..8) {
        0 | 1 if world.shape.selectors => Pick::Color(Color::random(&mut world.random)),
        2 if world.shape.selectors => Pick::Name(world.random.usize(0..world.shape.names)),
        _ => Pick::All,
    };
    let start = match world.random.u8(0..8) {
        0 => Start::Unset,
        1 => Start::Zero,
        2 => Start::InitialEvents(0),
        3 => Start::InitialEvents(world.random.u64(1..=from)),
        _ => Start::After(from),
    };
    Plan { prefix: prefix.into(), pick, start, resumes: None, from, to, bookmarks: world.random.u8(0..4) > 0 }
}

fn make(world: &mut World, id: u64, plan: &Plan) -> Stream {
    let opened = world.committed(plan.from) + 1;
    let mut frames = Vec::new();
    if !matches!(plan.start, Start::After(_)) {
        initial(world, plan, opened, &mut frames);
    }
    // The highest revision that a bookmark may name, and the time from which it may do so.
    let mut reached = plan.from;
    let mut at = opened;
    let begin = world.log.partition_point(|entry| entry.rev <= plan.from);
    for place in begin..world.log.len() {
        let entry = &world.log[place];
        if entry.rev > plan.to {
            break;
        }
        let complete = world.log.get(place + 1).is_none_or(|next| next.rev > entry.rev);
        at = at.max(entry.at) + 1;
        frames.extend(plan.frame(entry, at));
        reached = if complete { entry.rev } else { reached };
        if plan.bookmarks && complete && world.random.u8(0..24) == 0 {
            frames.push(bookmark(reached, at, false));
        }
    }
    let ends = [End::Client, End::Server, End::Broken { error: "connection reset".into() }];
    let end = world.random.choice(ends).unwrap_or(End::Client);
    if end == End::Server && world.random.u8(0..4) == 0 {
        let kind = FrameKind::Error { code: 410, reason: "Expired".into(), message: "too old".into() };
        frames.push(Frame { at, kind, key: "".into(), rv: 0, uid: "".into() });
    }
    Stream {
        id,
        client: CLIENT.into(),
        transport: if world.random.bool() { "http/2".into() } else { "http/1.1".into() },
        prefix: Arc::clone(&plan.prefix),
        selector: plan.selector(),
        start: plan.start,
        query: plan.query(),
        resumes: plan.resumes,
        opened,
        frames,
        closed: at + 1,
        end,
    }
}

/// The state as synthetic ADDED, sorted by key; with `sendInitialEvents` a bookmark at its end.
fn initial(world: &World, plan: &Plan, at: Micros, frames: &mut Vec<Frame>) {
    let mut state = BTreeMap::new();
    for entry in world.log.iter().take_while(|entry| entry.rev <= plan.from) {
        match entry.after.filter(|color| plan.matches(entry, Some(*color))) {
            Some(_) => state.insert(&entry.key, entry),
            None => state.remove(&entry.key),
        };
    }
    frames.extend(state.into_values().map(|entry| entry.frame(FrameKind::Added, at)));
    if matches!(plan.start, Start::InitialEvents(_)) {
        frames.push(bookmark(plan.from, at, true));
    }
}

fn bookmark(rv: u64, at: Micros, end_of_initial: bool) -> Frame {
    Frame { at, kind: FrameKind::Bookmark { end_of_initial }, key: "".into(), rv, uid: "".into() }
}

impl World {
    /// When a revision was committed.
    fn committed(&self, rev: u64) -> Micros {
        let next = self.log.partition_point(|entry| entry.rev <= rev);
        next.checked_sub(1).map_or(0, |last| self.log[last].at)
    }
}

impl Entry {
    fn frame(&self, kind: FrameKind, at: Micros) -> Frame {
        Frame { at, kind, key: Arc::clone(&self.key), rv: self.rev, uid: Arc::clone(&self.object.uid) }
    }
}

impl Plan {
    fn matches(&self, entry: &Entry, color: Option<Color>) -> bool {
        let Some(color) = color else { return false };
        let picked = match self.pick {
            Pick::All => true,
            Pick::Color(wanted) => color == wanted,
            Pick::Name(name) => entry.object.name == format!("name-{name}"),
        };
        picked && entry.key.starts_with(&*self.prefix)
    }

    fn frame(&self, entry: &Entry, at: Micros) -> Option<Frame> {
        let kind = match (self.matches(entry, entry.before), self.matches(entry, entry.after)) {
            (false, true) => FrameKind::Added,
            (true, true) => FrameKind::Modified,
            (true, false) => FrameKind::Deleted,
            (false, false) => return None,
        };
        Some(entry.frame(kind, at))
    }

    fn selector(&self) -> Option<Selector> {
        match self.pick {
            Pick::All => None,
            Pick::Color(color) => Some(Selector { labels: format!("color={}", color.word()), fields: String::new() }),
            Pick::Name(name) => Some(Selector { labels: String::new(), fields: format!("metadata.name=name-{name}") }),
        }
    }

    fn query(&self) -> String {
        let start = match self.start {
            Start::After(rv) => format!("&resourceVersion={rv}"),
            Start::Unset => String::new(),
            Start::Zero => "&resourceVersion=0".into(),
            Start::InitialEvents(0) => "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".into(),
            Start::InitialEvents(rv) => {
                format!("&resourceVersion={rv}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
            }
        };
        format!("watch=true{start}")
    }
}
