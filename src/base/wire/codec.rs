//! Encoding with bounds: what does not fit, what is left over and what lies about its length is refused.
//!
//! Decoding allocates at most a small multiple of the message: a sequence is given room for no more
//! elements than bytes are left, and never for more than 1 MiB ahead of the elements themselves.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits;

/// A message that can't be written or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("A message of more than {} bytes does not fit the wire", limits::WIRE_MESSAGE)]
    TooLarge,
    #[error("A message is not one of this protocol")]
    Unreadable,
}

/// One message as bytes.
///
/// # Errors
/// `TooLarge` beyond `limits::WIRE_MESSAGE`.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, Malformed> {
    let bytes = postcard::to_allocvec(message).map_err(|_| Malformed::Unreadable)?;
    if bytes.len() > limits::WIRE_MESSAGE {
        return Err(Malformed::TooLarge);
    }
    Ok(bytes)
}

/// The message that fills `bytes` to the last one.
///
/// # Errors
/// `TooLarge`, or `Unreadable` for anything else than exactly one message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    if bytes.len() > limits::WIRE_MESSAGE {
        return Err(Malformed::TooLarge);
    }
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(Malformed::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::recipe::Recipe;
    use crate::wire::{Event, Format, Output, Process, Request};
    use proptest::prelude::*;

    fn process() -> Request {
        Request::Process(Box::new(Process {
            job: JobId([7; 16]),
            recipe: Recipe::default(),
            output: Output { format: Some(Format::Png), quality: 90 },
            wall: crate::clock::Wall(1),
            overlay: false,
        }))
    }

    #[test]
    fn a_request_comes_back_as_it_went() {
        let bytes = encode(&process()).unwrap();
        assert_eq!(decode::<Request>(&bytes).unwrap(), process());
    }

    #[test]
    fn what_is_left_over_is_refused() {
        let mut bytes = encode(&process()).unwrap();
        bytes.push(0);
        assert_eq!(decode::<Request>(&bytes), Err(Malformed::Unreadable));
    }

    #[test]
    fn what_does_not_fit_is_refused_both_ways() {
        let long = vec![0u8; limits::WIRE_MESSAGE + 1];
        assert_eq!(encode(&long), Err(Malformed::TooLarge));
        assert_eq!(decode::<Vec<u8>>(&long), Err(Malformed::TooLarge));
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let none = Event::Judged { job: JobId([0; 16]), embeddings: Vec::new() };
        let mut bytes = encode(&none).unwrap();
        assert_eq!(decode::<Event>(&bytes), Ok(none));
        // In place of none a claim of u32::MAX embeddings.
        assert_eq!(bytes.pop(), Some(0));
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(decode::<Event>(&bytes), Err(Malformed::Unreadable));
    }

    #[test]
    fn every_cut_of_a_request_is_refused() {
        let bytes = encode(&process()).unwrap();
        for end in 0..bytes.len() {
            assert!(decode::<Request>(&bytes[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            if let Ok(request) = decode::<Request>(&bytes) {
                prop_assert!(encode(&request).is_ok());
            }
            if let Ok(event) = decode::<Event>(&bytes) {
                prop_assert!(encode(&event).is_ok());
            }
        }

        #[test]
        fn a_flipped_byte_never_panics(at in 0usize..200, with in any::<u8>()) {
            let mut bytes = encode(&process()).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= with;
            let _ = decode::<Request>(&bytes);
        }
    }
}
