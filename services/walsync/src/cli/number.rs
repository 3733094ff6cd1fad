//! Numbers of the command line: what is said of one that cannot be has its unit and its bounds.

use std::ops::RangeInclusive;

/// Takes a whole number of these within the bounds.
pub fn whole<T: TryFrom<u64>>(
    unit: &'static str,
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match bounds.clone().into_inner() {
            (least, u64::MAX) => format!("must be a whole number of {unit}, {least} or more"),
            (least, most) => format!("must be a whole number of {unit}, from {least} to {most}"),
        })
    }
}

/// Takes a number of seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| *number >= 0.0);
    number.ok_or_else(|| "must be a number of seconds, 0 or more".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_cannot_be_is_refused_with_its_unit_and_its_bounds() {
        let files = whole::<u32>("files", 1..=u64::from(u32::MAX));
        assert_eq!((files("1"), files("4294967295")), (Ok(1), Ok(u32::MAX)));
        for wrong in ["0", "-1", "1s", "", "1.5", "4294967296", "99999999999999999999"] {
            let said = files(wrong).unwrap_err();
            assert_eq!(said, "must be a whole number of files, from 1 to 4294967295", "{wrong}");
        }
        let all = whole::<u64>("milliseconds", 0..=u64::MAX);
        assert_eq!(all("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(all("abc").unwrap_err(), "must be a whole number of milliseconds, 0 or more");
        assert_eq!((seconds("0.5"), seconds("inf").is_ok()), (Ok(0.5), true));
        assert!(["NaN", "-1", "1s", ""].into_iter().all(|wrong| seconds(wrong).is_err()));
    }
}
