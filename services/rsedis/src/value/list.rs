//! A list: a double-ended queue of listpacks of some KiB each.

use std::collections::VecDeque;

use crate::structure::listpack::{Item, Listpack};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The left one.
    Front,
    /// The right one.
    Back,
}

/// What an element takes beside its bytes, at most.
const ELEMENT_OVERHEAD: usize = 11;

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// None is empty.
    nodes: VecDeque<Listpack>,
    len: usize,
}

/// The bytes that a node may have, from the setting's number.
fn node_bytes_max(size: i64) -> usize {
    match size {
        1.. => 8 << 10,
        -1 => 4 << 10,
        0 | -2 => 8 << 10,
        -3 => 16 << 10,
        -4 => 32 << 10,
        _ => 64 << 10,
    }
}

fn has_room(node: &Listpack, text: &[u8], size: i64) -> bool {
    let fits = node.bytes() + text.len() + ELEMENT_OVERHEAD <= node_bytes_max(size);
    fits && (size <= 0 || node.len() < size as usize)
}

impl List {
    /// Elements in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory, nearly.
    pub fn memory(&self) -> usize {
        let nodes: usize = self.nodes.iter().map(Listpack::capacity).sum();
        nodes + self.nodes.capacity() * size_of::<Listpack>()
    }

    /// Its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Listpack> {
        self.nodes.iter()
    }

    /// Adds a node that was read from elsewhere at the back. False: it has nothing in it.
    pub fn push_node(&mut self, node: Listpack) -> bool {
        if node.is_empty() {
            return false;
        }
        self.len += node.len();
        if self.nodes.is_empty() {
            self.nodes.reserve_exact(1);
        }
        self.nodes.push_back(node);
        true
    }

    /// Adds an element at an end. `size` is the setting of nodes.
    pub fn push(&mut self, end: End, text: &[u8], size: i64) {
        self.len += 1;
        if self.nodes.is_empty() {
            // Most lists are short: one node, and no room for others.
            self.nodes.reserve_exact(1);
        }
        match end {
            End::Front => match self.nodes.front_mut() {
                Some(node) if has_room(node, text, size) => node.push_front(text),
                _ => self.nodes.push_front(single(text)),
            },
            End::Back => match self.nodes.back_mut() {
                Some(node) if has_room(node, text, size) => node.push_back(text),
                _ => self.nodes.push_back(single(text)),
            },
        }
    }

    /// Takes the element at an end; `take` gets it.
    pub fn pop(&mut self, end: End, take: impl FnOnce(Item<'_>)) -> bool {
        let node = match end {
            End::Front => self.nodes.front_mut(),
            End::Back => self.nodes.back_mut(),
        };
        let Some(node) = node else { return false };
        let at = match end {
            End::Front => node.first(),
            End::Back => node.previous(node.end()).unwrap_or(node.first()),
        };
        take(node.get(at));
        node.remove(at);
        if node.is_empty() {
            match end {
                End::Front => self.nodes.pop_front(),
                End::Back => self.nodes.pop_back(),
            };
        }
        self.len -= 1;
        true
    }

    /// The node of an index and the index in it.
    fn seek(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index * 2 < self.len {
            let mut left = index;
            for (number, node) in self.nodes.iter().enumerate() {
                match left.checked_sub(node.len()) {
                    Some(rest) => left = rest,
                    None => return Some((number, left)),
                }
            }
        } else {
            let mut behind = self.len - index;
            for (number, node) in self.nodes.iter().enumerate().rev() {
                match behind.checked_sub(node.len()) {
                    Some(rest) if rest > 0 => behind = rest,
                    _ => return Some((number, node.len() - behind)),
                }
            }
        }
        None
    }

    /// An index as commands give it, from the end if negative.
    pub fn index(&self, index: i64) -> Option<usize> {
        let index = if index < 0 { index + self.len as i64 } else { index };
        usize::try_from(index).ok().filter(|&index| index < self.len)
    }

    /// An element.
    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.iter_from(index).next()
    }

    /// Elements from an index on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = Item<'_>> {
        let (number, within) = self.seek(index).unwrap_or((self.nodes.len(), 0));
        self.nodes.range(number..).enumerate().flat_map(move |(place, node)| {
            let skipped = if place == 0 { within } else { 0 };
            node.iter().skip(skipped)
        })
    }

    /// All elements.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        self.nodes.iter().flat_map(Listpack::iter)
    }

    /// Puts another element in the place of one that is there.
    pub fn set(&mut self, index: usize, text: &[u8]) {
        if let Some((number, within)) = self.seek(index)
            && let Some(at) = self.nodes[number].seek(within as i64)
        {
            self.nodes[number].replace(at, text);
        }
    }

    /// Inserts before an index, or at the end.
    pub fn insert(&mut self, index: usize, text: &[u8], size: i64) {
        let Some((number, within)) = self.seek(index) else { return self.push(End::Back, text, size) };
        self.len += 1;
        let node = &mut self.nodes[number];
        let Some(at) = node.seek(within as i64) else { return };
        if has_room(node, text, size) {
            return node.insert(at, text);
        }
        let tail = node.split_off(at);
        let is_empty = node.is_empty();
        self.nodes.insert(number + 1, tail);
        match is_empty {
            true => self.nodes[number] = single(text),
            false if has_room(&self.nodes[number], text, size) => self.nodes[number].push_back(text),
            false => self.nodes.insert(number + 1, single(text)),
        }
    }

    /// Removes elements that are this text: at most so many (0: all) from the front, or from the back if negative; how many.
    pub fn remove(&mut self, count: i64, text: &[u8]) -> usize {
        let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
        let mut removed = 0;
        if count >= 0 {
            for node in &mut self.nodes {
                let mut at = node.first();
                while at != node.end() && removed < most {
                    if node.get(at).is(text) {
                        node.remove(at);
                        removed += 1;
                    } else {
                        at = node.next(at);
                    }
                }
            }
        } else {
            for node in self.nodes.iter_mut().rev() {
                let mut behind = node.end();
                while let Some(at) = node.previous(behind)
                    && removed < most
                {
                    if node.get(at).is(text) {
                        node.remove(at);
                        removed += 1;
                    }
                    behind = at;
                }
            }
        }
        self.nodes.retain(|node| !node.is_empty());
        self.len -= removed;
        removed
    }

    /// Keeps the elements from one index to another, both included.
    pub fn trim(&mut self, range: Option<(usize, usize)>) {
        let Some((from, to)) = range else {
            *self = Self::default();
            return;
        };
        self.drop_back(self.len - 1 - to);
        self.drop_front(from);
    }

    fn drop_front(&mut self, count: usize) {
        let mut left = count;
        while left > 0
            && let Some(node) = self.nodes.front_mut()
        {
            let length = node.len();
            if length <= left {
                self.nodes.pop_front();
                left -= length;
            } else {
                let to = node.seek(left as i64).unwrap_or(node.end());
                node.remove_range(node.first(), to);
                left = 0;
            }
        }
        self.len -= count;
    }

    fn drop_back(&mut self, count: usize) {
        let mut left = count;
        while left > 0
            && let Some(node) = self.nodes.back_mut()
        {
            let length = node.len();
            if length <= left {
                self.nodes.pop_back();
                left -= length;
            } else {
                let from = node.seek((length - left) as i64).unwrap_or(node.end());
                node.remove_range(from, node.end());
                left = 0;
            }
        }
        self.len -= count;
    }
}

