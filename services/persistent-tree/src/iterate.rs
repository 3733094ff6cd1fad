//! Walks a tree in order.

use std::cmp::Ordering;

use super::{Entry, Node};

/// Entries in order, from where a probe began.
#[derive(Debug)]
pub struct Iter<'a, E> {
    /// From the root to the leaf: nodes, and which of their items comes next.
    path: Vec<(&'a Node<E>, usize)>,
}

impl<'a, E: Entry> Iter<'a, E> {
    pub(super) fn new(root: &'a Node<E>, probe: impl Fn(&E) -> Ordering) -> Self {
        let mut path = Vec::new();
        let mut node = root;
        loop {
            match node {
                Node::Leaf(entries) => {
                    path.push((node, entries.partition_point(|entry| probe(entry).is_lt())));
                    return Self { path };
                }
                Node::Inner(inner) => {
                    let children = &inner.children;
                    let after = children.partition_point(|child| child.begins(|first| probe(first).is_lt()));
                    let at = after.saturating_sub(1);
                    path.push((node, at + 1));
                    node = &children[at].node;
                }
            }
        }
    }
}

impl<'a, E: Entry> Iterator for Iter<'a, E> {
    type Item = &'a E;

    fn next(&mut self) -> Option<&'a E> {
        loop {
            let (node, at) = self.path.last_mut()?;
            match node {
                Node::Leaf(entries) => {
                    if let Some(entry) = entries.get(*at) {
                        *at += 1;
                        return Some(entry);
                    }
                    self.path.pop();
                }
                Node::Inner(inner) => match inner.children.get(*at) {
                    Some(child) => {
                        *at += 1;
                        self.path.push((&child.node, 0));
                    }
                    None => drop(self.path.pop()),
                },
            }
        }
    }
}
