//! Places on the earth: members of sorted sets whose scores are geohashes of 52 bits.

use super::geo_area::{self, Reach};
use super::options::{double, integer, is};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::number::{parse_double, whole};
use crate::protocol::{Args, OwnedArgs, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::value::{Value, Zset};

pub(super) const LONGITUDE_MAX: f64 = 180.0;
/// As far as the Mercator projection goes.
pub(super) const LATITUDE_MAX: f64 = 85.051_128_78;
pub(super) const STEPS: u32 = 26;
pub(super) const EARTH_RADIUS_METRES: f64 = 6_372_797.560_856;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

/// Bits of one number at every second place.
pub(super) fn spread(number: u32) -> u64 {
    (0..32).fold(0, |spread, bit| spread | u64::from(number >> bit & 1) << (2 * bit))
}

pub(super) fn gather(bits: u64) -> u32 {
    (0..32).fold(0, |number, bit| number | ((bits >> (2 * bit) & 1) as u32) << bit)
}

pub(super) fn cell(value: f64, max: f64) -> u32 {
    ((value + max) / (2.0 * max) * f64::from(1u32 << STEPS)) as u32
}

/// The middle of a cell.
fn middle(cell: u32, max: f64) -> f64 {
    let edge = |cell: f64| -max + cell / f64::from(1u32 << STEPS) * (2.0 * max);
    ((edge(f64::from(cell)) + edge(f64::from(cell) + 1.0)) / 2.0).clamp(-max, max)
}

impl Place {
    fn hash(self, latitude_max: f64) -> u64 {
        spread(cell(self.latitude, latitude_max)) | spread(cell(self.longitude, LONGITUDE_MAX)) << 1
    }

    fn of(score: f64) -> Self {
        const HALF: f64 = 9_223_372_036_854_775_808.0;
        // A score that is no geohash counts as in C on x86, where it wraps.
        let bits = match score < HALF {
            true => whole(score) as u64,
            false => whole(score - HALF) as u64 ^ 1 << 63,
        };
        Self { longitude: middle(gather(bits >> 1), LONGITUDE_MAX), latitude: middle(gather(bits), LATITUDE_MAX) }
    }

    fn latitude_distance(self, other: Self) -> f64 {
        EARTH_RADIUS_METRES * (radians(other.latitude) - radians(self.latitude)).abs()
    }

    /// Metres along the surface (haversine).
    fn distance(self, other: Self) -> f64 {
        let across = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if across == 0.0 {
            return self.latitude_distance(other);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let along = ((to - from) / 2.0).sin();
        let chord = along * along + from.cos() * to.cos() * across * across;
        2.0 * EARTH_RADIUS_METRES * chord.sqrt().asin()
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn place(longitude: &[u8], latitude: &[u8]) -> Outcome<Place> {
    let place = Place { longitude: double(longitude)?, latitude: double(latitude)? };
    if place.longitude.abs() > LONGITUDE_MAX || place.latitude.abs() > LATITUDE_MAX {
        let Place { longitude, latitude } = place;
        return Err(Failure::text(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")));
    }
    Ok(place)
}

/// Metres of a unit.
fn unit(word: &[u8]) -> Outcome<f64> {
    [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)]
        .into_iter()
        .find(|(name, _)| is(word, name))
        .map(|(_, metres)| metres)
        .ok_or(Failure::new("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

fn reply_distance(reply: &mut Reply, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

/// A coordinate with all its digits.
fn reply_coordinate(reply: &mut Reply, value: f64) {
    let text = format!("{value:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match reply.is_resp3 {
        true => {
            reply.bytes.push(b',');
            reply.bytes.extend_from_slice(text.as_bytes());
            reply.bytes.extend_from_slice(b"\r\n");
        }
        false => reply.bulk(text.as_bytes()),
    }
}

fn reply_place(reply: &mut Reply, place: Place) {
    reply.array(2);
    reply_coordinate(reply, place.longitude);
    reply_coordinate(reply, place.latitude);
}

pub(super) fn geoadd(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let options = args.from(2).iter().take_while(|word| ["NX", "XX", "CH"].iter().any(|known| is(word, known)));
    let first = 2 + options.count();
    let has = |word: &str| args.from(2).to(first - 2).iter().any(|option| is(option, word));
    let triples = args.from(first);
    if !triples.len().is_multiple_of(3) || (has("NX") && has("XX")) {
        return Err(SYNTAX);
    }
    let mut words: Vec<Vec<u8>> = args.to(first).iter().map(<[u8]>::to_vec).collect();
    words[0] = b"zadd".to_vec();
    for at in (0..triples.len()).step_by(3) {
        let place = place(triples.at(at), triples.at(at + 1))?;
        words.push(place.hash(LATITUDE_MAX).to_string().into_bytes());
        words.push(triples.at(at + 2).to_vec());
    }
    let words = OwnedArgs::new(words.iter().map(Vec::as_slice));
    let dirty = server.dirty;
    super::zsets::zadd(server, client, words.as_args())?;
    if server.dirty != dirty {
        let words: Vec<&[u8]> = words.as_args().iter().collect();
        server.effects.say(client.database, &words);
    }
    Ok(())
}

fn member(zset: Option<&Zset>, name: &[u8]) -> Option<Place> {
    zset.and_then(|zset| zset.score(name)).map(Place::of)
}

pub(super) fn geopos(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    client.reply.array(args.len() - 2);
    for name in args.from(2).iter() {
        match member(zset, name) {
            Some(place) => reply_place(&mut client.reply, place),
            None => client.reply.null_array(),
        }
    }
    Ok(())
}

pub(super) fn geohash(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    client.reply.array(args.len() - 2);
    for name in args.from(2).iter() {
        match member(zset, name) {
            Some(place) => {
                // The usual geohash has all latitudes, and 55 bits where we have 52.
                let bits = place.hash(90.0);
                let letter = |place: u32| match place {
                    10 => ALPHABET[0],
                    place => ALPHABET[(bits >> (52 - (place + 1) * 5)) as usize & 31],
                };
                client.reply.bulk(&(0..11).map(letter).collect::<Vec<u8>>());
            }
            None => client.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn geodist(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let metres = match args.get(4) {
        None => 1.0,
        Some(word) if args.len() == 5 => unit(word)?,
        Some(_) => return Err(SYNTAX),
    };
    let zset = server.typed::<Zset>(client.database, &Key::new(args.at(1)))?;
    match (member(zset, args.at(2)), member(zset, args.at(3))) {
        (Some(from), Some(to)) => reply_distance(&mut client.reply, from.distance(to) / metres),
        _ => client.reply.null(),
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

impl Shape {
    /// How far it goes from its centre.
    fn reach(self) -> Reach {
        match self {
            Self::Circle { radius } => Reach { north_metres: radius, east_metres: radius },
            Self::Box { width, height } => Reach { north_metres: height / 2.0, east_metres: width / 2.0 },
        }
    }

    /// The distance of a place from the centre, if it is inside; all in metres.
    fn distance(self, centre: Place, place: Place) -> Option<f64> {
        match self {
            Self::Circle { radius } => Some(centre.distance(place)).filter(|distance| *distance <= radius),
            Self::Box { width, height } => {
                let level = Place { longitude: centre.longitude, latitude: place.latitude };
                let is_inside = place.latitude_distance(centre) <= height / 2.0 && place.distance(level) <= width / 2.0;
                is_inside.then(|| centre.distance(place))
            }
        }
    }
}

/// What a search is asked for.
#[derive(Default)]
struct Search<'a> {
    centre: Option<Place>,
    has_member: bool,
    has_place: bool,
    shape: Option<Shape>,
    metres: f64,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    is_any: bool,
    /// True: descending.
    order: Option<bool>,
    count: Option<usize>,
    store: Option<&'a [u8]>,
    stores_distance: bool,
}

/// Which command it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Radius { may_store: bool },
    RadiusByMember { may_store: bool },
    Search,
    SearchStore,
}

fn radius(length: &[u8], word: &[u8]) -> Outcome<(f64, f64)> {
    let length = parse_double(length).ok_or(Failure::new("ERR need numeric radius"))?;
    if length < 0.0 {
        return Err(Failure::new("ERR radius cannot be negative"));
    }
    let metres = unit(word)?;
    Ok((length * metres, metres))
}

const NOT_A_MEMBER: Failure = Failure::new("ERR could not decode requested zset member");

fn options<'a>(args: Args<'a>, form: Form, zset: Option<&Zset>) -> Outcome<Search<'a>> {
    let mut search = Search { metres: 1.0, ..Search::default() };
    let may_store = matches!(form, Form::Radius { may_store: true } | Form::RadiusByMember { may_store: true });
    let is_search = matches!(form, Form::Search | Form::SearchStore);
    let mut at = match form {
        Form::Radius { .. } => {
            search.centre = Some(place(args.at(2), args.at(3))?);
            let (radius, metres) = radius(args.at(4), args.at(5))?;
            (search.shape, search.metres) = (Some(Shape::Circle { radius }), metres);
            6
        }
        Form::RadiusByMember { .. } => {
            if zset.is_some() {
                search.centre = Some(member(zset, args.at(2)).ok_or(NOT_A_MEMBER)?);
                let (radius, metres) = radius(args.at(3), args.at(4))?;
                (search.shape, search.metres) = (Some(Shape::Circle { radius }), metres);
            }
            5
        }
        Form::Search => 2,
        Form::SearchStore => {
            search.store = Some(args.at(1));
            3
        }
    };
    while let Some(word) = args.get(at) {
        let more = args.len() - at - 1;
        match word {
            _ if is(word, "WITHDIST") => search.with_distance = true,
            _ if is(word, "WITHHASH") => search.with_hash = true,
            _ if is(word, "WITHCOORD") => search.with_place = true,
            _ if is(word, "ANY") => search.is_any = true,
            _ if is(word, "ASC") => search.order = Some(false),
            _ if is(word, "DESC") => search.order = Some(true),
            _ if is(word, "COUNT") && more > 0 => {
                let count = usize::try_from(integer(args.at(at + 1))?).ok().filter(|count| *count > 0);
                search.count = Some(count.ok_or(Failure::new("ERR COUNT must be > 0"))?);
                at += 1;
            }
            _ if may_store && more > 0 && (is(word, "STORE") || is(word, "STOREDIST")) => {
                search.store = Some(args.at(at + 1));
                search.stores_distance = is(word, "STOREDIST");
                at += 1;
            }
            _ if form == Form::SearchStore && is(word, "STOREDIST") => search.stores_distance = true,
            _ if is_search && is(word, "FROMMEMBER") && more > 0 && !search.has_place => {
                search.has_member = true;
                if zset.is_some() {
                    search.centre = Some(member(zset, args.at(at + 1)).ok_or(NOT_A_MEMBER)?);
                }
                at += 1;
            }
            _ if is_search && is(word, "FROMLONLAT") && more > 1 && !search.has_member => {
                search.has_place = true;
                search.centre = Some(place(args.at(at + 1), args.at(at + 2))?);
                at += 2;
            }
            _ if is_search && is(word, "BYRADIUS") && more > 1 && !matches!(search.shape, Some(Shape::Box { .. })) => {
                let (radius, metres) = radius(args.at(at + 1), args.at(at + 2))?;
                (search.shape, search.metres) = (Some(Shape::Circle { radius }), metres);
                at += 2;
            }
            _ if is_search && is(word, "BYBOX") && more > 2 && !matches!(search.shape, Some(Shape::Circle { .. })) => {
                let side = |at: usize, name| {
                    parse_double(args.at(at)).ok_or_else(|| Failure::text(format!("ERR need numeric {name}")))
                };
                let (width, height) = (side(at + 1, "width")?, side(at + 2, "height")?);
                if width < 0.0 || height < 0.0 {
                    return Err(Failure::new("ERR height or width cannot be negative"));
                }
                search.metres = unit(args.at(at + 3))?;
                search.shape = Some(Shape::Box { width: width * search.metres, height: height * search.metres });
                at += 3;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    if search.store.is_some() && (search.with_distance || search.with_hash || search.with_place) {
        let name = if is_search { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
        return Err(Failure::text(format!(
            "ERR {name} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
        )));
    }
    let name = String::from_utf8_lossy(args.at(0));
    if is_search && !search.has_member && !search.has_place {
        return Err(Failure::text(format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}")));
    }
    if is_search && search.shape.is_none() {
        return Err(Failure::text(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}")));
    }
    if search.is_any && search.count.is_none() {
        return Err(Failure::new("ERR the ANY argument requires COUNT argument"));
    }
    Ok(search)
}

/// A member that was found.
struct Found {
    member: Vec<u8>,
    score: f64,
    distance: f64,
}

/// A sorted set with fewer members is looked through as a whole: that takes no longer than to look up the ends of some ranges.
const MEMBERS_LOOKED_THROUGH: usize = 256;

/// Ranks between which all members of an area are.
fn ranks(zset: &Zset, centre: Place, shape: Shape) -> Vec<(usize, usize)> {
    if zset.len() < MEMBERS_LOOKED_THROUGH {
        return vec![(0, zset.len())];
    }
    let below = |hash: u64| zset.partition(|_, score| score < hash as f64);
    geo_area::ranges(centre, shape.reach()).into_iter().map(|(from, to)| (below(from), below(to))).collect()
}

fn find(zset: &Zset, search: &Search<'_>) -> Vec<Found> {
    let (Some(centre), Some(shape)) = (search.centre, search.shape) else { return Vec::new() };
    let mut found = Vec::new();
    for (from, to) in ranks(zset, centre, shape) {
        zset.range(from, to, |member, score| {
            // One of few is looked at whatever it is: what is no geohash lies in no area, as in Redis.
            if let Some(distance) = shape.distance(centre, Place::of(score)).filter(|_| geo_area::is_hash(score)) {
                found.push(Found { member: member.to_vec(), score, distance: distance / search.metres });
            }
        });
    }
    // The nearest of many, unless any will do.
    let order = search.order.or((search.count.is_some() && !search.is_any).then_some(false));
    if search.is_any
        && let Some(count) = search.count
    {
        found.truncate(count);
    }
    if let Some(is_descending) = order {
        found.sort_by(|one, other| one.distance.total_cmp(&other.distance));
        if is_descending {
            found.reverse();
        }
    }
    found.truncate(search.count.unwrap_or(usize::MAX));
    found
}

fn run(server: &mut Server, client: &mut Session, args: Args<'_>, form: Form) -> Outcome {
    let (database, packing) = (client.database, server.packing());
    let source = Key::new(args.at(if form == Form::SearchStore { 2 } else { 1 }));
    let zset = server.typed::<Zset>(database, &source)?;
    let search = options(args, form, zset)?;
    let found = zset.map(|zset| find(zset, &search)).unwrap_or_default();
    if let Some(target) = search.store {
        return store(server, client, target, &found, search.stores_distance, packing);
    }
    let reply = &mut client.reply;
    let details = [search.with_distance, search.with_hash, search.with_place].iter().filter(|with| **with).count();
    reply.array(found.len());
    for one in found {
        if details > 0 {
            reply.array(details + 1);
        }
        reply.bulk(&one.member);
        if search.with_distance {
            reply_distance(reply, one.distance);
        }
        if search.with_hash {
            reply.integer(whole(one.score));
        }
        if search.with_place {
            reply_place(reply, Place::of(one.score));
        }
    }
    Ok(())
}

fn store(
    server: &mut Server,
    client: &mut Session,
    target: &[u8],
    found: &[Found],
    stores_distance: bool,
    packing: crate::value::Packing,
) -> Outcome {
    let (key, database) = (Key::new(target), client.database);
    let mut zset = Zset::default();
    for one in found {
        zset.insert(&one.member, if stores_distance { one.distance } else { one.score }, &packing);
    }
    let was_there = server.put(database, &key, Value::Zset(zset));
    if !found.is_empty() {
        server.changed_string(database, target);
    } else if was_there {
        server.replaced_by_nothing(database, target);
    }
    client.reply.count(found.len());
    Ok(())
}

pub(super) fn georadius(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    run(server, client, args, Form::Radius { may_store: true })
}

pub(super) fn georadius_ro(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    run(server, client, args, Form::Radius { may_store: false })
}

pub(super) fn georadiusbymember(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    run(server, client, args, Form::RadiusByMember { may_store: true })
}

pub(super) fn georadiusbymember_ro(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    run(server, client, args, Form::RadiusByMember { may_store: false })
}

pub(super) fn geosearch(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    run(server, client, args, Form::Search)
}

pub(super) fn geosearchstore(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    run(server, client, args, Form::SearchStore)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Also at the poles, and where the longitude jumps.
        #[test]
        fn a_search_by_ranges_misses_nothing_that_a_look_at_all_finds(
            mut places in prop::collection::vec((-180.0..=180.0, -85.05..=85.05), 300..400),
            (longitude, latitude) in (-180.0..=180.0, -85.05..=85.05),
            (magnitude, height) in (1.0..7.5, 0.01..2.0),
            is_box in any::<bool>(),
        ) {
            places.extend([(180.0, LATITUDE_MAX), (180.0, 0.0), (0.0, LATITUDE_MAX), (-180.0, -LATITUDE_MAX)]);
            let mut zset = Zset::default();
            for (number, (longitude, latitude)) in places.into_iter().enumerate() {
                let hash = Place { longitude, latitude }.hash(LATITUDE_MAX);
                zset.insert(number.to_string().as_bytes(), hash as f64, &crate::value::Packing::default());
            }
            let (centre, size) = (Place { longitude, latitude }, 10f64.powf(magnitude));
            let shape = match is_box {
                true => Shape::Box { width: size, height: size * height },
                false => Shape::Circle { radius: size },
            };
            let mut all = Vec::new();
            zset.range(0, zset.len(), |member, score| {
                if shape.distance(centre, Place::of(score)).is_some() {
                    all.push(member.to_vec());
                }
            });
            let search = Search { centre: Some(centre), shape: Some(shape), metres: 1.0, ..Search::default() };
            let found: Vec<Vec<u8>> = find(&zset, &search).into_iter().map(|one| one.member).collect();
            prop_assert_eq!(found, all);
        }
    }

    /// A kilometre has few of twenty thousand places around the earth.
    #[test]
    fn a_small_search_looks_at_few_members() {
        let mut zset = Zset::default();
        for number in 0..20_000u32 {
            let longitude = f64::from(number % 360) - 179.5;
            let place = Place { longitude, latitude: f64::from(number / 360) - 27.0 };
            zset.insert(number.to_string().as_bytes(), place.hash(LATITUDE_MAX) as f64, &Default::default());
        }
        let ranks = ranks(&zset, Place { longitude: 13.4, latitude: 20.9 }, Shape::Circle { radius: 1_000.0 });
        let looked_at: usize = ranks.iter().map(|(from, to)| to - from).sum();
        assert!(looked_at < 20, "{looked_at}");
    }

    /// Palermo and Catania of Redis's own documentation.
    #[test]
    fn known_places_have_known_hashes() {
        let palermo = Place { longitude: 13.361_389, latitude: 38.115_556 };
        assert_eq!(palermo.hash(LATITUDE_MAX), 3_479_099_956_230_698);
        let catania = Place::of(3_479_447_370_796_909.0);
        assert_eq!(format!("{:.4}", Place::of(3_479_099_956_230_698.0).distance(catania)), "166274.1516");
    }
}
