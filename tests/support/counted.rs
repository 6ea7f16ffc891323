//! A global allocator that counts, thread by thread.

#![allow(unsafe_code)] // A global allocator can't be counted without.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Shared by tests; not each uses all.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

const SLOTS: usize = 64;
/// Allocations of each thread, by the order in which threads first allocate.
static COUNTS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
static THREADS: [AtomicI32; SLOTS] = [const { AtomicI32::new(0) }; SLOTS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(SLOTS) };
}

struct Counted;

/// The number of this thread, asked for without an allocation.
fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn count() {
    let slot = SLOT.get();
    let slot = if slot < SLOTS {
        slot
    } else {
        let slot = NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS;
        THREADS[slot].store(thread(), Ordering::Relaxed);
        SLOT.set(slot);
        slot
    };
    COUNTS[slot].fetch_add(1, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Allocations so far, by the name of the thread.
pub fn counts() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for slot in 0..SLOTS {
        let tid = THREADS[slot].load(Ordering::Relaxed);
        if let Ok(name) = fs::read_to_string(format!("/proc/self/task/{tid}/comm")) {
            *all.entry(name.trim().to_owned()).or_default() += COUNTS[slot].load(Ordering::Relaxed);
        }
    }
    all
}

/// Allocations of this thread so far.
pub fn own() -> u64 {
    let slot = SLOT.get();
    if slot < SLOTS { COUNTS[slot].load(Ordering::Relaxed) } else { 0 }
}
