//! Which jobs begin now: a pure function of what waits, what runs and the time.
//!
//! ```text
//!   waits ─▶ expired? ─▶ first of its order key? ─▶ due? ─▶ gold before silver before bronze,
//!            high before low priority, first come first served ─▶ is there room?
//! ```
//! A job for the whole device lets what runs end, lets nothing else begin, and runs alone.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::contract::{Qos, Room, State};

/// A job that has not ended and does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    pub id: String,
    pub state: State,
    pub qos: Qos,
    pub priority: u8,
    pub arrival: u64,
    pub order: String,
    pub room: Room,
    /// In ms since 1970.
    pub not_before: u64,
    pub expires: u64,
    /// It may begin only when the device is to be maintained.
    pub maintenance: bool,
}

/// A job that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    pub id: String,
    pub qos: Qos,
    pub arrival: u64,
    pub order: String,
    pub room: Room,
    /// It keeps what it did so far when it has to make room.
    pub yields: bool,
}

/// The time, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// In ms since 1970.
    pub ms: u64,
    /// Expiry can be judged.
    pub trusted: bool,
    /// The device may be maintained now.
    pub maintenance: bool,
}

/// How much runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    pub light: usize,
    pub worker: usize,
}

/// What is to happen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub start: Vec<String>,
    pub expire: Vec<String>,
    /// These run and have to make room.
    pub preempt: Vec<String>,
    /// Nothing changes before this by itself, in ms since 1970.
    pub next: Option<u64>,
}

