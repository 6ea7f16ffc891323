//! What the daemon tells of itself: its log, its state for systemd, its health, its figures.

mod log;
mod notify;
mod pulse;
mod health;
mod machine;
mod metrics;
mod http;

pub use health::{Facts, Health, judge};
pub use http::Metrics;
pub use log::Log;
pub use machine::{Disk, Machine, machine};
pub use metrics::text as metrics_text;
pub use notify::Notify;
pub use pulse::Pulse;