fn single(text: &[u8]) -> Listpack {
    let mut node = Listpack::default();
    node.push_back(text);
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_a_list(size in prop_oneof![Just(-1i64), 1i64..5], actions in prop::collection::vec((0u8..9, any::<prop::sample::Index>(), 0u32..30), 0..400)) {
            let (mut list, mut model): (List, VecDeque<Vec<u8>>) = Default::default();
            for (action, place, number) in actions {
                // Some are large, so that nodes split.
                let text = match number {
                    0..20 => number.to_string().into_bytes(),
                    _ => vec![number as u8; number as usize * 60],
                };
                let index = place.index(model.len() + 1);
                match action {
                    0 | 1 => { list.push(End::Front, &text, size); model.push_front(text); }
                    2 | 3 => { list.push(End::Back, &text, size); model.push_back(text); }
                    4 => { let mut got = None; list.pop(End::Front, |item| got = Some(item.to_vec())); prop_assert_eq!(got, model.pop_front()); }
                    5 => { let mut got = None; list.pop(End::Back, |item| got = Some(item.to_vec())); prop_assert_eq!(got, model.pop_back()); }
                    6 => { list.insert(index, &text, size); model.insert(index, text); }
                    7 if index < model.len() => { list.set(index, &text); model[index] = text; }
                    8 if number < 3 && !model.is_empty() => {
                        let to = (index + model.len() / 2).min(model.len() - 1);
                        if index <= to {
                            list.trim(Some((index, to)));
                            model = model.range(index..=to).cloned().collect();
                        }
                    }
                    8 => {
                        let count = index as i64 % 4 - 2;
                        let matching: Vec<usize> = (0..model.len()).filter(|&at| model[at] == text).collect();
                        let gone: Vec<usize> = match count {
                            0 => matching,
                            1.. => matching.into_iter().take(count as usize).collect(),
                            _ => matching.into_iter().rev().take(-count as usize).collect(),
                        };
                        prop_assert_eq!(list.remove(count, &text), gone.len());
                        let mut at = 0;
                        model.retain(|_| { at += 1; !gone.contains(&(at - 1)) });
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len(), model.len());
                prop_assert!(list.nodes.iter().all(|node| !node.is_empty()));
                if index < model.len() {
                    prop_assert!(list.iter_from(index).map(|item| item.to_vec()).eq(model.range(index..).cloned()));
                }
            }
            prop_assert!(list.iter().map(|item| item.to_vec()).eq(model));
        }
    }
}
