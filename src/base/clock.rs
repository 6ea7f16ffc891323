//! Time: monotonic for everything that measures, wall time only for what is shown or compared to dates.

use std::sync::Mutex;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A point on the monotonic clock, since an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub Duration);

impl Mono {
    /// Time passed since `earlier`, zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Wall time in whole seconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wall(pub u64);

impl Wall {
    /// Year, month (1..=12), day (1..=31), hour, minute, second in UTC (proleptic Gregorian).
    #[must_use]
    pub fn civil(self) -> (u64, u64, u64, u64, u64, u64) {
        let (days, rest) = (self.0 / 86_400, self.0 % 86_400);
        // Days are counted from 0000-03-01, so that a leap day ends its year.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        (year, month, day, rest / 3_600, rest / 60 % 60, rest % 60)
    }

    /// Wall time of a civil date at midnight UTC; `None` when the date does not exist.
    #[must_use]
    pub fn from_date(year: u64, month: u64, day: u64) -> Option<Self> {
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day)
        {
            return None;
        }
        let shifted_year = if month <= 2 { year - 1 } else { year };
        let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
        let shifted_month = if month > 2 { month - 3 } else { month + 9 };
        let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let wall = Self((era * 146_097 + day_of_era - 719_468) * 86_400);
        (wall.civil().0 == year && wall.civil().1 == month && wall.civil().2 == day).then_some(wall)
    }
}

impl std::fmt::Display for Wall {
    /// RFC 3339 in UTC, for example `2026-11-30T18:39:34Z`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day, hour, minute, second) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Where time comes from. Everything below the root takes `&dyn Clock`.
pub trait Clock: Send + Sync {
    /// The monotonic clock.
    fn mono(&self) -> Mono;
    /// The wall clock.
    fn wall(&self) -> Wall;
    /// CPU that the calling thread has used: what work costs, however busy the machine is.
    fn cpu(&self) -> Duration;
}

/// The clocks of the machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Starts the monotonic clock at zero.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    fn mono(&self) -> Mono {
        Mono(self.start.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
    fn wall(&self) -> Wall {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Wall(since.map_or(0, |d| d.as_secs()))
    }

    fn cpu(&self) -> Duration {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let part = u32::try_from(used.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), part)
    }
}

/// A clock that moves only when told, for tests and for runs that must repeat to the byte.
#[derive(Debug)]
pub struct ManualClock {
    now: Mutex<(Duration, u64)>,
}

impl ManualClock {
    /// Starts at monotonic zero and the given wall time.
    #[must_use]
    pub const fn at(wall: Wall) -> Self {
        Self { now: Mutex::new((Duration::ZERO, wall.0)) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.lock();
        now.0 += by;
        now.1 += by.as_secs();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Duration, u64)> {
        self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn mono(&self) -> Mono {
        Mono(self.lock().0)
    }

    fn wall(&self) -> Wall {
        Wall(self.lock().1)
    }

    /// As if every thread had worked all the time.
    fn cpu(&self) -> Duration {
        self.lock().0
    }
}

/// A monotonic point by which something must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Mono);

impl Deadline {
    /// `span` from now.
    #[must_use]
    pub fn after(clock: &dyn Clock, span: Duration) -> Self {
        Self(Mono(clock.mono().0.saturating_add(span)))
    }

    /// Time left, zero when passed.
    #[must_use]
    pub fn left(self, clock: &dyn Clock) -> Duration {
        self.0.since(clock.mono())
    }

    /// True when the deadline has passed.
    #[must_use]
    pub fn is_past(self, clock: &dyn Clock) -> bool {
        self.left(clock).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_there_and_back() {
        assert_eq!(Wall(1_796_063_974).to_string(), "2026-11-30T18:39:34Z");
        assert_eq!(Wall::from_date(2028, 2, 29).unwrap().to_string(), "2028-02-29T00:00:00Z");
        assert_eq!(Wall::from_date(2027, 2, 29), None);
        for day in 0..60_000 {
            let (y, m, d, ..) = Wall(day * 86_400).civil();
            assert_eq!(Wall::from_date(y, m, d), Some(Wall(day * 86_400)));
        }
    }
}
