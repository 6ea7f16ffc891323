//! Any bytes as what is signed: a manifest, its envelope, the draft of an author.
//! `fuzz/run manifest` runs it.

#![no_main]
#![allow(clippy::unwrap_used)] // A panic is what is looked for.

use libfuzzer_sys::fuzz_target;
use mien_base::limits;
use mien_vault::manifest::Manifest;
use mien_vault::sign::Envelope;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        assert!(manifest.check().is_ok() && manifest.bytes <= limits::MODEL_FILE);
        assert_eq!(Manifest::parse(&manifest.to_json()).unwrap(), manifest);
    }
    if let Ok(envelope) = Envelope::parse(bytes) {
        assert_eq!(envelope.to_json(), bytes, "one form for each envelope");
        let _ = Manifest::parse(envelope.payload());
    }
});
