//! An ordered, persistent tree: a clone costs a reference, and keeps what it saw while the original goes on changing.
//!
//! A B+ tree whose nodes are shared. A change copies the nodes on its path that a clone shares, and changes the others in place,
//! so that a batch of changes between two clones copies each node once. Every child is kept with its number of entries: how many
//! entries lie in a range takes two descents.
//!
//! There is no type of keys. [`Entry::order`] orders entries, and a search is a *probe*: a function that says how an entry
//! compares with what is sought, as in [`slice::binary_search_by`].
//!
//! Invariants: entries are in order, none equal; [`Child::first`] is the first entry below it, so that no entry that has been
//! replaced stays alive; no node but the root is empty; all leaves have the same depth.

use std::cmp::Ordering;
use std::mem;
use std::sync::Arc;

mod iterate;
#[cfg(test)]
mod tests;

pub use iterate::Iter;

/// Most entries of a leaf, and children of an inner node. Copying a node touches the reference count of each.
const MAX: usize = 32;
/// A node below this joins a neighbour, if both fit into one.
const MIN: usize = MAX / 4;

/// What stands in a tree. Clones are made when nodes are copied, and should cost a reference.
pub trait Entry: Clone {
    /// The place of an entry among the others; equal ones replace each other.
    fn order(&self, other: &Self) -> Ordering;
}

/// An ordered, persistent tree.
#[derive(Clone, Debug)]
pub struct Tree<E> {
    root: Arc<Node<E>>,
    len: usize,
}

#[derive(Debug)]
enum Node<E> {
    Leaf(Vec<E>),
    Inner(Vec<Child<E>>),
}

#[derive(Clone, Debug)]
struct Child<E> {
    first: E,
    len: usize,
    node: Arc<Node<E>>,
}

/// What an insertion did to a node.
struct Inserted<E> {
    replaced: Option<E>,
    /// What did not fit: the node's next neighbour.
    right: Option<Child<E>>,
    first_changed: bool,
}

/// What a removal did to a node.
struct Removed<E> {
    entry: E,
    first_changed: bool,
}

impl<E: Clone> Clone for Node<E> {
    /// With room for what comes next.
    fn clone(&self) -> Self {
        fn roomy<T: Clone>(items: &[T]) -> Vec<T> {
            let mut copy = Vec::with_capacity(MAX);
            copy.extend_from_slice(items);
            copy
        }
        match self {
            Self::Leaf(entries) => Self::Leaf(roomy(entries)),
            Self::Inner(children) => Self::Inner(roomy(children)),
        }
    }
}

impl<E: Entry> Default for Tree<E> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }
}

impl<E: Entry> Tree<E> {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first entry.
    pub fn first(&self) -> Option<&E> {
        match &*self.root {
            Node::Leaf(entries) => entries.first(),
            Node::Inner(children) => children.first().map(|child| &child.first),
        }
    }

    /// The last entry.
    pub fn last(&self) -> Option<&E> {
        self.floor(|_| Ordering::Less)
    }

    /// The entry that compares equal.
    pub fn get(&self, probe: impl Fn(&E) -> Ordering) -> Option<&E> {
        self.floor(&probe).filter(|entry| probe(entry).is_eq())
    }

    /// The last entry that compares less or equal.
    pub fn floor(&self, probe: impl Fn(&E) -> Ordering) -> Option<&E> {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf(entries) => {
                    let after = entries.partition_point(|entry| probe(entry).is_le());
                    return after.checked_sub(1).map(|at| &entries[at]);
                }
                Node::Inner(children) => {
                    let after = children.partition_point(|child| probe(&child.first).is_le());
                    node = &children[after.checked_sub(1)?].node;
                }
            }
        }
    }

    /// How many entries compare less.
    pub fn rank(&self, probe: impl Fn(&E) -> Ordering) -> usize {
        let mut before = 0;
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf(entries) => return before + entries.partition_point(|entry| probe(entry).is_lt()),
                Node::Inner(children) => {
                    let after = children.partition_point(|child| probe(&child.first).is_lt());
                    let Some(at) = after.checked_sub(1) else { return before };
                    before += children[..at].iter().map(|child| child.len).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> Iter<'_, E> {
        self.iter_from(|_| Ordering::Greater)
    }

    /// The entries that compare equal or greater, in order.
    pub fn iter_from(&self, probe: impl Fn(&E) -> Ordering) -> Iter<'_, E> {
        Iter::new(&self.root, probe)
    }

    /// Puts an entry in; what it replaced comes back.
    pub fn insert(&mut self, entry: E) -> Option<E> {
        let Inserted { replaced, right, .. } = insert(&mut self.root, entry);
        self.len += usize::from(replaced.is_none());
        if let Some(right) = right {
            let left = mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new())));
            let mut children = Vec::with_capacity(MAX);
            children.extend(Child::of(left));
            children.push(right);
            self.root = Arc::new(Node::Inner(children));
        }
        replaced
    }

    /// Takes the entry out that compares equal.
    pub fn remove(&mut self, probe: impl Fn(&E) -> Ordering) -> Option<E> {
        // What is not there shall copy nothing.
        self.get(&probe)?;
        let Removed { entry, .. } = remove(&mut self.root, &probe)?;
        self.len -= 1;
        while let Node::Inner(children) = &*self.root
            && let [only] = children.as_slice()
        {
            self.root = only.node.clone();
        }
        Some(entry)
    }
}

