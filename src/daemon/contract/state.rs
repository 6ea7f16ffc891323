//! The states of a job and which may follow which.
//!
//! ```text
//! (received) ─▶ rejected
//!      └─▶ queued ─▶ running ─▶ succeeded | failed | timed_out | cancelled
//!           ▲  │        ├─▶ paused, preempted ─▶ queued       (checkpoint kept)
//!           │  │        └─▶ interrupted ─▶ queued | failed    (crash, power, a failure to be retried)
//!           │  └─▶ paused ─▶ queued
//!           └──────── and from each that is not an end: cancelled, expired, superseded
//! ```

use serde::{Deserialize, Serialize};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Queued,
    Running,
    Paused,
    Preempted,
    Interrupted,
    Succeeded,
    Failed,
    Rejected,
    Cancelled,
    Expired,
    TimedOut,
    Superseded,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Queued,
        Self::Running,
        Self::Paused,
        Self::Preempted,
        Self::Interrupted,
        Self::Succeeded,
        Self::Failed,
        Self::Rejected,
        Self::Cancelled,
        Self::Expired,
        Self::TimedOut,
        Self::Superseded,
    ];

    /// Its word in messages and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Preempted => "preempted",
            Self::Interrupted => "interrupted",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::TimedOut => "timed_out",
            Self::Superseded => "superseded",
        }
    }

    /// The state of a word.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// True when nothing follows any more.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(
            self,
            Self::Succeeded
                | Self::Failed
                | Self::Rejected
                | Self::Cancelled
                | Self::Expired
                | Self::TimedOut
                | Self::Superseded
        )
    }

    /// True when a job in this state may be in that one next.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (
                Self::Queued | Self::Running | Self::Paused | Self::Preempted | Self::Interrupted,
                Self::Cancelled | Self::Expired | Self::Superseded,
            ) | (Self::Queued, Self::Running | Self::Paused)
                | (
                    Self::Running,
                    Self::Succeeded
                        | Self::Failed
                        | Self::TimedOut
                        | Self::Paused
                        | Self::Preempted
                        | Self::Interrupted,
                )
                | (Self::Paused | Self::Preempted, Self::Queued)
                | (Self::Interrupted, Self::Queued | Self::Failed | Self::TimedOut)
        )
    }

    /// May be the first state of a job.
    #[must_use]
    pub const fn may_begin(self) -> bool {
        matches!(self, Self::Queued | Self::Rejected)
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// True when a job may go through these states in this order, as an observer sees them.
#[must_use]
pub fn legal(states: &[State]) -> bool {
    states.first().is_none_or(|first| first.may_begin())
        && states.windows(2).all(|pair| matches!(pair, [a, b] if a.may_become(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_follows_an_end_and_every_other_state_can_be_cancelled() {
        for state in State::ALL {
            assert_eq!(State::of(state.name()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
            let follows = State::ALL.iter().filter(|next| state.may_become(**next)).count();
            assert_eq!(follows == 0, state.is_end(), "{state}");
            assert_eq!(state.may_become(State::Cancelled), !state.is_end(), "{state}");
        }
    }

    #[test]
    fn only_a_running_job_succeeds() {
        for state in State::ALL {
            assert_eq!(state.may_become(State::Succeeded), state == State::Running, "{state}");
        }
        use State::{Interrupted, Queued, Rejected, Running, Succeeded};
        assert!(legal(&[Queued, Running, Interrupted, Queued, Running, Succeeded]));
        assert!(legal(&[Rejected]));
        assert!(!legal(&[Running, Succeeded]));
        assert!(!legal(&[Queued, Succeeded]));
        assert!(!legal(&[Queued, Running, Succeeded, Running]));
    }
}
