//! Searches for the highest rate that keeps to a target. Pure: the caller tries rates and says what came of them.
//!
//! Rates lie on a grid on which each is higher than the one before by the tolerance. From where the search begins it doubles until a rate
//! misses, or halves until one holds; then it halves what is left between the highest that holds and the lowest that misses, until they
//! are neighbours. A miss bounds all that is found, and one slow moment makes one; so the rate that missed is tried once more then, and where it
//! holds, its miss counts no more and the search goes on above. That is late on purpose: the slow moment has passed by then. Where it misses again,
//! the rate that holds is measured. Where that misses, it has missed like any other, and the search goes on below.
//!
//! Promises, whatever a store answers: a rate is found only if it was measured to hold, and neither it nor any lower one was seen to miss twice, or
//! once without holding since; above a rate that missed none is tried until that one holds; the search ends, for no rate misses more
//! than twice. Where a store holds all rates up to its capacity and none above, what is found is within the tolerance of that, or within one
//! request a second. How often chance misleads it: docs/accuracy.md.
//!
//! The grid is shifted by chance from trial to trial, so that what it rounds off is in the interval over trials and not in every trial the
//! same.

use std::collections::{BTreeMap, BTreeSet};

/// No higher rate can be asked for.
pub const RATE_MAX: u64 = 10_000_000;
/// A rate that missed so often is not tried again.
const MISSES_MAX: u32 = 2;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try this rate, and say whether it held by [`Search::tried`].
    Try(u64),
    /// Measure this rate, and say whether it held by [`Search::measured`].
    Measure(u64),
    /// Nothing: this rate was measured, and held.
    Found(u64),
    /// Nothing: even this rate missed, and with a lower one too few requests would be answered to tell.
    NeverHeld(u64),
    /// Nothing: even this rate held, and no higher one can be asked for.
    AlwaysHeld(u64),
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Search {
    /// The rate at place 0.
    origin: f64,
    /// How much higher each is than the one before, as a factor.
    factor: f64,
    rate_min: u64,
    /// Places of rates that held when they were last tried.
    held: BTreeSet<i32>,
    /// Places of rates that missed when they were last tried.
    missed: BTreeSet<i32>,
    /// How often each rate missed. A fine grid has many places for one low rate.
    misses: BTreeMap<u64, u32>,
    /// [`MISSES_MAX`], but in a test that shows what for.
    misses_max: u32,
    found: Option<i32>,
}

/// What comes next, by places of the grid.
#[derive(Clone, Copy, Debug)]
enum Step {
    Try(i32),
    Measure(i32),
    NeverHeld(i32),
    AlwaysHeld,
}

impl Search {
    /// Begins about `rate`. Nothing below `rate_min` is tried. `shift`, from 0 to 1, is by which part of the tolerance the grid is shifted.
    pub fn new(rate: u64, tolerance_basis_points: u32, rate_min: u64, shift: f64) -> Self {
        let factor = 1.0 + f64::from(tolerance_basis_points.max(1)) / 10_000.0;
        let begin = rate.clamp(rate_min.clamp(1, RATE_MAX), RATE_MAX) as f64;
        Self {
            // Upwards would pass the highest rate of all.
            origin: begin * factor.powf(-shift.clamp(0.0, 1.0)),
            factor,
            rate_min: rate_min.clamp(1, RATE_MAX),
            held: BTreeSet::new(),
            missed: BTreeSet::new(),
            misses: BTreeMap::new(),
            misses_max: MISSES_MAX,
            found: None,
        }
    }

    /// The rate at a place of the grid.
    fn rate(&self, place: i32) -> u64 {
        let rate = self.origin * self.factor.powi(place);
        (rate.round().clamp(1.0, RATE_MAX as f64) as u64).max(self.rate_min)
    }

    /// How many places double the rate.
    fn doubling(&self) -> i32 {
        (2f64.ln() / self.factor.ln()).ceil().max(1.0) as i32
    }

    fn step(&self) -> Step {
        match (self.highest_held(), self.missed.first().copied()) {
            (None, None) => Step::Try(0),
            (Some(held), None) if self.rate(held) >= RATE_MAX => Step::AlwaysHeld,
            (Some(held), None) => Step::Try(held + self.doubling()),
            (None, Some(missed)) if self.rate(missed) > self.rate_min => Step::Try(missed - self.doubling()),
            (None, Some(missed)) if self.is_in_doubt(missed) => Step::Try(missed),
            (None, Some(missed)) => Step::NeverHeld(missed),
            (Some(held), Some(missed)) => {
                let missed = self.lowest_of_its_rate(held, missed);
                let is_in_doubt = self.is_in_doubt(missed);
                match self.are_neighbours(held, missed) {
                    true if is_in_doubt => Step::Try(missed),
                    true => Step::Measure(held),
                    // The miss below it was a slow moment's; this one may be, too.
                    false if is_in_doubt && self.misses.contains_key(&self.rate(held)) => Step::Try(missed),
                    false => Step::Try(i32::midpoint(held, missed)),
                }
            }
        }
    }

