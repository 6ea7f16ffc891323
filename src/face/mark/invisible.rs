//! The payload of the invisible mark: what was done, by which device, for which job.

use mien_base::id::DeviceId;

/// First two bits of every payload of ours.
const VERSION: u64 = 1;

/// 64 bits: two of version, altered, generated, 28 of device, 32 of counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    pub altered: Altered,
    pub device: DeviceId,
    /// Job and time counter.
    pub counter: u32,
}

/// What was done to a picture, the strongest of all faces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Altered {
    /// Every face was passed, or there was none.
    Nothing,
    /// Faces were covered: solid, mosaic, blur, a picture laid over.
    Masked,
    /// Faces were made: a swap, a synthetic identity.
    Generated,
}

impl Payload {
    /// As it is embedded.
    #[must_use]
    pub const fn bits(self) -> u64 {
        let (altered, generated) = match self.altered {
            Altered::Nothing => (0, 0),
            Altered::Masked => (1, 0),
            Altered::Generated => (1, 1),
        };
        (VERSION << 62)
            | (altered << 61)
            | (generated << 60)
            | ((self.device.get() as u64) << 32)
            | self.counter as u64
    }

    /// What embedded bits say; `None` when they are of no version of ours.
    #[must_use]
    pub fn parse(bits: u64) -> Option<Self> {
        let altered = match bits >> 60 {
            0b0100 => Altered::Nothing,
            0b0110 => Altered::Masked,
            0b0111 => Altered::Generated,
            _ => return None,
        };
        let device = DeviceId::new((bits >> 32) as u32 & DeviceId::MAX)?;
        Some(Self { altered, device, counter: bits as u32 })
    }

    /// 16 hex digits, as reports and records name it.
    #[must_use]
    pub fn hex(self) -> String {
        format!("{:016x}", self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_says_what_it_was_made_of() {
        for altered in [Altered::Nothing, Altered::Masked, Altered::Generated] {
            for (device, counter) in [(0, 0), (DeviceId::MAX, u32::MAX), (0x123_4567, 9)] {
                let device = DeviceId::new(device).unwrap();
                let payload = Payload { altered, device, counter };
                assert_eq!(Payload::parse(payload.bits()), Some(payload));
                assert_eq!(u64::from_str_radix(&payload.hex(), 16), Ok(payload.bits()));
            }
        }
        for foreign in [0, u64::MAX, 0b0101 << 60, 0b1000 << 60] {
            assert_eq!(Payload::parse(foreign), None);
        }
    }
}
