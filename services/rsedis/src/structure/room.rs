//! How much memory to ask for: what the allocator would give anyway, so that nothing of it lies idle.

/// What jemalloc takes for so many bytes: 8; then 16 apart, up to 128; then four classes to each doubling.
#[inline]
pub const fn room_for(bytes: usize) -> usize {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2)),
    }
}

/// Makes room for more bytes, if there is too little. A value that grows byte by byte is moved four times for each doubling, and has
/// no more than a quarter to spare.
#[inline]
pub fn make_room(bytes: &mut Vec<u8>, more: usize) {
    let needed = bytes.len() + more;
    if bytes.capacity() < needed {
        bytes.reserve_exact(room_for(needed) - bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tikv_jemalloc_ctl::{Access as _, AsName as _};

    fn told<T: Copy>(name: &str) -> T
    where
        tikv_jemalloc_ctl::Name: tikv_jemalloc_ctl::Access<T>,
    {
        format!("{name}\0").into_bytes().leak().name().read().unwrap()
    }

    #[test]
    fn classes_are_those_of_jemalloc() {
        let (small, large): (u32, u32) = (told("arenas.nbins"), told("arenas.nlextents"));
        let small = (0..small).map(|number| told::<usize>(&format!("arenas.bin.{number}.size")));
        let large = (0..large.min(60)).map(|number| told::<usize>(&format!("arenas.lextent.{number}.size")));
        let mut before = 0;
        for class in small.chain(large) {
            assert_eq!((room_for(before + 1), room_for(class)), (class, class));
            before = class;
        }
        assert!(before > 100 << 20, "{before}");
    }
}
