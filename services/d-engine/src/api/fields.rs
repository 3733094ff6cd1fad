//! Fields of a message before it is decoded: how many things there are in it, for each takes more memory than its bytes.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use service_kit::grpc::{Code, Status};

use super::malformed;

/// Compares and operations of a write, keys of a read: what is more is not decoded. What a member takes is less.
const ITEMS_MAX: usize = 10_000;

/// The fields of a message, one after the other: their numbers, and what those have that are bytes, text or a message.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn field(&mut self) -> Result<(u32, Option<&'a [u8]>), DecodeError> {
        let (number, kind) = decode_key(&mut self.0)?;
        if kind != WireType::LengthDelimited {
            skip_field(kind, number, &mut self.0, DecodeContext::default())?;
            return Ok((number, None));
        }
        let mut whole = self.0;
        let length = usize::try_from(decode_varint(&mut self.0)?).unwrap_or(usize::MAX);
        match self.0.split_at_checked(length) {
            Some((content, rest)) => {
                self.0 = rest;
                Ok((number, Some(content)))
            }
            // It is too short: only the library makes its errors.
            None => skip_field(kind, number, &mut whole, DecodeContext::default()).map(|()| (number, None)),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Option<&'a [u8]>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// How many fields the messages at the end of a path of field numbers have together, counted no further than `most`.
fn count(message: &[u8], path: &[u32], most: usize) -> Result<usize, DecodeError> {
    let mut found = 0;
    for field in Fields::of(message) {
        let (number, content) = field?;
        found += match (path, content) {
            ([], _) => 1,
            ([next, rest @ ..], Some(content)) if *next == number => count(content, rest, most - found)?,
            _ => 0,
        };
        if found >= most {
            break;
        }
    }
    Ok(found)
}

/// Refuses a request with more than [`ITEMS_MAX`] things where a path ends.
pub(super) fn bound(request: &[u8], path: &[u32]) -> Result<(), Status> {
    if count(request, path, ITEMS_MAX + 1).map_err(malformed)? > ITEMS_MAX {
        let text = format!("a request has more than {ITEMS_MAX} compares, operations or keys: send several");
        return Err(Status::new(Code::InvalidArgument, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use d_engine_client::wire;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    proptest! {
        /// What is passed over here must not be what the decoder finds.
        #[test]
        fn any_message_has_as_many_fields_as_are_decoded(bytes in proptest::collection::vec(prop_oneof![0_u8..30, any::<u8>()], 0..40)) {
            if let Ok(frame) = wire::Requests::decode(bytes.as_slice()) {
                let found = Fields::of(&bytes).filter(|field| matches!(field, Ok((1, Some(_))))).count();
                prop_assert_eq!(found, frame.requests.len());
                prop_assert!(Fields::of(&bytes).all(|field| field.is_ok()));
            }
            let _ = count(&bytes, &[1, 2], 5).map(|found| assert!(found <= 5));
        }
    }
}
