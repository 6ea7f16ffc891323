//! Panics become failures that say what and where; standard error is /dev/null.

use std::cell::RefCell;

thread_local! {
    /// What the last panic of this thread said, and where.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what each panic says for the failure it becomes.
pub(crate) fn note() {
    std::panic::set_hook(Box::new(|info| PANIC.with_borrow_mut(|said| *said = info.to_string())));
}

/// What the panic said; of a panic on another thread only its payload is known.
pub(crate) fn words(payload: &(dyn std::any::Any + Send)) -> String {
    let said = PANIC.take();
    if !said.is_empty() {
        return said.replace('\n', " ");
    }
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}
