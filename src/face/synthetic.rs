//! A made identity, chosen by a seed.

use mien_engine::backend::Backend;

use crate::mask::Region;
use crate::subject::Face;
use crate::{Error, Result};

/// Puts a made face over a face, in place.
///
/// # Errors
/// `Face` when there are no landmarks.
pub fn apply<B: Backend>(
    _backend: &B,
    _picture: &mut B::Picture,
    _face: &Face,
    _seed: u64,
    _region: &Region<'_, B>,
) -> Result<()> {
    Err(Error::Face { detail: "made identities are not there yet".to_owned() })
}
