//! One word that owns bytes, or a box.
//!
//! Rust's own `Box<[u8]>` takes two words, and an enum of it and of a `Box` as well. Where there is one for each of millions of keys,
//! the second word is a tenth of all memory. [`Thin`] takes one: the length lies in front of the bytes (as in a [`pair`]), and what it
//! owns, with two bits that are the caller's, stands in the low bits of the address.
//!
//! Nothing but what is needed is allocated. All of it is safe to use, whatever the caller does.
//!
//! # Why this is unsafe
//!
//! A pointer with bits in it, and memory whose size is known from what lies in it, have no safe form in Rust. The lints of the
//! workspace forbid `unsafe`, this crate alone has lints of its own (a test of the architecture looks), and there is none outside
//! of this file. What it rests on:
//!
//! - The word comes from [`Thin::bytes`] or [`Thin::boxed`], never changes, and is in one `Thin` at a time. Its low three bits tell which: both allocate at
//!   addresses that are multiples of eight.
//! - The length in front is written once, before anybody has the word, and no slice that is handed out covers it: the memory is
//!   freed with the layout that it was allocated with.
//! - Who has `&Thin` gets shared references, who has `&mut Thin` unique ones, for as long.
//!
//! Its tests run under Valgrind with every change, and by hand in a sanitizer or in Miri: `README.md` of rsedis says how.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, copy_nonoverlapping};
use std::slice;

pub mod pair;
#[cfg(test)]
mod tests;

/// Of all that is allocated here; its low bits are free in every address.
const ALIGNMENT: usize = 8;
const BITS: usize = ALIGNMENT - 1;
/// What the low bits are where a box is owned; below stand marks.
const BOXED: usize = 4;
/// Marks that the caller can give to bytes: 0 to 3.
pub const MARKS: u8 = BOXED as u8;

// Sizes below are sums of a u32 and a few bytes.
const _: () = assert!(usize::BITS == 64, "a length of 32 bits and its head fit into a size");

/// Bytes and nothing else.
pub type Bytes = Thin<Infallible>;

/// See the crate's description.
pub struct Thin<T> {
    /// The address of what is owned, plus [`BOXED`] or a mark.
    word: NonNull<u8>,
    owns: PhantomData<Box<T>>,
}

