//! Any bytes are decoded to the end or refused; no page is larger than the header says, no memory beyond an index is taken.
#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut decoder) = ltx::Decoder::new(bytes) else { return };
    let mut page = vec![0; decoder.header().page_size as usize];
    let mut previous = 0;
    while let Ok(Some(number)) = decoder.page(&mut page) {
        assert!(number > previous && number <= decoder.header().commit);
        previous = number;
    }
    let _ = decoder.finish();
});
