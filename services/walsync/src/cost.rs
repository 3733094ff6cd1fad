//! What a replicator asks of its store in a month, at most, and what that costs.

use crate::replicator::{RETENTION_INTERVAL, Settings};
use std::fmt;
use std::time::Duration;

const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// Amazon's prices in us-east-1 in 2026, in dollars for each request; removals cost nothing.
const PUT_OR_LIST_DOLLARS: f64 = 0.005 / 1000.0;
const GET_DOLLARS: f64 = 0.0004 / 1000.0;

/// Requests in a month of 30 days, of databases that all change without pause; one that is idle has none but a LIST a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requests {
    /// Objects of changes.
    pub uploads: f64,
    /// Merged objects, and snapshots; a large one is several.
    pub merged: f64,
    /// Objects that are read to be merged.
    pub gets: f64,
    /// Listings before something is removed, one for each 1,000 objects.
    pub lists: f64,
    /// Databases that are restored for a trial: a GET for each 4 MiB of each.
    pub trials: f64,
}

impl Requests {
    /// Of so many databases.
    pub fn of(settings: &Settings, databases: usize) -> Requests {
        let each = |interval: Duration| MONTH.as_secs_f64() / interval.as_secs_f64();
        let databases = databases as f64;
        let bound = settings.uploads_a_month_max.map_or(f64::INFINITY, |most| most as f64);
        let uploads = (each(settings.interval) * databases).min(bound);
        // A level gets no more files than come into the one below it.
        let mut arrived = uploads;
        // Between two snapshots something came.
        let snapshots = each(settings.snapshot_interval).min(each(settings.interval));
        let (mut merged, mut gets) = (snapshots * databases, 0.0);
        for level in &settings.levels {
            gets += arrived;
            arrived = arrived.min(each(*level) * databases);
            merged += arrived;
        }
        let retention = settings.retention.as_ref().map(|policy| policy.uploads.min(RETENTION_INTERVAL));
        let lists = retention.map_or(0.0, |interval| each(interval.max(Duration::from_secs(1))) * databases);
        let trials = settings.drill.as_ref().map_or(0.0, |drill| {
            each(drill.interval.max(Duration::from_secs(1))) * (drill.databases as f64).min(databases)
        });
        Requests { uploads, merged, gets, lists, trials }
    }

    /// What Amazon takes for them.
    pub fn dollars(&self) -> f64 {
        (self.uploads + self.merged + self.lists) * PUT_OR_LIST_DOLLARS + self.gets * GET_DOLLARS
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requests { uploads, merged, gets, lists, trials: _ } = self;
        let dollars = self.dollars();
        write!(
            formatter,
            "{uploads:.0} PUTs of changes, {merged:.0} of merged files and snapshots, {gets:.0} GETs, {lists:.0} LISTs: {dollars:.2} dollars"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicator::DrillSettings;

    #[test]
    fn all_that_is_asked_of_a_store_is_counted() {
        let settings = Settings::default();
        let one = Requests::of(&settings, 1);
        // A second, 30 s, 5 min and 1 h; a snapshot a day.
        let expected = Requests {
            uploads: 2_592_000.0,
            merged: 30.0 + 86_400.0 + 8_640.0 + 720.0,
            gets: 2_592_000.0 + 86_400.0 + 8_640.0,
            lists: 8_640.0,
            trials: 0.0,
        };
        assert_eq!(one, expected);
        assert!((one.dollars() - 14.56).abs() < 0.01, "{one}");
        assert_eq!(Requests::of(&settings, 3).uploads, 3.0 * one.uploads);
    }

    #[test]
    fn a_bound_on_uploads_holds_for_all_databases_and_for_what_is_merged_of_them() {
        let settings = Settings { uploads_a_month_max: Some(1_000), ..Settings::default() };
        let all = Requests::of(&settings, 100);
        assert_eq!((all.uploads, all.gets), (1_000.0, 3_000.0));
        assert_eq!(all.merged, 100.0 * 30.0 + 3.0 * 1_000.0);
    }

    #[test]
    fn what_is_restored_for_a_trial_is_counted_and_no_more_than_there_is() {
        let drill = DrillSettings { interval: Duration::from_secs(86_400), databases: 3, folder: "/tmp".into() };
        let settings = Settings { drill: Some(drill), ..Settings::default() };
        assert_eq!([1, 2, 9].map(|databases| Requests::of(&settings, databases).trials), [30.0, 60.0, 90.0]);
    }

    #[test]
    fn snapshots_without_a_pause_are_as_many_as_uploads() {
        let settings = Settings { levels: Vec::new(), snapshot_interval: Duration::ZERO, ..Settings::default() };
        assert_eq!(Requests::of(&settings, 1).merged, 2_592_000.0);
    }

    #[test]
    fn nothing_is_merged_or_listed_where_that_is_not_wanted() {
        let settings = Settings { levels: Vec::new(), retention: None, ..Settings::default() };
        let one = Requests::of(&settings, 1);
        assert_eq!((one.merged, one.gets, one.lists), (30.0, 0.0, 0.0));
    }
}
