use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    key: u16,
    value: u32,
}

impl Entry for Pair {
    fn order(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

fn at(key: u16) -> impl Fn(&Pair) -> Ordering {
    move |entry| entry.key.cmp(&key)
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u32),
    Append(u32),
    Remove(u16),
    RemoveFirst,
    Keep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..2000u16;
    proptest::collection::vec(
        prop_oneof![
            8 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            4 => any::<u32>().prop_map(Step::Append),
            8 => key.prop_map(Step::Remove),
            3 => Just(Step::RemoveFirst),
            1 => Just(Step::Keep),
        ],
        0..3000,
    )
}

fn check_invariants(tree: &Tree<Pair>) {
    fn visit(node: &Node<Pair>, root: bool) -> (usize, usize) {
        match node {
            Node::Leaf(entries) => {
                assert!(entries.len() <= LEAF_MAX && (root || !entries.is_empty()));
                (entries.len(), 1)
            }
            Node::Inner(inner) => {
                let Inner { first, children } = &**inner;
                assert!(children.len() <= INNER_MAX && children.len() > usize::from(root));
                assert_eq!(Some(first), children[0].node.first());
                let seen: Vec<_> = children.iter().map(|child| visit(&child.node, false)).collect();
                for (child, (len, depth)) in children.iter().zip(&seen) {
                    assert_eq!((child.len, *depth), (*len, seen[0].1));
                }
                (seen.iter().map(|(len, _)| len).sum(), seen[0].1 + 1)
            }
        }
    }
    assert_eq!(visit(&tree.root, true).0, tree.len());
}

fn check_equal(tree: &Tree<Pair>, model: &BTreeMap<u16, u32>) {
    check_invariants(tree);
    let all: Vec<_> = tree.iter().map(|pair| (pair.key, pair.value)).collect();
    assert_eq!(all, model.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>());
    assert_eq!(tree.first().map(|pair| pair.key), model.keys().next().copied());
    assert_eq!((tree.len(), tree.is_empty()), (model.len(), model.is_empty()));
}

proptest! {
    #[test]
    fn a_tree_does_what_a_map_does_and_clones_stay_as_they_were(steps in steps()) {
        let (mut tree, mut model, mut kept) = (Tree::default(), BTreeMap::new(), Vec::new());
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    let replaced = tree.insert(Pair { key, value }).map(|pair| pair.value);
                    prop_assert_eq!(replaced, model.insert(key, value));
                }
                Step::Append(value) => {
                    let key = model.keys().next_back().map_or(0, |last| last + 1);
                    tree.insert(Pair { key, value });
                    model.insert(key, value);
                }
                Step::Remove(key) => {
                    prop_assert_eq!(tree.remove(at(key)).map(|pair| pair.value), model.remove(&key));
                }
                Step::RemoveFirst => {
                    if let Some(first) = tree.first().copied() {
                        prop_assert_eq!(tree.remove(at(first.key)), Some(first));
                        model.pop_first();
                    }
                }
                Step::Keep => kept.push((tree.clone(), model.clone())),
            }
        }
        check_equal(&tree, &model);
        for (tree, model) in kept {
            check_equal(&tree, &model);
        }
    }

    #[test]
    fn searches_find_what_a_map_finds(keys in proptest::collection::btree_set(0..3000u16, 0..1500), probes in proptest::collection::vec(0..3000u16, 50)) {
        let mut tree = Tree::default();
        for key in &keys {
            tree.insert(Pair { key: *key, value: 0 });
        }
        for probe in probes {
            prop_assert_eq!(tree.get(at(probe)).map(|pair| pair.key), keys.get(&probe).copied());
            prop_assert_eq!(tree.floor(at(probe)).map(|pair| pair.key), keys.range(..=probe).next_back().copied());
            prop_assert_eq!(tree.rank(at(probe)), keys.range(..probe).count());
            let from: Vec<_> = tree.iter_from(at(probe)).map(|pair| pair.key).collect();
            prop_assert_eq!(from, keys.range(probe..).copied().collect::<Vec<_>>());
        }
    }
}

#[test]
fn appending_leaves_full_leaves() {
    let mut tree = Tree::default();
    for key in 0..10_000 {
        tree.insert(Pair { key, value: 0 });
    }
    let Node::Inner(inner) = &tree.root else { panic!("{tree:?}") };
    let children = &inner.children;
    let full = LEAF_MAX * INNER_MAX * INNER_MAX;
    let lens: Vec<_> = children.iter().map(|child| child.len).collect();
    assert_eq!(lens, [full, full, 10_000 - 2 * full]);
}

#[test]
fn removing_what_is_not_there_copies_nothing() {
    let mut tree = Tree::default();
    for key in 0..1000 {
        tree.insert(Pair { key: key * 2, value: 0 });
    }
    let before = tree.clone();
    assert_eq!(tree.remove(at(501)), None);
    let (Node::Inner(now), Node::Inner(before)) = (&tree.root, &before.root) else { panic!("{tree:?}") };
    assert!(Arc::ptr_eq(now, before));
}
