//! A page of S3's `ListObjectsV2`, as a store answers it in XML. Of that only a few elements without attributes are looked for.
//!
//! Any key that can be written is read back as it was: XML has no place for most control characters, so keys are asked for as URLs have them
//! (`encoding-type=url`), and taken so where the store says that it did that; not every store does. References are read by all their names.

use crate::{Object, StoreError};
use std::collections::BTreeSet;

/// Objects of one listing, at most: those of half a year with one each second, some gigabytes of memory.
const OBJECTS_MAX: usize = 16_000_000;
/// Pages of one listing, at most: stores send a thousand objects with each, and some send empty ones now and then.
const PAGES_MAX: usize = 100_000;

/// The pages of a listing, one after another, of whatever store: it comes to an end.
#[derive(Debug, Default)]
pub struct Pages {
    objects: Vec<Object>,
    /// Tokens with which pages were asked for.
    begun: BTreeSet<String>,
    /// Keys with which they begin.
    first_keys: BTreeSet<String>,
}

impl Pages {
    /// Takes a page over; gives the token of the next one, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Permanent`] where it would never end: a page or its token comes again, or there is too much of it.
    pub fn take(&mut self, objects: Vec<Object>, next: Option<String>) -> Result<Option<String>, StoreError> {
        let wrong = |what: &str| Err(StoreError::Permanent(format!("the store's listing {what}")));
        if objects.first().is_some_and(|first| !self.first_keys.insert(first.key.clone())) {
            return wrong("begins a page where another began");
        }
        self.objects.extend(objects);
        let Some(next) = next else { return Ok(None) };
        if !self.begun.insert(next.clone()) {
            return wrong("begins a page where another began");
        }
        if self.begun.len() >= PAGES_MAX || self.objects.len() >= OBJECTS_MAX {
            return wrong(&format!(
                "does not end: it has {} pages and {} objects so far",
                self.begun.len(),
                self.objects.len()
            ));
        }
        Ok(Some(next))
    }

    /// What was in them, ordered by key: not every store lists keys in order.
    pub fn into_objects(self) -> Vec<Object> {
        let mut objects = self.objects;
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In the order of the store.
    pub objects: Vec<Object>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<String>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// [`StoreError::Permanent`] where it is no page, or an object in it has no key or size, or a key that is not encoded as the page says.
    pub fn of(text: &str) -> Result<Page, StoreError> {
        let mut objects = Vec::new();
        let is_encoded = element(text, "EncodingType").is_some_and(|encoding| encoding.eq_ignore_ascii_case("url"));
        for content in text.split("<Contents>").skip(1) {
            let (key, size) = (element(content, "Key"), element(content, "Size"));
            let size = size.and_then(|size| size.parse().ok());
            let modified = element(content, "LastModified").and_then(|time| time.parse::<jiff::Timestamp>().ok());
            let modified_millis = modified.map_or(0, |time| time.as_millisecond());
            let (Some(key), Some(size)) = (key, size) else {
                return Err(StoreError::Permanent("the store's listing has an object without key or size".into()));
            };
            let key = match is_encoded {
                true => decoded(&key).ok_or_else(|| {
                    StoreError::Permanent(format!("the store's listing has {key:?}, which is not encoded as it says"))
                })?,
                false => key,
            };
            objects.push(Object { key, size, modified_millis });
        }
        let is_truncated = element(text, "IsTruncated").as_deref() == Some("true");
        match element(text, "NextContinuationToken").filter(|next| is_truncated && !next.is_empty()) {
            Some(next) => Ok(Page { objects, next: Some(next) }),
            None if is_truncated => {
                Err(StoreError::Permanent("the store's listing does not say where its next page begins".into()))
            }
            // One that was cut off would leave out what is there.
            None if text.contains("<ListBucketResult") && text.contains("</ListBucketResult>") => {
                Ok(Page { objects, next: None })
            }
            None => Err(StoreError::Permanent("the store's listing is not one of S3".into())),
        }
    }
}

/// The text of the first element `name`, with references decoded.
pub(crate) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    let mut decoded = String::with_capacity(content.len());
    let mut rest = content;
    while let Some((before, reference)) = rest.split_once('&') {
        decoded.push_str(before);
        rest = match reference.split_once(';').and_then(|(name, after)| Some((character(name)?, after))) {
            Some((character, after)) => {
                decoded.push(character);
                after
            }
            None => {
                decoded.push('&');
                reference
            }
        };
    }
    Some(decoded + rest)
}

/// What a reference stands for, by what is between `&` and `;`: one of XML's five names, or a number.
fn character(name: &str) -> Option<char> {
    let number = |digits: &str, radix| {
        // A number may have a sign where it is parsed, and none here.
        let is_number = digits.chars().all(|digit| digit.is_digit(radix));
        u32::from_str_radix(digits, radix).ok().filter(|_| is_number).and_then(char::from_u32)
    };
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "amp" => Some('&'),
        name => match name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")) {
            Some(digits) => number(digits, 16),
            None => number(name.strip_prefix('#')?, 10),
        },
    }
}