/// What is owned.
#[derive(Debug, PartialEq, Eq)]
pub enum View<'a, T> {
    /// Bytes and their mark.
    Bytes(u8, &'a [u8]),
    /// What is in the box.
    Boxed(&'a T),
}

/// The same, to change it.
#[derive(Debug, PartialEq, Eq)]
pub enum ViewMut<'a, T> {
    /// Bytes and their mark.
    Bytes(u8, &'a mut [u8]),
    /// What is in the box.
    Boxed(&'a mut T),
}

// SAFETY: it owns bytes, which are `Send`, or a `Box<T>`, and shares neither with anybody.
unsafe impl<T: Send> Send for Thin<T> {}
// SAFETY: who has `&Thin` gets `&[u8]` or `&T`, and nothing is changed behind a shared reference.
unsafe impl<T: Sync> Sync for Thin<T> {}

/// Of so many bytes, which are at most `u32::MAX`, with their length.
#[inline]
fn layout(length: usize) -> Layout {
    match Layout::from_size_align(pair::head_bytes(length) + length, ALIGNMENT) {
        Ok(layout) => layout,
        // Never: the size is below 2^33. Whoever finds a way here gets no memory instead of too little.
        Err(_) => handle_alloc_error(Layout::new::<u8>()),
    }
}

impl<T> Thin<T> {
    /// These parts, one behind the other, in one allocation. The mark is below [`MARKS`].
    ///
    /// # Panics
    ///
    /// With a larger mark, and with more than `u32::MAX` bytes.
    #[inline]
    pub fn bytes<const PARTS: usize>(mark: u8, parts: [&[u8]; PARTS]) -> Self {
        assert!(mark < MARKS, "a mark is below {MARKS}");
        let length = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()));
        assert!(length <= u32::MAX as usize, "at most 2^32 - 1 bytes");
        let layout = layout(length);
        // SAFETY: the size is not zero: the head is in it.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let mut to = start;
        let mut append = |bytes: &[u8]| {
            // SAFETY: what is appended below is the head and all parts, which is what was allocated; so this many bytes are left
            // behind `to`, or none, with `to` at the end. Nobody else knows of the memory yet: it overlaps with no slice.
            to = unsafe {
                copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len());
                to.add(bytes.len())
            };
        };
        pair::with_head(length, &mut append);
        for part in parts {
            append(part);
        }
        Self { word: start.map_addr(|address| address | usize::from(mark)), owns: PhantomData }
    }

    /// A box.
    #[inline]
    pub fn boxed(value: Box<T>) -> Self {
        const { assert!(align_of::<T>() >= ALIGNMENT, "the low bits of its address are taken") };
        let start = NonNull::from(Box::leak(value)).cast::<u8>();
        Self { word: start.map_addr(|address| address | BOXED), owns: PhantomData }
    }

    /// The address of what is owned.
    #[inline]
    fn start(&self) -> *mut u8 {
        self.word.as_ptr().map_addr(|address| address & !BITS)
    }

    /// [`BOXED`] or a mark.
    #[inline]
    fn bits(&self) -> usize {
        self.word.addr().get() & BITS
    }

    /// Where the bytes begin, and how many there are.
    ///
    /// # Safety
    ///
    /// Bytes are owned, no box.
    #[inline]
    unsafe fn extent(&self) -> (*mut u8, usize) {
        let start = self.start();
        // SAFETY: at least one byte was allocated, and written, since bytes are owned. Whoever has `&self` keeps it from being freed.
        let first = usize::from(unsafe { start.read() });
        // SAFETY: `bytes` has written a head there that begins with this byte, which tells how long it is.
        let head = unsafe { slice::from_raw_parts(start, pair::head_bytes(first)) };
        let (from, to) = pair::span(head);
        // SAFETY: behind the head are the bytes, or the end of the allocation.
        (unsafe { start.add(from) }, to - from)
    }

    /// What is owned.
    #[inline]
    pub fn view(&self) -> View<'_, T> {
        match self.bits() {
            // SAFETY: only `boxed` sets these bits, on the address of a `T` that is ours; `&self` lends it.
            BOXED => View::Boxed(unsafe { &*self.start().cast::<T>() }),
            mark => {
                // SAFETY: without these bits, bytes are owned.
                let (from, length) = unsafe { self.extent() };
                // SAFETY: so many bytes were written there, and `&self` lends them.
                View::Bytes(mark as u8, unsafe { slice::from_raw_parts(from, length) })
            }
        }
    }

    /// The same, to change it. The bytes' number and mark stay.
    #[inline]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        match self.bits() {
            // SAFETY: as in `view`; `&mut self` lends it to nobody else.
            BOXED => ViewMut::Boxed(unsafe { &mut *self.start().cast::<T>() }),
            mark => {
                // SAFETY: without these bits, bytes are owned.
                let (from, length) = unsafe { self.extent() };
                // SAFETY: as in `view`; `&mut self` lends them to nobody else, and the head is not among them.
                ViewMut::Bytes(mark as u8, unsafe { slice::from_raw_parts_mut(from, length) })
            }
        }
    }

    /// The box, or the bytes that there are instead.
    #[inline]
    pub fn into_box(self) -> Result<Box<T>, Bytes> {
        let this = ManuallyDrop::new(self);
        if this.bits() != BOXED {
            return Err(Bytes { word: this.word, owns: PhantomData });
        }
        // SAFETY: only `boxed` sets these bits, on what `Box::leak` gave. It is not dropped a second time: `this` never is.
        Ok(unsafe { Box::from_raw(this.start().cast::<T>()) })
    }

    /// Bytes that were asked of the allocator, without what is behind a box.
    #[inline]
    pub fn allocated(&self) -> usize {
        match self.view() {
            View::Boxed(_) => size_of::<T>(),
            View::Bytes(_, bytes) => layout(bytes.len()).size(),
        }
    }
}

impl Bytes {
    /// A copy of these.
    #[inline]
    pub fn copy(bytes: &[u8]) -> Self {
        Self::bytes(0, [bytes])
    }

    /// Their mark.
    #[inline]
    pub fn mark(&self) -> u8 {
        self.bits() as u8
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self.view() {
            View::Bytes(_, bytes) => bytes,
            View::Boxed(none) => match *none {},
        }
    }

    /// The same, to change them.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.view_mut() {
            ViewMut::Bytes(_, bytes) => bytes,
            ViewMut::Boxed(none) => match *none {},
        }
    }
}

impl Clone for Bytes {
    /// With the same mark.
    fn clone(&self) -> Self {
        Self::bytes(self.mark(), [self.as_slice()])
    }
}

impl<T> Drop for Thin<T> {
    #[inline]
    fn drop(&mut self) {
        if self.bits() == BOXED {
            // SAFETY: only `boxed` sets these bits, on what `Box::leak` gave, and this is the last use of the word.
            drop(unsafe { Box::from_raw(self.start().cast::<T>()) });
            return;
        }
        // SAFETY: without these bits, bytes are owned.
        let (_, length) = unsafe { self.extent() };
        // SAFETY: it was allocated in `bytes` with the layout of this length, which nobody could change, and this is its last use.
        unsafe { dealloc(self.start(), layout(length)) };
    }
}

impl<T: fmt::Debug> fmt::Debug for Thin<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(formatter)
    }
}
