//! Any text is a page of S3's listing or refused; what is read of one that a store writes is what was in it.

#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use object_store_client::listing::Page;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fuzz_target!(|text: &str| {
    let _ = Page::of(text);
    let keys: Vec<&str> = text.split('\n').collect();
    let contents =
        |(size, key): (usize, &&str)| format!("<Contents><Key>{}</Key><Size>{size}</Size></Contents>", escaped(key));
    let contents: String = keys.iter().enumerate().map(|(size, key)| contents((size, key))).collect();
    let page = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>");
    let page = Page::of(&page).expect("a store wrote it");
    assert_eq!(page.next, None);
    let found: Vec<_> = page.objects.iter().map(|object| (object.key.as_str(), object.size)).collect();
    let expected: Vec<_> = keys.iter().zip(0_u64..).map(|(key, size)| (*key, size)).collect();
    assert_eq!(found, expected);
});