    /// Whether a rate that missed is to be tried again before it bounds what is found.
    fn is_in_doubt(&self, missed: i32) -> bool {
        self.misses.get(&self.rate(missed)).is_none_or(|misses| *misses < self.misses_max)
    }

    /// The lowest place above `held` with the rate of `missed`: a fine grid has many places for one low rate.
    fn lowest_of_its_rate(&self, held: i32, missed: i32) -> i32 {
        let rate = self.rate(missed);
        (held + 1..missed).rev().take_while(|place| self.rate(*place) == rate).last().unwrap_or(missed)
    }

    /// The highest place that held below all that missed.
    fn highest_held(&self) -> Option<i32> {
        let Some(&missed) = self.missed.first() else { return self.held.last().copied() };
        // Places at the lowest rate of all have the same one, which did not hold if it missed once.
        self.held.range(..missed).rev().find(|held| self.rate(**held) < self.rate(missed)).copied()
    }

    fn are_neighbours(&self, held: i32, missed: i32) -> bool {
        missed - held <= 1 || self.rate(missed) - self.rate(held) <= 1
    }

    /// What to do next. Says the same until it is told what came of it.
    pub fn next(&self) -> Next {
        if let Some(found) = self.found {
            return Next::Found(self.rate(found));
        }
        match self.step() {
            Step::Try(place) => Next::Try(self.rate(place)),
            Step::Measure(place) => Next::Measure(self.rate(place)),
            Step::NeverHeld(place) => Next::NeverHeld(self.rate(place)),
            Step::AlwaysHeld => Next::AlwaysHeld(RATE_MAX),
        }
    }

    /// Whether a lower rate than this can be tried.
    pub fn can_go_below(&self, rate: u64) -> bool {
        rate > self.rate_min
    }

    /// What came of [`Next::Try`].
    pub fn tried(&mut self, held: bool) {
        if let Step::Try(place) = self.step() {
            self.came(place, held);
        }
    }

    /// What came of [`Next::Measure`].
    pub fn measured(&mut self, held: bool) {
        if let Step::Measure(place) = self.step() {
            self.came(place, held);
            self.found = held.then_some(place);
        }
    }

