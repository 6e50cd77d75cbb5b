//! Order of the keys of a mapping: go-yaml's natural order.

use std::borrow::Cow;
use std::mem;

/// Sorts members by their keys, with merge sort. If several members have the same key, the last is kept.
///
/// The order is not transitive (`2` < `10` < `1e` < `2`), so the standard library's sort might panic. Go's order of
/// such keys is random.
pub(super) fn sort_keys<T>(members: Vec<(Cow<'_, str>, T)>) -> Vec<(Cow<'_, str>, T)> {
    let mut runs: Vec<_> = members.into_iter().map(|member| vec![member]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(left) = pairs.next() {
            merged.push(match pairs.next() {
                Some(right) => merge(left, right),
                None => left,
            });
        }
        runs = merged;
    }
    runs.pop().unwrap_or_default()
}

fn merge<'j, T>(left: Vec<(Cow<'j, str>, T)>, right: Vec<(Cow<'j, str>, T)>) -> Vec<(Cow<'j, str>, T)> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let mut right = right.into_iter().peekable();
    for mut member in left {
        while let Some(next) = right.next_if(|next| is_less(&next.0, &member.0)) {
            merged.push(next);
        }
        while let Some(next) = right.next_if(|next| next.0 == member.0) {
            mem::drop(mem::replace(&mut member, next));
        }
        merged.push(member);
    }
    merged.extend(right);
    merged
}

/// Returns whether `a` sorts before `b`: letters sort after other characters, and runs of digits compare as numbers.
fn is_less(a: &str, b: &str) -> bool {
    let (mut left, mut right) = (a.chars(), b.chars());
    let mut common = 0;
    loop {
        let rest = (left.as_str(), right.as_str());
        match (left.next(), right.next()) {
            (Some(x), Some(y)) if x == y => common += x.len_utf8(),
            (Some(x), Some(y)) => {
                return match (x.is_alphabetic(), y.is_alphabetic()) {
                    (true, true) => x < y,
                    (false, false) => is_less_number(&a[..common], (rest.0, x), (rest.1, y)),
                    (_, is_letter) => is_letter,
                };
            }
            (left, right) => return left.is_none() && right.is_some(),
        }
    }
}

/// Returns whether the text `common` + `left` sorts before `common` + `right`. `x` and `y`, the first characters of
/// `left` and `right`, must differ and must not be letters.
fn is_less_number(common: &str, (left, x): (&str, char), (right, y): (&str, char)) -> bool {
    // A zero after a nonzero digit in `common` is not a leading zero. Start with 1 then, so that the zero counts.
    let digits = common.chars().rev().take_while(char::is_ascii_digit);
    let start = i64::from((x == '0' || y == '0') && digits.into_iter().any(|digit| digit != '0'));
    let (a, a_length) = number(start, left);
    let (b, b_length) = number(start, right);
    (a, a_length, x) < (b, b_length, y)
}

/// Appends the digits at the start of `text` to the number `start`. Returns the number and the count of these digits.
fn number(start: i64, text: &str) -> (i64, usize) {
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    digits.fold((start, 0), |(number, length), digit| {
        (number.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')), length + 1)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(keys: &[&str]) -> Vec<String> {
        let members = keys.iter().map(|&key| (key.into(), ())).collect();
        sort_keys(members).into_iter().map(|(key, ())| key.into_owned()).collect()
    }

    #[test]
    fn keys_are_in_natural_order() {
        let keys = ["a10", "a2", "a", "B", "1", "-", "a.b", "a/b", "ab", "a02", "a1", "10", "9", "_", "é", ""];
        let expected = ["", "-", "_", "1", "9", "10", "B", "a", "a.b", "a/b", "a1", "a2", "a02", "a10", "ab", "é"];
        assert_eq!(sorted(&keys), expected);
    }

    #[test]
    fn last_member_of_a_key_remains() {
        let members = vec![("b".into(), 1), ("a".into(), 2), ("b".into(), 3), ("b".into(), 4)];
        assert_eq!(sort_keys(members), [("a".into(), 2), ("b".into(), 4)]);
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(1024))]

        #[test]
        fn sorted_keys_are_a_permutation(keys in prop::collection::btree_set("[0-9a-c.]{0,22}", 0..12)) {
            let members = keys.iter().map(|key| (key.as_str().into(), ())).collect();
            let mut sorted: Vec<_> = sort_keys(members).into_iter().map(|(key, ())| key.into_owned()).collect();
            sorted.sort();
            prop_assert_eq!(sorted, keys.into_iter().collect::<Vec<_>>());
        }
    }
}
