//! A page of S3's `ListObjectsV2`, as a store answers it in XML. Of that only a few elements without attributes are looked for.

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
    /// [`StoreError::Permanent`] where it is no page, or an object in it has no key or size.
    pub fn of(text: &str) -> Result<Page, StoreError> {
        let mut objects = Vec::new();
        for content in text.split("<Contents>").skip(1) {
            let (key, size) = (element(content, "Key"), element(content, "Size"));
            let size = size.and_then(|size| size.parse().ok());
            let modified = element(content, "LastModified").and_then(|time| time.parse::<jiff::Timestamp>().ok());
            let modified_millis = modified.map_or(0, |time| time.as_millisecond());
            let (Some(key), Some(size)) = (key, size) else {
                return Err(StoreError::Permanent("the store's listing has an object without key or size".into()));
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

/// The text of the first element `name`, with entities decoded.
pub(crate) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    Some(entities.iter().fold(content.to_owned(), |content, (entity, character)| content.replace(entity, character)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