    /// What counts of a rate is how it did last.
    fn came(&mut self, place: i32, held: bool) {
        let rate = self.rate(place);
        let of_others = |places: &BTreeSet<i32>| places.iter().copied().filter(|one| self.rate(*one) != rate).collect();
        let (held_before, missed_before): (BTreeSet<i32>, BTreeSet<i32>) =
            (of_others(&self.held), of_others(&self.missed));
        (self.held, self.missed) = (held_before, missed_before);
        if held {
            self.held.insert(place);
        } else {
            self.missed.insert(place);
            *self.misses.entry(rate).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that was tried and measured, in order: rate, whether it was measured, whether it held.
    type Course = Vec<(u64, bool, bool)>;

    /// Searches a store that is asked whether a rate holds.
    fn search(mut search: Search, mut holds: impl FnMut(u64) -> bool) -> (Next, Course) {
        let mut course = Course::new();
        for _ in 0..10_000 {
            match search.next() {
                Next::Try(rate) => {
                    let held = holds(rate);
                    course.push((rate, false, held));
                    search.tried(held);
                }
                Next::Measure(rate) => {
                    let held = holds(rate);
                    course.push((rate, true, held));
                    search.measured(held);
                }
                end => return (end, course),
            }
        }
        panic!("the search does not end: {:?}", &course[course.len() - 20..]);
    }

    proptest! {
        #[test]
        fn finds_the_capacity_of_a_store_within_the_tolerance(
            capacity in 100u64..9_000_000, begin in 1u64..10_000_000, tolerance in 10u32..5_000, shift in 0.0..1.0,
        ) {
            let (end, course) = search(Search::new(begin, tolerance, 50, shift), |rate| rate <= capacity);
            let Next::Found(rate) = end else { panic!("{end:?} of {capacity}") };
            prop_assert!(rate <= capacity);
            let next = (rate as f64 * (1.0 + f64::from(tolerance) / 10_000.0)).max(rate as f64 + 1.0);
            prop_assert!(next + 1.0 >= capacity as f64, "{rate} of {capacity}");
            prop_assert!(course.len() < 60, "{} steps", course.len());
        }

        /// Whatever a store answers, even by chance.
        #[test]
        fn never_reports_a_rate_at_which_the_target_failed(
            answers in proptest::collection::vec(any::<bool>(), 1..400), begin in 1u64..1_000_000, tolerance in 10u32..5_000,
            shift in 0.0..1.0,
        ) {
            let mut next = answers.iter().cycle();
            let mut asked = 0;
            let (end, course) = search(Search::new(begin, tolerance, 50, shift), |_| {
                asked += 1;
                // In the end it fails, so that not everything holds for ever.
                *next.next().unwrap() && asked < 2_000
            });
            if let Next::Found(rate) = end {
                prop_assert_eq!(course.last(), Some(&(rate, true, true)), "what was found was measured last, and held");
                for (missed, ..) in course.iter().filter(|(.., held)| !held) {
                    let last = course.iter().rfind(|(tried, ..)| tried == missed);
                    prop_assert!(*missed > rate || last.is_some_and(|(.., held)| *held), "{missed} missed, and {rate} was found");
                }
            }
            let mut misses = BTreeMap::<u64, u32>::new();
            let mut bounds = BTreeSet::new();
            for (rate, _, held) in course {
                let lowest = bounds.first().copied().unwrap_or(u64::MAX);
                prop_assert!(rate <= lowest, "{rate} was tried although {lowest} had missed");
                if held {
                    bounds.remove(&rate);
                } else {
                    bounds.insert(rate);
                    *misses.entry(rate).or_default() += 1;
                }
                prop_assert!(misses.get(&rate).is_none_or(|misses| *misses <= MISSES_MAX), "{rate} missed too often");
            }
        }

        /// Latency grows with load, and each look at it is noisy: what is found may lie too low, and hardly ever too high.
        #[test]
        fn noise_makes_what_is_found_lower_rather_than_higher(seed in any::<u64>()) {
            let capacity = 20_000.0;
            let mut noise = chance(seed);
            // Holds surely below 95 %, never above 105 %.
            let holds = |rate: u64| (rate as f64 / capacity - 0.95) / 0.1 < noise();
            let (end, _) = search(Search::new(1_000, 200, 50, 0.5), holds);
            let Next::Found(rate) = end else { panic!("{end:?}") };
            prop_assert!((0.9 * capacity..1.05 * capacity).contains(&(rate as f64)), "{rate}");
        }
    }

    /// Chance, from 0 to 1.
    fn chance(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = crate::content::seeds::mix(state, 1);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Found on a real store: the first step was slow, and what was found was 80 times too low.
    #[test]
    fn one_slow_step_bounds_nothing() {
        let (_, undisturbed) = search(Search::new(1_000, 300, 50, 0.0), |rate| rate <= 80_000);
        for slow in 0..undisturbed.len() {
            let mut step = 0;
            let (end, course) = search(Search::new(1_000, 300, 50, 0.0), |rate| {
                step += 1;
                step != slow + 1 && rate <= 80_000
            });
            let Next::Found(rate) = end else { panic!("{end:?}") };
            assert!((77_600..=80_000).contains(&rate), "{rate}, for step {slow} was slow: {course:?}");
        }
    }

    /// As of a store that has just been started: its first three steps are slow, at ever lower rates.
    #[test]
    fn a_slow_beginning_bounds_nothing_and_costs_a_few_steps() {
        let mut step = 0;
        let (end, course) = search(Search::new(1_000, 300, 50, 0.0), |rate| {
            step += 1;
            step > 3 && rate <= 80_000
        });
        assert!(matches!(end, Next::Found(77_600..=80_000)), "{end:?}");
        assert!(course.len() < 30, "{} steps: {course:?}", course.len());
    }

    /// What is found of a store whose capacity is 80,000, that misses so often though a rate is below that, for so many steps on end, and
    /// whose knee is 10 % wide: the share of searches that find less than nine tenths of it, the mean of what the others find, as a share of it, and
    /// the steps that a search takes.
    fn misled(misses_max: u32, slow: f64, steps_on_end: u32) -> (f64, f64, f64) {
        let capacity = 80_000.0;
        let (mut too_low, mut sum, mut steps) = (0, 0.0, 0);
        for seed in 0..1_000 {
            let (mut noise, mut moments) = (chance(seed), chance(!seed));
            let mut slow_steps = 0;
            let begun = Search { misses_max, ..Search::new(1_000, 300, 50, noise()) };
            let (end, course) = search(begun, |rate| {
                if slow_steps == 0 && moments() < slow / f64::from(steps_on_end) {
                    slow_steps = steps_on_end;
                }
                let is_slow = slow_steps > 0;
                slow_steps -= u32::from(is_slow);
                !is_slow && (rate as f64 / capacity - 0.95) / 0.1 < noise()
            });
            let Next::Found(rate) = end else { panic!("{end:?}") };
            match rate as f64 / capacity {
                share if share < 0.9 => too_low += 1,
                share => sum += share,
            }
            steps += course.len();
        }
        (f64::from(too_low) / 1_000.0, sum / f64::from(1_000 - too_low), steps as f64 / 1_000.0)
    }

    /// The table of docs/accuracy.md.
    #[test]
    fn slow_moments_hardly_ever_mislead() {
        println!("                     after one miss              after two");
        println!("slow steps  on end   too low   else  steps   too low   else  steps");
        for (slow, steps_on_end, too_low_max) in
            [(0.0, 1, 0.0), (0.02, 1, 0.01), (0.05, 1, 0.05), (0.05, 3, 0.05), (0.1, 1, 0.15)]
        {
            let [one, two] = [1, MISSES_MAX].map(|misses_max| misled(misses_max, slow, steps_on_end));
            let shown = |(too_low, mean, steps): (f64, f64, f64)| format!("{too_low:>7.3}  {mean:>5.3}  {steps:>5.1}");
            println!("{slow:>10.2}  {steps_on_end:>6}   {}   {}", shown(one), shown(two));
            assert!(two.0 <= too_low_max, "{slow} of the steps, {steps_on_end} on end: {}", two.0);
            // A lucky step lifts it by no more than the tolerance.
            assert!(two.1 < one.1 + 0.03, "{} and {}", one.1, two.1);
        }
    }

    #[test]
    fn a_store_that_never_holds_is_told_at_the_lowest_rate() {
        let (end, course) = search(Search::new(1_000, 300, 50, 0.0), |_| false);
        assert_eq!(end, Next::NeverHeld(50));
        assert_eq!(course.first(), Some(&(1_000, false, false)));
    }

    /// Found by chance by the property above: at the floor of the grid several places have one rate.
    #[test]
    fn the_lowest_rate_is_not_tried_again_at_another_place_once_it_missed_twice() {
        for tolerance in [10, 300, 4_164] {
            for holds_so_often in 1..30 {
                let mut held = 0;
                let (end, course) = search(Search::new(1_000, tolerance, 50, 0.2), |rate| {
                    held += u32::from(rate < 55);
                    rate < 55 && held <= holds_so_often
                });
                let misses: Vec<usize> = (0..course.len()).filter(|at| course[*at].0 == 50 && !course[*at].2).collect();
                assert!(misses.len() <= 2, "{end:?} after {course:?}");
                assert!(misses.get(1).is_none_or(|last| last + 1 == course.len()), "{end:?} after {course:?}");
            }
        }
    }

    #[test]
    fn a_store_that_always_holds_is_told_at_the_highest_rate() {
        let (end, _) = search(Search::new(1_000, 300, 50, 0.0), |_| true);
        assert_eq!(end, Next::AlwaysHeld(RATE_MAX));
    }

    #[test]
    fn what_misses_when_it_is_measured_is_looked_for_below() {
        let mut measured = 0;
        let mut search = Search::new(1_000, 300, 50, 0.0);
        let mut last = None;
        loop {
            match search.next() {
                Next::Try(rate) => search.tried(rate <= 5_000),
                Next::Measure(rate) => {
                    measured += 1;
                    // The first is measured once more: it held when it was tried again.
                    assert!(
                        last.is_none_or(|last| if measured == 2 { rate == last } else { rate < last }),
                        "{measured}"
                    );
                    last = Some(rate);
                    search.measured(measured == 3);
                }
                Next::Found(rate) => break assert_eq!((Some(rate), measured), (last, 3)),
                end => panic!("{end:?}"),
            }
        }
    }

    #[test]
    fn a_shifted_grid_begins_lower_by_less_than_the_tolerance() {
        let begins = |shift| match Search::new(1_000, 1_000, 50, shift).next() {
            Next::Try(rate) => rate,
            end => panic!("{end:?}"),
        };
        assert_eq!((begins(0.0), begins(0.5), begins(1.0)), (1_000, 953, 909));
    }
}