/// Plans what begins now.
#[must_use]
pub fn plan(waits: &[Waits], runs: &[Runs], now: Now, slots: Slots) -> Plan {
    let mut plan = Plan::default();
    let expired = |job: &Waits| now.trusted && job.expires <= now.ms;
    let (gone, waits): (Vec<&Waits>, Vec<&Waits>) = waits.iter().partition(|job| expired(job));
    plan.expire = gone.iter().map(|job| job.id.clone()).collect();
    let later = waits.iter().flat_map(|job| [job.not_before, job.expires]);
    plan.next = later.filter(|at| *at > now.ms).min();

    let is_first = |job: &Waits| {
        !runs.iter().any(|other| other.order == job.order)
            && !waits.iter().any(|o| o.order == job.order && o.arrival < job.arrival)
    };
    let due = |job: &Waits| {
        job.state == State::Queued
            && job.not_before <= now.ms
            && (!job.maintenance || now.maintenance)
            && is_first(job)
    };
    let mut ready: Vec<&Waits> = waits.iter().copied().filter(|job| due(job)).collect();
    ready.sort_by_key(|job| (job.qos, Reverse(job.priority), job.arrival));
    if runs.iter().any(|job| job.room == Room::Device) {
        return plan;
    }
    if let Some(device) = ready.iter().find(|job| job.room == Room::Device) {
        if runs.is_empty() {
            plan.start.push(device.id.clone());
        }
        return plan;
    }
    let taken = |room: Room| runs.iter().filter(|job| job.room == room).count();
    let mut free_light = slots.light.saturating_sub(taken(Room::Light));
    let mut free_worker = slots.worker.saturating_sub(taken(Room::Worker));
    let mut orders: BTreeSet<&str> = BTreeSet::new();
    for job in ready {
        let free = match job.room {
            Room::Light => &mut free_light,
            Room::Worker | Room::Device => &mut free_worker,
        };
        if *free > 0 && orders.insert(&job.order) {
            *free -= 1;
            plan.start.push(job.id.clone());
        } else if job.room == Room::Worker && plan.preempt.is_empty() {
            // Of those that may yield, the one that is worth least and came last.
            let worth = |other: &&Runs| (other.qos, other.arrival);
            let yields = runs.iter().filter(|o| o.room == Room::Worker && o.yields);
            plan.preempt
                .extend(yields.filter(|o| o.qos > job.qos).max_by_key(worth).map(|o| o.id.clone()));
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { ms: 1000, trusted: true, maintenance: false };
    const SLOTS: Slots = Slots { light: 2, worker: 1 };

    fn waits(n: u64) -> Waits {
        Waits {
            id: format!("w{n}"),
            state: State::Queued,
            qos: Qos::Silver,
            priority: 5,
            arrival: n,
            order: format!("o{n}"),
            room: Room::Light,
            not_before: 0,
            expires: 10_000,
            maintenance: false,
        }
    }

    fn runs(n: u64, room: Room) -> Runs {
        let (id, order) = (format!("r{n}"), format!("o{n}"));
        Runs { id, qos: Qos::Bronze, arrival: n, order, room, yields: true }
    }

    #[test]
    fn gold_goes_first_then_priority_then_who_came_first() {
        let all = [
            waits(1),
            Waits { priority: 9, ..waits(2) },
            Waits { qos: Qos::Gold, priority: 0, ..waits(3) },
        ];
        assert_eq!(plan(&all, &[], NOW, SLOTS).start, ["w3", "w2"]);
    }

    #[test]
    fn one_order_key_is_served_in_order_even_when_the_first_may_not_begin() {
        let key = |job: Waits| Waits { order: "k".to_owned(), ..job };
        let later = key(Waits { not_before: 5000, ..waits(1) });
        let urgent = key(Waits { qos: Qos::Gold, ..waits(2) });
        let planned = plan(&[later.clone(), urgent.clone()], &[], NOW, SLOTS);
        assert_eq!((planned.start, planned.next), (vec![], Some(5000)));
        let paused = key(Waits { state: State::Paused, ..waits(1) });
        assert!(plan(&[paused, urgent.clone()], &[], NOW, SLOTS).start.is_empty());
        let running = Runs { order: "k".to_owned(), ..runs(1, Room::Light) };
        assert!(plan(&[urgent], &[running], NOW, SLOTS).start.is_empty());
    }

    #[test]
    fn a_job_for_the_device_drains_it_and_runs_alone() {
        let device = Waits { room: Room::Device, ..waits(2) };
        let all = [waits(1), device];
        assert!(plan(&all, &[runs(9, Room::Light)], NOW, SLOTS).start.is_empty());
        assert_eq!(plan(&all, &[], NOW, SLOTS).start, ["w2"]);
        assert!(plan(&all, &[runs(9, Room::Device)], NOW, SLOTS).start.is_empty());
    }

    #[test]
    fn what_is_worth_more_takes_the_worker_from_what_yields() {
        let worker = [Waits { room: Room::Worker, ..waits(1) }];
        let busy = runs(9, Room::Worker);
        assert_eq!(plan(&worker, std::slice::from_ref(&busy), NOW, SLOTS).preempt, ["r9"]);
        let stays = Runs { yields: false, ..busy.clone() };
        assert!(plan(&worker, &[stays], NOW, SLOTS).preempt.is_empty());
        let equal = Runs { qos: Qos::Silver, ..busy };
        assert!(plan(&worker, &[equal], NOW, SLOTS).preempt.is_empty());
    }

    #[test]
    fn expiry_is_judged_only_by_a_clock_that_is_trusted() {
        let old = Waits { expires: 900, ..waits(1) };
        assert_eq!(plan(std::slice::from_ref(&old), &[], NOW, SLOTS).expire, ["w1"]);
        let untrusted = Now { trusted: false, ..NOW };
        assert_eq!(plan(&[old], &[], untrusted, SLOTS).start, ["w1"]);
    }

    #[test]
    fn maintenance_waits_for_its_window() {
        let job = Waits { maintenance: true, ..waits(1) };
        assert!(plan(std::slice::from_ref(&job), &[], NOW, SLOTS).start.is_empty());
        let window = Now { maintenance: true, ..NOW };
        assert_eq!(plan(&[job], &[], window, SLOTS).start, ["w1"]);
    }

    proptest::proptest! {
        #[test]
        fn no_plan_overfills_the_device_or_breaks_an_order(
            jobs in proptest::collection::vec((0..3_u8, 0..10_u8, 0..4_u8, 0..3_u8, 0..2000_u64), 0..30),
            busy in proptest::collection::vec((0..4_u8, 0..2_u8), 0..3),
        ) {
            let room = |n| [Room::Light, Room::Worker, Room::Device][usize::from(n)];
            let all: Vec<Waits> = (0..).zip(&jobs).map(|(n, (qos, priority, key, r, at))| Waits {
                qos: [Qos::Gold, Qos::Silver, Qos::Bronze][usize::from(*qos)],
                priority: *priority, order: format!("k{key}"), room: room(*r), not_before: *at, ..waits(n)
            }).collect();
            let running: Vec<Runs> = (0..).zip(&busy).map(|(n, (key, r))| Runs {
                order: format!("k{key}"), ..runs(100 + n, room(*r))
            }).collect();
            let planned = plan(&all, &running, NOW, SLOTS);
            let begun: Vec<&Waits> = planned.start.iter().map(|id| all.iter().find(|w| w.id == *id).unwrap()).collect();
            let count = |r| begun.iter().filter(|w| w.room == r).count() + running.iter().filter(|w| w.room == r).count();
            proptest::prop_assert!(begun.is_empty() || count(Room::Light) <= 3 && count(Room::Worker) <= 3);
            let started = |r| begun.iter().filter(|w| w.room == r).count();
            proptest::prop_assert!(started(Room::Light) <= 2 && started(Room::Worker) <= 1);
            if started(Room::Device) > 0 {
                proptest::prop_assert!(begun.len() == 1 && running.is_empty());
            }
            for job in &begun {
                proptest::prop_assert!(!all.iter().any(|o| o.order == job.order && o.arrival < job.arrival));
                proptest::prop_assert!(!running.iter().any(|o| o.order == job.order));
            }
        }
    }
}
