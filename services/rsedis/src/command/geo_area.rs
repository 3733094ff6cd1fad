//! Which geohashes a part of the earth's surface has, as ranges of scores: so that a search does not look at every member.

use super::geo::{EARTH_RADIUS_METRES, LATITUDE_MAX, LONGITUDE_MAX, Place, STEPS, cell, gather, spread};

/// More cells in a row than this, and larger ones are taken: more members outside of the area against more lookups.
const CELLS_MAX: u32 = 4;
/// Cells in a row, but for that of an edge.
const CELLS: u32 = 1 << STEPS;
const SIDE: f64 = CELLS as f64;
/// What rounding may cost, as a part of a width.
const ROUNDING: f64 = 1e-9;

/// What surrounds a centre: at most so many metres to the north and south, and to the east and west along each circle of latitude.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) north_metres: f64,
    pub(super) east_metres: f64,
}

/// Ranges of geohashes (from included, to not included), ascending and apart from each other; nothing that is within reach is missing.
pub(super) fn ranges(centre: Place, reach: Reach) -> Vec<(u64, u64)> {
    let height = (reach.north_metres / EARTH_RADIUS_METRES).to_degrees() * (1.0 + ROUNDING);
    let (south, north) = (centre.latitude - height, centre.latitude + height);
    // The narrowest circle of latitude counts: there, a metre is the most degrees.
    let narrowest = south.abs().max(north.abs()).min(LATITUDE_MAX).to_radians().cos();
    let angle = reach.east_metres / (2.0 * EARTH_RADIUS_METRES);
    let half_chord = if angle < std::f64::consts::FRAC_PI_2 { angle.sin() / narrowest } else { 1.0 };
    let width = match half_chord < 1.0 {
        true => (2.0 * half_chord.asin()).to_degrees() * (1.0 + ROUNDING),
        false => LONGITUDE_MAX,
    };
    let (west, east) = (centre.longitude - width, centre.longitude + width);
    let mut strips = vec![(west, east)];
    if width < LONGITUDE_MAX && west < -LONGITUDE_MAX {
        strips.push((west + 2.0 * LONGITUDE_MAX, LONGITUDE_MAX));
    }
    if width < LONGITUDE_MAX && east > LONGITUDE_MAX {
        strips.push((-LONGITUDE_MAX, east - 2.0 * LONGITUDE_MAX));
    }
    if width >= LONGITUDE_MAX {
        strips = vec![(-LONGITUDE_MAX, LONGITUDE_MAX)];
    }
    let rows = cells(south, north, LATITUDE_MAX);
    let mut found: Vec<(u64, u64)> =
        strips.into_iter().flat_map(|(from, to)| blocks(rows, cells(from, to, LONGITUDE_MAX))).collect();
    found.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in found {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// The first and the last cell of an interval, with one more on each side. The eastern and northern edges have a cell for themselves,
/// behind all others.
fn cells(from: f64, to: f64, max: f64) -> (u32, u32) {
    let at = |value: f64| cell(value.clamp(-max, max), max);
    (at(from).saturating_sub(1), (at(to) + 1).min(CELLS))
}

/// Whether a score is that of a place.
pub(super) fn is_hash(score: f64) -> bool {
    // What is not negative, and has no bits beside those of the edges' cells.
    (0.0..4.0 * SIDE * SIDE).contains(&score) && {
        let bits = score as u64;
        gather(bits) <= CELLS && gather(bits >> 1) <= CELLS
    }
}

/// Hashes of a rectangle of cells, in squares of the smallest size that needs few of them.
fn blocks(rows: (u32, u32), columns: (u32, u32)) -> impl Iterator<Item = (u64, u64)> {
    let is_few = |(from, to): (u32, u32), bits: u32| (to >> bits) - (from >> bits) < CELLS_MAX;
    let bits = (0..STEPS).find(|bits| is_few(rows, *bits) && is_few(columns, *bits)).unwrap_or(STEPS);
    (rows.0 >> bits..=rows.1 >> bits).flat_map(move |row| {
        (columns.0 >> bits..=columns.1 >> bits).map(move |column| {
            let from = (spread(row) | spread(column) << 1) << (2 * bits);
            (from, from + (1 << (2 * bits)))
        })
    })
}