impl<E: Entry> Node<E> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.iter().map(|child| child.len).sum(),
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn first(&self) -> Option<&E> {
        match self {
            Self::Leaf(entries) => entries.first(),
            Self::Inner(children) => children.first().map(|child| &child.first),
        }
    }
}

impl<E: Entry> Child<E> {
    /// `None` for an empty node, which has no place in a tree.
    fn of(node: Arc<Node<E>>) -> Option<Self> {
        Some(Self { first: node.first()?.clone(), len: node.len(), node })
    }
}

fn insert<E: Entry>(node: &mut Arc<Node<E>>, entry: E) -> Inserted<E> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => match entries.binary_search_by(|other| other.order(&entry)) {
            Ok(at) => {
                let replaced = Some(mem::replace(&mut entries[at], entry));
                Inserted { replaced, right: None, first_changed: at == 0 }
            }
            Err(at) => {
                let right = put(entries, at, entry).and_then(|right| Child::of(Arc::new(Node::Leaf(right))));
                Inserted { replaced: None, right, first_changed: at == 0 }
            }
        },
        Node::Inner(children) => {
            let after = children.partition_point(|child| child.first.order(&entry).is_le());
            let at = after.saturating_sub(1);
            let child = &mut children[at];
            let Inserted { replaced, right, first_changed } = insert(&mut child.node, entry);
            child.len += usize::from(replaced.is_none());
            if first_changed && let Some(first) = child.node.first() {
                child.first = first.clone();
            }
            let right = right.and_then(|right| {
                children[at].len -= right.len;
                put(children, at + 1, right)
            });
            let right = right.and_then(|right| Child::of(Arc::new(Node::Inner(right))));
            Inserted { replaced, right, first_changed: first_changed && at == 0 }
        }
    }
}

/// Puts an item in its place; what does not fit comes back. Who appends leaves full nodes behind.
fn put<T>(items: &mut Vec<T>, at: usize, item: T) -> Option<Vec<T>> {
    if items.len() < MAX {
        if items.is_empty() {
            items.reserve_exact(MAX);
        }
        items.insert(at, item);
        return None;
    }
    let split = if at == MAX { MAX } else { MAX / 2 };
    let mut right = Vec::with_capacity(MAX);
    right.extend(items.drain(split..));
    if at <= split && at < MAX {
        items.insert(at, item);
    } else {
        right.insert(at - split, item);
    }
    Some(right)
}

fn remove<E: Entry>(node: &mut Arc<Node<E>>, probe: &impl Fn(&E) -> Ordering) -> Option<Removed<E>> {
    match Arc::make_mut(node) {
        Node::Leaf(entries) => {
            let at = entries.binary_search_by(probe).ok()?;
            Some(Removed { entry: entries.remove(at), first_changed: at == 0 })
        }
        Node::Inner(children) => {
            let at = children.partition_point(|child| probe(&child.first).is_le()).checked_sub(1)?;
            let child = &mut children[at];
            let Removed { entry, first_changed } = remove(&mut child.node, probe)?;
            child.len -= 1;
            match child.node.first() {
                None => drop(children.remove(at)),
                Some(first) => {
                    if first_changed {
                        child.first = first.clone();
                    }
                    join(children, at);
                }
            }
            Some(Removed { entry, first_changed: first_changed && at == 0 })
        }
    }
}

/// Joins a small child with a neighbour, if both fit into one.
fn join<E: Entry>(children: &mut Vec<Child<E>>, at: usize) {
    if children[at].node.width() >= MIN {
        return;
    }
    let fits = |left: usize| {
        children.get(left + 1).is_some_and(|right| children[left].node.width() + right.node.width() <= MAX)
    };
    let Some(left) = [Some(at), at.checked_sub(1)].into_iter().flatten().find(|left| fits(*left)) else { return };
    let right = children.remove(left + 1);
    let left = &mut children[left];
    left.len += right.len;
    match (Arc::make_mut(&mut left.node), Arc::unwrap_or_clone(right.node)) {
        (Node::Leaf(into), Node::Leaf(from)) => into.extend(from),
        (Node::Inner(into), Node::Inner(from)) => into.extend(from),
        // Neighbours have the same depth.
        (Node::Leaf(_), Node::Inner(_)) | (Node::Inner(_), Node::Leaf(_)) => unreachable!("leaves of different depth"),
    }
}
