use super::*;

#[test]
fn one_seed_replays_to_the_same_end() {
    for seed in 0..20 {
        let (first, second) = (run(seed, Options::default()), run(seed, Options::default()));
        assert_eq!((first.fingerprint, first.stats), (second.fingerprint, second.stats), "seed {seed}");
    }
}

#[test]
fn some_seeds_break_no_promise() {
    for seed in 0..100 {
        let report = run(seed, Options::default());
        assert_eq!(report.violation, None, "seed {seed}");
    }
}
