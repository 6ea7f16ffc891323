//! The controller of a pool: offers with a lease and a fence, and only one result that counts.
//!
//! ```text
//!   offered (fence n) ─▶ told in time ─▶ … ─▶ ended with fence n: accepted
//!        └─▶ nothing for a lease ─▶ offered again (fence n + 1); what fence n says counts no more
//! ```
//! The broker is the engine: it hands each offer to one member. It may lose offers, hand them to a
//! member that dies, or to nobody; the lease makes good for all of that.

use std::collections::BTreeMap;
use std::time::Duration;

use mien_base::clock::Mono;

use crate::contract::{Document, JobState, State};

/// One job of a pool.
#[derive(Debug, Clone)]
struct Offer {
    document: Document,
    fence: u64,
    /// When it was last offered, or told of by whom has it.
    heard: Option<Mono>,
    /// Who has it.
    holder: Option<String>,
    accepted: Option<State>,
}

/// The jobs of a pool.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    lease: Duration,
    offers: BTreeMap<String, Offer>,
}

/// What a state that was heard means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// It renews the lease.
    Renews,
    /// It is the result.
    Accepted,
    /// Of an offer that has been made anew since, or of a job that has its result: nothing.
    Stale,
    /// It is no job of ours.
    Foreign,
}

impl Pool {
    /// With this lease.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        Self { lease, offers: BTreeMap::new() }
    }

    /// Adds a job; its first offer has fence 1, or the one that it carries.
    pub fn add(&mut self, document: Document) {
        let fence = document.fence.unwrap_or(1);
        let offer = Offer { fence, document, heard: None, holder: None, accepted: None };
        self.offers.insert(offer.document.id.clone(), offer);
    }

    /// Documents that are to be offered now, with numbers from `seq`.
    pub fn due(&mut self, now: Mono, mut seq: impl FnMut() -> u64) -> Vec<Document> {
        let lease = self.lease;
        let open = self.offers.values_mut().filter(|offer| offer.accepted.is_none());
        let due = open.filter(|offer| offer.heard.is_none_or(|at| now.since(at) >= lease));
        due.map(|offer| {
            offer.fence += u64::from(offer.heard.is_some());
            (offer.heard, offer.holder) = (Some(now), None);
            Document { fence: Some(offer.fence), seq: seq(), ..offer.document.clone() }
        })
        .collect()
    }

    /// The broker said that nobody is there to take it: it is due again after a lease, with the
    /// same fence, since nobody has it.
    pub fn nobody(&mut self, id: &str) {
        if let Some(offer) = self.offers.get_mut(id).filter(|offer| offer.holder.is_none()) {
            offer.fence = offer.fence.saturating_sub(1).max(1);
        }
    }

    /// A device told a state.
    pub fn heard(&mut self, device: &str, state: &JobState, now: Mono) -> Means {
        let Some(offer) = self.offers.get_mut(&state.id) else { return Means::Foreign };
        let other = offer.holder.as_deref().is_some_and(|holder| holder != device);
        if offer.accepted.is_some() || state.fence != Some(offer.fence) || other {
            return Means::Stale;
        }
        offer.holder = Some(device.to_owned());
        offer.heard = Some(now);
        if state.state.is_end() {
            offer.accepted = Some(state.state);
            return Means::Accepted;
        }
        Means::Renews
    }

    /// Jobs without a result.
    #[must_use]
    pub fn open(&self) -> usize {
        self.offers.values().filter(|offer| offer.accepted.is_none()).count()
    }

    /// Results, with who gave them and under which fence.
    pub fn results(&self) -> impl Iterator<Item = (&str, State, &str, u64)> {
        self.offers.iter().filter_map(|(id, offer)| {
            Some((id.as_str(), offer.accepted?, offer.holder.as_deref()?, offer.fence))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Kind, STATE};

    fn document() -> Document {
        let text = include_str!("../../../contract/examples/image.process.json");
        let mut document = Document::parse(text.as_bytes()).unwrap();
        document.fence = None;
        document
    }

    fn state(fence: u64, state: State) -> JobState {
        JobState {
            schema: STATE.to_owned(),
            id: document().id,
            kind: Kind::ImageProcess,
            state,
            version: 1,
            at: 0,
            attempt: 1,
            boot_id: String::new(),
            progress: None,
            reason: None,
            retryable: None,
            pointer: None,
            detail: None,
            result: None,
            fence: Some(fence),
        }
    }

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    #[test]
    fn silence_for_a_lease_offers_it_anew_and_only_the_newest_fence_counts() {
        let mut pool = Pool::new(Duration::from_secs(30));
        pool.add(document());
        let mut seq = 0;
        let mut due = |pool: &mut Pool, s: u64| {
            let all = pool.due(at(s), || {
                seq += 1;
                seq
            });
            all.iter().map(|document| document.fence.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(due(&mut pool, 0), [1]);
        assert!(due(&mut pool, 29).is_empty());
        assert_eq!(pool.heard("a", &state(1, State::Running), at(29)), Means::Renews);
        assert!(due(&mut pool, 58).is_empty());
        assert_eq!(due(&mut pool, 59), [2]);
        assert_eq!(pool.heard("a", &state(1, State::Succeeded), at(60)), Means::Stale);
        assert_eq!(pool.heard("b", &state(2, State::Running), at(60)), Means::Renews);
        assert_eq!(pool.heard("a", &state(2, State::Succeeded), at(61)), Means::Stale);
        assert_eq!(pool.heard("b", &state(2, State::Succeeded), at(62)), Means::Accepted);
        assert_eq!(pool.heard("b", &state(2, State::Succeeded), at(62)), Means::Stale);
        assert_eq!((pool.open(), pool.results().count()), (0, 1));
        assert!(due(&mut pool, 1000).is_empty());
    }
}
