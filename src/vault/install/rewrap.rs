//! Installed packages for other keys of this machine; header, signature and payload stay.

use super::Packages;
use crate::errors::Result;
use crate::files;
use crate::keyslot::{DeviceKey, DevicePublic};
use crate::random::Random;

impl Packages {
    /// Wraps every package that `own` opens anew, for these devices alone. How many there are.
    ///
    /// # Errors
    /// Of `Package::rewrap`; `Io`.
    pub fn rewrap_all(
        &self,
        own: &DeviceKey,
        devices: &[DevicePublic],
        random: &mut dyn Random,
    ) -> Result<usize> {
        let _lock = self.lock()?;
        let mut count = 0;
        for installed in self.list()? {
            let package = Self::read(&installed.path)?;
            if !package.devices().any(|id| id == own.public().id()) {
                continue;
            }
            let part = files::with_suffix(&installed.path, ".part");
            let mut out = files::create(&part)?;
            package.rewrap(own, devices, random, &mut out)?;
            out.sync_all().map_err(files::io("write", &part))?;
            files::rename(&part, &installed.path)?;
            count += 1;
        }
        Ok(count)
    }
}