/// A key as URLs have it: `%` and two digits for a byte, and `+` for a blank, as AWS writes it. `None`: digits are missing, or it is no text.
fn decoded(key: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_has_its_objects_and_says_where_the_next_one_begins() {
        let text = "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a&amp;lt;/1</Key><Size>7</Size>\
            <LastModified>1970-01-01T00:00:01.5Z</LastModified></Contents><Contents><Size>0</Size><Key>b</Key></Contents>\
            <NextContinuationToken>x&quot;</NextContinuationToken></ListBucketResult>";
        let object = |key: &str, size, modified_millis| Object { key: key.into(), size, modified_millis };
        let objects = vec![object("a&lt;/1", 7, 1500), object("b", 0, 0)];
        assert_eq!(Page::of(text).unwrap(), Page { objects: objects.clone(), next: Some("x\"".into()) });
        let last = text.replace(">true<", ">false<");
        assert_eq!(Page::of(&last).unwrap(), Page { objects, next: None });
    }

    #[test]
    fn a_listing_of_empty_pages_or_of_pages_in_turns_ends_in_an_error() {
        let error = |token: fn(usize) -> String| {
            let mut pages = Pages::default();
            let found = (0..=PAGES_MAX).find_map(|page| pages.take(Vec::new(), Some(token(page))).err());
            (found.unwrap().to_string(), pages.begun.len())
        };
        let (said, pages) = error(|page| (page % 2).to_string());
        assert!(said.contains("begins a page where another began") && pages == 2, "{said}");
        let (said, pages) = error(|page| page.to_string());
        assert!(said.contains("does not end") && pages == PAGES_MAX, "{said}");
    }

    #[test]
    fn what_is_no_page_is_refused() {
        for wrong in [
            "",
            "<html/>",
            "<ListBucketResult><IsTruncated>false</IsTruncated>",
            "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
            // What it leaves out would count as gone.
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken></ListBucketResult>",
        ] {
            assert!(matches!(Page::of(wrong), Err(StoreError::Permanent(_))), "{wrong}");
        }
    }

    /// A page of one key, as stores write it, and whether that is as URLs have it.
    fn page(key: &str, encoding: &str) -> String {
        format!(
            "<ListBucketResult>{encoding}<IsTruncated>false</IsTruncated><Contents><Key>{key}</Key><Size>0</Size></Contents></ListBucketResult>"
        )
    }

    fn key_of(page: &str) -> Result<String, StoreError> {
        Page::of(page).map(|page| page.objects[0].key.clone())
    }

    #[test]
    fn a_key_with_a_tab_a_newline_or_any_other_reference_is_found() {
        for (written, key) in [
            ("a&#x9;b", "a\tb"),
            ("a&#xA;b&#10;c", "a\nb\nc"),
            ("a&#xD;b&#13;", "a\rb\r"),
            ("&#34;&#39;&quot;&apos;&#x1F600;", "\"'\"'\u{1F600}"),
            // Once is enough.
            ("&amp;#9;&amp;amp;&#38;lt;", "&#9;&amp;&lt;"),
            // What is no reference stands for itself.
            ("a&b;&;&#;&#x;&#+9;&#xD800;&c", "a&b;&;&#;&#x;&#+9;&#xD800;&c"),
        ] {
            assert_eq!(key_of(&page(written, "")).unwrap(), key, "{written}");
            assert_eq!(key_of(&page(written, "<EncodingType></EncodingType>")).unwrap(), key, "{written}");
        }
    }

    #[test]
    fn a_key_that_is_not_encoded_as_its_page_says_is_an_error() {
        let url = "<EncodingType>url</EncodingType>";
        assert_eq!(key_of(&page("a%07b+c%2Bd/%C3%BC", url)).unwrap(), "a\u{7}b c+d/ü");
        for wrong in ["a%", "a%0", "a%zz", "a%+1", "%FF"] {
            assert!(key_of(&page(wrong, url)).unwrap_err().to_string().contains("not encoded as it says"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_key_that_a_store_writes_as_urls_have_it_or_by_numbers_is_read_as_it_was(key in any::<String>()) {
            let url = crate::encoding::encode(&key, true);
            prop_assert_eq!(key_of(&page(&url, "<EncodingType>url</EncodingType>")).unwrap(), key.clone());
            prop_assert_eq!(key_of(&page(&url.replace("%20", "+"), "<EncodingType>url</EncodingType>")).unwrap(), key.clone());
            let hexadecimal: String = key.chars().map(|letter| format!("&#x{:X};", u32::from(letter))).collect();
            prop_assert_eq!(key_of(&page(&hexadecimal, "")).unwrap(), key.clone());
            let decimal: String = key.chars().map(|letter| format!("&#{};", u32::from(letter))).collect();
            prop_assert_eq!(key_of(&page(&decimal, "")).unwrap(), key);
        }
    }
}
