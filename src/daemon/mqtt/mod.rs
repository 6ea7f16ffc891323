//! An MQTT client of our own: one thread, no queue, no memory of a session.
//!
//! What is not acknowledged stands in the outbox, what is subscribed to is said anew on every
//! connect, and each wait has an end: so nothing has to be remembered here, and nothing can wedge.

mod bytes;
pub mod packet;
mod stream;
mod client;

pub use client::{Client, Event, Gone, Greeting};
pub use stream::{Broker, TlsFiles, client_config};
