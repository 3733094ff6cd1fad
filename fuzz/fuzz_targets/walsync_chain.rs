//! Any listing of a replica is planned from or refused: a plan leads from a snapshot to its target without a hole, a follower's way from where it
//! stands, and what retention keeps restores from what it leaves.
#![no_main]
// Who panics has found something.
#![allow(clippy::expect_used, clippy::panic, clippy::type_complexity, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;
use ltx::FileName;
use std::time::Duration;
use walsync::chain::{Chain, NoWay, way_from};
use walsync::compaction::{LITESTREAM_INTERVALS, Levels};
use walsync::replica::RemoteFile;
use walsync::retention::{Policy, plan};

fn is_row(files: &[RemoteFile], from: u64, to: u64) {
    let mut at = from;
    for file in files {
        assert!(file.name.min_txid <= at + 1 && file.name.max_txid > at, "{files:?} from {from}");
        at = file.name.max_txid;
    }
    assert_eq!(at, to);
}

fuzz_target!(|input: (u64, i64, i64, Vec<(u8, u64, u8, u16, i32)>)| {
    let (point, time, now, files) = input;
    let files: Vec<RemoteFile> = files
        .into_iter()
        .take(64)
        .filter_map(|(level, min, length, size, minutes)| {
            // Near each other, or there would be nothing but holes; some at the end of what a name can say.
            let min = if level & 16 == 0 { min % 64 } else { min };
            let name = FileName { min_txid: min, max_txid: min.checked_add(length.into())? };
            let name: FileName = name.to_string().parse().ok()?;
            let modified_millis = i64::from(minutes) * 60_000;
            Some(RemoteFile { level: level % 10, name, size: size.into(), modified_millis })
        })
        .collect();
    let chain = Chain::new(files.clone());
    for target in files.iter().map(|file| file.name.max_txid).chain([point]) {
        if let Ok(plan) = chain.plan(target) {
            assert_eq!(plan[0].name.min_txid, 1);
            is_row(&plan, 0, target);
        }
        let way = way_from(&files, target);
        is_row(&way.files, target, way.reached);
    }
    let _ = chain.point_at(time, now, |file: &RemoteFile| Ok::<i64, NoWay>(file.modified_millis));
    let levels = Levels::new(&files, 3, Duration::ZERO);
    if let Some(level) = levels.due(&LITESTREAM_INTERVALS, Duration::from_secs(4000)) {
        let batch = levels.batch(level);
        assert!(batch.windows(2).all(|pair| pair[1].min_txid <= pair[0].max_txid + 1), "{batch:?}");
    }
    if let Ok(planned) = plan(&files, &Policy::default(), 3, now) {
        let left = files.iter().copied().filter(|file| !planned.remove.contains(file)).collect();
        let left = Chain::new(left);
        assert!(planned.points.iter().all(|point| left.is_restorable(*point)));
    }
});
