//! A page of S3's `ListObjectsV2`, as a store answers it in XML. Of that only a few elements without attributes are looked for.

use crate::{Object, StoreError};

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
